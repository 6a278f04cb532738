"""pytokio 0.13.0 in its own environment, as a peer in the same run: `make .venv-pytokio` installs it."""

from __future__ import annotations

import json
import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-pytokio" / "bin" / "python"
PROGRAM = ROOT / "tests" / "fidelity" / "pytokio_summaries.py"


class Pytokio:
    """A process that has imported pytokio, so that only its answers are measured. A context manager. directory: of files %Y-%m-%d.hdf5."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        environment = {**os.environ, "TZ": "UTC", "PYTHONPATH": ""}
        self._process = subprocess.Popen([PYTHON, PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def ask(self, what: str, *arguments: str) -> Any:
        """Return an answer, see tests/fidelity/pytokio_summaries.py. Raises RuntimeError if pytokio ended."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([what, str(self._directory), arguments]) + "\n")
        self._process.stdin.flush()
        if not (line := self._process.stdout.readline()):
            raise RuntimeError("pytokio ended, see above")
        return json.loads(line)


def times(start: int, end: int, separator: str = "T") -> list[str]:
    """Return two epoch seconds as pytokio's programs take them: naive, in the process's zone, which is UTC."""
    return [datetime.fromtimestamp(at, UTC).strftime(f"%Y-%m-%d{separator}%H:%M:%S") for at in (start, end)]
