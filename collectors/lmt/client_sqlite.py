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

from collectors.lmt.datasets import NOT_A_NUMBER, NOT_AN_INTEGER, NULL_INTEGER
from collectors.lmt.sqlite_rights import authorize, check_tables_only, restrict
from tokiod.errors import CollectError, Fatal, Transient

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from collectors.lmt.client import RowRange, Schema
    from collectors.lmt.datasets import Table

T = TypeVar("T")

FAILURES: tuple[type[Exception], ...] = (apsw.Error, OSError, ValueError)

INTERRUPT_RETRY_SECONDS = 0.05
"""A cancelled query may not have begun when it was interrupted, so it is interrupted again after this time."""


class Sqlite:
    """The file at `path`, opened by the first call, and again when another file replaced it."""

    # What ends with a zone is an instant, not LMT's local time: SQLite would make UTC of it.
    local: ClassVar[str] = "CASE WHEN substr(TIMESTAMP, 11) NOT GLOB '*[-+Zz]*' THEN datetime(TIMESTAMP) END"

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

    async def stamps_near(self, first: str, last: str) -> str:
        """Return a condition that the rows of TIMESTAMP_INFO with local times from first to last meet, and few others."""
        return await self._run(lambda copy: copy.stamps_near(first, last))

    async def unplaced(self, table: Table) -> int:
        """Return how many rows of a finished file have a TS_ID that is not a number."""
        return await self._run(lambda copy: copy.unplaced(table))

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
                    self._copy.interrupt()
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
            copy.close()

    def _to_collect_error(self, error: Exception) -> CollectError:
        if isinstance(error, PermissionError):
            return Fatal(f"{self.path} cannot be read: {error.strerror}; the user tokiod needs read access to the file and its directories")
        if isinstance(error, apsw.CantOpenError | apsw.ReadOnlyError) and _needs_its_directory(self.path):
            return Fatal(
                f"{self.path} is in WAL mode, which the user tokiod can read only where it may write to {self.path.resolve().parent}: "
                "PRAGMA journal_mode = DELETE on the copy"
            )
        reason = error.strerror if isinstance(error, OSError) else str(error)
        if isinstance(error, apsw.InterruptError):
            reason = f"a query did not end within {QUERY_SECONDS:g} s"
        if self.finished:
            return Fatal(f"{self.path} is not a SQLite copy of an LMT database, or is damaged: {reason}")
        return Transient(f"{self.path} cannot be read now: {reason}; it may be about to be replaced")


def _is_text(kind: str) -> bool:
    """Return whether a column of a declared type has texts: SQLite's rules of affinity."""
    return "INT" not in kind and any(word in kind for word in ("CHAR", "CLOB", "TEXT"))


def _needs_its_directory(path: Path) -> bool:
    """Return whether a database is in WAL mode, in a directory in which SQLite can't make the files of that mode."""
    try:
        with path.open("rb") as file:
            versions = file.read(WAL_VERSIONS.stop)[WAL_VERSIONS]
    except OSError:
        return False
    return WAL_VERSION in versions and not os.access(path.resolve().parent, os.W_OK, effective_ids=True)


def _check_whole(path: Path) -> None:
    """Raise ValueError for a file that is shorter than its header says. SQLite reads the rest of a page that was cut as zeros."""
    with path.open("rb") as file:
        header = file.read(HEADER_BYTES)
        size = file.seek(0, os.SEEK_END)
    expected = int.from_bytes(header[PAGES], "big") * PAGE_BYTES.get(header[16:18], 0)
    if header[CHANGES] == header[CHANGES_OF_PAGES] and size < expected:
        raise ValueError(f"it has {size} of {expected} bytes")


CHANGES, PAGES, CHANGES_OF_PAGES = slice(24, 28), slice(28, 32), slice(92, 96)
"""Of the header: a number that each change increases; how many pages there are, if the change is that which wrote the number of pages."""
HEADER_BYTES = 100
PAGE_BYTES = {(size & 0xFFFF | size >> 16).to_bytes(2, "big"): size for size in (1 << power for power in range(9, 17))}
"""By how the header has it."""
WAL_VERSIONS, WAL_VERSION = slice(18, 20), 2
"""Bytes of the header of SQLite's format: its versions for writing and for reading."""
ROWS_AT_ONCE = 1 << 16
BUSY_SECONDS = 5.0
BLOCK_ROWS = 1024
MAX_BLOCKS = 1 << 14
LOOKUP_COST_ROWS = 4
"""Reading this many rows in file order takes as long as looking one up."""
NO_TS_ID, NO_TIME = (1, 0), (":", "")
"""The least and the greatest value of a block that has none. A colon is greater than all texts that begin with a digit."""
CACHE_KIB = 16 << 10
QUERY_SECONDS = 300.0
"""Time limit of the statements for one call."""
OPCODES_PER_CHECK = 100_000


