"""`tokioctl once`: collect one window of a source and print a summary. Nothing is written."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

import click
import msgspec
import numpy as np

from tokiod.cli.commands.completion import source_names
from tokiod.cli.common.base import Failed, clock_option, config_option
from tokiod.cli.common.lookup import polled_source
from tokiod.cli.common.output import echo, echo_json
from tokiod.cli.common.tables import show, table
from tokiod.cli.common.times import epoch
from tokiod.collector import Site, collect_window
from tokiod.config import load as configuration
from tokiod.config import plugins
from tokiod.errors import TokiodError
from tokiod.selection import Selection
from tokiod.tts.schema import UNITS
from tokiod.window import Calendar, Window, iso

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tokiod.clock import Clock
    from tokiod.collector import Collector, SourceConfig
    from tokiod.config.load import Config
    from tokiod.selection import Cells

NOT_POLLED = "which has no windows: `tokioctl archive` reads such files"


class Filled(msgspec.Struct, frozen=True):
    """A dataset of a window. first, last: UTC epoch seconds of its samples; sum: of its values, or the growth of its counters."""

    dataset: str
    form: str
    units: str
    cells: int
    columns: int
    first: int | None
    last: int | None
    sum: float


class Once(msgspec.Struct, frozen=True):
    """What would be stored of a window. records: read from the source, None if unknown; dropped: by reason."""

    source: str
    system: str
    start: int
    end: int
    datasets: list[Filled]
    records: int | None
    dropped: dict[str, int]
    seconds: float


@click.command("once")
@click.argument("source", shell_complete=source_names)
@click.option("--window", metavar="TIME", help="Collect the window that holds this time, ISO 8601, local to the site or with an offset.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON, times in UTC epoch seconds.")
@config_option
@clock_option
def once_command(config_path: Path, clock: Clock, source: str, window: str | None, *, as_json: bool) -> None:
    """Collect one window of SOURCE and print what would be stored.

    The default is the newest settled window. The command reads no ledger and writes no file; the daemon may run or not. Exit 0 collected,
    2 failed.
    """
    config = configuration.load(config_path)
    section = polled_source(config, source, NOT_POLLED)
    collector = plugins.load(section.kind).live(section, Site(Calendar(config.timezone), clock, config.secret))
    once = asyncio.run(_once(config, clock, section, collector, window))
    if as_json:
        echo_json(once)
    else:
        _tell(once)


async def _once(config: Config, clock: Clock, section: SourceConfig, collector: Collector, start: str | None) -> Once:
    dropped = Counter[str]()
    try:
        window = _window(Calendar(config.timezone), clock, section, start, replayable=collector.replayable)
        begun = clock.monotonic()
        collected = await collect_window(collector, section, window, seconds=section.timeout)
        seconds = clock.monotonic() - begun
    except TimeoutError:
        raise Failed(f"{section.name}: no answer within {section.timeout} s") from None
    except TokiodError as error:
        raise Failed(f"{section.name}: {error}") from error
    finally:
        await collector.close()
    selection = Selection(window, dropped)
    chosen = [selection.cells(batch) for batch in collected.batches if batch.columns]
    filled = [_filled(section.units, name, [cells for cells in chosen if cells.batch.dataset == name]) for name in _names(chosen)]
    dropped = Counter(collected.meta.dropped) + dropped
    return Once(section.name, section.system, window.start, window.end, filled, collected.meta.records, dict(dropped), round(seconds, 3))


def _window(calendar: Calendar, clock: Clock, section: SourceConfig, start: str | None, *, replayable: bool) -> Window:
    now = int(clock.time())
    if not replayable:
        if start is not None:
            raise Failed(f"--window: {section.name} cannot be queried about the past; omit --window")
        return calendar.window(now, section.window)
    closed = calendar.window(now - section.settle, section.window).start
    window = calendar.window(closed - 1 if start is None else epoch("--window", start, calendar.zone), section.window)
    if window.end > closed:
        raise Failed(f"--window: {window} is not settled yet; the newest settled window ends at {iso(closed)}")
    return window


def _names(chosen: list[Cells]) -> list[str]:
    return sorted({cells.batch.dataset for cells in chosen})


def _filled(own_units: Mapping[str, str], dataset: str, parts: list[Cells]) -> Filled:
    time = np.concatenate([part.time for part in parts])
    columns = {name for part in parts for name in part.batch.columns}
    form = parts[0].batch.form
    total = sum(_grown(part) if form == "counter" else float(part.value.sum()) for part in parts)
    unit = own_units.get(dataset) or UNITS.get(dataset, "")
    first, last = (int(time.min()), int(time.max())) if len(time) else (None, None)
    return Filled(dataset, form, unit, len(time), len(columns), first, last, total)


def _grown(cells: Cells) -> float:
    """Return the sum of the growths from sample to sample. Decreases count as zero."""
    order = np.lexsort((cells.time, cells.column))
    column, value = cells.column[order], cells.value[order]
    steps = np.where(column[1:] == column[:-1], value[1:] - value[:-1], 0)
    return float(steps[steps > 0].sum())


def _tell(once: Once) -> None:
    made = table("dataset", "form", "cells", "columns", "first", "last", "sum", "units", right={"cells", "columns", "sum"})
    for one in once.datasets:
        times = ("-" if time is None else iso(time) for time in (one.first, one.last))
        made.add_row(one.dataset, one.form, str(one.cells), str(one.columns), *times, f"{one.sum:.6g}", one.units)
    if once.datasets:
        show(made)
    cells = sum(one.cells for one in once.datasets)
    records = "" if once.records is None else f" of {once.records} records"
    echo(f"{once.source} {Window(once.start, once.end)}: {cells} cells{records} in {once.seconds:.1f} s; nothing was stored")
    for reason, count in sorted(once.dropped.items()):
        echo(f"dropped {count}: {reason}")
