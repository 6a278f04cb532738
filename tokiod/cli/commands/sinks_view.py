"""The states of sinks as a table for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokiod.cli.commands.status_view import span
from tokiod.cli.common.tables import line, table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.console import RenderableType

    from tokiod.reports.sinks import SinkState

NUMBERS = ("cursor", "lag", "backlog", "records", "rejected")


def shown(sinks: Iterable[SinkState]) -> Iterator[RenderableType]:
    """Yield the table, and what is wrong with each sink, or its last error."""
    made = table(
        "sink",
        "kind",
        "state",
        *NUMBERS,
        right=set(NUMBERS),
    )
    sinks = list(sinks)
    for one in sinks:
        made.add_row(*_cells(one), style="yellow" if one.trouble and one.trouble != "new" else "")
    yield made
    for one in sinks:
        yield from troubles(one)


def troubles(one: SinkState) -> Iterator[RenderableType]:
    """Yield what is wrong with a sink, else its last error."""
    if one.trouble in {"waiting", "fatal", "unknown"}:
        yield line(f"{one.name}: {one.trouble}: {one.reason}", style="yellow")
    elif one.trouble == "down":
        yield line(f"{one.name}: down: its process does not run: systemctl start tokiod-sink@{one.name}", style="yellow")
    elif one.trouble == "late":
        yield line(f"{one.name}: late: changes of {span(one.lag)} ago are not acknowledged", style="yellow")
    elif one.last_error:
        yield line(f"{one.name}: last error: {one.last_error}", style="yellow")


def _cells(one: SinkState) -> tuple[str, ...]:
    return (
        one.name,
        one.kind,
        one.trouble or one.state,
        "-" if one.cursor is None else str(one.cursor),
        f"{one.lag_windows} ({span(one.lag)})" if one.lag_windows else "-",
        span(one.backlog) if one.backlog else "-",
        str(one.records),
        str(sum(one.rejected.values())) if one.rejected else "-",
    )
