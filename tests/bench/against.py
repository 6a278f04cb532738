"""`make bench-against COMMIT=7988c9c`: the benchmarks of this tree and of an older commit, in turns in one run.

    python -m tests.bench.against COMMIT [--rounds 3] [--again 4] [--only PART]... [--figures FILE]

Each version runs the benchmarks that it has, in its own tree, with this environment's packages and the programs that it names; rows are
measured in turns, seconds apart.
A row is compared if both have it, by its ratio to the floor that was measured in turns with it, the median of all rounds: a disk's syncs
differ more from minute to minute than two versions do. A row without a floor is compared by its best figure, because other work on the
machine only ever makes a figure worse; so is a row of memory, whose floor is another figure of the same version. Parts with a row that is
more than 5 % slower are measured in up to `--again` more rounds: on a shared machine the same version differs by 20 % from one minute to
the next. Exits 1 where a row is slower after those.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
import tomllib
import venv
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from rich.table import Table

from tests.bench.__main__ import PARTS
from tests.bench.measure import wide_console

if TYPE_CHECKING:
    from rich.console import Console

LIMIT = 1.05
ROOT = Path(__file__).parents[2]

Figures = dict[str, list[tuple[float, float | None]]]
"""What each row measured in each round: its figure, and its ratio to the floor, if it has one."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--again", type=int, default=4, help="more rounds of the parts with a row that is slower")
    parser.add_argument("--only", choices=sorted(PARTS), action="append")
    parser.add_argument(
        "--figures", type=Path, help="write every figure to this file after each part, so that a run that is ended keeps them"
    )
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tokiod-against-") as directory:
        old = Path(directory) / "old"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(old), arguments.commit], cwd=ROOT, check=True)
        try:
            older = parts_of(old)
            if missing := set(arguments.only or ()) - older:
                raise SystemExit(f"{arguments.commit} has no benchmark of {', '.join(sorted(missing))}")
            compared = Comparison(Version(old, Path(directory) / "before"), Version(ROOT, Path(directory) / "now"), arguments.figures)
            parts = arguments.only or [part for part in PARTS if part in older]
            for number in range(arguments.rounds + arguments.again):
                if number >= arguments.rounds:
                    parts = [part for part in parts if compared.slower_rows(part)]
                for part in parts:
                    compared.measure(part, number)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", str(old)], cwd=ROOT, check=True)
    return int(compared.report(wide_console()) > 0)


