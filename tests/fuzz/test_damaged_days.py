"""The short form of `make fuzz`'s damaged days."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_reading_a_damaged_file_has_cells_or_an_error_with_a_sentence():
    command = [sys.executable, "-m", "tests.fuzz.damaged_days", "--inputs", "60", "--seed", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert " crashes 0 " in done.stdout