@dataclass(frozen=True, slots=True)
class BlockIndex:
    """The least and the greatest TS_ID, or local time as text, of each block of a table's rows: a small index for a file that has none."""

    start: int
    size: int
    least: NDArray[Any]
    greatest: NDArray[Any]

    def ranges(self, first: int | str, last: int | str) -> list[tuple[int, int]]:
        """Return the rowids [from, to] of the blocks that may hold values from first to last; adjacent blocks are joined."""
        hit = np.flatnonzero((self.least <= last) & (self.greatest >= first))
        joined = np.split(hit, np.flatnonzero(np.diff(hit) > 1) + 1) if len(hit) else []
        return [(self.start + int(run[0]) * self.size, self.start + (int(run[-1]) + 1) * self.size - 1) for run in joined]


# A copy's only index is its primary key, (OST_ID, TS_ID), if it has one. Two things make it fast all the same.
#
# Which rows: `OST_ID IN (...) AND TS_ID BETWEEN` uses the key. But then SQLite looks up row by row, twice as slow as reading them in file
# order. So one pass over a finished file records which TS_IDs each block of rows has. Where the wanted rows lie close together, as in a
# file written in the order of time, their blocks are read as a whole. A file without an index has only this.
#
# How: a row as a Python tuple costs ten times what SQLite takes to step to it. group_concat() makes one text of a column's integers within
# SQLite, without the interpreter and its lock, and numpy reads it: 1.7 times as fast. Floats would need more digits than group_concat()
# writes, so they come as rows.
class Copy:
    """An open file. Another thread may interrupt a query. Raises apsw.Error."""

    def __init__(self, path: Path, *, finished: bool) -> None:
        # SQLite looks for them beside the file itself, not beside a link to it.
        real = path.resolve()
        is_immutable = finished and not any(real.with_name(real.name + suffix).exists() for suffix in ("-wal", "-journal"))
        uri = f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' * is_immutable}"
        self.db = apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
        self.db.set_busy_timeout(int(BUSY_SECONDS * 1000))
        self._finished = finished
        self._block_indexes: dict[str, tuple[int, BlockIndex]] = {}
        self._deadline = math.inf
        self._strange: dict[tuple[str, str], int] = {}
        try:
            restrict(self.db)
            self.db.set_progress_handler(self._is_late, OPCODES_PER_CHECK)
            self.start_clock()
            self.db.execute(f"PRAGMA cache_size = -{CACHE_KIB}").fetchall()
            check_tables_only(self.db, path)
            self.schema = self._read_schema()
            self.db.authorizer = authorize
            if is_immutable:
                _check_whole(path)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self.db.close()

    def start_clock(self) -> None:
        """Allow QUERY_SECONDS from now on. After that SQLite ends a statement with an InterruptError."""
        self._deadline = monotonic() + QUERY_SECONDS

    def interrupt(self) -> None:
        """End what another thread executes, with an InterruptError, until the clock is started again."""
        self._deadline = -math.inf
        self.db.interrupt()

    def _is_late(self) -> bool:
        return monotonic() > self._deadline

    def _read_schema(self) -> Schema:
        sql = "SELECT m.name, c.name, c.type FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type = 'table'"
        columns: dict[str, set[str]] = {}
        for table, column, kind in self.db.execute(sql):
            columns.setdefault(table.upper(), set()).add(column.upper())
            # Texts are compared as texts, so no range of numbers would have a row.
            if column.upper() == "TS_ID" and table.upper().endswith("_DATA") and _is_text(kind.upper()):
                raise ValueError(f"TS_ID of {table} is declared as {kind}: make it an INTEGER, as LMT does")
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

    def stamps_near(self, first: str, last: str) -> str:
        """Return a condition that the rows of TIMESTAMP_INFO with local times from first to last meet, and few others."""
        if not self._finished or "TIMESTAMP_INFO" in self._without_rowid:
            return "TRUE"
        ranges = self._block_index("TIMESTAMP_INFO", Sqlite.local, NO_TIME).ranges(first, last)
        return f"rowid BETWEEN {ranges[0][0]} AND {ranges[-1][1]}" if ranges else "FALSE"

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
        keyed = self._is_keyed(wanted)
        if not keyed and name in self._without_rowid:
            return [by_time]
        if not keyed or (self._finished and name not in self._without_rowid):
            ranges = self._block_index(name, "CAST(TS_ID AS INTEGER)", NO_TS_ID).ranges(wanted.first, wanted.last)
            if not keyed or sum(end - start for start, end in ranges) <= LOOKUP_COST_ROWS * wanted.rows + BLOCK_ROWS:
                return [f"rowid BETWEEN {start} AND {end} AND +{by_time}" for start, end in ranges]
        return [f"{wanted.of_keys} AND {by_time}"]

    def _is_keyed(self, wanted: RowRange) -> bool:
        name, key = wanted.table.name, wanted.table.key
        return any(index[:2] == (key, "TS_ID") for index in self._indexes.get(name, [])) and not self._not_numbers(wanted.table, key)

    def unplaced(self, table: Table) -> int:
        """Return how many rows have a TS_ID that is not a number."""
        return self._not_numbers(table, "TS_ID")

    # No condition on a number selects a text, so rows with one in a key would not be seen, and not be counted.
    def _not_numbers(self, table: Table, column: str) -> int:
        """Return how many values of a key of a finished file are not numbers."""
        if (table.name, column) not in self._strange:
            sql = f"SELECT count(*) FROM {table.name} WHERE typeof({column}) NOT IN ('integer', 'real')"
            self._strange[table.name, column] = self.db.execute(sql).get if self._finished else 0
        return self._strange[table.name, column]

    def _block_index(self, name: str, value: str, none: tuple[Any, Any]) -> BlockIndex:
        version = self.db.execute("PRAGMA data_version").get
        if name not in self._block_indexes or self._block_indexes[name][0] != version:
            self._block_indexes[name] = version, self._build_block_index(name, value, none)
        return self._block_indexes[name][1]

    def _build_block_index(self, name: str, value: str, none: tuple[Any, Any]) -> BlockIndex:
        """Return the edges of an expression in each block of a table. none: the edges of a block that has no value."""
        start, end = (self.db.execute(f"SELECT {edge}(rowid) FROM {name}").get or 0 for edge in ("min", "max"))
        size = max(BLOCK_ROWS, (end - start) // MAX_BLOCKS + 1)
        sql = f"SELECT coalesce(min({value}), ?), coalesce(max({value}), ?) FROM {name} WHERE rowid BETWEEN ? AND ?"
        edges = []
        for at in range(start, end + 1, size):
            self.start_clock()
            edges.append(self.db.execute(sql, (*none, at, at + size - 1)).get)
        least, greatest = np.array(edges, type(none[0])).reshape(-1, 2).T
        return BlockIndex(start, size, least, greatest)

    def _integers(self, wanted: RowRange, where: str) -> NDArray[np.int64]:
        identity = wanted.table.identity
        values = [_key(name, NOT_AN_INTEGER) if name in identity else _integer(name) for name in wanted.named]
        texts = self._texts(wanted, where, map(_checked, wanted.named, values))
        if any("." in text or "n" in text for text in texts):  # a float, which may be "Inf"
            texts = self._texts(wanted, where, values)
        return np.array([np.fromstring(text, np.int64, sep=",") for text in texts])

    def _texts(self, wanted: RowRange, where: str, values: Iterable[str]) -> list[str]:
        columns = ", ".join(f"group_concat({value})" for value in values)
        (texts,) = self.db.execute(f"SELECT {columns} FROM {wanted.table.name} WHERE {where}{wanted.of_operations}")
        return [str(text or "") for text in texts]

    def _floats(self, wanted: RowRange, where: str) -> NDArray[np.float64]:
        identity = wanted.table.identity
        values = [_key(name, NOT_A_NUMBER) if name in identity else _number(name) for name in wanted.named]
        found = self._rows(wanted, where, map(_checked, wanted.named, values))
        keys = found[[name in identity for name in wanted.named]]
        if not ((keys == np.floor(keys)) & (np.abs(keys) < 2.0**63)).all():
            return self._rows(wanted, where, values)
        return found

    def _rows(self, wanted: RowRange, where: str, values: Iterable[str]) -> NDArray[np.float64]:
        rows = self.db.execute(f"SELECT {', '.join(values)} FROM {wanted.table.name} WHERE {where}{wanted.of_operations}")
        return np.fromiter(chain.from_iterable(rows), np.float64).reshape(-1, len(wanted.named)).T


# A column of SQLite holds values of any type. CAST makes a number of everything, 0 of most texts. A comparison with the result takes a text
# only if all of it is a number, and no blob: so both are equal where the value has one meaning as a number. This takes a fifth of the time
# of a query, so it is left out where one comparison shows that a value is a number: all of them are less than any text.
def _checked(name: str, value: str) -> str:
    """Return the expression of a number as it is, and of what else it may be."""
    return f"CASE WHEN {name} < '' THEN {name} ELSE {value} END"


def _integer(name: str) -> str:
    """Return the expression of an integer: NULL_INTEGER for NULL, NOT_AN_INTEGER for what is no integer of 64 bits."""
    cast = f"CAST({name} AS INTEGER)"
    return f"CASE WHEN {name} IS {cast} THEN ifnull({cast}, {NULL_INTEGER}) ELSE {NOT_AN_INTEGER} END"


def _key(name: str, otherwise: float) -> str:
    """Return the expression of an integer that is never NULL."""
    return f"CASE WHEN {name} = CAST({name} AS INTEGER) THEN CAST({name} AS INTEGER) ELSE {otherwise!r} END"


def _number(name: str) -> str:
    """Return the expression of a number, with NOT_A_NUMBER for other values."""
    return f"CASE WHEN {name} IS CAST({name} AS NUMERIC) THEN CAST({name} AS REAL) ELSE {NOT_A_NUMBER!r} END"


def _parts(wanted: RowRange) -> Iterator[RowRange]:
    """Split the TS_IDs into parts of bounded memory."""
    ts_ids = max(1, ROWS_AT_ONCE // max(1, wanted.rows // (wanted.last - wanted.first + 1)))
    for first in range(wanted.first, wanted.last + 1, ts_ids):
        yield replace(wanted, first=first, last=min(first + ts_ids - 1, wanted.last))
