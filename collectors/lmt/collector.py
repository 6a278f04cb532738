# ruff: noqa: S608 - statements are made of names and integers of our own, which no driver can pass as parameters
"""Query an LMT database window by window."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import numpy as np

from collectors.lmt.client import RowRange
from collectors.lmt.datasets import REQUIRED_COLUMNS, TABLES, MdtNames, Table
from collectors.lmt.parse_inventory import INFO, Info, Inventory, inventory
from collectors.lmt.parse_timestamps import DAY, HOUR, SHIFT_REACH, LocalTime, seconds, text
from collectors.lmt.to_batches import Span, batches
from tokiod.errors import Fatal, NotYet
from tokiod.sample_spans import spans_of
from tokiod.window import Window, iso
from tokiod.window_data import WindowData

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from collectors.lmt.client import Database, Schema

T = TypeVar("T")

UNNAMED = "component without a name"


@dataclass(frozen=True, slots=True)
class Options:
    """How to read a database. zone: of its time stamps where it doesn't tell; asserted: the database is not asked for its zone."""

    step: int
    zone: dt.tzinfo
    asserted: bool
    filesystem: str | None
    mdt_names: MdtNames


# Rows of a TS_ID can still be arriving until LMT has begun the next one, and every row that misses it lands in the next. So a window is
# complete once there is a TS_ID at its end or later, and then it never changes. Data are only ever asked for by ranges of TS_IDs: a join
# over time stamps would take LMT's server, which never purges, minutes.
class Lmt:
    """The collector of an LMT database."""

    replayable: ClassVar[bool] = True
    needs_sample_at_end: ClassVar[bool] = True

    def __init__(self, database: Database, options: Options) -> None:
        self.step = options.step
        self._database = database
        self._options = options
        self._info: Info = {}
        self._stock: Inventory

    async def collect(self, window: Window) -> WindowData:
        """Return a batch per dataset, each with all of the file system's components as columns.

        Raises NotYet until a TS_ID at the window's end or later is there, and what Database raises.
        """
        schema = await self._schema()
        local = await self._local_time()
        await self._wait_for(window, local)
        stock = await self._inventory(schema)
        dropped = Counter({UNNAMED: stock.unnamed})
        span = await self._span(window, local, dropped)
        async with _all_at_once(self._numbers(table, _present(table, schema), stock, span) for table in TABLES) as reading:
            found = [batch for table, numbers in zip(TABLES, reading, strict=True) for batch in batches(table, await numbers, span, stock)]
        return WindowData(found, None, +dropped)

    async def count(self, window: Window) -> int | None:
        """Return how many rows there are about the window's TS_IDs."""
        schema = await self._schema()
        stock = await self._inventory(schema)
        span = await self._span(window, await self._local_time(), Counter())
        return sum([await self._database.count(ask) for table in TABLES for ask in _asks(table, (), stock, span)])

    async def spans(self) -> list[Window]:
        """Return where there are time stamps; one of a repeated hour may have been at either of its two instants."""
        local, shown = await self._local_time(), self._database.local
        hours = await self._database.select(
            f"SELECT min({shown}), max({shown}) FROM TIMESTAMP_INFO WHERE {shown} IS NOT NULL GROUP BY substr({shown}, 1, 13)"
        )
        edges = seconds([edge for hour in hours for edge in hour]).tolist()
        return spans_of(np.array([instant for edge in edges for instant in local.instants(edge)], np.int64), self.step)

    async def close(self) -> None:
        """Let go of the database."""
        await self._database.close()

    async def _schema(self) -> Schema:
        schema = await self._database.schema()
        missing = [table for table in REQUIRED_COLUMNS if table not in schema]
        missing += [
            f"{table}.{name}"
            for table, names in REQUIRED_COLUMNS.items()
            for name in names
            if table in schema and name not in schema[table]
        ]
        if missing:
            await self._database.close()
            raise Fatal(
                f"{self._database} has no {', '.join(missing)}: is it a whole LMT database of schema 1.1, and may its user read it?"
            )
        return schema

    async def _local_time(self) -> LocalTime:
        told = None if self._options.asserted else await self._database.zone()
        return LocalTime(told or self._options.zone)

    async def _wait_for(self, window: Window, local: LocalTime) -> None:
        """Raise NotYet unless the newest TS_ID is at the window's end or later, or nothing comes after it."""
        sql = f"SELECT {self._database.local} FROM TIMESTAMP_INFO ORDER BY TS_ID DESC LIMIT 1"
        newest = await self._database.select(sql)
        if not newest or newest[0][0] is None:
            raise (Fatal if self._database.finished else NotYet)(f"{self._database} has no time stamps: is LMT's cerebrod filling it?")
        guess = local.instant(int(seconds(newest[0])[0]))
        if self._database.finished or guess - SHIFT_REACH >= window.end:
            return
        _, times = await self._stamps(Window(guess - HOUR, guess + 1), local, Counter())
        if times[-1] < window.end:
            raise NotYet(f"{self._database} has got to {iso(times[-1])} ({newest[0][0]} in {local.zone}), not yet to {iso(window.end)}")

    async def _span(self, window: Window, local: LocalTime, dropped: Counter[str]) -> Span:
        ts_ids, times = await self._stamps(window, local, dropped)
        inside = (times >= window.start) & (times < window.end)
        return Span(window, self._options.step, ts_ids[inside], times[inside])

    async def _stamps(self, window: Window, local: LocalTime, dropped: Counter[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return TS_IDs around a window and their instants. SQLite keeps whatever bits a damaged copy has, of any type."""
        first, last = local.bounds(window)
        shown = self._database.local
        rows = await self._database.select(
            f"SELECT TS_ID, {shown} FROM TIMESTAMP_INFO"
            f" WHERE TIMESTAMP >= '{text(first)[:10]}' AND TIMESTAMP < '{text(last + DAY)[:10]}'"
            f" AND {shown} >= '{text(first)}' AND {shown} < '{text(last)}' ORDER BY TS_ID"
        )
        whole = [row for row in rows if isinstance(row[0], int)]
        if len(whole) < len(rows):
            dropped["a TS_ID that is no number"] += len(rows) - len(whole)
        return np.array([row[0] for row in whole], np.int64), local.epochs(seconds([row[1] for row in whole]), window)

    async def _numbers(self, table: Table, columns: tuple[str, ...], stock: Inventory, span: Span) -> dict[str, NDArray[Any]]:
        names = ("TS_ID", table.key, *columns)
        parts = [await self._database.numbers(ask) for ask in _asks(table, columns, stock, span)]
        parts = parts or [[np.empty(0, np.int64)] * len(names)]
        return {name: np.concatenate(arrays) for name, *arrays in zip(names, *parts, strict=True)}

    async def _inventory(self, schema: Schema) -> Inventory:
        rows: Info = {}
        for table, names in INFO.items():
            columns = ", ".join(name if name in schema.get(table, ()) else "NULL" for name in names)
            sql = f"SELECT {columns} FROM {table} ORDER BY {names[0]}"
            rows[table] = await self._database.select(sql) if table in schema else []
        if rows != self._info:
            self._info = rows
            self._stock = inventory(rows, self._options.filesystem, self._options.mdt_names)
        return self._stock


def _present(table: Table, schema: Schema) -> tuple[str, ...]:
    return tuple(column for column in table.columns if column in schema[table.name])


@asynccontextmanager
async def _all_at_once(work: Iterable[Coroutine[None, None, T]]) -> AsyncIterator[Sequence[asyncio.Future[T]]]:
    """Begin all of the work; what is not done at the end is cancelled and has ended."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _asks(table: Table, columns: tuple[str, ...], stock: Inventory, span: Span) -> Iterator[RowRange]:
    keys = tuple(getattr(stock, table.roster).ids.tolist())
    operations = tuple(number for numbers in stock.operations.values() for number in numbers) if table.by_operation else ()
    if keys and (operations or not table.by_operation):
        for first, last in span.runs:
            yield RowRange(table, columns, keys, operations, first, last)
