"""Output of `tokioctl verify`: each differing window when it is found, or everything as JSON at the end."""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING

import click
import msgspec

from tokiod.cli.common.output import echo, echo_json
from tokiod.reports.verify.job_table import OddDay  # noqa: TC001 - as below
from tokiod.reports.verify.tts_diff import Kind  # noqa: TC001 - the structs' fields are of it when they run
from tokiod.reports.verify.verify import Verified
from tokiod.window import Window, iso

if TYPE_CHECKING:
    from tokiod.reports.verify.tts_diff import DifferentCell, WindowDifferences


_CLEAR_LINE = "\r\x1b[K"
"""Removes the progress bar from its line."""


class DifferingCell(msgspec.Struct, frozen=True):
    """A cell.

    kind: missing in the archive, extra in the archive, or different; time: UTC epoch seconds; archive, source: values, None if missing.
    """

    kind: Kind
    dataset: str
    column: str
    time: int
    archive: float | None
    source: float | None


class Records(msgspec.Struct, frozen=True):
    """Number of records of a window when it was stored, and now at the source."""

    stored: int
    source: int


class DifferingWindow(msgspec.Struct, frozen=True):
    """A window [start, end), UTC epoch seconds.

    datasets: number of differing cells by dataset and kind; records: None unless their number
    differs; cells: the first few of each dataset.
    """

    start: int
    end: int
    datasets: dict[str, dict[Kind, int]]
    records: Records | None
    cells: list[DifferingCell]


class NotStored(msgspec.Struct, frozen=True):
    """A time span [start, end), UTC epoch seconds, that the ledger does not record as stored."""

    start: int
    end: int


class NotCompared(msgspec.Struct, frozen=True):
    """A time span [start, end), UTC epoch seconds, that was not compared. reason: a sentence."""

    start: int
    end: int
    reason: str


class Comparison(msgspec.Struct, frozen=True):
    """The result for [start, end), UTC epoch seconds. windows, cells: numbers compared, a window also in part.

    differing: the windows that differ; odd_days: days of a job table with what they should not have.
    """

    source: str
    start: int
    end: int
    windows: int
    cells: int
    differing: list[DifferingWindow]
    not_stored: list[NotStored]
    not_compared: list[NotCompared]
    odd_days: list[OddDay] = []


def show_job_table(source: str, span: Window, found: list[OddDay], *, as_json: bool) -> None:
    """Print the days of a job table that have what they should not."""
    if as_json:
        echo_json(Comparison(source, span.start, span.end, 0, 0, [], [], [], found))
        return
    for one in found:
        private = f"{one.private} job ids with names that [jobs] users hides: see users_retention in docs/operations.md"
        counts = f"{one.implausible} rows with a count that can't be true, which gives no figure"
        echo(f"{one.date}: {'; '.join([private] * bool(one.private) + [counts] * bool(one.implausible))} ({one.path})")
    if not found:
        echo(f"{source}: no name that [jobs] users hides, and no count that can't be true, from {iso(span.start)} to {iso(span.end)}")


class VerifyOutput:
    """The output for a time span of a source. left_out: parts that can't be compared, with reasons."""

    def __init__(self, source: str, span: Window, left_out: list[NotCompared], *, as_json: bool) -> None:
        self.verified = Verified()
        self.windows = 0
        self._source, self._span, self._left_out, self._as_json = source, span, left_out, as_json
        self._found: list[DifferingWindow] = []

    def add(self, differing: WindowDifferences) -> None:
        """Print a differing window, or keep it for the JSON."""
        self.windows += 1
        if self._as_json:
            self._found.append(_window(differing))
            return
        if sys.stderr.isatty():
            click.echo(_CLEAR_LINE, err=True, nl=False)  # noqa: TID251 - a control sequence on purpose
        for line in _lines(differing):
            echo(line)

    def end(self) -> None:
        """Print the result."""
        if self._as_json:
            echo_json(self._comparison())
            return
        for window in self.verified.not_stored:
            echo(f"{window}: not stored")
        for left_out in self._not_compared:
            echo(f"{Window(left_out.start, left_out.end)}: not compared, {left_out.reason}")
        echo(f"{self._source}: {self.windows} of {self.verified.windows} windows differ; {self.verified.cells} cells compared")

    @property
    def _not_compared(self) -> list[NotCompared]:
        return [*self._left_out, *(NotCompared(day.start, day.end, reason) for day, reason in self.verified.not_compared)]

    def _comparison(self) -> Comparison:
        verified = self.verified
        not_stored = [NotStored(window.start, window.end) for window in verified.not_stored]
        span = self._source, self._span.start, self._span.end
        return Comparison(*span, verified.windows, verified.cells, self._found, not_stored, self._not_compared)


def _lines(differing: WindowDifferences) -> list[str]:
    sums = {kind: sum(counts[kind] for counts in differing.counts.values()) for kind in ("missing", "extra", "different")}
    counts = [f"{count} {kind}" for kind, count in sums.items() if count]
    if differing.records is not None:
        counts.append("{} records stored, {} at the source".format(*differing.records))
    return [f"{differing.window}: {', '.join(counts)}", *(f"    {cell}" for cell in differing.cells)]


def _window(differing: WindowDifferences) -> DifferingWindow:
    datasets = {dataset: {kind: count for kind, count in counts.items() if count} for dataset, counts in differing.counts.items()}
    records = None if differing.records is None else Records(*differing.records)
    return DifferingWindow(differing.window.start, differing.window.end, datasets, records, [_cell(cell) for cell in differing.cells])


def _cell(cell: DifferentCell) -> DifferingCell:
    archive, source = (None if math.isnan(value) else value for value in (cell.archive, cell.source))
    return DifferingCell(cell.kind, cell.dataset, cell.column, cell.time, archive, source)
