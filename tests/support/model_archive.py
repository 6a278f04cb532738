"""The archive of the model test as dictionaries: what was acknowledged; and what a real one must hold for it, slowly and obviously."""

from __future__ import annotations

import math
import os
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
from model_site import COUNTER, EVERYTHING, GAUGE, NAMES, STEP

from tokiod.simulator import oracle
from tokiod.tts.layout import OWN, form_of
from tokiod.tts.schema import MISSING, missing

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from model_site import Site

    from tokiod.window_data import Collected

Cell = tuple[str, str, int]
"""dataset, column, row counted from the first midnight"""
REACH = oracle.REACH_SECONDS // STEP


@dataclass
class Held:
    """What a file holds: cells, and raw samples of a live one, by dataset, [rows, columns]."""

    sealed: bool
    columns: dict[str, tuple[str, ...]]
    arrays: dict[str, Any]

    def cells(self, dataset: str, name: str) -> dict[int, float]:
        """Return a column's cells that are not missing, by row of the day."""
        return self._column(dataset, dataset, name)

    def raw(self, dataset: str, name: str) -> dict[int, int]:
        """Return a live counter's samples by row of the day; the row after the last one is the next day's first."""
        return self._column(f"{OWN}/raw/{dataset}", dataset, name)

    def _column(self, array: str, dataset: str, name: str) -> dict[int, Any]:
        if name not in self.columns.get(dataset, ()):
            return {}
        column = self.arrays[array][:, self.columns[dataset].index(name)]
        rows = np.flatnonzero(~missing(column) if column.dtype == np.float64 else column >= 0).tolist()
        return dict(zip(rows, column[rows].tolist(), strict=True))


class Reading:
    """Reads files again and again: of a live one HDF5 tells once where everything stands, which never changes."""

    def __init__(self) -> None:
        self._known: dict[tuple[Path, int, int], tuple[Held, dict[str, tuple[int, Any]]]] = {}

    def held(self, path: Path) -> Held | None:
        """Return what a file holds, None where there is none."""
        try:
            status = path.stat()
        except FileNotFoundError:
            return None
        key = path, status.st_ino, status.st_mtime_ns if self._is_sealed(path, status.st_ino) else 0
        if key not in self._known:
            held, places = _read(path)
            key = path, status.st_ino, status.st_mtime_ns if held.sealed else 0
            self._known[key] = held, places
        held, places = self._known[key]
        if places:
            with path.open("rb") as file:
                for name, (offset, shape) in places.items():
                    data = os.pread(file.fileno(), 8 * math.prod(shape), offset)
                    held.arrays[name] = np.frombuffer(data, held.arrays[name].dtype).reshape(shape)
        return held

    def forget(self) -> None:
        """Read everything anew: inodes may be other files' now."""
        self._known.clear()

    def _is_sealed(self, path: Path, inode: int) -> bool:
        return (path, inode, 0) not in self._known


def _read(path: Path) -> tuple[Held, dict[str, tuple[int, Any]]]:
    with h5py.File(path, "r", locking=False) as file:
        sealed = form_of(file) == "sealed"
        here = [dataset for dataset in EVERYTHING if dataset in file]
        names = here + [name for dataset in here if (name := f"{OWN}/raw/{dataset}") in file]
        columns = {dataset: tuple(name.decode() for name in file[dataset].attrs["columns"]) for dataset in here}
        held = Held(sealed, columns, {name: file[name][...] for name in names})
        places = {} if sealed else {name: (file[name].id.get_offset(), file[name].shape) for name in names}
    return held, places


