"""What `make coverage` prints of the archive's packages: their share of lines and branches, and what no test runs, each with its reason.

    python -m tests.uncovered PERCENT PACKAGE...

Reads the data of coverage in this directory, and reasons.txt: path | text of the line | reason. Exits 1 if a package has less than PERCENT,
a line or branch that no test runs has no reason, or a reason names no line of the file.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REASONS = Path(__file__).with_name("reasons.txt")


@dataclass(frozen=True)
class Line:
    """A line that no test runs, or of which no test takes a branch."""

    path: str
    number: int
    text: str

    @property
    def key(self) -> tuple[str, str]:
        return self.path, self.text


def main() -> int:
    percent, packages = float(sys.argv[1]), sys.argv[2:]
    report, reasons, failed = measured(), read(REASONS), False
    for package in packages:
        files = {path: data for path, data in report["files"].items() if path.startswith(f"{package}/")}
        share = covered(data["summary"] for data in files.values())
        lines = [line for path, data in sorted(files.items()) for line in uncovered(path, data)]
        unexplained = [line for line in lines if line.key not in reasons]
        print(f"{package} {share:.1f} %, {len(lines)} lines that no test runs as a whole, {len(unexplained)} of them without a reason")
        for line in lines:
            print(f"    {line.path}:{line.number}: {line.text}  # {reasons.get(line.key, 'NO REASON')}")
        failed |= share < percent or bool(unexplained)
    for path, text in reasons:
        if text not in map(str.strip, Path(path).read_text().splitlines()):
            print(f"{REASONS.name}: {path} has no line: {text}")
            failed = True
    return int(failed)


def measured() -> Any:
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        subprocess.run([sys.executable, "-m", "coverage", "json", "--ignore-errors", "-q", "-o", out.name], check=True)
        return json.load(out)


def read(path: Path) -> dict[tuple[str, str], str]:
    """Return the reasons by path and text. The text may hold the separator, path and reason may not."""
    rows = [row for row in path.read_text().splitlines() if row and not row.startswith("#")]
    return {(row.split(" | ", 1)[0], row.split(" | ", 1)[1].rpartition(" | ")[0]): row.rpartition(" | ")[2] for row in rows}


def covered(summaries: Any) -> float:
    """Return the share of lines and branches in percent, as coverage computes it."""
    every = list(summaries)
    ran = sum(one["covered_lines"] + one["covered_branches"] for one in every)
    return 100 * ran / max(1, sum(one["num_statements"] + one["num_branches"] for one in every))


def uncovered(path: str, data: Any) -> list[Line]:
    texts = Path(path).read_text().splitlines()
    branches = {begin for begin, end in data["missing_branches"] if end not in data["missing_lines"]}
    return [Line(path, number, texts[number - 1].strip()) for number in sorted({*data["missing_lines"], *branches})]


if __name__ == "__main__":
    sys.exit(main())
