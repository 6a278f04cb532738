"""Copies of the tree, in which old faults are restored, and what tests say of them. The tree itself is never edited."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

ROOT = Path(__file__).parents[2]
NOT_COPIED = (".git", ".venv*", ".*_cache", ".hypothesis", "dist", "*.egg-info")


class NotRun(Exception):  # noqa: N818 - says what happened
    """A test that does not exist, or whose module or fixture failed."""


def copy_tree(directory: Path, root: Path = ROOT) -> Path:
    """Copy the tree without what tools leave in it; the byte code of the packages stays valid."""
    return shutil.copytree(root, directory, symlinks=True, ignore=shutil.ignore_patterns(*NOT_COPIED))


def run_tests(tree: Path, tests: list[str], results: Path) -> dict[str, str]:
    """Run tests in a copy of the tree; return, by test, why it failed: the lines that pytest prints of the error, empty if it passed.

    Raises NotRun.
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
        raise NotRun(f"{test} did not run: {' '.join(output.split()[-60:])}")
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
