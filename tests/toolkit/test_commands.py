"""Real commands: scripts of the test's own."""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from tokiod.errors import Fatal, Transient
from tokiod.polling.retry import classify
from tokiod.toolkit.commands import Commands, CommandTimeout, Stuck


@pytest.fixture
def script(tmp_path):
    def write(text, name="command"):
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)
        return str(path)

    return write


def run(argv, commands=None, *, seconds=20.0, key="one", **options):
    async def scenario():
        return await (commands or Commands()).run(argv, key=key, seconds=seconds, **options)

    return asyncio.run(scenario())


def descriptors():
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - a count


def gone(pid):
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            return True
        if state == "Z":
            return True
        time.sleep(0.02)
    return False


def test_a_command_that_ends_is_its_code_its_stdout_and_the_end_of_its_stderr(script):
    output = run([script('printf "%s|" "$@"; echo first >&2; echo "  last " >&2; echo >&2; exit 3'), "a b", "$HOME", "*"])
    assert (output.code, output.stdout, output.complaint) == (3, b"a b|$HOME|*|", "last")


def test_a_command_that_a_signal_ended_has_its_number_below_zero(script):
    assert run([script("kill -9 $$")]).code == -9


def test_the_environment_is_fixed_and_contains_nothing_of_the_daemon(script, monkeypatch):
    monkeypatch.setenv("SECRET_PASSWORD", "x")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("TZ", "America/Los_Angeles")
    told = dict(line.split("=", 1) for line in run([script("env")], environment={"COLUMNS": "5000"}).stdout.decode().splitlines())
    assert {name: told.get(name) for name in ("LC_ALL", "TZ", "COLUMNS", "PATH")} == {
        "LC_ALL": "C",
        "TZ": "UTC",
        "COLUMNS": "5000",
        "PATH": os.environ["PATH"],
    }
    assert "SECRET_PASSWORD" not in told


def test_stdin_is_empty(script):
    assert run([script("cat; echo end")]).stdout == b"end\n"


@pytest.mark.parametrize("size", [0, 1, 100_000, 5_000_000])
def test_everything_that_is_printed_is_there(size):
    assert run([sys.executable, "-c", f"import sys; sys.stdout.write('x' * {size})"]).stdout == b"x" * size


def test_only_the_end_of_a_long_stderr_is_kept():
    output = run([sys.executable, "-c", "import sys; [print(n, file=sys.stderr) for n in range(100000)]"])
    assert (len(output.stderr), output.complaint) == (4096, "99999")


def test_a_command_that_prints_too_much_is_refused_and_takes_no_more_memory_than_that():
    code = "import sys\ntry:\n  while True: sys.stdout.buffer.write(b'x' * 65536)\nexcept OSError: sys.exit(1)"
    with pytest.raises(Fatal, match="printed more than 1 MiB: reduce its output"):
        run([sys.executable, "-c", code], Commands(max_output=1 << 20))


def test_a_command_that_takes_too_long_is_ended_with_its_children_and_its_last_message_reported(script, tmp_path):
    hangs = script(f"echo 'waiting for snx11035' >&2; sleep 600 & echo $! > {tmp_path}/child; echo $$ > {tmp_path}/self; wait")
    with pytest.raises(CommandTimeout, match=r"has not ended within 0\.3 s; its last message: waiting for snx11035") as error:
        run([hangs], seconds=0.3)
    assert classify(error.value) == "timeout"
    assert gone((tmp_path / "child").read_text().strip())
    assert gone((tmp_path / "self").read_text().strip())


def test_one_that_ignores_sigterm_is_killed(script, tmp_path):
    with pytest.raises(CommandTimeout):
        run([script(f"trap '' TERM; echo $$ > {tmp_path}/self; while :; do sleep 0.1; done")], seconds=0.2)
    assert gone((tmp_path / "self").read_text().strip())


def test_a_grandchild_that_keeps_stdout_open_is_not_waited_for_and_ended(script, tmp_path):
    begun = time.monotonic()
    output = run([script(f"sleep 600 & echo $! > {tmp_path}/child; echo done")])
    assert (output.stdout, time.monotonic() - begun < 5) == (b"done\n", True)
    assert gone((tmp_path / "child").read_text().strip())


