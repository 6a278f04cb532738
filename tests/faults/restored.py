"""The old faults, each as a patch against today's code that restores it, and the tests that find it.

A patch begins with a sentence, then one pair of lines for each test, then an empty line and the unified diff:

    A1: a missing day's file is not noticed where a window creates a new one first
    Test: tests/writer/test_maintenance.py::test_a_missing_file_is_forgotten_before_another_is_created_under_its_name
    Fails: assert [] == [

Fails: a part of what pytest prints for the failed assertion, so that a test that fails for another reason proves nothing. A test with
parameters that are not named fails if it does so with any of them.

The patches are applied to copies of the tree, never to the tree itself.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).parents[2]
PATCHES = Path(__file__).parent / "patches"
NOT_COPIED = (".git", ".venv*", ".*_cache", ".hypothesis", "dist", "*.egg-info")


class PatchError(Exception):
    """A patch that is not in the form above, or that today's code does not fit."""


@dataclass(frozen=True, slots=True)
class Proof:
    """A test, by its pytest id, and a part of the message with which it fails where the fault is restored."""

    test: str
    fails: str


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of the review. name: a1, a2, ..., s1, s2, ... (security), f-a, f-b, ... (fidelity)."""

    name: str
    title: str
    proofs: tuple[Proof, ...]

    @property
    def patch(self) -> Path:
        """The patch that restores it."""
        return PATCHES / f"{self.name}.patch"

    @classmethod
    def read(cls, path: Path) -> Fault:
        """Read a patch. Raises PatchError."""
        head = path.read_text("utf-8").partition("\n\n")[0].splitlines()
        lines = [line.partition(": ") for line in head[1:]]
        proofs = tuple(Proof(test, fails) for (_, _, test), (_, _, fails) in zip(lines[::2], lines[1::2], strict=False))
        if [key for key, _, _ in lines] != ["Test", "Fails"] * len(proofs) or not proofs:
            raise PatchError(f"{path}: begins with a sentence and pairs of lines `Test: ...`, `Fails: ...`")
        return cls(path.stem, head[0], proofs)


def faults() -> list[Fault]:
    """Return all faults, in the order of the review."""
    return [Fault.read(path) for path in sorted(PATCHES.glob("*.patch"), key=_place)]


def _place(path: Path) -> tuple[str, int, str]:
    letters, number, rest = re.fullmatch(r"(\D+?)(\d*)(\D.*)?", path.stem).groups()  # type: ignore[union-attr]
    return letters, int(number or 0), rest or ""


def copy_tree(directory: Path, root: Path = ROOT) -> Path:
    """Copy the tree without what tools leave in it; the byte code of the packages stays valid."""
    return shutil.copytree(root, directory, symlinks=True, ignore=shutil.ignore_patterns(*NOT_COPIED))


def apply(fault: Fault, tree: Path, *, check: bool = False) -> None:
    """Apply a patch to a copy of the tree, or only find out whether it could be. Raises PatchError."""
    command = ["git", "apply", *(["--check"] if check else []), str(fault.patch)]
    done = subprocess.run(command, cwd=tree, env=environment(tree), capture_output=True, text=True, check=False)
    if done.returncode:
        raise PatchError(f"{fault.name}: the patch does not apply to today's code: {done.stderr.strip()}")


def run_tests(tree: Path, tests: list[str], results: Path) -> dict[str, str]:
    """Run tests in a copy of the tree; return, by test, why it failed: the lines that pytest prints of the error, empty if it passed.

    Raises PatchError for a test that did not run: one that does not exist, or whose module or fixture failed.
    """
    options = ["-q", "-p", "no:cacheprovider", "--hypothesis-profile=unshrunk", f"--junitxml={results}"]
    command = [sys.executable, "-m", "pytest", *options, *tests]
    done = subprocess.run(command, cwd=tree, env=environment(tree), capture_output=True, text=True, check=False)
    cases = list(ET.parse(results).iter("testcase")) if results.exists() else []
    return {test: _outcome(test, cases, done.stdout) for test in tests}


def _outcome(test: str, cases: list[ET.Element], output: str) -> str:
    module, *parents, name = test.split("::")
    classname = ".".join([module.removesuffix(".py").replace("/", "."), *parents])
    named = [
        case for case in cases if case.get("classname") == classname and case.get("name", "").partition("[")[0] == name.partition("[")[0]
    ]
    own = [case for case in named if "[" not in name or case.get("name") == name]
    if not own or any(case.find("error") is not None or case.find("skipped") is not None for case in own):
        raise PatchError(f"{test} did not run: {' '.join(output.split()[-60:])}")
    failures = [failure for case in own if (failure := case.find("failure")) is not None]
    return "\n".join(line for failure in failures for line in _errors(failure))


def _errors(failure: ET.Element) -> list[str]:
    """Return the lines of an error; of a group of them, as property tests raise, those of its exceptions."""
    text = (failure.text or "").splitlines()
    lines = [line[1:].strip() for line in text if line.startswith("E  ")]
    return lines or [line.strip(" |+-") for line in text if line.lstrip().startswith("|")] or [failure.get("message", "it failed")]


def environment(tree: Path) -> dict[str, str]:
    """Return an environment in which every process, also one that starts with -P, imports the tree's packages."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "COVERAGE"))}
    return {**inherited, "PYTHONPATH": str(tree), "GIT_CEILING_DIRECTORIES": str(tree.parent)}
