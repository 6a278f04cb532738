"""The cells in which two TTS files differ in any bit, by window; both files are read in slices, live or sealed."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np

from tokiod.window import iso

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokiod.reader.followed_file import FollowedFile
    from tokiod.window import Calendar, Window

Kind = Literal["missing", "extra", "different"]
"""missing: the source has a value; extra: the source has no value; different: the source has another value."""

SHOWN_CELLS = 3
"""Cells of a dataset and window that are listed; all are counted."""


@dataclass(frozen=True, slots=True)
class DifferentCell:
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
class WindowDifferences:
    """A window in which archive and source differ.

    counts: cells by dataset and kind; cells: the first few of each dataset; records: the ledger's and the source's, where these differ.
    """

    window: Window
    counts: dict[str, Counter[Kind]] = field(default_factory=dict)
    cells: list[DifferentCell] = field(default_factory=list)
    records: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ComparedSlice:
    """A slice of a dataset in both files: f8[rows, columns], NaN where missing; rows: bool[rows], those to compare."""

    dataset: str
    columns: tuple[str, ...]
    time: NDArray[np.int64]
    rows: NDArray[np.bool_]
    archive: NDArray[np.float64]
    source: NDArray[np.float64]

    @property
    def differs(self) -> NDArray[np.bool_]:
        """bool[rows, columns]: the compared cells that differ in any bit."""
        return np.asarray((self.archive.view(np.int64) != self.source.view(np.int64)) & self.rows[:, np.newaxis])


def compare_slice(dataset: str, span: Window, step: int, archive: FollowedFile | None, source: FollowedFile | None) -> ComparedSlice:
    """Read a slice of a dataset from the files that exist, aligned by time and column name."""
    time = np.arange(span.start, span.end, step)
    read = [_read(reader, dataset, span) for reader in (archive, source)]
    columns = tuple(dict.fromkeys(name for _, names, _ in read for name in names))
    both = [_align(time, columns, *one) for one in read]
    return ComparedSlice(dataset, columns, time, np.ones(len(time), bool), *both)


def add_differences(compared: ComparedSlice, windows: dict[int, WindowDifferences], calendar: Calendar, length: int) -> None:
    """Add a slice's differing cells to their windows of `length` seconds."""
    differs = compared.differs
    rows = np.flatnonzero(differs.any(axis=1))
    # One turn per window that differs: an archive without differences costs nothing.
    while len(rows):
        window = calendar.window(int(compared.time[rows[0]]), length)
        within = rows[: np.searchsorted(compared.time[rows], window.end)]
        _add(compared, differs, slice(int(within[0]), int(within[-1]) + 1), windows.setdefault(window.start, WindowDifferences(window)))
        rows = rows[len(within) :]


def _read(reader: FollowedFile | None, dataset: str, span: Window) -> tuple[NDArray[np.int64], tuple[str, ...], NDArray[np.float64]]:
    empty = np.empty(0, np.int64), (), np.empty((0, 0))
    if reader is None:
        return empty
    try:
        return reader.read(dataset, span.start, span.end)
    except KeyError:
        return empty


def _align(
    time: NDArray[np.int64], columns: tuple[str, ...], times: NDArray[np.int64], names: tuple[str, ...], values: NDArray[np.float64]
) -> NDArray[np.float64]:
    aligned = np.full((len(time), len(columns)), np.nan)
    index = {name: i for i, name in enumerate(columns)}
    place = np.fromiter((index[name] for name in names), np.intp, len(names))
    known = np.isin(times, time)
    aligned[np.ix_(np.searchsorted(time, times[known]), place)] = values[known]
    # One bit pattern of NaN, so that missing cells are equal bit by bit.
    aligned[np.isnan(aligned)] = np.nan
    return aligned


def _add(compared: ComparedSlice, differs: NDArray[np.bool_], rows: slice, differences: WindowDifferences) -> None:
    """Count a window's differing cells and list the first of its dataset."""
    at = np.argwhere(differs[rows])
    archive, source = (side[rows][tuple(at.T)] for side in (compared.archive, compared.source))
    counts = differences.counts.setdefault(compared.dataset, Counter())
    counts["missing"] += int(np.isnan(archive).sum())
    counts["extra"] += int(np.isnan(source).sum())
    counts["different"] += int((~np.isnan(archive) & ~np.isnan(source)).sum())
    known = sum(cell.dataset == compared.dataset for cell in differences.cells)
    for (row, column), have, want in zip(at[: SHOWN_CELLS - known].tolist(), archive.tolist(), source.tolist(), strict=False):
        kind: Kind = "missing" if math.isnan(have) else "extra" if math.isnan(want) else "different"
        differences.cells.append(DifferentCell(kind, compared.dataset, compared.columns[column], int(compared.time[rows][row]), have, want))
