"""`make fidelity`: random inputs of all five kinds through tokiod and through pytokio 0.13.0, every cell compared.

    python -m tests.fidelity --pytokio PYTHON [--cases N] [--kind KIND] [--seed X]

Spans off the grid, steps that the source does not have, zeros, gaps, falls, implausible values, documents, points and rows of every odd
form, midnights. Each cell that differs is explained by a row of docs/fidelity.md, or it is an error. cases: of LMT; of each other kind a
quarter as many. PYTHON: of an environment with pytokio. Prints a line for each kind and one for all, with the numbers of equal cells and of
differences by reason; exits 1 if one is unexplained, or pytokio's or tokiod's file is not what its rule says.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import lmt_database

from tests.fidelity import collectd_cases, esnet_cases, lmt_cases, lustre_cases, mmperfmon_cases
from tokiod.window import iso

if TYPE_CHECKING:
    from collections.abc import Sequence

KINDS = {module.KIND: module.Case for module in (lmt_cases, collectd_cases, esnet_cases, mmperfmon_cases, lustre_cases)}
OTHERS = 4
"""Cases of LMT for one of each other kind: counters have the most rules."""
SHOWN = 20
"""Errors of a kind that are printed."""


class Case(Protocol):
    """Random inputs of a kind, and a span of them from `start` on, in rows of `step` seconds."""

    number: int
    start: int
    step: int

    def write(self, directory: Path) -> None:
        """Write the inputs."""
        ...

    def theirs(self, directory: Path) -> list[tuple[str, list[str]]]:
        """Return the commands that make pytokio's files: a kind, and the arguments of its program."""
        ...

    def compare(self, directory: Path) -> tuple[Counter[str], list[str]]:
        """Make tokiod's file and compare; return how many cells are equal, and different by reason; and what is not explained."""
        ...


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pytokio", required=True)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--kind", choices=list(KINDS), default=None, help="this one only, all by default")
    parser.add_argument("--seed", type=int, default=None)
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(10**6)
    begun, total, numbers, wrong = time.monotonic(), Counter[str](), 0, 0
    for kind in [arguments.kind] if arguments.kind else KINDS:
        number = arguments.cases if kind == "lmt" else max(1, arguments.cases // OTHERS)
        counts, errors = compared(kind, number, f"{kind} {seed}", arguments.pytokio)
        for error in errors[:SHOWN]:
            print(error, file=sys.stderr)
        print(f"{kind} cases {number} {sentence(counts, len(errors))}", flush=True)
        total, numbers, wrong = total + counts, numbers + number, wrong + len(errors)
    equal, explained = total.pop("equal", 0), total.total()
    seconds = time.monotonic() - begun
    print(f"fidelity cases {numbers} equal {equal} explained {explained} unexplained {wrong} seconds {seconds:.0f} seed {seed}")
    return int(bool(wrong))


def sentence(counts: Counter[str], unexplained: int) -> str:
    """Return the numbers of a kind."""
    others = Counter({reason: count for reason, count in counts.items() if reason != "equal"})
    reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(others.items()))
    return f"equal {counts['equal']} explained {others.total()} ({reasons}) unexplained {unexplained}"


def compared(kind: str, number: int, seed: str, python: str) -> tuple[Counter[str], list[str]]:
    """Compare so many cases of a kind."""
    rng, counts, errors = random.Random(seed), Counter[str](), []
    with tempfile.TemporaryDirectory(prefix="fidelity-") as name:
        directory = Path(name)
        cases: Sequence[Case] = [KINDS[kind].made(rng, place) for place in range(number)]
        for case in cases:
            case.write(directory)
        run_pytokio([command for case in cases for command in case.theirs(directory)], python)
        for case in cases:
            found, wrong = case.compare(directory)
            counts += found
            errors += [f"{kind} case {case.number} from {iso(case.start)}, step {case.step}: {error}" for error in wrong]
    return counts, errors


def run_pytokio(commands: list[tuple[str, list[str]]], python: str) -> None:
    """Run commands of pytokio, in one process."""
    program = str(Path(__file__).with_name("pytokio_archive.py"))
    environment = {**os.environ, "TZ": lmt_database.ZONE, "PYTHONPATH": ""}
    lines = "\n".join(json.dumps(command) for command in commands)
    subprocess.run([python, program], input=lines, text=True, check=True, env=environment)


if __name__ == "__main__":
    sys.exit(main())
