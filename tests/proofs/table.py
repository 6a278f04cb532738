"""The table of docs/proofs.md, and the programs that its make targets start."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "docs" / "proofs.md"
ROW = re.compile(r"^\| `make (?P<target>[a-z-]+)` \| [^|]+ \| (?P<short>[^|]+) \| (?P<run>[^|]+) \| (?P<printed>[^|]+) \|$", re.MULTILINE)
STARTS = "starts"
"""The short form of a proof that CI only starts."""


@dataclass(frozen=True)
class Proof:
    """A row. short: a test module, a make command in backticks, or STARTS; day, commit: of the last whole run, empty without one."""

    target: str
    short: str
    day: str
    commit: str
    printed: str

    @property
    def command(self) -> list[str]:
        """The make command of its short form; none if tests are its short form."""
        return self.short.strip("`").split() if self.short.startswith("`make ") else []


def proofs() -> list[Proof]:
    """Return the rows of the table."""
    found = []
    for row in ROW.finditer(TABLE.read_text()):
        day, _, commit = row["run"].partition(", ")
        found.append(Proof(row["target"], row["short"], day.strip("-"), commit, row["printed"]))
    return found


def programs(target: str) -> list[str]:
    """Return the modules that a make target starts."""
    made = subprocess.run(["make", "-n", "-B", target], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found = re.findall(r"\.venv/bin/(?:python|coverage run) (?:-m )?(tests[\w./]+)", made)
    modules = [name.removesuffix(".py").replace("/", ".") for name in dict.fromkeys(found)]
    return [f"{name}.__main__" if (ROOT / name.replace(".", "/")).is_dir() else name for name in modules]
