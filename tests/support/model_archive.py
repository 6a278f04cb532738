"""The archive of the model test as a dictionary: what was acknowledged; and what a real one may hold for it, slowly and obviously."""

from __future__ import annotations

import math
import os
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
from model_site import COUNTER, EVERYTHING, GAUGE, NAMES

from tokiod.simulator import oracle
from tokiod.tts.layout import OWN, RAW_SEALED, form_of
from tokiod.tts.schema import MISSING, missing

if TYPE_CHECKING:
    from pathlib import Path

    from model_site import Site

    from tokiod.window_data import Collected

Cell = tuple[str, str, int]
"""dataset, column, row"""


@dataclass
class Held:
    """What a file holds: cells and raw samples by dataset, [rows, columns]; plain: its raw samples are all that ever were."""

    sealed: bool
    plain: bool
    columns: dict[str, tuple[str, ...]]
    arrays: dict[str, Any]

    def cells(self, dataset: str, name: str) -> dict[int, float]:
        """Return a column's cells that are not missing, by row of the day."""
        return self._column(dataset, dataset, name)

    def raw(self, dataset: str, name: str) -> dict[int, float]:
        """Return a counter's samples of the day, by row of the day."""
        found = self._column(f"{OWN}/raw/{dataset}", dataset, name)
        return {row - 1: value for row, value in found.items() if 0 < row < len(self.arrays[dataset]) + 1}

    def _column(self, array: str, dataset: str, name: str) -> dict[int, float]:
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
        held = Held(sealed, not sealed and not file[OWN].attrs[RAW_SEALED], columns, {name: file[name][...] for name in names})
        places = {} if sealed else {name: (file[name].id.get_offset(), file[name].shape) for name in names}
    return held, places


