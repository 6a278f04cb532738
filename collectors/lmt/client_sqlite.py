# ruff: noqa: S608 - statements are made of names and integers of our own, which no driver can pass as parameters
"""A SQLite file with LMT's tables: a saved copy, or a live one that grows or is replaced."""

from __future__ import annotations

import asyncio
import math
import os
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import apsw
import numpy as np

from collectors.lmt.datasets import NULL_INTEGER, REQUIRED_COLUMNS, TABLES
from collectors.lmt.parse_inventory import INFO
from tokiod.errors import CollectError, Fatal, Transient

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from collectors.lmt.client import RowRange, Schema

T = TypeVar("T")

FAILURES: tuple[type[Exception], ...] = (apsw.Error, OSError, ValueError)

INTERRUPT_RETRY_SECONDS = 0.05
"""A cancelled query may not have begun when it was interrupted, so it is interrupted again after this time."""


class Sqlite:
    """The file at `path`, opened by the first call, and again when another file replaced it."""

    local: ClassVar[str] = "datetime(TIMESTAMP)"

    def __init__(self, path: Path, *, finished: bool) -> None:
        self.finished = finished
        self.path = path
        self._copy: Copy | None = None
        self._inode: tuple[int, int] | None = None
        self._lock = asyncio.Lock()

    def __str__(self) -> str:
        return str(self.path)

    async def schema(self) -> Schema:
        """Return the tables and their columns."""
        return await self._run(lambda copy: copy.schema)

    async def zone(self) -> dt.tzinfo | None:
        """Return None: a file does not record its zone."""
        return None

    async def select(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a small result."""
        return await self._run(lambda copy: copy.db.execute(sql).fetchall())

    async def numbers(self, wanted: RowRange) -> list[NDArray[Any]]:
        """Return wanted.named, an array per column."""
        return await self._run(lambda copy: copy.numbers(wanted))

    async def count(self, wanted: RowRange) -> int:
        """Return how many rows there are."""
        return await self._run(lambda copy: copy.count(wanted))

    async def close(self) -> None:
        """Close the file."""
        async with self._lock:
            self._drop()

    async def _run(self, work: Callable[[Copy], T]) -> T:
        async with self._lock:
            thread = asyncio.ensure_future(asyncio.to_thread(self._work, work))
            try:
                return await asyncio.shield(thread)
            except asyncio.CancelledError:
                await self._interrupt(thread)
                raise

    async def _interrupt(self, thread: asyncio.Future[Any]) -> None:
        while not thread.done():
            with suppress(asyncio.CancelledError, apsw.Error):
                if self._copy is not None:
                    self._copy.db.interrupt()
                await asyncio.wait({thread}, timeout=INTERRUPT_RETRY_SECONDS)
        thread.cancelled() or thread.exception()

    def _work(self, work: Callable[[Copy], T]) -> T:
        try:
            copy = self._open()
            copy.start_clock()
            return work(copy)
        except FAILURES as error:
            self._drop()
            raise self._to_collect_error(error) from None

    def _open(self) -> Copy:
        found = self.path.stat()
        if self._inode != (found.st_dev, found.st_ino):
            self._drop()
        if not found.st_size:
            raise ValueError("it is empty")
        if self._copy is None:
            self._copy = Copy(self.path, finished=self.finished)
            self._inode = found.st_dev, found.st_ino
        return self._copy

    def _drop(self) -> None:
        copy, self._copy, self._inode = self._copy, None, None
        if copy is not None:
            copy.db.close()

    def _to_collect_error(self, error: Exception) -> CollectError:
        if isinstance(error, PermissionError):
            return Fatal(f"{self.path} cannot be read: {error.strerror}; the user tokiod needs read access to the file and its directories")
        if isinstance(error, apsw.CantOpenError | apsw.ReadOnlyError) and _needs_its_directory(self.path):
            return Fatal(
                f"{self.path} is in WAL mode, which the user tokiod can read only where it may write to {self.path.parent}: "
                "PRAGMA journal_mode = DELETE on the copy"
            )
        reason = error.strerror if isinstance(error, OSError) else str(error)
        if isinstance(error, apsw.InterruptError):
            reason = f"a query did not end within {QUERY_SECONDS:g} s"
        if self.finished:
            return Fatal(f"{self.path} is not a SQLite copy of an LMT database, or is damaged: {reason}")
        return Transient(f"{self.path} cannot be read now: {reason}; it may be about to be replaced")


def _needs_its_directory(path: Path) -> bool:
    """Return whether a database is in WAL mode, in a directory in which SQLite can't make the files of that mode."""
    try:
        with path.open("rb") as file:
            versions = file.read(WAL_VERSIONS.stop)[WAL_VERSIONS]
    except OSError:
        return False
    return WAL_VERSION in versions and not os.access(path.parent, os.W_OK, effective_ids=True)


WAL_VERSIONS, WAL_VERSION = slice(18, 20), 2
"""Bytes of the header of SQLite's format: its versions for writing and for reading."""
ROWS_AT_ONCE = 1 << 16
BUSY_SECONDS = 5.0
BLOCK_ROWS = 1024
MAX_BLOCKS = 1 << 14
LOOKUP_COST_ROWS = 4
"""Reading this many rows in file order takes as long as looking one up."""
CACHE_KIB = 16 << 10
QUERY_SECONDS = 300.0
"""Time limit of the statements for one call."""
OPCODES_PER_CHECK = 100_000
MAX_VALUE_BYTES = 16 << 20
"""The longest text, blob or row."""
MAX_SCHEMA_ENTRIES = 1000

PRAGMAS = frozenset({"data_version", "table_info", "table_list", "index_list", "index_info"})
FUNCTIONS = frozenset({"min", "max", "count", "substr", "datetime", "group_concat", "ifnull", "coalesce", "upper"})
READABLE = frozenset(
    {"SQLITE_MASTER", "SQLITE_SCHEMA", *INFO, *REQUIRED_COLUMNS, *(table.name for table in TABLES)}
    | {f"PRAGMA_{name.upper()}" for name in PRAGMAS}
)
"""Tables that statements may read, pragmas and functions that they may use."""


@dataclass(frozen=True, slots=True)
class BlockIndex:
    """The least and the greatest TS_ID of each block of a table's rows: a small index for a file that has none."""

    start: int
    size: int
    least: NDArray[np.int64]
    greatest: NDArray[np.int64]

    def ranges(self, first: int, last: int) -> list[tuple[int, int]]:
        """Return the rowids [from, to] of the blocks that may hold such TS_IDs; adjacent blocks are joined."""
        hit = np.flatnonzero((self.least <= last) & (self.greatest >= first))
        joined = np.split(hit, np.flatnonzero(np.diff(hit) > 1) + 1) if len(hit) else []
        return [(self.start + int(run[0]) * self.size, self.start + (int(run[-1]) + 1) * self.size - 1) for run in joined]


# A copy's only index is its primary key, (OST_ID, TS_ID), if it has one. Two things make it fast all the same.
#
# Which rows: `OST_ID IN (...) AND TS_ID BETWEEN` uses the key. But then SQLite looks up row by row, twice as slow as reading them in file
# order. So one pass over a finished file records which TS_IDs each block of rows has. Where the wanted rows lie close together, as in a
# file written in the order of time, their blocks are read as a whole. A file without an index has only this.
#
# How: a row as a Python tuple costs ten times what SQLite takes to step to it. group_concat() makes one text of a column's integers
# within SQLite, without the interpreter and its lock, and numpy reads it: 1.7 times as fast. Floats would need more digits than
# group_concat() writes, so they come as rows.
class Copy:
    """An open file. Another thread may interrupt a query. Raises apsw.Error."""

    def __init__(self, path: Path, *, finished: bool) -> None:
        unlocked = "&immutable=1" if finished and not path.with_name(path.name + "-wal").exists() else ""
        uri = f"{path.absolute().as_uri()}?mode=ro{unlocked}"
        self.db = apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
        self.db.set_busy_timeout(int(BUSY_SECONDS * 1000))
        self._finished = finished
        self._block_indexes: dict[str, tuple[int, BlockIndex]] = {}
        self._deadline = math.inf
        try:
            _restrict(self.db)
            self.db.set_progress_handler(self._is_late, OPCODES_PER_CHECK)
            self.start_clock()
            self.db.execute(f"PRAGMA cache_size = -{CACHE_KIB}").fetchall()
            _check_tables_only(self.db, path)
            self.schema = self._read_schema()
            self.db.authorizer = _authorize
        except BaseException:
            self.db.close()
            raise

    def start_clock(self) -> None:
        """Allow QUERY_SECONDS from now on. After that SQLite ends a statement with an InterruptError."""
        self._deadline = monotonic() + QUERY_SECONDS

    def _is_late(self) -> bool:
        return monotonic() > self._deadline

    def _read_schema(self) -> Schema:
        sql = "SELECT m.name, c.name FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type = 'table'"
        columns: dict[str, set[str]] = {}
        for table, column in self.db.execute(sql):
            columns.setdefault(table.upper(), set()).add(column.upper())
        return {table: frozenset(names) for table, names in columns.items()}

    @cached_property
    def _indexes(self) -> dict[str, list[tuple[str, ...]]]:
        """The columns of each table's indexes."""
        sql = """SELECT upper(m.name), i.name, upper(c.name) FROM sqlite_master m, pragma_index_list(m.name) i, pragma_index_info(i.name) c
                 WHERE m.type = 'table' AND NOT i.partial ORDER BY m.name, i.name, c.seqno"""
        columns: dict[tuple[str, str], tuple[str, ...]] = {}
        for table, index, column in self.db.execute(sql):
            columns[table, index] = (*columns.get((table, index), ()), column)
        found: dict[str, list[tuple[str, ...]]] = {}
        for (table, _), names in columns.items():
            found.setdefault(table, []).append(names)
        return found

    @cached_property
    def _without_rowid(self) -> frozenset[str]:
        """Tables without rowids, which only conditions can narrow down."""
        return frozenset(name for (name,) in self.db.execute("SELECT upper(name) FROM pragma_table_list WHERE wr"))

    def numbers(self, wanted: RowRange) -> list[NDArray[Any]]:
        """Return wanted.named, an array per column."""
        read = self._integers if wanted.table.exact else self._floats
        parts = [read(part, where) for part in _parts(wanted) for where in self._conditions(part)]
        empty = np.empty((len(wanted.named), 0), np.int64 if wanted.table.exact else np.float64)
        return list(np.concatenate([empty, *parts], axis=1))

    def count(self, wanted: RowRange) -> int:
        """Return how many rows there are."""
        sql = f"SELECT count(*) FROM {wanted.table.name} WHERE {{}} AND {wanted.of_keys}{wanted.of_operations}"
        return sum(self.db.execute(sql.format(where)).get for where in self._conditions(wanted))

    def _conditions(self, wanted: RowRange) -> list[str]:
        """Return conditions that together select all rows, each once."""
        name, by_time = wanted.table.name, f"TS_ID BETWEEN {wanted.first} AND {wanted.last}"
        indexes = self._indexes.get(name, [])
        if any(index[0] == "TS_ID" for index in indexes):
            return [by_time]
        keyed = any(index[:2] == (wanted.table.key, "TS_ID") for index in indexes)
        if not keyed and name in self._without_rowid:
            return [by_time]
        if not keyed or (self._finished and name not in self._without_rowid):
            ranges = self._block_index(name).ranges(wanted.first, wanted.last)
            if not keyed or sum(end - start for start, end in ranges) <= LOOKUP_COST_ROWS * wanted.rows + BLOCK_ROWS:
                return [f"rowid BETWEEN {start} AND {end} AND +{by_time}" for start, end in ranges]
        return [f"{wanted.of_keys} AND {by_time}"]

    def _block_index(self, name: str) -> BlockIndex:
        version = self.db.execute("PRAGMA data_version").get
        if name not in self._block_indexes or self._block_indexes[name][0] != version:
            self._block_indexes[name] = version, self._build_block_index(name)
        return self._block_indexes[name][1]

    def _build_block_index(self, name: str) -> BlockIndex:
        start, end = (self.db.execute(f"SELECT {edge}(rowid) FROM {name}").get or 0 for edge in ("min", "max"))
        size = max(BLOCK_ROWS, (end - start) // MAX_BLOCKS + 1)
        sql = f"SELECT coalesce(min(TS_ID), 1), coalesce(max(TS_ID), 0) FROM {name} WHERE rowid BETWEEN ? AND ?"
        edges = []
        for at in range(start, end + 1, size):
            self.start_clock()
            edges.append(self.db.execute(sql, (at, at + size - 1)).get)
        least, greatest = np.array(edges, np.int64).reshape(-1, 2).T
        return BlockIndex(start, size, least, greatest)

    def _integers(self, wanted: RowRange, where: str) -> NDArray[np.int64]:
        columns = ", ".join(f"group_concat(ifnull(CAST({name} AS INTEGER), {NULL_INTEGER}))" for name in wanted.named)
        sql = f"SELECT {columns} FROM {wanted.table.name} WHERE {where}{wanted.of_operations}"
        (texts,) = self.db.execute(sql)
        return np.array([np.fromstring(text or "", np.int64, sep=",") for text in texts])

    def _floats(self, wanted: RowRange, where: str) -> NDArray[np.float64]:
        sql = f"SELECT {', '.join(wanted.named)} FROM {wanted.table.name} WHERE {where}{wanted.of_operations}"
        rows = self.db.execute(sql)
        return np.fromiter(chain.from_iterable(rows), np.float64).reshape(-1, len(wanted.named)).T


# A copy comes from elsewhere, and its schema is a program: a view, a virtual table, a trigger or a generated column runs any SQL when a
# table is read. So nothing but tables and plain indexes is accepted, and the connection can do nothing but read LMT's tables.
def _restrict(db: apsw.Connection) -> None:
    for option, value in (
        (apsw.SQLITE_DBCONFIG_DEFENSIVE, 1),
        (apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0),
        (apsw.SQLITE_DBCONFIG_ENABLE_VIEW, 0),
        (apsw.SQLITE_DBCONFIG_ENABLE_TRIGGER, 0),
    ):
        db.config(option, value)
    for limit, count in (
        (apsw.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES),
        (apsw.SQLITE_LIMIT_ATTACHED, 0),
        (apsw.SQLITE_LIMIT_COMPOUND_SELECT, 2),
    ):
        db.limit(limit, count)
    db.execute("PRAGMA cell_size_check = ON").fetchall()


def _check_tables_only(db: apsw.Connection, path: Path) -> None:
    """Raise Fatal for a file with anything but tables and plain indexes."""
    entries = db.execute("SELECT type, name, upper(sql) FROM sqlite_master LIMIT ?", (MAX_SCHEMA_ENTRIES + 1,)).fetchall()
    if len(entries) > MAX_SCHEMA_ENTRIES:
        raise Fatal(f"{path} is not a copy of an LMT database: it has more than {MAX_SCHEMA_ENTRIES} tables and indexes")
    for kind, name, sql in entries:
        if kind not in {"table", "index"} or str(sql).startswith("CREATE VIRTUAL"):
            what = kind if kind in {"view", "trigger"} else "virtual table"
            raise Fatal(f"{path} has a {what}, {name!r}: only copies with nothing but tables are read")
    generated = "SELECT m.name, c.name FROM sqlite_master m, pragma_table_xinfo(m.name) c WHERE m.type = 'table' AND c.hidden"
    for table, column in db.execute(generated):
        raise Fatal(f"{path} has a generated column, {table}.{column}: only copies with nothing but tables are read")


def _authorize(operation: int, first: str | None, second: str | None, _database: str | None, _trigger: str | None) -> int:
    """Permit what this module and collector.py execute."""
    if operation == apsw.SQLITE_READ:
        is_permitted = (first or "").upper() in READABLE
    elif operation == apsw.SQLITE_FUNCTION:
        is_permitted = (second or "").lower() in FUNCTIONS
    elif operation == apsw.SQLITE_PRAGMA:
        is_permitted = (first or "").lower() in PRAGMAS
    else:
        is_permitted = operation == apsw.SQLITE_SELECT
    return apsw.SQLITE_OK if is_permitted else apsw.SQLITE_DENY


def _parts(wanted: RowRange) -> Iterator[RowRange]:
    """Split the TS_IDs into parts of bounded memory."""
    ts_ids = max(1, ROWS_AT_ONCE // max(1, wanted.rows // (wanted.last - wanted.first + 1)))
    for first in range(wanted.first, wanted.last + 1, ts_ids):
        yield replace(wanted, first=first, last=min(first + ts_ids - 1, wanted.last))
