"""The files of a span as one matrix: rows of all days after each other, columns of all files in natural order, missing where a day is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tokiod.reader.errors import NoData, NoSuchDataset, StepChanged
from tokiod.reader.part import Part, Shape
from tokiod.tts.read import Reader
from tokiod.tts.schema import natural_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from tokiod.archive.layout import FileSlot
    from tokiod.window import Window

MAX_BLOCK_BYTES = 64 * 2**20
CHUNK_ROWS = 720
"""Rows of a chunk of a sealed file: blocks that end with it inflate no chunk twice."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """The rows of one file, or of a day without one, in the stitched matrix.

    first: number of its first row; rows: how many; start: epoch seconds of the first one; path: None without a file that has the dataset;
    positions: i8[columns of the file], the columns' places in the union.
    """

    first: int
    rows: int
    start: int
    path: Path | None
    positions: NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Block:
    """Cells of consecutive rows: values f8[rows, columns], NaN where missing; positions as in Stretch."""

    first: int
    positions: NDArray[np.intp]
    values: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Stitched:
    """A dataset over a span of files. Cells are read by blocks(), so memory does not grow with the span.

    step: seconds between rows; columns: of all files, in natural order; rows: of the whole span.
    """

    dataset: str
    units: str
    step: int
    columns: tuple[str, ...]
    stretches: tuple[Stretch, ...]

    @property
    def rows(self) -> int:
        """The number of rows, with those of absent days."""
        return sum(one.rows for one in self.stretches)

    @property
    def start(self) -> int:
        """Epoch seconds of the left edge of the first row."""
        return self.stretches[0].start

    @property
    def end(self) -> int:
        """Epoch seconds of the end of the last row."""
        last = self.stretches[-1]
        return last.start + last.rows * self.step

    def blocks(self) -> Iterator[Block]:
        """Read all cells, oldest first, at most MAX_BLOCK_BYTES or an hour of 5 s at a time. Rows of absent days are in no block.

        Raises the errors of tokiod.tts.read.Reader. A column that a live file got since it was opened is left out.
        """
        places = {name: i for i, name in enumerate(self.columns)}
        for stretch in self.stretches:
            if stretch.path is not None:
                yield from self._read(stretch, stretch.path, places)

    def _read(self, stretch: Stretch, path: Path, places: dict[str, int]) -> Iterator[Block]:
        rows = max(MAX_BLOCK_BYTES // (8 * max(1, len(stretch.positions))) // CHUNK_ROWS, 1) * CHUNK_ROWS
        with Reader(path) as reader:
            for first in range(0, stretch.rows, rows):
                start, end = (stretch.start + row * self.step for row in (first, min(first + rows, stretch.rows)))
                _, columns, values = reader.read(self.dataset, start, end)
                known = [i for i, name in enumerate(columns) if name in places]
                positions = np.array([places[columns[i]] for i in known], np.intp)
                yield Block(stretch.first + first, positions, values if len(known) == len(columns) else values[:, known])


def stitch(slots: Sequence[FileSlot], dataset: str, span: Window) -> Stitched:
    """Open every file of the slots and return the dataset's rows that begin in the span; no cell is read.

    Slots are in order of time. Raises NoData, NoSuchDataset, StepChanged, and the errors of Part for a file that can't be read.
    """
    shapes, known, absent = _shapes(slots, dataset)
    present = [shape for shape in shapes if shape is not None]
    if not present:
        raise NoSuchDataset(dataset, known, _none_of(slots)) if known else NoData(span, absent)
    step = _step(dataset, present)
    columns = tuple(sorted({name for shape in present for name in shape.columns}, key=natural_key))
    stretches, first = list[Stretch](), 0
    for slot, shape in zip(slots, shapes, strict=True):
        start, rows = _rows(slot, shape, span, step)
        if rows:
            stretches.append(Stretch(first, rows, start, slot.path if shape else None, _positions(shape, columns)))
        first += rows
    if not stretches:
        raise NoData(span, absent)
    return Stitched(dataset, present[0].units, step, columns, tuple(stretches))


def _shapes(slots: Sequence[FileSlot], dataset: str) -> tuple[list[Shape | None], set[str], list[Path]]:
    """Return the shape in each slot's file, the datasets of all files, and the files that do not exist."""
    shapes, known, absent = list[Shape | None](), set[str](), list["Path"]()
    for slot in slots:
        try:
            part = Part(slot.path)
        except FileNotFoundError:
            shapes.append(None)
            absent.append(slot.path)
            continue
        known |= set(part.names)
        shapes.append(part.shape(dataset) if dataset in part.names else None)
    return shapes, known, absent


def _step(dataset: str, shapes: Sequence[Shape]) -> int:
    """Return the seconds between rows. A file with a single row has the step of the others."""
    steps = [(shape.start, shape.step) for shape in shapes if shape.step] or [(shapes[0].start, 86400)]
    for time, step in steps:
        if step != steps[0][1]:
            raise StepChanged(dataset, time, (steps[0][1], step))
    return steps[0][1]


def _rows(slot: FileSlot, shape: Shape | None, span: Window, step: int) -> tuple[int, int]:
    """Return the left edge of the first row of a slot that begins in the span, and how many rows do."""
    start, end = (shape.start, shape.start + shape.rows * step) if shape else (slot.start, slot.end)
    first, last = (-(-(min(max(time, start), end) - start) // step) for time in (span.start, span.end))
    return start + first * step, last - first


def _positions(shape: Shape | None, columns: tuple[str, ...]) -> NDArray[np.intp]:
    places = {name: i for i, name in enumerate(columns)}
    return np.array([places[name] for name in (shape.columns if shape else ())], np.intp)


def _none_of(slots: Sequence[FileSlot]) -> str:
    return f"{slots[0].path} has no" if len(slots) == 1 else f"no file from {slots[0].path} to {slots[-1].path} has"
