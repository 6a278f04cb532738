"""A short run of `make fuzz`, and that it finds what it looks for."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.system

PLANTED = """
import sys, time
from pathlib import Path
from tests.fuzz import __main__ as fuzz
from tests.fuzz.kinds import Outcome, kinds

honest, fault = fuzz.read, sys.argv.pop()

def read(kind, data, place):
    outcome = honest(kind, data, place)
    if data in kind.seeds:
        return outcome
    if fault == "crashes":
        raise ZeroDivisionError
    if fault == "hangs":
        time.sleep(60)
    return Outcome(outcome.cells | {("datatargets/readrates", "bb1:nvme0n1", 0, 1.0)})

# Only where something hangs: an alarm in the middle of an import, on a machine that is busy, breaks what is imported.
fuzz.INPUT_SECONDS = 1 if fault == "hangs" else fuzz.INPUT_SECONDS
fuzz.read, fuzz.CHUNK_INPUTS, fuzz.FAILED_INPUTS = read, 4, Path(sys.argv.pop())
sys.exit(fuzz.main())
"""


def fuzz(*arguments, code=None):
    command = [sys.executable, *(["-c", code] if code else ["-m", "tests.fuzz"]), *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=800)


def test_no_damaged_file_makes_a_crash_a_hang_or_a_cell_that_was_never_there():
    done = fuzz("--inputs", 5_000)
    print(done.stdout)
    assert (done.returncode, " crashes 0 hangs 0 invented 0 " in done.stdout) == (0, True), done.stdout + done.stderr[-3000:]


@pytest.mark.parametrize("fault", ["crashes", "hangs", "invented"])
def test_a_fault_that_is_planted_is_found_counted_and_kept(fault, tmp_path):
    done = fuzz("--inputs", 12, "--seed", 4, "--only", "collectd_es", tmp_path / "kept", fault, code=PLANTED)
    assert done.returncode == 1, done.stderr
    assert f" {fault} 0 " not in done.stdout
    assert f" {fault} " in done.stdout
    assert list((tmp_path / "kept").iterdir())
