"""From rows of a table to batches: the pure part of the collector."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from collectors.lmt.datasets import ABSENT
from tokiod.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from collectors.lmt.datasets import Quantity, Table
    from collectors.lmt.parse_inventory import Inventory, Roster
    from tokiod.window import Window


@dataclass(frozen=True)
class Span:
    """A window's TS_IDs, ascending, and the instant of each."""

    window: Window
    step: int
    ts_ids: NDArray[np.int64]
    times: NDArray[np.int64]

    @property
    def rows(self) -> int:
        """How many rows of a TTS file the window has."""
        return -(-self.window.seconds // self.step)

    def row_of(self, ts_ids: NDArray[Any]) -> NDArray[np.int64]:
        """Return the row of each TS_ID, counted from the window's start, -1 for one that is not the window's."""
        place = np.searchsorted(self.ts_ids, ts_ids)
        known = self.ts_ids[np.minimum(place, len(self.ts_ids) - 1)] == ts_ids
        return np.where(known, self._rows[np.where(known, place, 0)], -1)

    @cached_property
    def row_times(self) -> NDArray[np.int64]:
        """The time of each row's samples: that of its last TS_ID."""
        times = self.window.start + np.arange(self.rows) * self.step
        np.maximum.at(times, self._rows, self.times)
        return times

    @cached_property
    def _rows(self) -> NDArray[np.int64]:
        return (self.times - self.window.start) // self.step

    @property
    def runs(self) -> list[tuple[int, int]]:
        """The TS_IDs as few ranges [first, last], so that one that a stopped clock left far away doesn't make a range of all."""
        cuts = np.flatnonzero(np.diff(self.ts_ids) > 2 * len(self.ts_ids)) + 1
        return [(int(run[0]), int(run[-1])) for run in np.split(self.ts_ids, cuts) if len(run)]


# A cell may have several candidates: two TS_IDs in one row (a restarted cerebrod begins a new TS_ID within the same 5 s, or the step
# is longer than LMT's), two ids that share a column, or duplicates in MDS_OPS_DATA, which has no primary key. What must not decide is
# the order in which a database happens to return rows. So: the highest id, then the highest TS_ID, then the highest value wins.
@dataclass(frozen=True)
class Rows:
    """Numbers of one table, each array as long as there are rows. NULL is ABSENT in integers and NaN in floats."""

    span: Span
    roster: Roster
    ts_ids: NDArray[Any]
    ids: NDArray[Any]
    values: dict[str, NDArray[Any]]

    @cached_property
    def cell(self) -> NDArray[np.int64]:
        """The cell of each row, counted through the window's rows and the roster's columns; -1 for a stranger."""
        row, column = self.span.row_of(self.ts_ids), self.roster.columns(self.ids)
        return np.where((row >= 0) & (column >= 0), row * len(self.roster.names) + column, -1)

    def batch(self, quantity: Quantity, chosen: NDArray[np.bool_] | None) -> Batch:
        """Return the cells of a dataset, row by row; `chosen` tells which rows are about it, None: all."""
        value = _total([self.values[column] for column in quantity.columns if column in self.values], len(quantity.columns))
        grid = self._grid(value, chosen) if value is not None else np.full(0, ABSENT)
        there = _present(grid)
        if quantity.form == "gauge":
            grid = grid.astype(np.float64)
        time, column = self._dense
        if len(grid) == 0 or not there.all():
            filled = np.flatnonzero(there)
            grid, time, column = grid[filled], time[filled], column[filled]
        return Batch(quantity.dataset, quantity.form, self.span.step, self.roster.names, time, column, grid)

    @cached_property
    def _dense(self) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
        width = len(self.roster.names)
        return np.repeat(self.span.row_times, width), np.tile(np.arange(width, dtype=np.uint32), self.span.rows)

    def _grid(self, value: NDArray[Any], chosen: NDArray[np.bool_] | None) -> NDArray[Any]:
        there = (self.cell >= 0) & _present(value)
        if chosen is not None:
            there &= chosen
        some = slice(None) if there.all() else there
        cell, value = self.cell[some], value[some]
        grid = np.full(self.span.rows * len(self.roster.names), ABSENT if value.dtype == np.int64 else np.nan, value.dtype)
        grid[cell] = value
        if np.count_nonzero(_present(grid)) < len(cell):
            order = np.lexsort((value, self.ts_ids[some], self.ids[some]))
            grid[cell[order]] = value[order]
        return grid


def batches(table: Table, numbers: dict[str, NDArray[Any]], span: Span, stock: Inventory) -> Iterator[Batch]:
    """Turn a table's columns into a batch per dataset.

    numbers: TS_ID, the table's key, and such of its columns as the database has; i8[n] or f8[n], n rows in any order.
    """
    rows = Rows(span, getattr(stock, table.roster), numbers["TS_ID"], numbers[table.key], numbers)
    for quantity in table.quantities:
        operation = quantity.operation
        chosen = np.isin(numbers["OPERATION_ID"], stock.operations[operation]) if operation else None
        yield rows.batch(quantity, chosen)


def _present(values: NDArray[Any]) -> NDArray[np.bool_]:
    there: NDArray[np.bool_] = values != ABSENT if values.dtype == np.int64 else ~np.isnan(values)
    return there


def _total(columns: list[NDArray[Any]], wanted: int) -> NDArray[Any] | None:
    """Add columns up, ABSENT where one is; None if a column is not there at all."""
    if len(columns) < wanted:
        return None
    first, *others = columns
    for other in others:
        first = np.where(_present(first) & _present(other), first + other, ABSENT)
    return first
