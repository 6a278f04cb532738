"""Rows of a table to batches."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from collectors.lmt.datasets import NOT_A_NUMBER, NOT_AN_INTEGER, NULL_INTEGER
from collectors.lmt.parse_inventory import places
from tokiod.batch import Batch
from tokiod.bounds import IMPLAUSIBLE
from tokiod.window import iso

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from collectors.lmt.datasets import Quantity, Table
    from collectors.lmt.parse_inventory import Inventory, Roster
    from tokiod.dropped import Dropped
    from tokiod.window import Window

LARGEST_PART = 2**61
"""Of a sum: what is larger was corrupted, and int64 has no room for four of them."""
ROWS_DELETED = "its rows were deleted, or never written: copy them from a backup, then backfill"


@dataclass(frozen=True)
class Span:
    """The TS_IDs of a window, ascending, and the instant of each."""

    window: Window
    step: int
    ts_ids: NDArray[np.int64]
    times: NDArray[np.int64]

    @property
    def rows(self) -> int:
        """The number of rows of a TTS file in the window."""
        return -(-self.window.seconds // self.step)

    def row_of(self, ts_ids: NDArray[Any]) -> NDArray[np.int64]:
        """Return the row of each TS_ID, counted from the window's start, -1 for a TS_ID of another window."""
        place, known = places(self.ts_ids, ts_ids)
        return np.asarray(self._rows[place]) if known.all() else np.where(known, self._rows[place], -1)

    @cached_property
    def has_ts_id(self) -> NDArray[np.bool_]:
        """Which rows have a TS_ID."""
        found = np.zeros(self.rows, bool)
        found[self._rows] = True
        return found

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
        """The TS_IDs as few ranges [first, last], so that a TS_ID far away, from a stopped clock, does not extend the range to all."""
        cuts = np.flatnonzero(np.diff(self.ts_ids) > 2 * len(self.ts_ids)) + 1
        return [(int(run[0]), int(run[-1])) for run in np.split(self.ts_ids, cuts) if len(run)]


