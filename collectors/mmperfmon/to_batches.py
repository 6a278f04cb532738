"""Tables to rows of samples, and these to a window's batches."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from collectors.mmperfmon.datasets import KINDS, LOAD, OF_LOAD, PERCENT
from collectors.mmperfmon.parse import IMPOSSIBLE
from collectors.mmperfmon.parse_legend import CACHE_BYTES, STAMP
from collectors.mmperfmon.parse_timestamps import NEVER, to_instants, to_later_instants
from collectors.mmperfmon.series import REASONS, REMEDIES
from tokiod.batch import Batch
from tokiod.batch import Rows as WholeRows
from tokiod.toolkit.bytes_cache import cached_for_bytes

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from collectors.mmperfmon.parse_legend import Table
    from collectors.mmperfmon.series import Series
    from tokiod.dropped import Dropped
    from tokiod.window import Window

MIN_ROWS_FOR_LENGTH = 3
"""With fewer rows, longer buckets can't be distinguished from missing ones."""


WRITTEN_SECONDS = 3600
"""An output is written within this time after its last bucket: of an hour that occurs twice, the first pass before the second one ends."""


class Buckets(NamedTuple):
    """The meaning of time stamps: their zone, and the seconds by which their buckets begin earlier."""

    zone: dt.tzinfo
    step: int


class Rows(NamedTuple):
    """The samples of tables, by bucket.

    time: i8[n], the beginnings of buckets, each once; series: i8[columns]; value: f8[n, columns], NaN for missing;
    records: i8[n], the number of values of each bucket, dropped ones included.
    """

    time: NDArray[np.int64]
    series: NDArray[np.int64]
    value: NDArray[np.float64]
    records: NDArray[np.int64]

    def within(self, window: Window) -> Rows:
        """Return the rows of a window."""
        inside = (self.time >= window.start) & (self.time < window.end)
        return self if inside.all() else Rows(self.time[inside], self.series, self.value[inside], self.records[inside])


# A time stamp marks the end of its bucket, so the bucket begins a step earlier, if it is as long as a step. Sums over other lengths would
# be wrong in the rows of a step and look right.
def measured(  # noqa: PLR0913, PLR0917 - a table, what it means, and what of it is wanted
    table: Table, buckets: Buckets, series: Series, window: Window | None, dropped: Dropped, written: float | None = None
) -> Rows:
    """Return the rows of a table within a window (None: all), and those of its columns that have a series; count the others.

    written: when the output was written, epoch seconds: it shows the pass of an hour that occurs twice, where the rows don't.
    """
    found = _begins(table.stamps, buckets)
    if found.later is not None and written is not None and 0 <= written - found.later.time[-1] - buckets.step <= WRITTEN_SECONDS:
        found = found.later
    begin, exists, fault, is_repeated, _ = found
    time, value = begin, table.value
    if exists is not None:
        place = STAMP * int(np.flatnonzero(~exists)[0])
        lost = int(np.count_nonzero(~np.isnan(value[~exists])))
        dropped.add("time stamp that does not exist", lost, table.stamps[place : place + STAMP], "check --timezone")
        time, value = begin[exists], value[exists]
    if is_repeated:
        time, value = _merge_repeated(time, value)
    rows = Rows(time, _series(table, series), value, _value_counts(value))
    if window is not None:
        rows = rows.within(window)
    return _possible(_with_series(rows, table, fault, dropped), series, dropped)


class _Begins(NamedTuple):
    """The beginnings of buckets; which rows have a time (None: all), what is wrong with the buckets' length, whether one is repeated.

    later: the same, if the rows at the end may as well be of the second pass of an hour that occurs twice.
    """

    time: NDArray[np.int64]
    exists: NDArray[np.bool_] | None
    fault: str | None
    is_repeated: bool
    later: _Begins | None = None


# Outputs of one hour have the same stamps, so most calls are answered from the cache.
@cached_for_bytes(CACHE_BYTES)
def _begins(stamps: bytes, buckets: Buckets) -> _Begins:
    found, later = to_instants(stamps, buckets.zone), to_later_instants(stamps, buckets.zone)
    begins = _begins_of(found, buckets.step)
    return begins if later is None else begins._replace(later=_begins_of(later, buckets.step))


def _begins_of(end: NDArray[np.int64], step: int) -> _Begins:
    exists = end != NEVER
    begin = end - step
    begin.flags.writeable = False
    there = np.unique(end[exists])
    is_repeated = len(there) < int(np.count_nonzero(exists))
    return _Begins(begin, None if exists.all() else exists, _other_length(there, step), is_repeated)


