"""Commands end at once, and lose nothing by it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

BEGIN = "import sys, threading, time\nfrom tokiod.cli.common.fast_exit import at_once\n"


def ended(code: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-c", BEGIN + code], capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize(("end", "code"), [("None", 0), ("0", 0), ("1", 1), ("2", 2), ("'a sentence'", 1)])
def test_exit_code_and_output_are_those_of_the_command(end: str, code: int) -> None:
    told = ended(f"def command():\n  print('x' * 1_000_000)\n  print('e', file=sys.stderr)\n  sys.exit({end})\nat_once(command)")
    assert (told.returncode, len(told.stdout)) == (code, 1_000_001)
    assert told.stderr == ("e\na sentence\n" if "sentence" in end else "e\n")


def test_interpreter_is_not_taken_apart() -> None:
    code = "class Last:\n  def __del__(self): print('taken apart')\nlast = Last()\n"
    assert ended(f"{code}sys.exit(0)").stdout == "taken apart\n"
    assert not ended(f"{code}at_once(lambda: sys.exit(0))").stdout


def test_thread_that_still_runs_is_waited_for() -> None:
    code = "def late():\n  time.sleep(0.3)\n  print('late')\ndef command():\n  threading.Thread(target=late).start()\n  sys.exit(3)\n"
    told = ended(f"{code}at_once(command)")
    assert (told.returncode, told.stdout) == (3, "late\n")


def test_what_is_no_exit_stays_a_traceback() -> None:
    told = ended("at_once(lambda: 1 / 0)")
    assert told.returncode == 1
    assert "ZeroDivisionError" in told.stderr


def test_output_that_cannot_be_written_is_said() -> None:
    with Path("/dev/full").open("w") as full:
        told = subprocess.run(
            [sys.executable, "-c", f"{BEGIN}at_once(lambda: (print('x'), sys.exit(0)))"],
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=300,
            check=False,
        )
    assert told.returncode != 0


def test_process_without_stdout_ends_with_its_code() -> None:
    told = subprocess.run(
        ["sh", "-c", f'{sys.executable} -c "{BEGIN}at_once(lambda: sys.exit(2))" >&-'], stderr=subprocess.PIPE, timeout=300, check=False
    )
    assert (told.returncode, told.stderr) == (2, b"")


BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
TALK = """
from tokiod.cli.common.base import PlainGroup
group = PlainGroup()
@group.command()
def talk():
    for _ in range({times}):
        print("x" * 999)
    sys.exit({code})
{run}
"""


@pytest.mark.parametrize("times", [1, 1000], ids=["at its end", "in the middle"])
def test_a_reader_that_has_gone_ends_a_command_without_a_word(times: int) -> None:
    code = TALK.format(times=times, code=3, run="at_once(lambda: group(['talk']))")
    with subprocess.Popen([sys.executable, "-c", BEGIN + code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=BUFFERED) as talking:
        talking.stdout.close()
        assert talking.stderr.read() == b""
        # Head has what it wanted: who was cut off in the middle has not failed.
        assert talking.wait(300) == (3 if times == 1 else 0)
