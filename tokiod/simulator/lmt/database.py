"""An LMT database as SQLite that grows as the live one does: rows of a time step come in pieces, and then the next step begins."""

from __future__ import annotations

import datetime as dt
import sqlite3
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import numpy as np

from tokiod.errors import TokiodError
from tokiod.simulator.faults import BLOCK
from tokiod.simulator.load import NULL, Load, Table
from tokiod.simulator.site import OPERATIONS, STEP, Site

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from tokiod.clock import Clock


FIRST_TS_ID = 8_921_898
PIECES = 3
"""Transactions in which the rows of one TS_ID arrive."""


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Rows on their way into a data table, ordered by TS_ID: their TS_IDs, components and fields, all [n]."""

    ts_id: NDArray[np.int64]
    component: NDArray[np.intp]
    fields: dict[str, NDArray[Any]]

    def __getitem__(self, some: NDArray[Any]) -> Rows:
        return Rows(self.ts_id[some], self.component[some], {name: values[some] for name, values in self.fields.items()})


class Arrivals:
    """What is written for a range of steps.

    A step has no TS_ID where LMT stood still, and two where its daemon was restarted: then a third of the servers wrote under the first,
    a third under the second, and the others under both, first still with what they had said a step before. Only the second counts.
    """

    def __init__(self, site: Site) -> None:
        self.load = Load(site)
        mds = site.osss + site.mds_of_mdt
        self._servers = {
            "OST_DATA": site.oss_of_ost,
            "OSS_DATA": np.arange(site.osss),
            "MDS_DATA": mds,
            "MDS_OPS_DATA": mds.repeat(len(OPERATIONS)),
        }

    def ts_ids(self, first: int, last: int) -> list[range]:
        """Return the TS_IDs of each of the steps [first, last)."""
        before, count = self.load.ticks(first, last)
        return [range(i, i + n) for i, n in zip((FIRST_TS_ID + before).tolist(), count.tolist(), strict=True)]

    def step(self, ts_id: int) -> int:
        """Return the step that a TS_ID belongs to."""
        return self.load.step_of(ts_id - FIRST_TS_ID)

    def rows(self, table: str, first: int, last: int) -> Rows:
        """Return a table's rows of the steps [first, last)."""
        before, count = self.load.ticks(first, last)
        now = self.load.table(table, first, last)
        group = (self._servers[table] + np.arange(first, last)[:, np.newaxis]) % 3
        twice = (count == 2)[:, np.newaxis]  # noqa: PLR2004 - two TS_IDs
        repeated = self._repeated(table, first, now, twice & (group == 1)) if twice.any() else now
        under_first = _take(repeated, ~twice | (group <= 1), FIRST_TS_ID + before)
        under_second = _take(now, twice & (group >= 1), FIRST_TS_ID + before + 1)
        rows = _joined(under_first, under_second)
        return rows[rows.ts_id.argsort(kind="stable")]

    def piece(self, table: str, rows: Rows, ts_id: int, piece: int) -> Rows:
        """Return those rows of a TS_ID that arrive in its transaction number `piece`: those of every PIECES-th server."""
        turn = (self._servers[table][rows.component] // 3 + ts_id) % PIECES
        return rows[(rows.ts_id == ts_id) & (turn == piece)]

    def _repeated(self, table: str, first: int, now: Table, where: NDArray[np.bool_]) -> Table:
        begin = max(0, first - 1)
        earlier = self.load.table(table, begin, first + len(now.present))
        earlier = earlier[np.maximum(np.arange(len(now.present)) + first - begin - 1, 0)]
        fields = {field: np.where(where, earlier.fields[field], values) for field, values in now.fields.items()}
        return Table(now.present & (earlier.present | ~where), fields)


def _take(table: Table, among: NDArray[np.bool_], ts_ids: NDArray[np.int64]) -> Rows:
    step, component = (table.present & among).nonzero()
    return Rows(ts_ids[step], component, {name: values[step, component] for name, values in table.fields.items()})


def _joined(one: Rows, other: Rows) -> Rows:
    fields = {name: np.concatenate([values, other.fields[name]]) for name, values in one.fields.items()}
    return Rows(np.concatenate([one.ts_id, other.ts_id]), np.concatenate([one.component, other.component]), fields)


# Names, order and keys of the copies that sites have of their databases; like those it has no index on TS_ID alone.
SCHEMA = {
    "FILESYSTEM_INFO": ("FILESYSTEM_ID, FILESYSTEM_NAME, FILESYSTEM_MOUNT_NAME, SCHEMA_VERSION", "FILESYSTEM_ID"),
    "OSS_INFO": ("OSS_ID, FILESYSTEM_ID, HOSTNAME, FAILOVERHOST", "OSS_ID, HOSTNAME"),
    "OST_INFO": ("OST_ID, OSS_ID, OST_NAME, HOSTNAME, OFFLINE, DEVICE_NAME", "OST_ID"),
    "MDS_INFO": ("MDS_ID, FILESYSTEM_ID, MDS_NAME, HOSTNAME, DEVICE_NAME", "MDS_ID"),
    "OPERATION_INFO": ("OPERATION_ID, OPERATION_NAME, UNITS", "OPERATION_ID"),
    "TIMESTAMP_INFO": ("TS_ID, TIMESTAMP", "TS_ID"),
    "OST_DATA": ("OST_ID, TS_ID, READ_BYTES, WRITE_BYTES, PCT_CPU, KBYTES_FREE, KBYTES_USED, INODES_FREE, INODES_USED", "OST_ID, TS_ID"),
    "OSS_DATA": ("OSS_ID, TS_ID, PCT_CPU, PCT_MEMORY", "OSS_ID, TS_ID"),
    "MDS_DATA": ("MDS_ID, TS_ID, PCT_CPU, KBYTES_FREE, KBYTES_USED, INODES_FREE, INODES_USED", "MDS_ID, TS_ID"),
    "MDS_OPS_DATA": ("MDS_ID, TS_ID, OPERATION_ID, SAMPLES, SUM, SUMSQUARES", "MDS_ID, TS_ID, OPERATION_ID"),
}

DATA = ("OST_DATA", "OSS_DATA", "MDS_DATA", "MDS_OPS_DATA")


class Database:
    """The LMT database of a site, from its epoch on, with everything in it that LMT 3 writes.

    It is in WAL mode: a reader that opens it with mode=ro waits milliseconds at most (while the writer starts) and never meets half a
    transaction, not while the writer commits and not after a kill -9 of the writer. With a rollback journal such a kill leaves a journal
    that only a writer can roll back: until the simulator is back, readers get "attempt to write a readonly database" (tried).
    What is inserted is a function of the site and the step, and inserting twice changes nothing: a file is continued wherever it ends.
    """

    def __init__(self, path: Path, site: Site) -> None:
        """Open the site's file, or make an empty one; raises TokiodError for a file that belongs to another site."""
        self._site = site
        self._zone = ZoneInfo(site.timezone)
        self._arrivals = Arrivals(site)
        self._db = sqlite3.connect(path, isolation_level=None)
        if not self._is_ours():
            self._db.close()
            raise TokiodError(f"{path} is not this site's: remove it, or give the seed, epoch, sizes and time zone that it was made with")
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = OFF")
        if self._pragma("user_version") == 0:
            self._make_tables()

    def next_step(self) -> int:
        """Return the step from which on something may be missing: that of the newest TS_ID, whose rows may not all be there."""
        (newest,) = self._db.execute("SELECT max(TS_ID) FROM TIMESTAMP_INFO").fetchone()
        return 0 if newest is None else self._arrivals.step(newest)

    def fill(self, last: int) -> None:
        """Insert all that is missing of the steps before `last`, an hour per transaction."""
        for start in range(self.next_step(), last, BLOCK):
            stop = min(start + BLOCK, last)
            stamps = list(zip(range(start, stop), self._arrivals.ts_ids(start, stop), strict=True))
            with self._transaction():
                self._insert_stamps([(ts_id, step) for step, ts_ids in stamps for ts_id in ts_ids])
                for name in DATA:
                    self._insert(name, self._arrivals.rows(name, start, stop))

    def pieces(self, step: int) -> Iterator[None]:
        """Insert the step's rows, one transaction per turn of the iterator."""
        rows = {name: self._arrivals.rows(name, step, step + 1) for name in DATA}
        for ts_id in self._arrivals.ts_ids(step, step + 1)[0]:
            for piece in range(PIECES):
                with self._transaction():
                    self._insert_stamps([(ts_id, step)])
                    for name in DATA:
                        self._insert(name, self._arrivals.piece(name, rows[name], ts_id, piece))
                yield

    def close(self) -> None:
        """Leave one file that is complete without its WAL."""
        self._db.close()

    def _is_ours(self) -> bool:
        try:
            if self._pragma("user_version") == 0:
                return self._db.execute("SELECT 1 FROM sqlite_master").fetchone() is None
            return bool(self._pragma("user_version") == self._site.fingerprint)
        except sqlite3.DatabaseError:
            return False

    def _pragma(self, name: str) -> Any:
        return self._db.execute(f"PRAGMA {name}").fetchone()[0]

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        with self._db:
            yield

    def _make_tables(self) -> None:
        site, hosts = self._site, [self._site.mds_names[i] for i in self._site.mds_of_mdt]
        with self._transaction():
            for table, (columns, key) in SCHEMA.items():
                self._db.execute(f"CREATE TABLE {table} ({columns}, PRIMARY KEY({key}))")
            self._put("FILESYSTEM_INFO", [(1, site.filesystem, "", 1.1)])
            self._put("OSS_INFO", [(i + 1, 1, name, None) for i, name in enumerate(site.oss_names)])
            self._put("MDS_INFO", [(i + 1, 1, name, hosts[i], "/dev/md66") for i, name in enumerate(site.mdt_names)])
            self._put("OPERATION_INFO", [(number, name, "reqs") for name, number in OPERATIONS.items()])
            self._db.execute(f"PRAGMA user_version = {site.fingerprint}")

    def _insert_stamps(self, stamps: list[tuple[int, int]]) -> None:
        """Insert (TS_ID, step)s, and the OSTs that have appeared by the last of them."""
        site = self._site
        times = [dt.datetime.fromtimestamp(site.epoch + step * STEP, self._zone) for _, step in stamps]
        self._put("TIMESTAMP_INFO", [(ts_id, f"{time:%Y-%m-%d %H:%M:%S}") for (ts_id, _), time in zip(stamps, times, strict=True)])
        there = (site.appears <= stamps[-1][1]).nonzero()[0].tolist() if stamps else []
        oss, names, hosts = site.oss_of_ost.tolist(), site.ost_names, site.oss_names
        self._put("OST_INFO", [(j + 1, oss[j] + 1, names[j], hosts[oss[j]], 0, f"/dev/md{j % 2}") for j in there])

    def _insert(self, table: str, rows: Rows) -> None:
        if table == "MDS_OPS_DATA":
            mdt, operation = np.divmod(rows.component, len(OPERATIONS))
            numbers, zeros = np.array(list(OPERATIONS.values())), np.zeros(len(mdt), int)
            columns = [mdt + 1, rows.ts_id, numbers[operation], rows.fields["SAMPLES"], zeros, zeros]
        else:
            columns = [rows.component + 1, rows.ts_id, *rows.fields.values()]
        self._put(table, zip(*map(_values, columns), strict=True))

    def _put(self, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
        places = ", ".join("?" * (SCHEMA[table][0].count(",") + 1))
        self._db.executemany(f"INSERT OR IGNORE INTO {table} VALUES ({places})", rows)  # noqa: S608 - names of our own


async def simulate(path: Path, site: Site, clock: Clock) -> None:
    """Keep an LMT database abreast of the clock for ever, from the site's epoch on, continuing a file that is there.

    A new file appears under its name with all of its past. A step that begins late, at the start or because the clock runs faster than
    this process, is inserted with its rows all at once.
    """
    _begin(path, site, clock)
    with closing(Database(path, site)) as database:
        due = 0
        while True:
            step = max(0, site.step(clock.time()))
            if step > due:
                database.fill(step)
            for piece, _ in enumerate(database.pieces(step), start=1):
                await _until(clock, site.epoch + (step + piece / (2 * PIECES + 1)) * STEP)
            due = step + 1
            await _until(clock, site.epoch + due * STEP)


def _begin(path: Path, site: Site, clock: Clock) -> None:
    if path.exists():
        return
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.unlink(missing_ok=True)
    with closing(Database(temporary, site)) as database:
        database.fill(site.step(clock.time()))
    temporary.rename(path)


async def _until(clock: Clock, time: float) -> None:
    await clock.sleep(time - clock.time())


def _values(column: NDArray[Any]) -> list[Any]:
    values: list[Any] = column.tolist()
    nothing = column == NULL if column.dtype.kind == "i" else np.isnan(column)
    for i in nothing.nonzero()[0].tolist():
        values[i] = None
    return values
