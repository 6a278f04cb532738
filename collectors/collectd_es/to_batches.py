"""Samples of a window to complete cells, and these to batches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from collectors.collectd_es.datasets import COUNTED, MEANS
from collectors.collectd_es.plausible import FULL, Measured, Rules, plausible
from tokiod.batch import Batch
from tokiod.dropped import Dropped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from collectors.collectd_es.parse import Samples
    from collectors.collectd_es.series import Layout, Series
    from tokiod.window import Window

MILLISECONDS = 1000
MAX_CELLS = 2_000_000
"""Cells (row, series) in memory at once: 16 MB of values and 8 MB of times."""


@dataclass(frozen=True, slots=True, eq=False)
class WindowCells:
    """A window's batches, one per dataset; dropped: samples without a cell, by reason."""

    batches: list[Batch]
    dropped: Dropped


# A sample belongs to the cell of its series and row. Nearly always it is alone there, and its index is all that must be computed.
# Samples that share a cell are sorted by (time, value), so that the order of arrival decides nothing: of equal times the largest value
# counts, and of different times the last, or all for a mean.
def batches(samples: Sequence[Samples], window: Window, step: int, series: Series, rules: Rules | None = None) -> WindowCells:
    """Return a window's batches of its samples, in any order and any parts.

    step: seconds of a row, counted from the window's start. The times of batches are the left edges of rows; cells are in order of rows.
    Raises Fatal where all rates are counters.
    """
    rules, layout, dropped = rules or Rules(), series.layout(), Dropped()
    held = _held(plausible(_measured(samples, window, layout, dropped), rules, series, dropped), window, step, layout)
    found: dict[str, list[_Part]] = {dataset: [] for dataset in layout.columns}
    duplicates = 0
    rows = -(-window.seconds // step)
    high = max(1, MAX_CELLS // max(1, len(layout.mean)))
    for first in range(0, rows, high):
        some = held.rows(first, min(high, rows - first))
        if not len(some):
            continue
        grid = _Grid.of(some, min(high, rows - first), layout)
        duplicates += grid.duplicates
        for dataset, parts in found.items():
            parts.append(_part(grid.values(dataset), window.start + first * step, step))
    dropped.add("duplicate", duplicates)
    counted = COUNTED if rules.counters else {}
    return WindowCells([_batch(dataset, counted.get(dataset), step, layout, parts) for dataset, parts in found.items()], dropped)


_Part = tuple["NDArray[np.int64]", "NDArray[np.uint32]", "NDArray[np.float64]"]


@dataclass(frozen=True, slots=True, eq=False)
class _Held:
    """The samples of a window: i8[n] row, u4[n] series, i8[n] time, f8[n] the value to store."""

    row: NDArray[np.int64]
    series: NDArray[np.uint32]
    time: NDArray[np.int64]
    value: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.row)

    def rows(self, first: int, count: int) -> _Held:
        """Return the samples of some rows, counted from the first of them."""
        some = (self.row >= first) & (self.row < first + count)
        if some.all():
            return _Held(self.row - first, self.series, self.time, self.value)
        return _Held(self.row[some] - first, self.series[some], self.time[some], self.value[some])


def _measured(samples: Sequence[Samples], window: Window, layout: Layout, dropped: Dropped) -> Measured:
    time = _joined([some.time for some in samples], np.int64)
    numbers = _joined([some.series for some in samples], np.uint32)
    value = _joined([some.value for some in samples], np.float64)
    start = window.start * MILLISECONDS
    inside = (time >= start) & (time < window.end * MILLISECONDS)
    if not inside.all():
        first = np.datetime64(int(time[np.argmin(inside)]), "ms")
        dropped.add("outside the window", len(time) - int(np.count_nonzero(inside)), f"{first}Z")
        time, numbers, value = time[inside], numbers[inside], value[inside]
    return Measured(time, numbers, value, layout.measure.take(numbers))


def _held(found: Measured, window: Window, step: int, layout: Layout) -> _Held:
    # Adding 0.0 makes a zero of a negative zero, whose bytes differ.
    value = np.where(layout.complement.take(found.series), FULL - found.value, found.value + 0.0)
    return _Held((found.time - window.start * MILLISECONDS) // (step * MILLISECONDS), found.series, found.time, value)


@dataclass(frozen=True, slots=True, eq=False)
class _Grid:
    """Some rows of a window, all series. value: f8[rows, series], NaN for missing; of means, the sum of `more` + 1 values.

    more: i4[rows, series], or None where no cell has more than one.
    """

    value: NDArray[np.float64]
    more: NDArray[np.int32] | None
    duplicates: int
    layout: Layout

    @classmethod
    def of(cls, held: _Held, rows: int, layout: Layout) -> _Grid:
        width = len(layout.mean)
        cell = held.row * width + held.series
        value = np.full(rows * width, np.nan)
        value[cell] = held.value
        more, duplicates = None, 0
        if len(value) - np.count_nonzero(np.isnan(value)) < len(cell):
            more, duplicates = _resolve_shared(value, cell, held, layout)
            more = more.reshape(rows, width)
        return cls(value.reshape(rows, width), more, duplicates, layout)

    def values(self, dataset: str) -> NDArray[np.float64]:
        """Return the cells f8[rows, columns] of a dataset, NaN for missing."""
        places = self.layout.places[dataset]
        if dataset in MEANS:
            return self._mean(dataset)
        return self.value[:, places[0][0]] if places else np.empty((len(self.value), 0))

    def _mean(self, dataset: str) -> NDArray[np.float64]:
        width = len(self.layout.columns[dataset])
        total, count = np.zeros((2, len(self.value), width))
        averages = self.layout.averages[dataset]
        for is_average, pairs in ((False, self.layout.places[dataset]), (True, averages)):
            for series, column in pairs:
                value = self.value[:, series]
                there = ~np.isnan(value) & (count[:, column] == 0) if is_average else ~np.isnan(value)
                total[:, column] += np.where(there, value, 0.0)
                count[:, column] += there if self.more is None else np.where(there, 1 + self.more[:, series], 0)
        mean: NDArray[np.float64] = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
        return mean


def _resolve_shared(value: NDArray[np.float64], cell: NDArray[np.int64], held: _Held, layout: Layout) -> tuple[NDArray[np.int32], int]:
    """Set the values of cells with several samples; return how many more than one sample count there, and the number of duplicates."""
    # One sample of a cell remains its owner; the shared samples are the others and their owners. Counting them takes half as long again.
    owner, index = np.empty(len(value), np.int32), np.arange(len(cell), dtype=np.int32)
    owner[cell] = index
    lost = np.flatnonzero(owner[cell] != index)
    crowd = np.unique(np.concatenate([lost, owner[cell[lost]]]))
    crowd = crowd[np.lexsort((held.value[crowd], held.time[crowd], cell[crowd]))]
    differ = (np.diff(cell[crowd]) != 0) | (np.diff(held.time[crowd]) != 0)
    unique = crowd[np.append(differ, True)]
    last = np.append(np.diff(cell[unique]) != 0, True)
    ends = np.flatnonzero(last)
    starts = np.append(0, ends[:-1] + 1)
    mean = layout.mean[held.series[unique[ends]]]
    where = cell[unique[ends]]
    value[where] = np.where(mean, np.add.reduceat(held.value[unique], starts), held.value[unique[ends]])
    more = np.zeros(len(value), np.int32)
    more[where[mean]] = (ends - starts)[mean]
    return more, len(crowd) - len(unique)


def _part(values: NDArray[np.float64], start: int, step: int) -> _Part:
    """Return the cells with a value, row by row."""
    rows, columns = values.shape
    there = ~np.isnan(values)
    if there.all():
        row, column = np.repeat(np.arange(rows), columns), np.tile(np.arange(columns, dtype=np.uint32), rows)
    else:
        row, column = (index.astype(dtype) for index, dtype in zip(np.nonzero(there), (np.int64, np.uint32), strict=True))
    return start + row * step, column, values[there]


def _batch(dataset: str, counted: str | None, step: int, layout: Layout, parts: list[_Part]) -> Batch:
    """Return a batch; counted: the dataset that its values are counters of, None for gauges."""
    time, column, value = (_joined([part[i] for part in parts], dtype) for i, dtype in enumerate((np.int64, np.uint32, np.float64)))
    if counted:
        return Batch(counted, "counter", step, layout.columns[dataset], time, column, value.astype(np.int64))
    return Batch(dataset, "gauge", step, layout.columns[dataset], time, column, value)


def _joined(arrays: list[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    return arrays[0] if len(arrays) == 1 else np.concatenate([np.empty(0, dtype), *arrays])