@dataclass
class Model:
    """What was acknowledged of a system, and what else its files may hold.

    stray: values that were sent for a cell and are not acknowledged, or were and are lost: a file may have one of them, or none. Cells of
    counters that depend on such a row may be any difference of two samples that were ever sent; all others are exactly the rule's.
    """

    site: Site
    acknowledged: dict[str, dict[str, dict[int, int]]] = field(default_factory=dict)
    stray: defaultdict[Cell, set[int]] = field(default_factory=lambda: defaultdict(set))
    _sent: dict[str, set[int]] = field(default_factory=lambda: {name: {0} for name in NAMES})
    _right: dict[str, tuple[dict[int, float], set[int]]] = field(default_factory=dict)
    _version: int = 0
    _checked: dict[int, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.acknowledged = {dataset: {name: {} for name in NAMES} for dataset in EVERYTHING}

    def send(self, collected: Collected) -> None:
        """Note what is on its way."""
        for dataset, name, _, value in self._samples(collected):
            if dataset == COUNTER:
                self._sent[name].add(value)

    def strand(self, collected: Collected) -> None:
        """Note that it was refused, or that the writer died with it: some of it may be there."""
        for dataset, name, row, value in self._samples(collected):
            self.stray[dataset, name, row].add(value)
        self._changed()

    def acknowledge(self, collected: Collected) -> None:
        """Note what is stored."""
        for dataset, name, row, value in self._samples(collected):
            self.acknowledged[dataset][name][row] = value
            self.stray.pop((dataset, name, row), None)
        self._changed()

    def lose(self, rows: Iterable[int]) -> None:
        """Note that the file with these rows was lost; the days next to it may still hold what they know of it."""
        for dataset, name, row in product(EVERYTHING, NAMES, rows):
            if (value := self.acknowledged[dataset][name].pop(row, None)) is not None:
                self.stray[dataset, name, row].add(value)
        self._changed()

    def check(self, held: list[Held | None]) -> None:
        """Every acknowledged cell is there, and nothing else but what strays."""
        for day, file in enumerate(held):
            state = self._version, file and (file.sealed, {name: array.tobytes() for name, array in file.arrays.items()})
            if self._checked.get(day) == state:
                continue
            self._checked[day] = state
            for name in NAMES:
                if file is None:
                    # The day before has the counters of the first row if they came alone, as a backfill's seam.
                    assert not self._own(day, GAUGE, name), f"day {day} has no file"
                    assert not self._own(day, COUNTER, name).keys() - {0}, f"day {day} has no file"
                    continue
                self._check_assigned(day, GAUGE, name, file.cells(GAUGE, name))
                if not file.sealed:
                    self._check_raw(day, name, file.raw(COUNTER, name))
                self._check_counter(day, name, file.cells(COUNTER, name))

    def check_in_the_end(self, held: list[Held | None]) -> None:
        """Nothing strays, and every cell is that of one undisturbed run."""
        assert not self.stray
        for day, file in enumerate(held):
            for name in NAMES:
                gauge = {row: float(value) for row, value in self._own(day, GAUGE, name).items()}
                for dataset, want in ((GAUGE, gauge), (COUNTER, self.cells(day, name))):
                    got = file.cells(dataset, name) if file else {}
                    assert got == want, f"in the end: day {day} {dataset} {name}: {_different(got, want)}"

    def cells(self, day: int, name: str) -> dict[int, float]:
        """Return the right cells of a counter's day, without those that are missing."""
        return self._of_day(day, self._rule(name)[0])

    # ----

    def _changed(self) -> None:
        self._right.clear()
        self._version += 1

    def _rule(self, name: str) -> tuple[dict[int, float], set[int]]:
        """Return the right cells of a counter over all days, and the rows whose cells may be others because of what strays."""
        if name not in self._right:
            samples = self.acknowledged[COUNTER][name]
            strays = {row for (dataset, column, row) in self.stray if (dataset, column) == (COUNTER, name)}
            self._right[name] = oracle.cells(samples, self.site.max_step, REACH), _unsure(samples, strays)
        return self._right[name]

    def _check_assigned(self, day: int, dataset: str, name: str, got: dict[int, float], rows_after: int = 0) -> None:
        want, first = self._own(day, dataset, name, rows_after), self.site.edges[day]
        for row in got.keys() | want.keys():
            may = self.stray.get((dataset, name, first + row), set())
            value = got.get(row)
            assert value == want.get(row) or value in may, f"day {day} {dataset} {name} row {row}: {value}, not {want.get(row)} or {may}"

    def _check_raw(self, day: int, name: str, got: dict[int, int]) -> None:
        """A day without a sample of a column need not have the next day's first one: it is out of reach of all samples before the day."""
        if not self._own(day, COUNTER, name):
            got.pop(self.site.edges[day + 1] - self.site.edges[day], None)
            self._check_assigned(day, COUNTER, name, got)
        else:
            self._check_assigned(day, COUNTER, name, got, rows_after=1)

    def _check_counter(self, day: int, name: str, got: dict[int, float]) -> None:
        want, first = self.cells(day, name), self.site.edges[day]
        unsure = self._rule(name)[1]
        for row in got.keys() | want.keys():
            if got.get(row) == want.get(row):
                continue
            place = f"day {day} {COUNTER} {name} row {row} (row {first + row} of all)"
            assert first + row in unsure, f"{place}: {got.get(row)}, not {want.get(row)}"
            assert row not in got or self._is_difference(name, got[row]), f"{place}: {got[row]} is no difference of two samples"

    def _is_difference(self, name: str, cell: float) -> bool:
        sent = self._sent[name]
        return any(float(after - before) == cell for before in sent for after in sent)

    def _own(self, day: int, dataset: str, name: str, rows_after: int = 0) -> dict[int, int]:
        return self._of_day(day, self.acknowledged[dataset][name], rows_after)

    def _of_day(self, day: int, column: dict[int, Any], rows_after: int = 0) -> dict[int, Any]:
        start, end = self.site.edges[day : day + 2]
        return {row - start: column[row] for row in range(start, end + rows_after) if row in column}

    def _samples(self, collected: Collected) -> list[tuple[str, str, int, int]]:
        found = []
        for batch in collected.batches:
            cells = zip(batch.time.tolist(), batch.column.tolist(), batch.value.tolist(), strict=True)
            found += [(batch.dataset, batch.columns[column], self.site.row(time), int(value)) for time, column, value in cells]
        return found


def _unsure(samples: dict[int, int], strays: set[int]) -> set[int]:
    """Return the rows of cells that may depend on samples in the rows `strays`.

    A sample in row r closes the cell before it. All cells up to the first anchor after it may depend on it: up to that of a nonzero
    sample that is not below its nonzero predecessor, if no row between the two strays.
    """
    unsure: set[int] = set()
    last = max([*samples, *strays], default=0)
    for stray in strays:
        predecessor: int | None = None
        for row in range(stray, last + 1):
            unsure.add(row - 1)
            value = samples.get(row, 0)
            if row in strays:
                predecessor = None
            elif value:
                if predecessor is not None and value >= predecessor:
                    break
                predecessor = value
    return unsure


def _different(got: dict[int, float], want: dict[int, float]) -> dict[int, tuple[float | None, float | None]]:
    return {row: (got.get(row), want.get(row)) for row in sorted(got.keys() | want.keys()) if got.get(row) != want.get(row)}


def bits(file: Held, dataset: str) -> dict[str, bytes]:
    """Return the bytes of a dataset's columns, by name, without those that are missing from top to bottom."""
    columns = {name: file.arrays[dataset][:, i] for i, name in enumerate(file.columns.get(dataset, ()))}
    return {name: column.tobytes() for name, column in columns.items() if not missing(column).all()}


def right_bits(cells: dict[int, float], rows: int) -> bytes:
    """Return the bytes of a column that holds these cells and is missing elsewhere."""
    column = np.full(rows, MISSING)
    column[list(cells)] = list(cells.values())
    return column.tobytes()


__all__ = ["Held", "Model", "Reading", "bits", "right_bits"]
