"""Tables for people: in a terminal that is too narrow for one its lines go on below, so that no name, time or figure is cut off."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Collection

    from rich.console import RenderableType

WIDE = 200
"""Columns where no terminal says how many there are, or too few: what is long is folded there."""
FOLDED = 24
"""The least width of a column whose text may be folded."""


class Printer(Console):
    """A console whose reader may go away, which is his affair: rich would end with 1, an answer that is not the good one."""

    def on_broken_pipe(self) -> None:
        """Leave it to PlainGroup, as what click.echo prints."""
        with suppress(SystemExit):
            super().on_broken_pipe()
        raise BrokenPipeError


def table(*names: str, right: Collection[str] = (), folded: Collection[str] = ()) -> Table:
    """Return a table without rows; right: columns of figures; folded: those whose text may go on in the next line."""
    made = Table(box=None, header_style="bold", pad_edge=False)
    for name in names:
        made.add_column(name, justify="right" if name in right else "left", no_wrap=name not in folded)
    return made


def whole(shown: RenderableType) -> RenderableType:
    """Keep a table's columns, now that it has its rows, from being narrower than what they must show."""
    for column in shown.columns if isinstance(shown, Table) else ():
        longest = max(cell_len(str(cell)) for cell in (column.header, *column.cells))
        column.min_width = longest if column.no_wrap else min(longest, FOLDED)
    return shown


def show(*shown: RenderableType) -> None:
    """Print tables and what belongs to them to stdout, each as wide as it must be."""
    console, wide = Printer(highlight=False), Printer(width=WIDE, highlight=False)
    for one in map(whole, shown):
        if console.is_terminal and _least(one) <= console.width:
            console.print(one)
        else:
            wide.print(one, soft_wrap=True)


def _least(shown: RenderableType) -> int:
    """Return how wide it must be; text that is in no table goes on in the next line."""
    unbounded = Console(width=10_000)
    return Measurement.get(unbounded, unbounded.options, shown).minimum if isinstance(shown, Table) else 0
