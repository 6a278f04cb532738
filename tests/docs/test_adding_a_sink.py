"""docs/adding-a-sink.md: its module is a kind of sink, as a distribution that Python finds."""

import os
import re
import subprocess
import sys
from pathlib import Path

OUTSIDE = Path(__file__).parent / "outside_sink"


def test_the_kind_passes_the_contract_suite():
    environment = os.environ | {"PYTHONPATH": str(OUTSIDE)}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(OUTSIDE), "test_json_lines.py"]
    done = subprocess.run(command, cwd=OUTSIDE, env=environment, check=False, capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stdout
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 12
    assert "skipped" not in done.stdout