# Sometimes mmperfmon prints a bucket twice, and not on the next run. A count that included the second one would make the window look as if
# it had shrunk since, so such rows are merged before anything is counted. They are few: a loop is enough.
def _merge_repeated(time: NDArray[np.int64], value: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return rows in the order of time, rows of one bucket merged: the later of two values counts, but null never replaces a value."""
    each, place = np.unique(time, return_inverse=True)
    found = np.full((len(each), value.shape[1]), np.nan)
    for of, row in zip(place.tolist(), value, strict=True):
        np.copyto(found[of], row, where=~np.isnan(row))
    return each, found


def _value_counts(value: NDArray[np.float64]) -> NDArray[np.int64]:
    is_none = np.isnan(value)
    height, width = value.shape
    return width - np.count_nonzero(is_none, axis=1) if is_none.any() else np.full(height, width)


def _series(table: Table, series: Series) -> NDArray[np.int64]:
    return series.numbers(table.legend)[table.first : table.first + table.value.shape[1]]


def _with_series(rows: Rows, table: Table, fault: str | None, dropped: Dropped) -> Rows:
    if fault:
        dropped.add(fault, int(rows.records.sum()), remedy="set the buckets' length: bucket, --step of saved outputs")
        return rows._replace(series=rows.series[:0], value=rows.value[:, :0])
    if not len(rows.series) or rows.series.min() >= 0:
        return rows
    has_series = rows.series >= 0
    counts = np.count_nonzero(~np.isnan(rows.value), axis=0)
    for place in np.flatnonzero(~has_series).tolist():
        metric, code = table.legend.metrics[table.first + place], int(rows.series[place])
        dropped.add(REASONS[code], int(counts[place]), "" if metric is None else str(metric), REMEDIES.get(code, ""))
    return rows._replace(series=rows.series[has_series], value=rows.value[:, has_series])


def _possible(rows: Rows, series: Series, dropped: Dropped) -> Rows:
    """Drop values above what their unit allows."""
    is_over = rows.value > series.limits(rows.series)
    if not is_over.any():
        return rows
    dropped.add(IMPOSSIBLE, int(np.count_nonzero(is_over)), f"{rows.value[is_over][0]:g}")
    return rows._replace(value=np.where(is_over, np.nan, rows.value))


def _other_length(end: NDArray[np.int64], step: int) -> str | None:
    steps = np.diff(end)
    if len(steps) and steps.min() < step:
        return "buckets shorter than the step"
    # Buckets end at multiples of their length. Rows that are evenly further apart at other times have missing rows between them.
    if len(steps) >= MIN_ROWS_FOR_LENGTH - 1 and steps.min() == steps.max() > step and not (end % math.gcd(int(steps[0]), 3600)).any():
        return "buckets longer than the step"
    return None


class Grid(NamedTuple):
    """All series of a window. value: f8[rows, series], NaN for missing; is_null: where a bucket without a value was printed."""

    window: Window
    step: int
    value: NDArray[np.float64]
    is_null: NDArray[np.bool_]

    def batch(self, dataset: str, columns: tuple[str, ...], value: NDArray[np.float64]) -> Batch:
        """Make a batch of f8[rows, columns]."""
        is_there = ~np.isnan(value)
        # Adding 0.0 makes a zero of a negative zero, which would mean "missing".
        if is_there.all() and value.size:
            rows = WholeRows(self.window.start, len(value))
            return Batch(dataset, "gauge", self.step, columns, *rows.arrays(self.step, len(columns)), value.ravel() + 0.0, rows)
        row, column = np.nonzero(is_there)
        time = self.window.start + row * self.step
        return Batch(dataset, "gauge", self.step, columns, time, column.astype(np.uint32), value[row, column] + 0.0)


def batches(parts: Iterable[Rows], window: Window, step: int, series: Series, cpu_scale: float) -> list[Batch]:
    """Return a window's batches; of two values of one cell the later counts, but null never replaces a value."""
    shape = -(-window.seconds // step), len(series)
    grid = Grid(window, step, np.full(shape, np.nan), np.zeros(shape, bool))
    for part in parts:
        _put(part, grid)
    grid.is_null[~np.isnan(grid.value)] = False
    found = {dataset: (tuple(columns), _sums(grid, columns)) for dataset, columns in series.columns().items()}
    for dataset in found:
        if dataset.endswith(PERCENT):
            found[dataset][1][:] *= cpu_scale
    found |= dict(_loads(found))
    return [grid.batch(dataset, *cells) for dataset, cells in found.items()]


def _put(part: Rows, grid: Grid) -> None:
    row = (part.time - grid.window.start) // grid.step
    is_none = np.isnan(part.value)
    # Two buckets in one row, or one column twice, are assigned one after the other, so that the later value counts.
    if not is_none.any() and (len(row) < 2 or (np.diff(row) > 0).all()):  # noqa: PLR2004 - of one there are no two
        grid.value[row[:, None], part.series] = part.value
        return
    for place, values, without in zip(row.tolist(), part.value, is_none, strict=True):
        grid.value[place, part.series[~without]] = values[~without]
        grid.is_null[place, part.series[without]] = True


def _sums(grid: Grid, columns: Mapping[str, list[int]]) -> NDArray[np.float64]:
    """Return f8[rows, columns]; a column with parts is the sum of those present, or missing if one of them was null."""
    if all(len(numbers) == 1 for numbers in columns.values()):
        return grid.value[:, [numbers[0] for numbers in columns.values()]]
    found = []
    for numbers in columns.values():
        value = grid.value[:, numbers]
        is_some = ~np.isnan(value).all(axis=1) & ~grid.is_null[:, numbers].any(axis=1)
        found.append(np.where(is_some, np.nansum(value, axis=1), np.nan))
    return np.stack(found, axis=1)


def _loads(
    found: Mapping[str, tuple[tuple[str, ...], NDArray[np.float64]]],
) -> Iterable[tuple[str, tuple[tuple[str, ...], NDArray[np.float64]]]]:
    for kind in KINDS:
        user, system = (found.get(f"{kind}servers/{name}") for name in OF_LOAD)
        if user is None or system is None:
            continue
        places = {name: place for place, name in enumerate(system[0])}
        both = [(place, places[name]) for place, name in enumerate(user[0]) if name in places]
        if both:
            left, right = (list(some) for some in zip(*both, strict=True))
            yield f"{kind}servers/{LOAD}", (tuple(user[0][place] for place in left), user[1][:, left] + system[1][:, right])
