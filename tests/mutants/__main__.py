"""`make mutants`: edits of one place, drawn by a seed, and whether the tests of the edited package notice them.

    python -m tests.mutants --edits N [--seed N] [--only PACKAGE]... [--jobs N]

Each edit is made in a copy of the tree. It is noticed if a test fails that passes without it, or one hangs. Of a package with many edits,
all tests run once before, without an edit, to record which of them execute which line: those that execute an edited line run first, the
cheapest first. If none of them fails, all tests of the package run, as for any other edit: what is recorded decides how soon an edit is
noticed, and not whether it is. An edit survives only if all tests pass with it.

Prints a line for each edit that survives, and a closing line. equivalent.txt lists edits that change nothing which a user can see:
path | text of the line | edit | reason. Exits 1 if more than one in ten of the others survives, or equivalent.txt lists one that the code
no longer has.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import queue
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from tests.faults.restored import ROOT, copy_tree, environment
from tests.mutants.edits import Edit, edits

if TYPE_CHECKING:
    from collections.abc import Iterator

PACKAGES = ("tokiod/jobs", "tokiod/agent", "collectors/nodes", "tokiod/forwarding", "tokiod/analysis")
EQUIVALENT = Path(__file__).with_name("equivalent.txt")
MAX_SURVIVORS = 0.1
PROGRESS = 20
TEST_SECONDS, RUN_SECONDS = 240, 1800
"""A test, or a run of all, that takes longer hangs: on a busy machine none takes half as long."""
RECORDED_EDITS, RECORDING_SECONDS = 16, 2 * RUN_SECONDS
"""A recording costs what it saves of about sixteen edits."""
FIRST_TESTS, FIRST_SECONDS = 40, 60
"""How many tests of a line run first, and how long they took."""
TESTS_FAILED = 1
"""pytest's exit code. Those for a test that is gone, and for a module that can't be imported, are others."""
NAMED = re.compile(r"^(?:FAILED|ERROR) ([^\s\[]+)", re.MULTILINE)


@dataclass(frozen=True)
class Recorded:
    """Which test functions execute which line of a module, and how many seconds each function takes."""

    lines: dict[str, dict[int, list[str]]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> Recorded:
        """Read what recording.py wrote."""
        of = json.loads(path.read_text())
        return cls({name: {int(line): tests for line, tests in known.items()} for name, known in of["lines"].items()}, of["seconds"])

    def tests_for(self, edit: Edit) -> list[str]:
        """Return the cheapest tests of an edit's lines, module by module, so that a fixture of a module is made once.

        A line that no test executes, as one that only the import does, has the tests of its module.
        """
        lines = self.lines.get(edit.path, {})
        own = {test for line in range(edit.line, edit.last_line + 1) for test in lines.get(line, ())}
        tests = sorted(own or {test for line in lines.values() for test in line}, key=lambda test: (self.seconds[test], test))[:FIRST_TESTS]
        sums = accumulate(self.seconds[test] for test in tests)
        modules: dict[str, list[str]] = defaultdict(list)
        for test in (test for test, seconds in zip(tests, sums, strict=True) if seconds <= FIRST_SECONDS):
            modules[test.partition("::")[0]].append(test)
        return [test for found in modules.values() for test in found]


class Copy:
    """A copy of the tree, and which tests passed in it without an edit."""

    def __init__(self, directory: Path, root: Path = ROOT) -> None:
        self.tree = copy_tree(directory, root)
        self._passed: dict[str, bool] = {}

    def record(self, tests: Path, paths: list[str]) -> Recorded:
        """Run all tests below a directory, and record which of them execute lines of modules: nothing if they can't run."""
        with tempfile.TemporaryDirectory(prefix="tokiod-mutants-") as name:
            written = Path(name) / "recorded.json"
            options = ["-p", "tests.mutants.recording", f"--recorded-in={written}", *(f"--recorded-of={path}" for path in paths)]
            self._run([*options, f"--timeout={RUN_SECONDS}", str(tests)], RECORDING_SECONDS)
            return Recorded.read(written) if written.exists() else Recorded()

    def is_noticed(self, edit: Edit, recorded: Recorded) -> bool:
        """Run the tests of an edit. Raises RuntimeError for one that fails without it, too."""
        path = self.tree / edit.path
        source, status = path.read_bytes(), path.stat()
        path.write_bytes(edit.applied(source))
        try:
            first = recorded.tests_for(edit)
            code, named = self._run(["-x", *first]) if first else (0, [])
            if code != TESTS_FAILED:
                code, named = self._run(["-x", *modules_for(self.tree, edit.path)])
        finally:
            path.write_bytes(source)
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        for test in named if code else ():
            # A module is named if it can't be imported.
            if not self._passed.setdefault(test, False) and self._run(["-x" if "::" in test else "--collect-only", test])[0]:
                raise RuntimeError(f"{test} fails without an edit")
            self._passed[test] = True
        return code != 0

    def _run(self, arguments: list[str], seconds: float = RUN_SECONDS) -> tuple[int, list[str]]:
        """Return pytest's exit code, and the tests that failed."""
        options = ["-q", "-p", "no:cacheprovider", "--hypothesis-profile=unshrunk", f"--timeout={TEST_SECONDS}"]
        # An edited module that is as large as before, and as old in whole seconds, must not be taken for the one in the byte code.
        started = environment(self.tree) | {"PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, "-m", "pytest", *options, *arguments]
        try:
            done = subprocess.run(command, cwd=self.tree, env=started, capture_output=True, text=True, timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            return TESTS_FAILED, []
        return done.returncode, NAMED.findall(done.stdout)


def tests_of(tree: Path, path: str) -> Path:
    """Return the directory with the tests of a module's package."""
    package = Path(path).parent
    directory = tree / "tests" / package.relative_to("tokiod" if package.parts[0] == "tokiod" else "")
    while not directory.is_dir():  # a package within the package
        directory = directory.parent
    return directory


def modules_for(tree: Path, path: str) -> list[str]:
    """Return the test modules of a module's package: its own first, then those that name it."""
    module = Path(path).stem
    found = {one: one.read_text() for one in sorted(tests_of(tree, path).rglob("test_*.py"))}

    def place(test: Path) -> tuple[bool, bool, int]:
        return test.stem != f"test_{module}", not re.search(rf"\b{module}\b", found[test]), len(found[test])

    return [str(one.relative_to(tree)) for one in sorted(found, key=place)]


def drawn(known: list[Edit], count: int, seed: int) -> list[Edit]:
    """Draw an edit of each of so many lines."""
    chance = random.Random(seed)
    lines: dict[tuple[str, int], list[Edit]] = {}
    for edit in known:
        lines.setdefault((edit.path, edit.line), []).append(edit)
    return [chance.choice(lines[line]) for line in chance.sample(sorted(lines), min(count, len(lines)))]


@functools.cache
def all_edits(packages: tuple[str, ...], root: Path = ROOT) -> list[Edit]:
    """Return all edits of packages."""
    paths = [path.relative_to(root) for package in packages for path in sorted((root / package).rglob("*.py"))]
    return [edit for path in paths for edit in edits(root, str(path))]


def reasons(path: Path) -> dict[str, str]:
    """Return why edits are equivalent, by their keys."""
    rows = [row for row in path.read_text().splitlines() if row and not row.startswith("#")]
    return {key: reason for key, _, reason in (row.rpartition(" | ") for row in rows)}


def run(chosen: list[Edit], directory: Path, jobs: int = 2, root: Path = ROOT) -> list[Edit]:
    """Return the edits that survive; print each."""
    copies: queue.SimpleQueue[Copy] = queue.SimpleQueue()
    for number in range(min(jobs, len(chosen))):
        copies.put(Copy(directory / str(number), root))
    packages: dict[Path, list[str]] = defaultdict(list)
    for edit in chosen:
        packages[tests_of(root, edit.path)].append(edit.path)

    @contextmanager
    def free_copy() -> Iterator[Copy]:
        copy = copies.get()
        try:
            yield copy
        finally:
            copies.put(copy)

    def record(tests: Path) -> Recorded:
        if len(packages[tests]) < RECORDED_EDITS:
            return Recorded()
        with free_copy() as copy:
            recorded = copy.record(tests.relative_to(root), sorted(set(packages[tests])))
        print(f"{tests.relative_to(root)}: recorded {len(recorded.seconds)} tests", file=sys.stderr, flush=True)
        return recorded

    def survives(edit: Edit) -> bool:
        with free_copy() as copy:
            is_noticed = copy.is_noticed(edit, recorded[tests_of(root, edit.path)])
        if not is_noticed:
            print(f"{edit.path}:{edit.line}: {edit.change}", flush=True)
        return not is_noticed

    survivors: list[Edit] = []
    with ThreadPoolExecutor(jobs) as pool:
        recorded = dict(zip(packages, pool.map(record, packages), strict=True))
        for tried, (edit, is_survivor) in enumerate(zip(chosen, pool.map(survives, chosen), strict=True), 1):
            survivors += [edit] * is_survivor
            if tried % PROGRESS == 0:
                print(f"{tried} of {len(chosen)} edits, {len(survivors)} survived", file=sys.stderr, flush=True)
    return survivors


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edits", type=int, required=True)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    parser.add_argument("--only", action="append", choices=PACKAGES, metavar="PACKAGE", help=", ".join(PACKAGES))
    parser.add_argument("--jobs", type=int, default=2, help="how many edits at a time")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    begun, equivalent, known = time.monotonic(), reasons(EQUIVALENT), all_edits(PACKAGES)
    gone = equivalent.keys() - {edit.key for edit in known}
    for key in sorted(gone):
        print(f"{EQUIVALENT.name}: the code has no such line or edit: {key}")
    packages = tuple(arguments.only or PACKAGES)
    chosen = drawn(
        [edit for edit in known if edit.path.startswith(tuple(f"{package}/" for package in packages))], arguments.edits, arguments.seed
    )
    tried = [edit for edit in chosen if edit.key not in equivalent]
    with tempfile.TemporaryDirectory(prefix="tokiod-mutants-") as name:
        Path(name).chmod(0o755)  # other users of the tests read the tree
        survivors = run(tried, Path(name), arguments.jobs)
    for package, count in Counter(edit.path.rpartition("/")[0] for edit in survivors).items():
        print(f"{package}: {count} survived")
    print(
        f"mutants {len(chosen)} noticed {len(tried) - len(survivors)} equivalent {len(chosen) - len(tried)} survived {len(survivors)}"
        f" seed {arguments.seed} seconds {time.monotonic() - begun:.0f}"
    )
    return int(bool(gone) or len(survivors) > MAX_SURVIVORS * len(tried))


if __name__ == "__main__":
    sys.exit(main())
