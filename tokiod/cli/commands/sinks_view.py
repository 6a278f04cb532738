"""The states of sinks as a table for a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokiod.cli.commands.status_view import sink_trouble
from tokiod.cli.common.tables import show, table
from tokiod.times import span

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from tokiod.published.sinks import SinkState

NUMBERS = ("cursor", "lag", "backlog", "records", "rejected")


def print_sinks(sinks: list[SinkState]) -> None:
    """Print the states of sinks."""
    show(*shown(sinks))


def shown(sinks: list[SinkState]) -> Iterator[RenderableType]:
    """Yield the table, and what is wrong with each sink, or its last error."""
    made = table("sink", "kind", "state", *NUMBERS, right=set(NUMBERS))
    for one in sinks:
        made.add_row(*_cells(one), style="yellow" if one.trouble and one.trouble != "new" else "")
    yield made
    for one in sinks:
        yield from sink_trouble(one)


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
