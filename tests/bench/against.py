"""`make bench-against COMMIT=7988c9c`: the benchmarks of this tree and of an older commit, in turns in one run.

    python -m tests.bench.against COMMIT [--rounds 3] [--only PART]... [--figures FILE]

Each version runs the benchmarks that it has, in its own tree, with this environment's packages. A row is compared if both have it, by its
ratio to the floor that was measured in turns with it, the median of all rounds: a disk's syncs differ more from minute to minute than two
versions do. A row without a floor is compared by its best figure, because other work on the machine only ever makes a figure worse. Exits
1 where a row is more than 5 % slower.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.bench.__main__ import PARTS

LIMIT = 1.05
ROOT = Path(__file__).parents[2]

Figures = dict[str, list[tuple[float, float | None]]]
"""What each row measured in each round: its figure, and its ratio to the floor, if it has one."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=sorted(PARTS), action="append")
    parser.add_argument(
        "--figures", type=Path, help="write every figure to this file after each part, so that a run that is ended keeps them"
    )
    arguments = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory(prefix="tokiod-against-") as directory:
        old = Path(directory) / "old"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(old), arguments.commit], cwd=ROOT, check=True)
        try:
            before, after, units = defaultdict(list), defaultdict(list), {}
            older = parts_of(old)
            if missing := set(arguments.only or ()) - older:
                raise SystemExit(f"{arguments.commit} has no benchmark of {', '.join(sorted(missing))}")
            for number in range(arguments.rounds):
                for part in arguments.only or [part for part in PARTS if part in older]:
                    turns = [(old, before), (ROOT, after)]
                    for tree, figures in turns if number % 2 == 0 else reversed(turns):
                        begun, what = time.monotonic(), f"round {number + 1}: {part} of {'now' if tree == ROOT else arguments.commit}"
                        with console.status(what):
                            units |= measure(tree, part, figures, Path(directory))
                        if arguments.figures is not None:
                            arguments.figures.write_text(json.dumps({"before": before, "after": after, "units": units}))
                        print(f"{what}, {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(old)], cwd=ROOT, check=True)
    slower = report(console, before, after, units)
    return int(slower > 0)


def parts_of(tree: Path) -> set[str]:
    """Return the parts of a tree's benchmarks."""
    command = [sys.executable, "-c", "from tests.bench.__main__ import PARTS; print(*PARTS)"]
    return set(subprocess.run(command, cwd=tree, capture_output=True, text=True, check=True).stdout.split())


def measure(tree: Path, part: str, figures: Figures, directory: Path) -> dict[str, str]:
    """Run a part of a tree's benchmarks; add its rows to the figures and return their units."""
    command = [sys.executable, "-m", "tests.bench", "--only", part]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False, env=None)
    if done.returncode != 0:
        raise SystemExit(f"{tree}: {' '.join(command[1:])}: {done.stderr.strip() or done.stdout.strip()}")
    (tree / "bench.json").replace(directory / "bench.json")
    rows = [row for row in json.loads((directory / "bench.json").read_text()) if row["ours"] is not None]
    for row in rows:
        figures[row["what"]].append((row["ours"], row["ratio"]))
    return {row["what"]: row["unit"] for row in rows}


def report(console: Console, before: Figures, after: Figures, units: dict[str, str]) -> int:
    """Print the table and a closing line; return how many rows are slower."""
    table = Table("what", "unit", "before", "now", "ratio", "", box=None)
    slower = 0
    for what in [what for what in after if what in before]:
        is_rate = units[what].endswith("/s")
        one, other = (statistics.median(figure for figure, _ in found[what]) for found in (before, after))
        times = [[ratio for _, ratio in found[what] if ratio is not None] for found in (before, after)]
        if all(times):
            ratio = statistics.median(times[1]) / statistics.median(times[0])
        else:
            figures = [best(found[what], is_rate=is_rate) for found in (before, after)]
            over, under = figures if is_rate else reversed(figures)
            # What is zero, such as memory that does not grow, has no ratio.
            ratio = over / under if under else float("nan")
        slower += ratio > LIMIT
        table.add_row(what, units[what], f"{one:.4g}", f"{other:.4g}", f"{ratio:.2f}", "SLOWER" if ratio > LIMIT else "")
    console.print(table)
    alone = sorted(before.keys() ^ after.keys())
    if alone:
        console.print(f"in one version only: {'; '.join(alone)}")
    console.print(f"{len(table.rows)} rows, {slower} more than 5 % slower", highlight=False)
    return slower


def best(found: list[tuple[float, float | None]], *, is_rate: bool) -> float:
    """Return the best figure of a row."""
    return (max if is_rate else min)(figure for figure, _ in found)


if __name__ == "__main__":
    sys.exit(main())
