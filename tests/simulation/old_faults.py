"""`make simulate-faults`: restore each old fault of the daemon in a copy of the tree, and count the seeds until the simulation finds it.

    python -m tests.simulation.old_faults [NAME...] [--seeds 2000] [--jobs 2]

NAME: of a patch in tests/faults/patches, such as a2; without, those of the review's first part (A1 to A15). Prints a line for each fault:
the first failing seed, and what was wrong. Exits 1 if one is not found within its seeds: 200 for the faults that lose data by themselves,
or --seeds for the others.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.faults.restored import Fault, apply, copy_tree, faults

SOON = {"a1", "a2", "a3", "a5", "a10", "a12"}
SOON_SEEDS = 200


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--jobs", type=int, default=2)
    arguments = parser.parse_args()
    known = {fault.name: fault for fault in faults()}
    chosen = [known[name] for name in arguments.names] or [fault for name, fault in known.items() if re.fullmatch(r"a([1-9]|1[0-5])", name)]
    missed = 0
    for fault in chosen:
        seeds = min(arguments.seeds, SOON_SEEDS) if fault.name in SOON else arguments.seeds
        begun = time.monotonic()
        found = first_failure(fault, seeds, arguments.jobs)
        missed += not found
        print(f"{fault.name.upper()} {found or f'NOT FOUND within {seeds} seeds'} ({time.monotonic() - begun:.0f} s)", flush=True)
    return int(bool(missed))


def first_failure(fault: Fault, seeds: int, jobs: int) -> str:
    """Return what the simulation prints of the first seed that fails with a fault restored, empty if none does."""
    with tempfile.TemporaryDirectory(prefix="tokiod-faults-") as name:
        tree = copy_tree(Path(name) / fault.name)
        apply(fault, tree)
        command = [sys.executable, "-m", "tests.simulation", "--seeds", str(seeds), "--jobs", str(jobs), "--until-failure"]
        environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONHASHSEED": "0"}
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    failed = re.findall(r"^seed (\d+ FAILED: .*(?:\n(?!seed|injected).*)*)", done.stdout, re.MULTILINE)
    if not failed and done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    return " ".join(failed[0].split())[-300:] if failed else ""


if __name__ == "__main__":
    sys.exit(main())
