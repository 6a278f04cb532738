"""`tokioctl verify`: what a source tells now against what the archive has of it, window by window."""

from __future__ import annotations

import asyncio
import difflib
import math
import sys
from typing import TYPE_CHECKING, Any

import click
import msgspec

from tokiod import config as configuration
from tokiod import plugins
from tokiod.cli.completion import dataset_names, source_names
from tokiod.cli.plain import Failed, clock_option, config_option
from tokiod.cli.times import epoch
from tokiod.collector import Site
from tokiod.ledger import Ledger
from tokiod.process import one_heap
from tokiod.scratch import Source
from tokiod.verify import Verification, Verified
from tokiod.window import Calendar, Window

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tokiod.clock import Clock
    from tokiod.collector import SourceConfig
    from tokiod.config import Config
    from tokiod.differing import Cell, Differing


@click.command("verify")
@click.argument("source", shell_complete=source_names)
@click.argument("start")
@click.argument("end")
@click.option(
    "--dataset",
    "datasets",
    multiple=True,
    shell_complete=dataset_names,
    help="Only this dataset, e.g. dataservers/cpuload; may be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@config_option
@clock_option
def verify_command(
    config_path: Path, clock: Clock, source: str, start: str, end: str, datasets: tuple[str, ...], *, as_json: bool
) -> None:  # fmt: skip
    """Ask SOURCE again from START to END (ISO 8601, local to the site or with an offset), and say where the archive differs.

    Every stored cell is compared, bit by bit; nothing is changed. The daemon may run or not. `tokioctl backfill --force` collects
    again what differs. Exit 0 nothing differs, 1 something does, 2 it can't be told.
    """
    one_heap()
    config = configuration.load(config_path)
    stanza = _stanza(config, source)
    chosen = _datasets(stanza, datasets)
    if not config.archive.ledger.exists():
        raise Failed(f"there is no ledger at {config.archive.ledger}: has tokiod ever run on this archive?")
    asked = _asked(Calendar(config.timezone), stanza, start, end)
    span, left_out = _span(asked, Calendar(config.timezone), stanza, int(clock.time()))
    told = _Told(stanza.name, asked, left_out, as_json=as_json)
    if span is not None:
        with click.progressbar(length=span.seconds, label="verifying", file=sys.stderr, hidden=not sys.stderr.isatty()) as bar:
            try:
                asyncio.run(_verify(config, clock, stanza, chosen, span, told, _moving(span, bar.update)))
            except OSError as error:
                raise Failed(f"{error.filename or config.archive.root}: {error.strerror or error}") from error
    told.end()
    sys.exit(1 if told.windows else 0)


def _moving(span: Window, update: Callable[[int], None]) -> Callable[[int], None]:
    """Return what is told how far it got; where it has to begin again farther back, the bar stands still."""
    reached = span.start

    def move(time: int) -> None:
        nonlocal reached
        update(max(0, time - reached))
        reached = max(reached, time)

    return move


async def _verify(
    config: Config, clock: Clock, stanza: SourceConfig, datasets: frozenset[str], span: Window, told: _Told, progress: Callable[[int], None]
) -> None:
    calendar = Calendar(config.timezone)
    asked = stanza if datasets == stanza.datasets() else stanza.only(datasets)
    collector = plugins.load(stanza.kind).live(asked, Site(calendar, clock, config.secret))
    try:
        if not collector.replayable:
            raise Failed(
                f"{stanza.name} can't be asked about the past: what is stored of it can't be had again; tokioctl gaps shows what is not"
            )
        with Ledger.open_readonly(config.archive.ledger) as ledger:
            source = Source(stanza, collector, calendar, clock)
            verification = Verification(config.archive, source, ledger, datasets, progress=progress)
            async for differing in verification.run(span, told.verified):
                told.tell(differing)
    finally:
        await collector.close()


def _stanza(config: Config, name: str) -> SourceConfig:
    names = {source.name: source for source in config.source}
    if name in names and not names[name].polled:
        raise Failed(
            f"{name} is a watched folder, which can't be asked again: make a file of its inputs with tokioctl archive, and compare the two"
        )
    if name in names:
        return names[name]
    near = difflib.get_close_matches(name, names, 1)
    raise Failed(f"no source is called {name!r}" + (f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(sorted(names))}"))


def _datasets(stanza: SourceConfig, datasets: tuple[str, ...]) -> frozenset[str]:
    for dataset in datasets:
        if dataset not in stanza.datasets():
            raise Failed(f"--dataset: {stanza.name} does not fill {dataset!r}; it fills {', '.join(sorted(stanza.datasets()))}")
    return frozenset(datasets) or stanza.datasets()


def _asked(calendar: Calendar, stanza: SourceConfig, start: str, end: str) -> Window:
    """Return the span that is asked for, widened to the edges of the source's windows."""
    first, last = epoch("START", start, calendar.zone), epoch("END", end, calendar.zone)
    if first >= last:
        raise Failed(f"START {start} must be before END {end}")
    return Window(calendar.window(first, stanza.window).start, calendar.window(last - 1, stanza.window).end)


def _span(asked: Window, calendar: Calendar, stanza: SourceConfig, now: int) -> tuple[Window | None, list[tuple[Window, str]]]:
    """Return what can be compared of a span, and what is left out of it and why."""
    oldest = calendar.window(now - stanza.retention, stanza.window).end
    closed = calendar.window(now - stanza.settle, stanza.window).start
    parts = (
        (asked.start, min(asked.end, oldest), "older than the source's retention"),
        (max(asked.start, closed), asked.end, "not closed and settled yet"),
    )
    left_out = [(Window(first, last), why) for first, last, why in parts if first < last]
    first, last = max(asked.start, oldest), min(asked.end, closed)
    return (Window(first, last) if first < last else None), left_out


class _Told:
    """What is printed: each window as it is found, and what it comes to at the end."""

    def __init__(self, source: str, span: Window, left_out: list[tuple[Window, str]], *, as_json: bool) -> None:
        self.verified = Verified()
        self.windows = 0
        self._source, self._span, self._left_out, self._as_json = source, span, left_out, as_json
        self._found: list[dict[str, Any]] = []

    def tell(self, differing: Differing) -> None:
        """Print a window that differs, or keep it for the end of the JSON."""
        self.windows += 1
        if self._as_json:
            self._found.append(_as_dict(differing))
            return
        for line in _lines(differing):
            click.echo(line)

    def end(self) -> None:
        """Print what it comes to."""
        verified = self.verified
        if self._as_json:
            result = {"source": self._source, "start": self._span.start, "end": self._span.end}
            result |= {"windows": verified.windows, "cells": verified.cells, "differing": self._found}
            result["not_stored"] = [[window.start, window.end] for window in verified.not_stored]
            result["not_compared"] = [[window.start, window.end, why] for window, why in self._left_out]
            click.echo(msgspec.json.encode(result).decode())
            return
        for window in verified.not_stored:
            click.echo(f"{window}: not stored")
        for window, why in self._left_out:
            click.echo(f"{window}: not compared, {why}")
        click.echo(f"{self._source}: {self.windows} of {verified.windows} windows differ; {verified.cells} cells compared")


def _lines(differing: Differing) -> list[str]:
    sums = {kind: sum(counts[kind] for counts in differing.counts.values()) for kind in ("missing", "extra", "different")}
    said = [f"{count} {kind}" for kind, count in sums.items() if count]
    if differing.records is not None:
        said.append("{} records stored, {} at the source".format(*differing.records))
    return [f"{differing.window}: {', '.join(said)}", *(f"    {cell}" for cell in differing.cells)]


def _as_dict(differing: Differing) -> dict[str, Any]:
    return {
        "start": differing.window.start,
        "end": differing.window.end,
        "datasets": {dataset: {kind: n for kind, n in counts.items() if n} for dataset, counts in differing.counts.items()},
        "records": None if differing.records is None else dict(zip(("stored", "source"), differing.records, strict=True)),
        "cells": [_cell(cell) for cell in differing.cells],
    }


def _cell(cell: Cell) -> dict[str, Any]:
    values = {name: None if math.isnan(value) else value for name, value in (("archive", cell.archive), ("source", cell.source))}
    return {"kind": cell.kind, "dataset": cell.dataset, "column": cell.column, "time": cell.time, **values}
