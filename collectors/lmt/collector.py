# ruff: noqa: S608 - statements are made of names and integers of our own, which no driver can pass as parameters
"""Query an LMT database window by window."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar
from zoneinfo import ZoneInfo

import numpy as np

from collectors.lmt.client import RowRange, database
from collectors.lmt.datasets import NULL_INTEGER, REQUIRED_COLUMNS, TABLES, MdtNames, Table
from collectors.lmt.parse_inventory import INFO, Info, Inventory, parse_inventory
from collectors.lmt.parse_timestamps import DAY, HOUR, SHIFT_REACH, LocalTime, seconds, text
from collectors.lmt.to_batches import Span, batches, not_valid
from tokiod.dropped import Dropped, escaped
from tokiod.errors import Fatal, NotYet
from tokiod.sample_spans import spans_of
from tokiod.toolkit.tasks import started
from tokiod.window import Window, iso
from tokiod.window_data import WindowData

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from collectors.lmt.client import Database, Schema
    from collectors.lmt.config import Config
    from tokiod.batch import Batch
    from tokiod.collector import Site

UNNAMED = "component without a name"
STRANGE_TS_ID = NULL_INTEGER
NOT_NUMBERS = {True: "value that is not an integer of 64 bits", False: "value that is not a number"}
"""By whether it is a column of integers."""
LOCAL_TIME = "write it as YYYY-MM-DD hh:mm:ss, local time without a zone"
WRITE_NUMBERS = "write a number or NULL into the row"
STOPPED_SECONDS, STOPPED_LONG_AGO_SECONDS = 600, 10
"""How long a database must have had no new TS_ID until the newest one is complete; and if that is more than a day old by the clock here.