class Comparison:
    """The figures of both versions. kept: a file for every figure."""

    def __init__(self, old: Version, new: Version, kept: Path | None) -> None:
        self._old, self._new = old, new
        self._kept = kept
        self._before: Figures = defaultdict(list)
        self._after: Figures = defaultdict(list)
        self._units: dict[str, str] = {}
        self._parts: dict[str, str] = {}

    def measure(self, part: str, number: int) -> None:
        """Measure a part of both versions row by row in turns; which is first alternates with the number of the round."""
        begun = time.monotonic()
        with Turns(self._old, part) as before, Turns(self._new, part) as after:
            left = [(before, self._before), (after, self._after)]
            if number % 2:
                left.reverse()
            while left:
                for turns, figures in tuple(left):
                    if (row := turns.next()) is None:
                        left.remove((turns, figures))
                    elif row["ours"] is not None:
                        figures[row["what"]].append((row["ours"], row["ratio"]))
                        self._units[row["what"]], self._parts[row["what"]] = row["unit"], part
        if self._kept is not None:
            self._kept.write_text(json.dumps({"before": self._before, "after": self._after, "units": self._units}))
        print(f"round {number + 1}: {part}, {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)

    def slower_rows(self, part: str) -> list[str]:
        """Return the rows of a part that are slower now."""
        return [what for what, ratio in self._ratios().items() if self._parts[what] == part and ratio > LIMIT]

    def _ratios(self) -> dict[str, float]:
        """Return the ratio of each row that both have, now to before, in time."""
        return {what: self._ratio(what) for what in self._after if what in self._before}

    def _ratio(self, what: str) -> float:
        before, after = self._before[what], self._after[what]
        times = [[ratio for _, ratio in found if ratio is not None] for found in (before, after)]
        if all(times) and self._units[what] != "MB":
            return statistics.median(times[1]) / statistics.median(times[0])
        is_rate = self._units[what].endswith("/s")
        figures = [(max if is_rate else min)(figure for figure, _ in found) for found in (before, after)]
        over, under = figures if is_rate else reversed(figures)
        # A row that was zero before, such as the growth of memory, has no ratio: it is slower where it is not zero any more.
        return over / under if under else 1.0 + over

    def report(self, console: Console) -> int:
        """Print the table and a closing line; return how many rows are slower."""
        table = Table("what", "unit", "before", "now", "ratio", "rounds", "", box=None)
        ratios = self._ratios()
        for what, ratio in ratios.items():
            one, other = (statistics.median(figure for figure, _ in found[what]) for found in (self._before, self._after))
            rounds = str(len(self._after[what]))
            table.add_row(what, self._units[what], f"{one:.4g}", f"{other:.4g}", f"{ratio:.2f}", rounds, "SLOWER" if ratio > LIMIT else "")
        console.print(table)
        if alone := sorted(self._before.keys() ^ self._after.keys()):
            console.print(f"in one version only: {'; '.join(alone)}")
        slower = sum(ratio > LIMIT for ratio in ratios.values())
        console.print(f"{len(ratios)} rows, {slower} more than 5 % slower", highlight=False)
        return slower


def parts_of(tree: Path) -> set[str]:
    """Return the parts of a tree's benchmarks."""
    command = [sys.executable, "-c", "from tests.bench.__main__ import PARTS; print(*PARTS)"]
    return set(subprocess.run(command, cwd=tree, capture_output=True, text=True, check=True).stdout.split())


# What a benchmark starts must not write among the rows.
ONE_BY_ONE = """
import json, os, sys, tempfile
from pathlib import Path
from tests.bench.__main__ import PARTS

rows = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
with tempfile.TemporaryDirectory(prefix="tokiod-bench-") as directory:
    sys.stdin.readline()
    for row in PARTS[sys.argv[1]](Path(directory), quick=False):
        print(json.dumps(row.as_dict()), file=rows, flush=True)
        if not sys.stdin.readline():  # the other version has failed
            break
"""


class Version:
    """A tree, and an environment in a directory that has this one's packages and the tree's programs.

    Benchmarks run programs by name, such as `tokioctl`. Those that are installed here import this tree's modules, which another tree lacks.
    """

    def __init__(self, tree: Path, directory: Path) -> None:
        self.tree = tree
        self.python = directory / "bin/python"
        venv.create(directory, symlinks=True)
        (packages,) = directory.glob("lib/python*/site-packages")
        # The packages of a directory that a .pth file names are found, but its own .pth files, that of this tree, are not read.
        (packages / "packages.pth").write_text(sysconfig.get_path("purelib") + "\n")
        project = tomllib.loads((tree / "pyproject.toml").read_text())["project"]
        for name, place in project["scripts"].items():
            module, function = place.split(":")
            program = directory / "bin" / name
            program.write_text(f"#!{self.python}\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n")
            program.chmod(0o755)


class Turns:
    """A part of a version's benchmarks, in a process that measures a row whenever it is asked for one.

    A shared machine is twice as fast in some minutes: two versions can only be compared by rows that are seconds apart.
    """

    def __init__(self, version: Version, part: str) -> None:
        self._what = f"{version.tree}: {part}"
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - __exit__ closes it
        environment = {**os.environ, "PYTHONPATH": str(version.tree)}
        command = [str(version.python), "-c", ONE_BY_ONE, part]
        self._process = subprocess.Popen(
            command, cwd=version.tree, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()
        self._errors.close()

    def next(self) -> dict[str, Any] | None:
        """Measure the next row and return it, None after the last one. Raises SystemExit where the part fails."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        if line := self._process.stdout.readline():
            found: dict[str, Any] = json.loads(line)
            return found
        if self._process.wait() != 0:
            self._errors.seek(0)
            raise SystemExit(f"{self._what}: {self._errors.read().strip()}")
        return None


if __name__ == "__main__":
    sys.exit(main())
