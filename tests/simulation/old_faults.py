"""`make simulate-faults`: restore each old fault of the daemon in a copy of the tree, and count the seeds until the simulation finds it.

    python -m tests.simulation.old_faults [NAME...] [--seeds 200] [--jobs 2] [--recorded]

NAME: of a fault in tests/faults/edits.py, such as J2; all without. Prints a line for each: the first seed that fails, and what was wrong.
Exits 1 if one is not found within --seeds. --recorded: plays the seed that old_faults.txt has for a fault first, as CI does: a
change of the simulation may change which one finds it.
A fault is found only by a seed that is right without it.
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

from tests.faults.edits import FAULTS, Fault
from tests.faults.restored import ROOT, copy_tree

RECORDED = Path(__file__).with_suffix(".txt")
"""The first seed that finds each fault: name and seed, then what was wrong."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--recorded", action="store_true")
    arguments = parser.parse_args()
    known = {fault.name: fault for fault in FAULTS}
    chosen = [known[name.lower()] for name in arguments.names] or FAULTS
    missed, first = 0, recorded() if arguments.recorded else {}
    for fault in chosen:
        seeds = range(arguments.seeds)
        begun, found = time.monotonic(), ""
        if fault.name in first:
            found = first_failure(fault, range(first[fault.name], first[fault.name] + 1), 1)
        found = found or first_failure(fault, seeds, arguments.jobs)
        missed += not found
        print(f"{fault.name.upper()} {found or f'NOT FOUND within {len(seeds)} seeds'} ({time.monotonic() - begun:.0f} s)", flush=True)
    print(f"{len(chosen)} old faults restored, {len(chosen) - missed} found by the simulation")
    return int(bool(missed))


def recorded() -> dict[str, int]:
    """Return the seed that finds each fault, by name."""
    rows = [line.split() for line in RECORDED.read_text().splitlines() if line and not line.startswith("#")]
    return {words[0]: int(words[1]) for words in rows}


def first_failure(fault: Fault, seeds: range, jobs: int) -> str:
    """Return what the simulation prints of the first seed that fails with a fault restored, empty if none does.

    Raises RuntimeError if that seed fails without the fault too, or the simulation itself ends with an error.
    """
    with tempfile.TemporaryDirectory(prefix="tokiod-faults-") as name:
        tree = copy_tree(Path(name) / fault.name)
        fault.apply(tree)
        command = [sys.executable, "-m", "tests.simulation", "--begin", str(seeds[0]), "--seeds", str(len(seeds))]
        command += ["--jobs", str(jobs), "--until-failure"]
        environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONHASHSEED": "0"}
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    failed = re.findall(r"^seed ((\d+) FAILED: .*(?:\n(?!seed|injected).*)*)", done.stdout, re.MULTILINE)
    if not failed and done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    if not failed:
        return ""
    text, seed = failed[0]
    alone = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--begin", seed, "--seeds", "1"], cwd=ROOT, check=False, capture_output=True
    )
    if alone.returncode:
        raise RuntimeError(f"seed {seed} fails without {fault.name} too")
    # Of an exception that ends the simulation, the last line says what it is.
    begin, *rest = text.splitlines()
    return " ".join([begin, *rest[-1:]])[:300]


if __name__ == "__main__":
    sys.exit(main())
