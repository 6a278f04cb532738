"""A status as tables for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group

from tokiod.cli.common.tables import line, table, whole
from tokiod.window import iso

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

    from tokiod.reports.status import SourceLine, Status


def rendered(now: Status) -> Group:
    """Return the status as tables for a live display."""
    return Group(*map(whole, parts(now)))


def parts(now: Status) -> Iterator[RenderableType]:
    """Yield the status: a summary line, the tables, and the latest error of each source."""
    head = f"{iso(now.time)}  {now.archive}  "
    head += "the daemon is down; from the ledger" if now.writer is None else f"writer {now.writer}, {now.health}"
    yield line(head, style="bold red" if now.writer is None else "bold")
    yield _sources(now)
    if now.files:
        yield _files(now)
    yield from _jobs(now)
    yield from _troubles(now)


def _sources(now: Status) -> Table:
    made = table("source", "state", "watermark", "lag", "last window", "cells/s", "gaps", right={"lag", "cells/s", "gaps"})
    for source in now.sources:
        made.add_row(*_cells(source), style="" if source.state in {"running", "stopped", "new"} else "yellow")
    return made


def _cells(line: SourceLine) -> tuple[str, ...]:
    gaps = "-" if not line.gaps.spans else f"{line.gaps.spans} ({span(line.gaps.seconds)})"
    gaps += f", {span(line.gaps.lost)} lost" if line.gaps.lost else ""
    gaps += f", {span(line.gaps.empty)} empty" if line.gaps.empty else ""
    return (
        line.name,
        line.state,
        "-" if line.watermark is None else iso(line.watermark),
        "-" if line.lag is None else span(line.lag),
        _window(line),
        f"{line.cells_per_second:.0f}",
        gaps,
    )


def _troubles(now: Status) -> Iterator[Text]:
    """Yield the latest error of each source, to be printed below the tables."""
    for source in now.sources:
        if error := source.reason or source.last_error:
            yield line(f"{source.name}: {error}", style="yellow")


def _window(line: SourceLine) -> str:
    if line.last_start is None or line.last_end is None:
        return "-"
    return f"{iso(line.last_start)[11:]} +{span(line.last_end - line.last_start)}"


def _files(now: Status) -> Table:
    made = table("file being filled", "filled", right={"filled"})
    for file in now.files:
        made.add_row(file.path, f"{100 * file.filled:.1f} %")
    return made


def _jobs(now: Status) -> Iterator[Text]:
    for job in now.jobs:
        text = f"backfill {job.id} of {job.source}: {job.state}, {job.windows} windows, {span(job.seconds_left)} left"
        yield line(text + (f"; {job.error}" if job.error else ""))


def span(seconds: int) -> str:
    """Format a number of seconds: 45s, 12m, 3h05m, 4d02h."""
    minutes, rest = divmod(seconds, 60)
    hours, minutes_rest = divmod(minutes, 60)
    days, hours_rest = divmod(hours, 24)
    if days:
        return f"{days}d{hours_rest:02}h"
    if hours:
        return f"{hours}h{minutes_rest:02}m"
    if minutes:
        return f"{minutes}m{rest:02}s" if rest else f"{minutes}m"
    return f"{rest}s"
