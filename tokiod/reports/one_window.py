"""What sources return for one window, without storing it: for `tokioctl once` and `tokiod check --connect`."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from tokiod.collector import Site, collect_window
from tokiod.config import plugins
from tokiod.dropped import Why  # noqa: TC001 - msgspec reads annotations
from tokiod.errors import TokiodError
from tokiod.runtime.secrets import mask
from tokiod.selection import Selection
from tokiod.tts.schema import UNITS
from tokiod.window import Calendar, iso

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tokiod.clock import Clock
    from tokiod.collector import SourceConfig
    from tokiod.config.schema import Config
    from tokiod.selection import Cells
    from tokiod.window import Window
    from tokiod.window_data import TableRows


class Filled(msgspec.Struct, frozen=True):
    """A dataset of a window. first, last: UTC epoch seconds of its samples.

    sum: of its values, or the growth of its counters; null for counters without two samples of a column, whose difference needs the next
    window.
    """

    dataset: str
    form: str
    units: str
    cells: int
    columns: int
    first: int | None
    last: int | None
    sum: float | None


class FilledTable(msgspec.Struct, frozen=True):
    """Rows of a table of a window, of so many jobs on so many targets. first, last: UTC epoch seconds of its rows."""

    table: str
    rows: int
    jobs: int
    targets: int
    first: int | None
    last: int | None


class Once(msgspec.Struct, frozen=True):
    """What would be stored of a window. records: read from the source, None if unknown; dropped: by reason; why: examples and remedies.

    error: why the source did not answer; check: the keys to check, of a source that has no record for the window; trouble: what is missing
    of the window, and why.
    """

    source: str
    system: str
    start: int
    end: int
    datasets: list[Filled]
    records: int | None
    dropped: dict[str, int]
    seconds: float
    error: str = ""
    check: str = ""
    tables: list[FilledTable] = []
    trouble: str = ""
    why: dict[str, Why] = {}

    @property
    def cells(self) -> int:
        """How many cells would be stored."""
        return sum(one.cells for one in self.datasets)

    @property
    def rows(self) -> int:
        """How many rows of tables would be stored."""
        return sum(one.rows for one in self.tables)


async def query(config: Config, clock: Clock, section: SourceConfig, time: int | None = None) -> Once:
    """Collect the window that holds a time, epoch seconds, or the newest settled one.

    Raises TokiodError for a window that can't be queried, and the source's error.
    """
    calendar = config.calendar
    site = Site(calendar, clock, config.secret, hub=config.hub_inner, shows_users=config.jobs.users == "names")
    collector = plugins.load(section.kind).live(section, site)
    dropped = Counter[str]()
    try:
        window = _window(calendar, clock, section, time, replayable=collector.replayable)
        begun = clock.monotonic()
        collected = await collect_window(collector, section, window, seconds=section.timeout)
        seconds = clock.monotonic() - begun
    except TimeoutError:
        raise TokiodError(f"{section.name}: no answer within {section.timeout} s") from None
    except TokiodError as error:
        raise TokiodError(f"{section.name}: {error}") from error
    finally:
        await collector.close()
    selection = Selection(window, dropped)
    chosen = [selection.cells(batch) for batch in collected.batches if batch.columns]
    names = sorted({cells.batch.dataset for cells in chosen})
    filled = [_filled(section.units, name, [cells for cells in chosen if cells.batch.dataset == name]) for name in names]
    dropped = Counter(collected.meta.dropped) + dropped
    # Records that gave nothing say more of what is wrong than the keys that select them.
    check = section.selection if collected.is_empty and not dropped else ""
    tables = [_filled_table(rows) for rows in collected.tables]
    return Once(
        section.name, section.system, window.start, window.end, filled, collected.meta.records, dict(dropped), round(seconds, 3),
        check=check, tables=tables, trouble=mask(collected.trouble), why=dict(collected.why),
    )  # fmt: skip


def failed(section: SourceConfig, error: Exception) -> Once:
    """Return what is to say of a source that did not answer."""
    known = str(error).removeprefix(f"{section.name}: ") if isinstance(error, TokiodError) else ""
    reason = mask(known or f"a fault in its collector: {type(error).__name__}: {error}")
    return Once(section.name, section.system, 0, 0, [], None, {}, 0.0, reason)


async def query_all(config: Config, clock: Clock, sections: Iterable[SourceConfig], note: Callable[[Once], None]) -> list[Once]:
    """Query the newest settled window of each source, all at the same time; call `note` with each result as it comes."""

    async def one(section: SourceConfig) -> Once:
        try:
            result = await query(config, clock, section)
        except Exception as error:  # noqa: BLE001 - a collector may raise anything, and the others are still to answer
            result = failed(section, error)
        note(result)
        return result

    return await asyncio.gather(*map(one, sections))


def _window(calendar: Calendar, clock: Clock, section: SourceConfig, time: int | None, *, replayable: bool) -> Window:
    now = int(clock.time())
    if not replayable:
        if time is not None:
            raise TokiodError("it cannot be queried about the past; omit --window")
        return calendar.window(now, section.window)
    closed = calendar.window(now - section.settle, section.window).start
    window = calendar.window(closed - 1 if time is None else time, section.window)
    if window.end > closed:
        raise TokiodError(f"{window} is not settled yet; the newest settled window ends at {iso(closed)}")
    return window


def _filled(own_units: Mapping[str, str], dataset: str, parts: list[Cells]) -> Filled:
    time = np.concatenate([part.time for part in parts])
    columns = {name for part in parts for name in part.batch.columns}
    form = parts[0].batch.form
    total: float | None = sum(float(part.value.sum()) for part in parts)
    if form == "counter":
        grown = [growth for part in parts if (growth := _grown(part)) is not None]
        total = sum(grown) if grown else None
    unit = own_units.get(dataset) or UNITS.get(dataset, "")
    first, last = (int(time.min()), int(time.max())) if len(time) else (None, None)
    return Filled(dataset, form, unit, len(time), len(columns), first, last, total)


def _filled_table(rows: TableRows) -> FilledTable:
    values = dict(zip(rows.columns, rows.values, strict=True))
    jobs, targets = (len(np.unique(values[name])) for name in ("job", "target"))
    first, last = (int(rows.values[0].min()), int(rows.values[0].max())) if len(rows) else (None, None)
    return FilledTable(rows.table, len(rows), jobs, targets, first, last)


def _grown(cells: Cells) -> float | None:
    """Return the sum of the growths from sample to sample, decreases as zero; None without two samples of a column."""
    order = np.lexsort((cells.time, cells.column))
    column, value = cells.column[order], cells.value[order]
    is_next = column[1:] == column[:-1]
    if not is_next.any():
        return None
    steps = (value[1:] - value[:-1])[is_next]
    return float(steps[steps > 0].sum())