@dataclass
class Model:
    """What was acknowledged, and what else may be there.

    stray: values that were sent for a cell and not acknowledged, of which a kill may have left some; told: all that was ever sent, by
    dataset, column and day. loose: days of which a neighbour was sealed when it might have told them of a sample, or they it.
    """

    site: Site
    acknowledged: dict[str, dict[str, dict[int, int]]] = field(default_factory=dict)
    stray: defaultdict[Cell, set[int]] = field(default_factory=lambda: defaultdict(set))
    told: defaultdict[tuple[str, str, int], set[int]] = field(default_factory=lambda: defaultdict(set))
    loose: set[int] = field(default_factory=set)
    kept: dict[tuple[int, str, str], set[int]] = field(default_factory=dict)
    _changes: Counter[int] = field(default_factory=Counter)
    _checked: dict[int, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.acknowledged = {dataset: {name: {} for name in NAMES} for dataset in EVERYTHING}

    def send(self, collected: Collected) -> None:
        """Note what is on its way."""
        for dataset, name, row, value in self._noted(collected):
            for day in self._days_around(row):
                self.told[dataset, name, day].add(value)

    def strand(self, collected: Collected) -> None:
        """Note that the writer died with it: some of it may be there."""
        for dataset, name, row, value in self._noted(collected):
            self.stray[dataset, name, row].add(value)

    def acknowledge(self, collected: Collected) -> None:
        """Note what is stored."""
        for dataset, name, row, value in self._noted(collected):
            self.acknowledged[dataset][name][row] = value
            self.stray.pop((dataset, name, row), None)

    def check(self, held: list[Held | None]) -> None:
        """Every acknowledged cell is there, and nothing that nobody sent."""
        strayed = {(dataset, day) for (dataset, _, row), values in self.stray.items() if values for day in self._days_around(row)}
        for day, file in enumerate(held):
            state = self._changes[day], day in self.loose, file and {name: array.tobytes() for name, array in file.arrays.items()}
            if self._checked.get(day) == state:
                continue
            self._checked[day] = state
            for name in NAMES:
                if file is None:
                    assert not any(self._own(day, dataset, name) for dataset in EVERYTHING), f"day {day} has no file"
                    continue
                self._check_assigned(day, GAUGE, name, file.cells(GAUGE, name))
                if file.plain:
                    self._check_assigned(day, COUNTER, name, file.raw(COUNTER, name))
                self._check_counter(day, COUNTER, name, file, strayed=(COUNTER, day) in strayed)

    def check_in_the_end(self, held: list[Held | None], once_sealed: set[int]) -> None:
        """Every cell is that of one run; where a day was opened up, one that must be missing may hold an earlier difference."""
        for day, file in enumerate(held):
            for dataset, name in product(EVERYTHING, NAMES):
                got = file.cells(dataset, name) if file else {}
                want = {row: float(v) for row, v in self._own(day, dataset, name).items()}
                if dataset == COUNTER:
                    (want,) = self._variants(day, dataset, name, loose=False)
                if day in once_sealed and dataset == COUNTER:
                    got = {row: value for row, value in got.items() if row in want}
                assert got == want, f"in the end: day {day} {dataset} {name}"

    # ----

    def _check_assigned(self, day: int, dataset: str, name: str, got: dict[int, float]) -> None:
        want, first = self._own(day, dataset, name), self.site.edges[day]
        for row in got.keys() | want.keys():
            may = self.stray.get((dataset, name, first + row), set())
            value = got.get(row)
            assert value == want.get(row) or value in may, f"day {day} {dataset} {name} row {row}: {value}, not {want.get(row)} or {may}"

    def _check_counter(self, day: int, dataset: str, name: str, file: Held, *, strayed: bool) -> None:
        got, key = file.cells(dataset, name), (day, dataset, name)
        if not file.plain or strayed:
            possible = {float(b - a) for a, b in product(self.told[dataset, name, day], repeat=2)}
            assert set(got.values()) <= possible, f"day {day} {dataset} {name}: {got} holds what no two samples differ by"
        else:
            variants = self._variants(day, dataset, name, loose=day in self.loose)
            for row in range(self.site.edges[day + 1] - self.site.edges[day]):
                may = {variant.get(row) for variant in variants}
                assert got.get(row) in may, f"day {day} {dataset} {name} row {row}: {got.get(row)}, not {may}"
        if not file.plain:
            assert got.keys() >= self.kept.get(key, set()), f"day {day} {dataset} {name}: cells went missing"
            self.kept[key] = set(got)

    def _variants(self, day: int, dataset: str, name: str, *, loose: bool) -> list[dict[int, float]]:
        """Return what the cells may be, by what the days around may have told."""
        column, (start, end) = self.acknowledged[dataset][name], self.site.edges[day : day + 2]
        before = [column[row] for row in range(self.site.edges[max(day - 1, 0)], start) if row in column][-1:]
        befores = {*before, None} if loose or not before else {*before}
        afters = {None, *self.told[dataset, name, day]} if loose else {column.get(end)}
        return [oracle.cells(self._own(day, dataset, name), end - start, b, a) for b, a in product(befores, afters)]

    def _own(self, day: int, dataset: str, name: str) -> dict[int, int]:
        start, end = self.site.edges[day : day + 2]
        column = self.acknowledged[dataset][name]
        return {row - start: column[row] for row in range(start, end) if row in column}

    def _noted(self, collected: Collected) -> list[tuple[str, str, int, int]]:
        self._changes.update(self._days_around(self.site.row(collected.meta.window.start)))
        return self._samples(collected)

    def _samples(self, collected: Collected) -> list[tuple[str, str, int, int]]:
        found = []
        for batch in collected.batches:
            cells = zip(batch.time.tolist(), batch.column.tolist(), batch.value.tolist(), strict=True)
            found += [(batch.dataset, batch.columns[column], self.site.row(time), int(value)) for time, column, value in cells]
        return found

    def _days_around(self, row: int) -> range:
        day = self.site.day_of(row)
        return range(max(day - 1, 0), min(day + 2, len(self.site.days)))


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
