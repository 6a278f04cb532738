"""Tables for a terminal. In a narrow terminal lines are folded, so that no name, time or number is cut off."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from tokiod.cli.common.output import printable

if TYPE_CHECKING:
    from collections.abc import Collection

    from rich.console import RenderableType

FALLBACK_WIDTH = 200
"""Characters of a line where the terminal is narrower than the table or its width is unknown. Longer text is folded."""
MIN_FOLDED_WIDTH = 24
"""The least width of a column whose text may be folded."""


class Printer(Console):
    """A console whose reader may close its output. rich would exit with 1, which means a degraded state here."""

    def on_broken_pipe(self) -> None:
        """Let PlainGroup end the command, as for click.echo."""
        with suppress(SystemExit):
            super().on_broken_pipe()
        raise BrokenPipeError


class PrintableTable(Table):
    """A rich table whose cells hold printable text."""

    def add_row(self, *cells: Any, **options: Any) -> None:
        """Add a row of texts."""
        super().add_row(*(printable(cell) if isinstance(cell, str) else cell for cell in cells), **options)


def line(text: str, style: str = "") -> Text:
    """Return a line of a status for rich."""
    return Text(printable(text), style=style)


def table(*names: str, right: Collection[str] = (), folded: Collection[str] = ()) -> Table:
    """Return a table without rows. right: columns of numbers; folded: columns whose text may continue on the next line."""
    made = PrintableTable(box=None, header_style="bold", pad_edge=False)
    for name in names:
        made.add_column(name, justify="right" if name in right else "left", no_wrap=name not in folded)
    return made


def whole(shown: RenderableType) -> RenderableType:
    """Give the columns of a complete table the least width that shows their content."""
    for column in shown.columns if isinstance(shown, Table) else ():
        longest = max(cell_len(str(cell)) for cell in (column.header, *column.cells))
        column.min_width = longest if column.no_wrap else min(longest, MIN_FOLDED_WIDTH)
    return shown


def show(*shown: RenderableType) -> None:
    """Print tables and text to stdout, each as wide as needed."""
    console, wide = Printer(highlight=False), Printer(width=FALLBACK_WIDTH, highlight=False)
    for one in map(whole, shown):
        if console.is_terminal and _least(one) <= console.width:
            console.print(one)
        else:
            wide.print(one, soft_wrap=True)


def _least(shown: RenderableType) -> int:
    """Return the least width of a table. Text outside of a table continues on the next line."""
    unbounded = Console(width=10_000)
    return Measurement.get(unbounded, unbounded.options, shown).minimum if isinstance(shown, Table) else 0