# A cell may have several samples: two TS_IDs in one row (a restarted cerebrod begins a new TS_ID within the same 5 s, or the step
# is longer than LMT's), two ids that share a column, or duplicates in MDS_OPS_DATA, which has no primary key. The order in which a
# database returns rows must not decide. So the highest id wins, then the highest TS_ID, then the highest value.
@dataclass(frozen=True)
class Rows:
    """Values of one table, each array as long as the table's rows. NULL is NULL_INTEGER in integers and NaN in floats."""

    span: Span
    roster: Roster
    ts_ids: NDArray[Any]
    ids: NDArray[Any]
    values: dict[str, NDArray[Any]]

    @cached_property
    def _order(self) -> Literal["rows", "columns"] | None:
        """How the cells are ordered, row by row or column by column, if there is one value for each; else None."""
        shape = self.span.rows, len(self.roster.names)
        cells = np.arange(shape[0] * shape[1]).reshape(shape)
        if len(self.cell) != cells.size:
            return None
        if (self.cell.reshape(shape) == cells).all():
            return "rows"
        return "columns" if (self.cell.reshape(shape[::-1]) == cells.T).all() else None

    @cached_property
    def cell(self) -> NDArray[np.int64]:
        """The cell of each row, numbered through the window's rows and the roster's columns; -1 for an unknown component or TS_ID."""
        row, column = self.span.row_of(self.ts_ids), self.roster.columns(self.ids)
        return np.where((row >= 0) & (column >= 0), row * len(self.roster.names) + column, -1)

    def note_absent(self, table: Table, listed: Sequence[int], dropped: Dropped) -> None:
        """Count the steps that have a TS_ID, but no row, and the rows of components that no table lists."""
        if self._order is not None or not self.roster.names:
            return
        absent = self.span.has_ts_id.copy()
        absent[self.cell[self.cell >= 0] // len(self.roster.names)] = False
        first = iso(int(self.span.row_times[absent.argmax()]))
        dropped.add(f"step without a row of {table.name}", int(np.count_nonzero(absent)), f"the step of {first}", ROWS_DELETED)
        unknown = np.flatnonzero((self.cell < 0) & _present(self.ids))
        unknown = unknown[(self.span.row_of(self.ts_ids[unknown]) >= 0) & ~np.isin(self.ids[unknown], listed)]
        if len(unknown):
            dropped.add("row of an unlisted component", len(unknown), table.place(*self._identity(unknown[0])), f"list it in {table.info}")

    def _identity(self, row: int) -> tuple[int, int]:
        return int(self.ts_ids[row]), int(self.ids[row])

    def batch(self, quantity: Quantity, chosen: NDArray[np.bool_] | None, dropped: Dropped) -> Batch:
        """Return the cells of a dataset, row by row. chosen: which rows belong to it, None for all."""
        value = self._total(quantity, dropped)
        grid = self._grid(value, chosen) if value is not None else np.full(0, NULL_INTEGER)
        present = _present(grid)
        if quantity.form == "gauge":
            grid = grid.astype(np.float64)
        time, column = self._dense
        if len(grid) == 0 or not present.all():
            filled = np.flatnonzero(present)
            grid, time, column = grid[filled], time[filled], column[filled]
        return Batch(quantity.dataset, quantity.form, self.span.step, self.roster.names, time, column, grid)

    # Nothing shows later that a part of a sum was wrong. As unsigned numbers those below 0, and NULL, are above all others.
    def _total(self, quantity: Quantity, dropped: Dropped) -> NDArray[Any] | None:
        """Return the sum of columns, NULL where one is NULL or implausible; None if a column is missing from the table."""
        columns = [self.values[name] for name in quantity.columns if name in self.values]
        if len(columns) < len(quantity.columns):
            return None
        if len(columns) == 1:
            return columns[0]
        total: NDArray[np.int64] = np.sum(columns, axis=0)
        strange = np.any([column.view(np.uint64) > LARGEST_PART for column in columns], axis=0)
        if strange.any():
            total[strange] = NULL_INTEGER
            wrong = np.flatnonzero(strange & np.all([_present(column) for column in columns], axis=0) & (self.cell >= 0))
            parts = " + ".join(str(column[wrong[0]]) for column in columns) if len(wrong) else ""
            dropped.add(IMPLAUSIBLE, len(wrong), f"{parts} in {quantity.dataset}")
        return total

    @cached_property
    def _dense(self) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
        width = len(self.roster.names)
        return np.repeat(self.span.row_times, width), np.tile(np.arange(width, dtype=np.uint32), self.span.rows)

    def _grid(self, value: NDArray[Any], chosen: NDArray[np.bool_] | None) -> NDArray[Any]:
        if chosen is None and self._order is not None:
            return value if self._order == "rows" else value.reshape(len(self.roster.names), -1).T.ravel()
        present = (self.cell >= 0) & _present(value)
        if chosen is not None:
            present &= chosen
        kept = slice(None) if present.all() else present
        cell, value = self.cell[kept], value[kept]
        grid = np.full(self.span.rows * len(self.roster.names), NULL_INTEGER if value.dtype == np.int64 else np.nan, value.dtype)
        grid[cell] = value
        if np.count_nonzero(_present(grid)) < len(cell):
            order = np.lexsort((value, self.ts_ids[kept], self.ids[kept]))
            grid[cell[order]] = value[order]
        return grid


def batches(table: Table, numbers: dict[str, NDArray[Any]], span: Span, inventory: Inventory, dropped: Dropped) -> Iterator[Batch]:
    """Yield a batch per dataset of a table.

    numbers: TS_ID, the table's key, and those of its columns that the database has; i8[n] or f8[n], n rows in any order.
    """
    rows = Rows(span, getattr(inventory, table.roster), numbers["TS_ID"], numbers[table.key], numbers)
    rows.note_absent(table, inventory.listed[table.roster], dropped)
    for quantity in table.quantities:
        if quantity.optional and not numbers.keys() >= set(quantity.columns):
            continue
        operation = quantity.operation
        chosen = _is_one_of(numbers["OPERATION_ID"], inventory.operations[operation]) if operation else None
        yield rows.batch(quantity, chosen, dropped)


def _is_one_of(numbers: NDArray[Any], wanted: tuple[int, ...]) -> NDArray[np.bool_]:
    return np.asarray(numbers == wanted[0]) if len(wanted) == 1 else np.isin(numbers, wanted)


def _present(values: NDArray[Any]) -> NDArray[np.bool_]:
    present: NDArray[np.bool_] = values != NULL_INTEGER if values.dtype == np.int64 else ~np.isnan(values)
    return present


def not_valid(values: NDArray[Any]) -> NDArray[np.bool_] | None:
    """Return where there is no number, None for nowhere: the usual case, which takes a pass."""
    if values.dtype == np.int64:
        return values == NOT_AN_INTEGER if len(values) and values.min() == NOT_AN_INTEGER else None
    strange: NDArray[np.bool_] = np.abs(values) >= NOT_A_NUMBER
    return strange if strange.any() else None


def merged(batches: Sequence[Batch], window: Window) -> Batch:
    """Join batches of one dataset: all their columns, and each cell once, that of the last batch."""
    first = batches[0]
    columns = tuple(dict.fromkeys(name for batch in batches for name in batch.columns))
    filled = [batch for batch in batches if len(batch)]
    if len(filled) == 1 and filled[0].columns == columns:
        return filled[0]
    position = {name: index for index, name in enumerate(columns)}
    places = [np.array([position[name] for name in batch.columns], np.uint32) for batch in batches]
    time = np.concatenate([batch.time for batch in batches])
    column = np.concatenate([place[batch.column] for place, batch in zip(places, batches, strict=True)])
    value = np.concatenate([batch.value for batch in batches])
    cell = (time - window.start) // first.step * len(columns) + column
    _, last = np.unique(cell[::-1], return_index=True)
    kept = len(cell) - 1 - last
    return Batch(first.dataset, first.form, first.step, columns, time[kept], column[kept], value[kept])