Only what is seen to stand still counts as stopped: either clock may be wrong, and an hour in `timezone` is easily wrong.
"""


@dataclass(frozen=True, slots=True)
class Options:
    """How to read a database. zone: of its time stamps, unless the database reports one; asserted: the database is not queried for it."""

    step: int
    zone: dt.tzinfo
    asserted: bool
    filesystem: str | None
    mdt_names: MdtNames


@dataclass(frozen=True, slots=True)
class RawRows:
    """The rows of a window. span: its TS_IDs; info: the rows of tables of names; numbers: of the other tables, an array per column."""

    span: Span
    info: Info
    numbers: dict[str, dict[str, NDArray[Any]]]


def connected(config: Config, site: Site) -> Lmt:
    """Return the collector of a database that LMT fills."""
    zone = ZoneInfo(config.timezone) if config.timezone else site.calendar.zone
    options = Options(config.step, zone, config.timezone is not None, config.filesystem, config.mdt_names)
    return Lmt(database(config.url, config, site, finished=False), options, site)


# Rows of a TS_ID may arrive until LMT has begun the next TS_ID, and a row that misses it gets the next one. So a window is complete once
# there is a TS_ID at its end or later, and then it never changes. Of a database that has stopped, the newest TS_ID is complete too.
# LMT itself deletes nothing. Sites do, from tables of data but not from TIMESTAMP_INFO: then steps without rows are counted.
# Data are queried by ranges of TS_IDs only: a join over time stamps would take the server minutes.
class Lmt:
    """The collector of an LMT database."""

    replayable: ClassVar[bool] = True
    needs_sample_at_end: ClassVar[bool] = True

    def __init__(self, database: Database, options: Options, site: Site) -> None:
        self.step = options.step
        self._site = site
        self._newest: tuple[Any, ...] | None = None
        self._newest_since = 0.0
        self._database = database
        self._options = options
        self._is_complete = False
        self._is_noted = False
        self._info: Info = {}
        self._inventory: Inventory
        self._shown_of: tuple[int, int] | None = None
        self._shown: tuple[NDArray[np.int64], NDArray[np.int64]]

    async def collect(self, window: Window) -> WindowData:
        """Return a batch per dataset, each with all of the file system's components as columns.

        Raises NotYet until there is a TS_ID at the window's end or later, or in its last row if the database has stopped, and the errors
        of Database.
        """
        schema = await self._schema()
        local = await self._local_time()
        is_at_end = await self._check_complete(window, local)
        inventory = await self._read_inventory(schema)
        dropped = Dropped()
        dropped.add(UNNAMED, inventory.unnamed)
        span = await self._span(window, local, dropped)
        async with started(self._numbers(table, _present(table, schema), inventory, span) for table in TABLES) as tasks:
            found: list[Batch] = []
            for table, numbers in zip(TABLES, tasks, strict=True):
                found += batches(table, await self._valid(table, await numbers, dropped), span, inventory, dropped)
        await self._note_once(schema, inventory, dropped)
        # Counted, so that it is counted again later: a server that stood still may go on with the same TS_ID.
        return WindowData(found, await self.count(window) if is_at_end else None, dropped.counts, why=dropped.why)

    async def rows(self, window: Window) -> RawRows:
        """Return the rows that collect() reads. Raises as that does."""
        schema, local = await self._schema(), await self._local_time()
        await self._check_complete(window, local)
        inventory = await self._read_inventory(schema)
        span = await self._span(window, local, Dropped())
        async with started(self._numbers(table, _present(table, schema), inventory, span) for table in TABLES) as tasks:
            found = {table.name: await self._valid(table, await numbers, Dropped()) for table, numbers in zip(TABLES, tasks, strict=True)}
        return RawRows(span, dict(self._info), found)

    async def count(self, window: Window) -> int | None:
        """Return the number of rows of the window's TS_IDs."""
        schema = await self._schema()
        inventory = await self._read_inventory(schema)
        span = await self._span(window, await self._local_time(), Dropped())
        return sum([await self._database.count(wanted) for table in TABLES for wanted in _row_ranges(table, (), inventory, span)])

    async def spans(self) -> list[Window]:
        """Return the spans with time stamps; a time of a repeated hour may be either of its two instants."""
        local, shown = await self._local_time(), self._database.local
        hours = await self._database.select(
            f"SELECT min({shown}), max({shown}) FROM TIMESTAMP_INFO WHERE {shown} IS NOT NULL GROUP BY substr({shown}, 1, 13)"
        )
        edges = seconds([edge for hour in hours for edge in hour]).tolist()
        return spans_of(np.array([instant for edge in edges for instant in local.instants(edge)], np.int64), self.step)

    async def close(self) -> None:
        """Close the database."""
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
        zone = None if self._options.asserted else await self._database.zone()
        return LocalTime(zone or self._options.zone)

    async def _check_complete(self, window: Window, local: LocalTime) -> bool:
        """Raise NotYet unless all rows of a window are there: see the note above. A finished database is complete for all windows.

        Return whether it has the newest TS_ID of a database that has stopped.
        """
        if self._is_complete:
            return False
        shown = self._database.local
        found = await self._database.select(
            f"SELECT {shown}, TS_ID FROM TIMESTAMP_INFO WHERE {shown} IS NOT NULL ORDER BY TS_ID DESC LIMIT 1"
        )
        newest = found[0] if found else ()
        if newest != self._newest:
            self._newest, self._newest_since = newest, self._site.clock.monotonic()
        if not newest:
            text = await self._without_stamps()
            raise Fatal(text) if self._database.finished else NotYet(text, 0 if self._has_stopped(0) else None)
        guess = local.instant(int(seconds(newest[:1])[0]))
        self._is_complete = self._database.finished
        if self._is_complete or guess - SHIFT_REACH >= window.end:
            return False
        _, times = await self._stamps(Window(guess - HOUR, guess + 1), local, Dropped())
        reached = int(times[-1])
        ended_at = self._site.calendar.window(reached, self.step).end if self._has_stopped(reached) else None
        if window.end > (reached if ended_at is None else ended_at):
            seen = "" if ended_at is None else " and has stopped there"
            text = f"{self._database} has reached {iso(reached)} ({newest[0]} in {local.zone}){seen}, not yet {iso(window.end)}"
            raise NotYet(text, ended_at)
        return window.end > reached

    def _has_stopped(self, reached: int) -> bool:
        """Return whether the database has had no new TS_ID for so long that it gets no row of the newest one, at an epoch second."""
        clock = self._site.clock
        needed = STOPPED_LONG_AGO_SECONDS if clock.time() - reached > DAY else STOPPED_SECONDS
        return clock.monotonic() - self._newest_since >= needed

    async def _span(self, window: Window, local: LocalTime, dropped: Dropped) -> Span:
        ts_ids, times = await self._stamps(window, local, dropped)
        inside = (times >= window.start) & (times < window.end)
        return Span(window, self._options.step, ts_ids[inside], times[inside])

    async def _stamps(self, window: Window, local: LocalTime, dropped: Dropped) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return TS_IDs around a window and their instants. SQLite keeps the bits of a damaged copy, of any type."""
        first, last = local.bounds(window)
        ts_ids, shown = await self._local_stamps(first, last)
        inside = (shown >= first) & (shown < last)
        ts_ids, shown = ts_ids[inside], shown[inside]
        is_number = ts_ids != STRANGE_TS_ID
        if not is_number.all():
            dropped.add("TS_ID that is not a number", int((~is_number).sum()), f"TIMESTAMP_INFO of {text(int(shown[~is_number][0]))}")
        return ts_ids[is_number], local.epochs(shown[is_number], window)

    async def _local_stamps(self, first: int, last: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return TS_IDs and local times of [first, last), or of more, by TS_ID; STRANGE_TS_ID for one that is not a number.

        No index finds a time in a copy: those of whole days are read at once, and kept for the windows that follow.
        """
        if not self._database.finished:
            return await self._read_local_stamps(first, last)
        days = first // DAY * DAY, -(-last // DAY) * DAY
        if self._shown_of != days:
            self._shown = await self._read_local_stamps(*days)
            self._shown_of = days
        return self._shown

    async def _read_local_stamps(self, first: int, last: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        shown = self._database.local
        rows = await self._database.select(
            f"SELECT TS_ID, {shown} FROM TIMESTAMP_INFO WHERE {await self._database.stamps_near(text(first), text(last))}"
            f" AND TIMESTAMP >= '{text(first)[:10]}' AND TIMESTAMP < '{text(last + DAY)[:10]}'"
            f" AND {shown} >= '{text(first)}' AND {shown} < '{text(last)}' ORDER BY TS_ID"
        )
        ts_ids = [row[0] if isinstance(row[0], int) else STRANGE_TS_ID for row in rows]
        return np.array(ts_ids, np.int64), seconds([row[1] for row in rows])

    async def _numbers(self, table: Table, columns: tuple[str, ...], inventory: Inventory, span: Span) -> dict[str, NDArray[Any]]:
        names = ("TS_ID", table.key, *columns)
        parts = [await self._database.numbers(wanted) for wanted in _row_ranges(table, columns, inventory, span)]
        parts = parts or [[np.empty(0, np.int64)] * len(names)]
        if len(parts) == 1:
            return dict(zip(names, parts[0], strict=True))
        return {name: np.concatenate(arrays) for name, *arrays in zip(names, *parts, strict=True)}

    async def _valid(self, table: Table, numbers: dict[str, NDArray[Any]], dropped: Dropped) -> dict[str, NDArray[Any]]:
        """Return the rows of a table with NULL for what is not a number, which is counted, with the first one as an example."""
        found = dict(numbers)
        for name, values in numbers.items():
            if (strange := not_valid(values)) is None:
                continue
            found[name] = np.where(strange, NULL_INTEGER if values.dtype == np.int64 else np.nan, values)
            row = int(strange.argmax())
            identity = {key: int(numbers[key][row]) for key in table.identity}
            example = f"{table.place(identity['TS_ID'], identity[table.key], name)}: {await self._stored(table, name, identity)}"
            is_integer = table.exact or name in table.identity
            dropped.add(NOT_NUMBERS[is_integer], int(np.count_nonzero(strange)), example, WRITE_NUMBERS)
        return found

    async def _stored(self, table: Table, column: str, identity: dict[str, int]) -> str:
        """Return what a database holds where a number belongs; of several rows, the first one that is not an integer."""
        if column in identity:
            return ""
        rows = await self._database.select(
            f"SELECT {column} FROM {table.name} WHERE {' AND '.join(f'{name} = {number}' for name, number in identity.items())}"
        )
        return next(
            (str(value) for (value,) in rows if value is not None and not (table.exact and isinstance(value, int) and value < 2**63)), ""
        )

    async def _note_once(self, schema: Schema, inventory: Inventory, dropped: Dropped) -> None:
        """Count what concerns no window, but the whole database, with the first one."""
        if self._is_noted:
            return
        self._is_noted = True
        for place in _lacking(schema, inventory):
            dropped.add("missing column or operation", 1, place, "its datasets have no cells")
        await self._note_stamps(dropped)
        if self._database.finished:
            for table in TABLES:
                dropped.add("TS_ID that is not a number", await self._database.unplaced(table), table.name, "write a number into the rows")

    async def _without_stamps(self) -> str:
        """Return why a database has no time stamps."""
        rows = await self._database.select("SELECT TIMESTAMP FROM TIMESTAMP_INFO LIMIT 1")
        if not rows:
            return f"{self._database} has no time stamps: is LMT's cerebrod filling it?"
        return f'{self._database} has no time stamp that is a local time, but "{escaped(str(rows[0][0]))}" in TIMESTAMP_INFO: {LOCAL_TIME}'

    async def _note_stamps(self, dropped: Dropped) -> None:
        if self._database.local == "TIMESTAMP":
            return  # a server has no others
        sql = f"SELECT count(*), min(TS_ID), min(TIMESTAMP) FROM TIMESTAMP_INFO WHERE {self._database.local} IS NULL"
        ((count, ts_id, shown),) = await self._database.select(sql)
        dropped.add("time stamp that is not a local time", count, f"TS_ID {ts_id}: {shown}", LOCAL_TIME)

    async def _read_inventory(self, schema: Schema) -> Inventory:
        rows: Info = {}
        for table, names in INFO.items():
            columns = ", ".join(name if name in schema.get(table, ()) else "NULL" for name in names)
            sql = f"SELECT {columns} FROM {table} ORDER BY {names[0]}"
            rows[table] = await self._database.select(sql) if table in schema else []
        if rows != self._info:
            self._info = rows
            self._inventory = parse_inventory(rows, self._options.filesystem, self._options.mdt_names)
        return self._inventory


def _present(table: Table, schema: Schema) -> tuple[str, ...]:
    return tuple(column for column in table.columns if column in schema[table.name])


def _lacking(schema: Schema, inventory: Inventory) -> Iterator[str]:
    """Yield the columns and operations without which datasets have no cells."""
    for table in TABLES:
        needed = {column for quantity in table.quantities if not quantity.optional for column in quantity.columns}
        yield from (f"{table.name}.{column}" for column in sorted(needed - schema[table.name]))
    yield from (f"{name} in OPERATION_INFO" for name, numbers in inventory.operations.items() if not numbers)


def _row_ranges(table: Table, columns: tuple[str, ...], inventory: Inventory, span: Span) -> Iterator[RowRange]:
    keys = tuple(getattr(inventory, table.roster).ids.tolist())
    operations = tuple(number for numbers in inventory.operations.values() for number in numbers) if table.by_operation else ()
    if keys and (operations or not table.by_operation):
        for first, last in span.runs:
            yield RowRange(table, columns, keys, operations, first, last)
