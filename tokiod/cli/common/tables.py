"""Tables for a terminal of any width. No name, time or number is cut off: what does not fit side by side is printed below each other."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from tokiod.cli.common.output import printable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from rich.console import ConsoleOptions, RenderableType

PIPE_WIDTH = 200
"""Characters of a line where stdout is no terminal. Longer text continues on the next line."""
MIN_FOLDED_WIDTH = 24
"""The least width of a column whose text may continue on the next line."""
COLUMN_GAP, INDENT = 2, 2
"""Blanks between columns, and before what is printed below a row."""
NOTHING = {"", "-"}


class Printer(Console):
    """A console whose reader may close its output. rich would exit with 1, which means a degraded state here."""

    def on_broken_pipe(self) -> None:
        """Let PlainGroup end the command, as for click.echo."""
        with suppress(SystemExit):
            super().on_broken_pipe()
        raise BrokenPipeError


class PrintableTable(Table):
    """A rich table whose cells hold printable text. spare: columns that a narrow terminal does not show, the first one first."""

    spare: Sequence[str] = ()

    def add_row(self, *cells: Any, **options: Any) -> None:
        """Add a row of texts."""
        super().add_row(*(printable(cell) if isinstance(cell, str) else cell for cell in cells), **options)


def line(text: str, style: str = "") -> Text:
    """Return a line of a status for rich."""
    return Text(printable(text), style=style)


def table(*names: str, right: Collection[str] = (), folded: Collection[str] = (), spare: Sequence[str] = ()) -> PrintableTable:
    """Return a table without rows. The first column says what a row is about.

    right: columns of numbers; folded: columns whose text may continue on the next line, or stand below its row; spare: columns that are
    left out where the table would not fit otherwise, the first one first.
    """
    made = PrintableTable(box=None, header_style="bold", pad_edge=False, padding=(0, COLUMN_GAP, 0, 0))
    made.spare = spare
    for name in names:
        made.add_column(name, justify="right" if name in right else "left", no_wrap=name not in folded)
    return made


def show(*shown: RenderableType) -> None:
    """Print tables and text to stdout. In a terminal they fit its width; elsewhere each row is a line, if it has up to 200 characters."""
    console, wide = Printer(highlight=False), Printer(width=PIPE_WIDTH, highlight=False)
    for one in shown:
        if not console.is_terminal:
            wide.print(_part(one, range(len(one.columns))) if isinstance(one, PrintableTable) else one, soft_wrap=True)
        else:
            found = fitted(one, console.width)
            console.print(found, soft_wrap=isinstance(found, Group))


def fitted(shown: RenderableType, width: int) -> RenderableType:
    """Return a complete table as it fits a width: whole, without spare columns, with long text below its row, or as paragraphs."""
    if not isinstance(shown, PrintableTable):
        return shown
    named = [str(column.header) for column in shown.columns]
    least = [_least(column) for column in shown.columns]
    kept: list[int] = []
    for left_out in range(len(shown.spare) + 1):
        chosen = kept = [place for place, name in enumerate(named) if name not in shown.spare[:left_out]]
        if sum(least[place] for place in chosen) + COLUMN_GAP * (len(chosen) - 1) <= width:
            return _part(shown, chosen)
    short = [place for place in kept if shown.columns[place].no_wrap]
    if 1 < len(short) < len(kept) and sum(least[place] for place in short) + COLUMN_GAP * (len(short) - 1) <= width:
        return Group(*_with_text_below(shown, short, [place for place in kept if place not in short], width))
    return Group(*_paragraphs(shown, width))


class Fitted:
    """What a live display shows, as it fits the width that the display has then."""

    def __init__(self, shown: RenderableType) -> None:
        self._shown = shown

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """Yield it for a console."""
        yield fitted(self._shown, options.max_width)


def _least(column: Any) -> int:
    """Return the least width that shows the content of a column without a break in a word."""
    texts = [str(cell) for cell in (column.header, *column.cells)]
    longest = max(map(cell_len, texts))
    if column.no_wrap:
        return longest
    return max(min(longest, MIN_FOLDED_WIDTH), *(cell_len(word) for text in texts for word in text.split()))


def _part(whole: PrintableTable, chosen: Sequence[int]) -> Table:
    """Return a table of some of the columns, which are as wide as their content needs."""
    for place in chosen:
        whole.columns[place].min_width = _least(whole.columns[place])
    if len(chosen) < len(whole.columns):
        columns, rows = [whole.columns[place] for place in chosen], [[*column.cells] for column in whole.columns]
        part = table()
        for column in columns:
            part.add_column(column.header, justify=column.justify, no_wrap=column.no_wrap, min_width=column.min_width)
        for number, row in enumerate(whole.rows):
            part.add_row(*(rows[place][number] for place in chosen), style=row.style)
        return part
    return whole


def _with_text_below(whole: PrintableTable, short: list[int], long: list[int], width: int) -> Iterator[RenderableType]:
    """Yield a table of the short columns, with the text of the long ones on lines of their own."""
    cells = [[*map(str, column.cells)] for column in whole.columns]
    widths = [_least(whole.columns[place]) for place in short]
    justified = ["rjust" if whole.columns[place].justify == "right" else "ljust" for place in short]

    def aligned(texts: list[str]) -> str:
        padded = [_padded(text, *form) for text, form in zip(texts, zip(widths, justified, strict=True), strict=True)]
        return (" " * COLUMN_GAP).join(padded).rstrip()

    yield Text(aligned([str(whole.columns[place].header) for place in short]), style="bold")
    for number, row in enumerate(whole.rows):
        yield Text(aligned([cells[place][number] for place in short]), style=row.style or "")
        for place in long:
            if (text := cells[place][number]) not in NOTHING:
                yield from (Text(part, style=row.style or "") for part in _wrapped(text.split(" "), width, " "))


def _padded(text: str, width: int, how: str) -> str:
    blanks = " " * (width - cell_len(text))
    return blanks + text if how == "rjust" else text + blanks


def _paragraphs(whole: PrintableTable, width: int) -> Iterator[RenderableType]:
    """Yield each row as a paragraph: the first column, and below it the others that have a value, each after its name."""
    cells = [[*map(str, column.cells)] for column in whole.columns]
    for number, row in enumerate(whole.rows):
        style = row.style or ""
        yield from (Text(part, style=style) for part in _wrapped([cells[0][number]], width, "", indent=0))
        named = [(str(column.header), cells[place][number]) for place, column in enumerate(whole.columns) if place]
        pairs = [f"{name} {text}" for name, text in named if text not in NOTHING]
        pieces: list[str] = []
        for pair in pairs:
            pieces += [pair] if cell_len(pair) <= width - INDENT else [*_cut(pair, width - INDENT)]
        yield from (Text(part, style=style) for part in _wrapped(pieces, width, "  "))


def _cut(text: str, width: int) -> list[str]:
    """Return a text as pieces of whole words that have a width at most."""
    return [piece.strip() for piece in _wrapped(text.split(" "), width, " ", indent=0)]


def _wrapped(pieces: list[str], width: int, between: str, indent: int = INDENT) -> Iterator[str]:
    """Yield lines of pieces. A piece that is wider than a line has a line of its own, which the terminal continues on the next one."""
    written = ""
    for piece in pieces:
        if written and indent + cell_len(written) + len(between) + cell_len(piece) > width:
            yield " " * indent + written
            written = ""
        written += (between if written else "") + piece
    if written:
        yield " " * (indent if indent + cell_len(written) <= width else 0) + written
