"""Where two TTS files differ, cell by cell, bit by bit, told window by window; both are read in slices, live or sealed."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from tokiod.window import iso

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokiod.tts.read import Reader
    from tokiod.window import Calendar, Window

Kind = Literal["missing", "extra", "different"]
"""What an archive's cell is: missing where the source has a value, extra where it has none, different where it has another."""

SHOWN = 3
"""Cells of a dataset and window that are named; all are counted."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell in which archive and source differ; time: UTC epoch seconds of its row; NaN: missing."""

    kind: Kind
    dataset: str
    column: str
    time: int
    archive: float
    source: float

    def __str__(self) -> str:
        values = (
            f"{name} {'-' if math.isnan(value) else repr(value)}" for name, value in (("archive", self.archive), ("source", self.source))
        )
        return f"{self.kind} {self.dataset} {self.column} {iso(self.time)} {' '.join(values)}"


@dataclass(slots=True)
class Differing:
    """A window in which archive and source differ.

    counts: cells by dataset and kind; cells: the first few of each dataset; records: the ledger's and the source's, where these differ.
    """

    window: Window
    counts: dict[str, Counter[Kind]] = field(default_factory=dict)
    cells: list[Cell] = field(default_factory=list)
    records: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Looked:
    """A slice of a dataset as both hold it: f8[rows, columns], NaN where missing; compared: bool[rows], which rows are."""

    dataset: str
    columns: tuple[str, ...]
    time: NDArray[np.int64]
    compared: NDArray[np.bool_]
    archive: NDArray[np.float64]
    source: NDArray[np.float64]

    @property
    def wrong(self) -> NDArray[np.bool_]:
        """Which cells differ by any bit."""
        return np.asarray((self.archive.view(np.int64) != self.source.view(np.int64)) & self.compared[:, np.newaxis])


def look(dataset: str, span: Window, step: int, archive: Reader | None, source: Reader | None) -> Looked:
    """Read a slice of a dataset from both files, where they are there, and lay it side by side by time and column name."""
    time = np.arange(span.start, span.end, step)
    read = [_read(reader, dataset, span) for reader in (archive, source)]
    columns = tuple(dict.fromkeys(name for _, names, _ in read for name in names))
    both = [_laid_out(time, columns, *one) for one in read]
    return Looked(dataset, columns, time, np.ones(len(time), bool), *both)


def tell(looked: Looked, windows: dict[int, Differing], calendar: Calendar, length: int) -> None:
    """Put a slice's differing cells to the windows of `length` seconds that they lie in."""
    wrong = looked.wrong
    rows = np.flatnonzero(wrong.any(axis=1))
    # A turn for each window that differs: those of a sound archive cost nothing.
    while len(rows):
        window = calendar.window(int(looked.time[rows[0]]), length)
        within = rows[: np.searchsorted(looked.time[rows], window.end)]
        _note(looked, wrong, slice(int(within[0]), int(within[-1]) + 1), windows.setdefault(window.start, Differing(window)))
        rows = rows[len(within) :]


def _read(reader: Reader | None, dataset: str, span: Window) -> tuple[NDArray[np.int64], tuple[str, ...], NDArray[np.float64]]:
    nothing = np.empty(0, np.int64), (), np.empty((0, 0))
    if reader is None:
        return nothing
    try:
        return reader.read(dataset, span.start, span.end)
    except KeyError:
        return nothing


def _laid_out(
    time: NDArray[np.int64], columns: tuple[str, ...], stamps: NDArray[np.int64], names: tuple[str, ...], values: NDArray[np.float64]
) -> NDArray[np.float64]:
    laid = np.full((len(time), len(columns)), np.nan)
    index = {name: i for i, name in enumerate(columns)}
    here = np.fromiter((index[name] for name in names), np.intp, len(names))
    known = np.isin(stamps, time)
    laid[np.ix_(np.searchsorted(time, stamps[known]), here)] = values[known]
    # One sort of NaN, so that missing is missing bit by bit.
    laid[np.isnan(laid)] = np.nan
    return laid


def _note(looked: Looked, wrong: NDArray[np.bool_], rows: slice, told: Differing) -> None:
    """Count a window's differing cells, and name the first of its dataset."""
    at = np.argwhere(wrong[rows])
    archive, source = (side[rows][tuple(at.T)] for side in (looked.archive, looked.source))
    counts = told.counts.setdefault(looked.dataset, Counter())
    counts["missing"] += int(np.isnan(archive).sum())
    counts["extra"] += int(np.isnan(source).sum())
    counts["different"] += int((~np.isnan(archive) & ~np.isnan(source)).sum())
    known = sum(cell.dataset == looked.dataset for cell in told.cells)
    for (row, column), have, want in zip(at[: SHOWN - known].tolist(), archive.tolist(), source.tolist(), strict=False):
        kind: Kind = "missing" if math.isnan(have) else "extra" if math.isnan(want) else "different"
        told.cells.append(Cell(kind, looked.dataset, looked.columns[column], int(looked.time[rows][row]), have, want))
