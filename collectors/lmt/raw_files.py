# ruff: noqa: S608 - statements are made of names of our own, which no driver can pass as parameters
"""Raw output of a database: the rows of its tables, in a copy as `archive lmt` reads it. Its time stamps are in UTC."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import apsw

from collectors.lmt.collector import connected
from collectors.lmt.datasets import NULL_INTEGER, REQUIRED_COLUMNS, TABLES
from collectors.lmt.parse_inventory import INFO
from collectors.lmt.parse_timestamps import text

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from numpy.typing import NDArray

    from collectors.lmt.collector import RawRows
    from collectors.lmt.config import Config
    from tokiod.collector import Site
    from tokiod.window import Window

STAMPS = "TIMESTAMP_INFO"


class RawTables:
    """The rows that a database has for each window."""

    suffix: ClassVar[str] = ".sqlite3"
    file_seconds: ClassVar[int] = 86400
    window_seconds: ClassVar[int] = 180

    def __init__(self, config: Config, site: Site) -> None:
        self._config = config
        self.collector = connected(config, site)

    async def fetch(self, window: Window) -> RawRows:
        """Return the rows of a window. Raises as Lmt.collect()."""
        return await self.collector.rows(window)

    def create(self, path: Path) -> TablesFile:
        """Create a copy. Raises OSError."""
        return TablesFile(path)

    def options(self) -> list[str]:
        """Return what the copy does not say: the zone of its time stamps, the step, the file system, and how columns are named."""
        config, rates = self._config, self._config.max_rate
        limits = ",".join(f"{name}={getattr(rates, name):g}" for name in rates.__struct_fields__)
        filesystem = ["--filesystem", config.filesystem] if config.filesystem else []
        return ["--timezone", "UTC", "--step", str(config.step), "--mdt-names", config.mdt_names, "--max-rate", limits, *filesystem]


class TablesFile:
    """A SQLite file with LMT's tables, without keys: its rows are in the order of time."""

    def __init__(self, path: Path) -> None:
        self._db = apsw.Connection(str(path))
        self._columns: dict[str, tuple[str, ...]] = {}
        # A file that is not complete is thrown away.
        for pragma in ("journal_mode = OFF", "synchronous = OFF", "locking_mode = EXCLUSIVE"):
            self._db.execute(f"PRAGMA {pragma}").fetchall()

    def add(self, raw: RawRows) -> None:
        """Append the rows of a window. Raises OSError."""
        try:
            with self._db:
                self._add(raw)
        except (apsw.FullError, apsw.IOError) as error:
            raise OSError(28 if isinstance(error, apsw.FullError) else 5, str(error)) from error

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _add(self, raw: RawRows) -> None:
        for name, rows in raw.info.items():
            self._replace(name, INFO[name], rows)
        ts_ids, times = raw.span.ts_ids.tolist(), raw.span.times.tolist()
        stamps = ((ts_id, text(time)) for ts_id, time in zip(ts_ids, times, strict=True))
        self._insert(STAMPS, REQUIRED_COLUMNS[STAMPS], stamps)
        for table in TABLES:
            numbers = raw.numbers[table.name]
            self._insert(table.name, tuple(numbers), zip(*map(_values, numbers.values()), strict=True))

    def _replace(self, table: str, columns: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> None:
        """Keep the names that were known last: components are only added."""
        if table in self._columns:
            self._db.execute(f"DELETE FROM {table}")
        self._insert(table, columns, rows)

    def _insert(self, table: str, columns: tuple[str, ...], rows: Iterable[tuple[Any, ...]]) -> None:
        if table not in self._columns:
            self._columns[table] = columns
            self._db.execute(f"CREATE TABLE {table} ({', '.join(columns)})")
        self._db.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})", rows)


def _values(numbers: NDArray[Any]) -> list[Any]:
    """Return a column for SQLite, where NaN is NULL anyway."""
    values: list[Any] = numbers.tolist()
    if numbers.dtype.kind == "i" and (numbers == NULL_INTEGER).any():
        return [None if value == NULL_INTEGER else value for value in values]
    return values