@pytest.mark.parametrize("moment", [0.0, 0.01, 0.05, 0.3])
def test_cancelled_at_any_moment_it_leaves_no_process_and_no_descriptor(script, tmp_path, moment):
    hangs = script(f"echo $$ >> {tmp_path}/pids; sleep 600")

    async def scenario():
        commands = Commands()
        await commands.run([script("exit 0", "quick")], key="one", seconds=5)
        before = descriptors()
        for _ in range(5):
            task = asyncio.ensure_future(commands.run([hangs], key="one", seconds=100))
            await asyncio.sleep(moment)
            task.cancel()
            await asyncio.wait({task})
        async with asyncio.timeout(5):
            while descriptors() > before:
                await asyncio.sleep(0.01)
        return (await commands.run([script("echo yes", "again")], key="one", seconds=5)).stdout

    assert asyncio.run(scenario()) == b"yes\n"
    pids = (tmp_path / "pids").read_text().split() if (tmp_path / "pids").exists() else []
    assert all(map(gone, pids))


def test_closed_when_all_that_was_cancelled_has_ended(script, tmp_path):
    async def scenario():
        commands = Commands()
        task = asyncio.ensure_future(commands.run([script(f"trap '' TERM; echo $$ > {tmp_path}/self; sleep 600")], key="one", seconds=100))
        while not (tmp_path / "self").exists() or not (tmp_path / "self").read_text():
            await asyncio.sleep(0.01)
        for _ in range(2):
            task.cancel()
            await asyncio.wait({task}, timeout=0.1)
        await commands.close()
        return task.cancelled()

    assert asyncio.run(scenario())
    assert gone((tmp_path / "self").read_text().strip())


def test_one_command_of_a_key_runs_at_a_time_and_others_in_parallel(script):
    async def scenario():
        commands = Commands()
        first = asyncio.ensure_future(commands.run([script("sleep 0.5; echo first")], key="/scratch1", seconds=5))
        await asyncio.sleep(0.1)
        with pytest.raises(Transient, match="for /scratch1 is still running: it is not started a second time"):
            await commands.run([script("echo second", "second")], key="/scratch1", seconds=5)
        other = await commands.run([script("echo other", "other")], key="/scratch2", seconds=5)
        return [(await first).stdout, other.stdout, first.done()]

    assert asyncio.run(scenario()) == [b"first\n", b"other\n", True]


def test_one_that_can_not_be_killed_is_counted_and_nothing_is_piled_upon_it(script, tmp_path, monkeypatch):
    """A process in the kernel's uninterruptible sleep, played by a killer whose signals don't arrive."""
    monkeypatch.setattr("tokiod.toolkit.commands.GRACE_SECONDS", 0.1)
    hangs = script(f"echo $$ > {tmp_path}/self; exec sleep 600")

    async def scenario():
        commands = Commands(kill=lambda _group, _signal: None)
        with pytest.raises(CommandTimeout):
            await commands.run([hangs], key="/scratch", seconds=0.3)
        stuck, pid = commands.stuck, int((tmp_path / "self").read_text())
        for _ in range(3):
            with pytest.raises(Stuck, match=rf"\(process {pid}\) can't be ended: it is not started a second time until it ends"):
                await commands.run([hangs], key="/scratch", seconds=0.3)
        os.kill(pid, signal.SIGKILL)
        async with asyncio.timeout(5):
            while commands.stuck:
                await asyncio.sleep(0.01)
        return stuck, (await commands.run([script("echo back", "back")], key="/scratch", seconds=5)).stdout

    assert asyncio.run(scenario()) == (1, b"back\n")


@pytest.mark.parametrize(("make", "sentence"), [(False, "No such file or directory"), (True, "Permission denied")])
def test_a_program_that_can_not_be_run_is_fatal_with_the_way_out(tmp_path, make, sentence):
    path = tmp_path / "lfs"
    if make:
        path.write_text("#!/bin/sh\n")
    with pytest.raises(Fatal, match=f"lfs can't be run: {sentence}; give its whole path, and permit tokiod's user to run it"):
        run([str(path)])


def test_a_program_that_could_not_be_run_can_be_once_it_is_there(tmp_path, script):
    commands = Commands()

    async def scenario():
        with pytest.raises(Fatal):
            await commands.run([str(tmp_path / "later")], key="one", seconds=5)
        return (await commands.run([script("echo here", "later")], key="one", seconds=5)).stdout

    assert asyncio.run(scenario()) == b"here\n"


def test_hundreds_of_runs_leak_nothing(script):
    quick = script("echo x")

    async def scenario():
        commands = Commands()
        await commands.run([quick], key="0", seconds=5)
        before = descriptors()
        for n in range(60):
            await asyncio.gather(*(commands.run([quick], key=str(k), seconds=20) for k in range(5)))
            assert descriptors() <= before + 2, n
        return commands.stuck

    assert asyncio.run(scenario()) == 0
