"""A status as tables for a terminal."""

from __future__ import annotations

import sys
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec
from rich.console import Group
from rich.live import Live

from tokiod.cli.common.tables import Fitted, line, show, table
from tokiod.dropped import Why
from tokiod.times import iso, span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

    from tokiod.published.hosts import HostState
    from tokiod.published.sinks import SinkState
    from tokiod.reports.status import Gaps, SourceLine, Status, Today


RATE_SECONDS = 60.0
"""The time over which --watch averages rates: a window can be as long."""


class Rates:
    """Cells per second of each source, over the last minute of successive statuses."""

    def __init__(self) -> None:
        self._seen: deque[Status] = deque()

    def of(self, now: Status) -> dict[str, float]:
        """Return the rates by source; in the first second, those of the last window."""
        self._seen.append(now)
        while now.time - self._seen[0].time > RATE_SECONDS:
            self._seen.popleft()
        before, seconds = {one.name: one.cells for one in self._seen[0].sources}, now.time - self._seen[0].time
        if seconds < 1:
            return {one.name: one.cells_per_second for one in now.sources}
        return {one.name: max(0, one.cells - before.get(one.name, one.cells)) / seconds for one in now.sources}


@contextmanager
def display(*, is_single: bool, is_watched: bool) -> Iterator[Callable[[Status], None]]:
    """Yield what prints a status. In a terminal that is watched, it replaces the one before."""
    rates = Rates()

    def view(now: Status) -> Iterator[RenderableType]:
        return details(now) if is_single else watched(now, rates.of(now)) if is_watched else parts(now)

    if is_watched and sys.stdout.isatty():
        with Live(auto_refresh=False) as live:
            yield lambda now: live.update(live_display(view(now)), refresh=True)
    else:
        yield lambda now: show(*view(now))


def watched(now: Status, rates: dict[str, float]) -> Iterator[RenderableType]:
    """Yield the status as parts() does, the source with the most cells per second first."""
    busiest = sorted(now.sources, key=lambda one: (-rates[one.name], one.name))
    lines = [msgspec.structs.replace(one, cells_per_second=rates[one.name]) for one in busiest]
    yield from parts(msgspec.structs.replace(now, sources=lines))


def rendered(now: Status) -> Group:
    """Return the status for a live display."""
    return live_display(parts(now))


def live_display(shown: Iterable[RenderableType]) -> Group:
    """Return what fits a live display of any width."""
    return Group(*map(Fitted, shown))


def parts(now: Status) -> Iterator[RenderableType]:
    """Yield the status: a summary line, the tables, and the latest error of each source."""
    yield _head(now)
    yield _sources(now)
    if now.hosts:
        yield _hosts(now)
    if now.files:
        yield _files(now)
    yield from _jobs(now)
    if now.web:
        yield line(f"tokiod web: {now.web}")
    yield from _troubles(now)
    yield from map(host_trouble, (host for host in now.hosts if host.trouble))
    for sink in now.sinks:
        if sink.trouble:
            yield from sink_trouble(sink)


def host_trouble(host: HostState) -> Text:
    """Return what is wrong with a host."""
    new = "it has not connected since the daemon started: does `tokiod collectors` run there?"
    return line(f"host {host.name}: {host.trouble}: {host.reason or new}", style="yellow")


def sink_trouble(sink: SinkState) -> Iterator[Text]:
    """Yield what is wrong with a sink, else its last error."""
    reasons = {
        "down": f"its process does not run: systemctl start tokiod-sink@{sink.name}",
        "late": f"changes of {span(sink.lag)} ago are not acknowledged",
        "new": f"its process has never run: systemctl enable --now tokiod-sink@{sink.name}",
    }
    if sink.trouble:
        yield line(f"sink {sink.name}: {sink.trouble}: {reasons.get(sink.trouble, sink.reason)}", style="yellow")
    elif sink.last_error:
        yield line(f"sink {sink.name}: last error: {sink.last_error}", style="yellow")


def details(now: Status) -> Iterator[RenderableType]:
    """Yield the status of its only source, everything that is known of it."""
    (source,) = now.sources
    yield _head(now)
    made = table("source", source.name, folded={source.name})
    for name, text in _details(source):
        made.add_row(name, text)
    for host in now.hosts:
        if source.name in host.sources:
            made.add_row("host", f"{host.name}, {_host_state(host)}" + (f": {host.reason}" if host.reason else ""))
    yield made
    if now.files:
        yield _files(now)
    yield from _jobs(now)


