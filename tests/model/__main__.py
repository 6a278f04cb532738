"""`make model`: many sequences of the model test, new ones at each run; prints one line, and what failed before it.

sequences 2000 large 20 failed 0 seconds 312
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from pathlib import Path

WORKERS = 2
"""The tests of the four zones, and that of large archives, take about as long as each other."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sequences", type=int, default=2000)
    sequences, begun = parser.parse_args().sequences, time.monotonic()
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(WORKERS), "--hypothesis-profile=explore", str(Path(__file__).parent)]
    done = subprocess.run(command, env={**os.environ, "MODEL_SEQUENCES": str(sequences)}, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stdout, done.stderr, file=sys.stderr)  # the steps of what failed, and how to play them again
    failed = sum(map(int, re.findall(r"(\d+) (?:failed|error)", done.stdout.rpartition("\n=")[2] or done.stdout)))
    print(f"sequences {sequences} large {max(sequences // 100, 1)} failed {failed} seconds {time.monotonic() - begun:.0f}")
    return int(bool(done.returncode))


if __name__ == "__main__":
    sys.exit(main())