def _details(source: SourceLine) -> Iterator[tuple[str, str]]:
    yield "state", (source.trouble or source.state) + (f": {source.reason}" if source.reason else "")
    yield "kind, system", f"{source.kind}, {source.system}"
    yield "watermark", "-" if source.watermark is None else f"{iso(source.watermark)}, nothing is missing before it"
    yield "lag", "-" if source.lag is None else span(source.lag)
    yield "last window", _window(source)
    yield "stored at", "-" if source.stored_at is None else iso(int(source.stored_at))
    yield "stored", f"{source.windows} windows, {source.cells} cells, {source.cells_per_second:.0f} cells/s in the last window"
    yield "today", "-" if source.today is None else _today(source.today)
    yield "gaps", _gaps(source.gaps)
    yield "past", _past(source) if source.gaps.past else "-"
    dropped = sorted(source.dropped.items())
    yield "dropped", "\n".join(f"{count} {reason}{source.why.get(reason, Why())}" for reason, count in dropped) or "-"
    yield "last error", f"{source.last_error} (attempt {source.attempts})" if source.last_error else "-"


def _today(today: Today) -> str:
    return f"{_percent(today.stored, today.due)} of what is due is stored, {_percent(today.stored, today.whole)} of the day"


def _percent(part: int, whole: int) -> str:
    return f"{100 * min(part, whole) / whole:.1f} %" if whole else "-"


def _head(now: Status) -> Text:
    return line(f"{iso(now.time)}  {now.archive}  {_daemon(now)}", style="bold red" if now.writer is None else "bold")


def _daemon(now: Status) -> str:
    if now.writer is not None:
        return f"writer {now.writer}, {now.health}"
    if now.has_ledger:
        return "the daemon is down; from the ledger"
    return "the daemon is down and there is no ledger: start it by systemctl start tokiod, or tokiod run"


def _sources(now: Status) -> Table:
    names = ("source", "state", "watermark", "lag", "last window", "cells/s", "today", "gaps")
    made = table(*names, right={"lag", "cells/s", "today"}, folded={"gaps"}, spare=("last window", "today"))
    for source in now.sources:
        made.add_row(*_cells(source), style="yellow" if source.trouble and source.trouble != "new" else "")
    return made


def _cells(source: SourceLine) -> tuple[str, ...]:
    return (
        source.name,
        source.trouble or source.state,
        "-" if source.watermark is None else iso(source.watermark),
        "-" if source.lag is None else span(source.lag),
        _window(source),
        f"{source.cells_per_second:.0f}",
        "-" if source.today is None else _percent(source.today.stored, source.today.due),
        _gaps(source.gaps),
    )


def _past(source: SourceLine) -> str:
    left = "" if source.past_left is None else f", in about {span(source.past_left)}"
    return f"collecting the past: {span(source.gaps.past)} left{left}"


def _gaps(found: Gaps) -> str:
    text = "-" if not found.spans else f"{found.spans} ({span(found.seconds)})"
    text += f", {span(found.lost)} lost" if found.lost else ""
    return text + (f", {span(found.empty)} empty" if found.empty else "")


def _troubles(now: Status) -> Iterator[Text]:
    """Yield what is wrong with each source, in the words of the log, to be printed below the tables; else its last error."""
    for source in now.sources:
        if source.gaps.past and source.state == "running":
            yield line(f"{source.name}: {_past(source)}")
        if source.trouble and source.reason:
            yield line(f"{source.name}: {source.trouble}: {source.reason}", style="yellow")
        elif error := source.reason or source.last_error:
            yield line(f"{source.name}: last error: {error}", style="yellow")


def _window(line: SourceLine) -> str:
    if line.last_start is None or line.last_end is None:
        return "-"
    return f"{iso(line.last_start)[11:]} +{span(line.last_end - line.last_start)}"


def _files(now: Status) -> Table:
    """Return the files, by their paths relative to the archive."""
    made = table("file being filled", "filled", right={"filled"}, folded={"file being filled"})
    for file in now.files:
        filled = "-" if file.filled is None else f"{100 * file.filled:.1f} %"
        made.add_row(file.path.removeprefix(f"{now.archive}/"), filled)
    return made


def _hosts(now: Status) -> Table:
    names = ("host", "state", "contact", "clock", "tokiod", "address", "sources")
    made = table(*names, right={"clock"}, folded={"sources"}, spare=("address", "tokiod"))
    for host in now.hosts:
        made.add_row(*_host(host, now.time), style="yellow" if host.trouble else "")
    return made


def _host_state(host: HostState) -> str:
    return host.trouble or ("writer" if host.role == "writer" else "connected")


def _host(host: HostState, now: float) -> tuple[str, ...]:
    is_writers = host.role == "writer"
    return (
        host.name,
        _host_state(host),
        "-" if host.contact is None else f"{span(max(0, int(now - host.contact)))} ago",
        "-" if host.clock is None or is_writers else f"{host.clock:+.1f}s",
        host.version or "-",
        host.address or "-",
        ", ".join(host.sources) or "-",
    )


def _jobs(now: Status) -> Iterator[Text]:
    for job in now.jobs:
        text = f"backfill {job.id} of {job.source}: {job.state}, {job.windows} windows, {span(job.seconds_left)} left"
        yield line(text + (f"; {job.error}" if job.error else ""))
