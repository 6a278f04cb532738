"""The files of a span as one matrix: rows of all days after each other, columns of all files in natural order, missing where a day is."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from tokiod.reader.derived import Recipe, derivable, recipes
from tokiod.reader.errors import NoData, NoSuchColumn, NoSuchDataset, NotTts, StepChanged
from tokiod.reader.kept_results import kept
from tokiod.reader.part import DAY_SECONDS, OpenParts, Part, Shape
from tokiod.reader.span import Span
from tokiod.tts.schema import UNITS, group_of, natural_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Columns = NDArray[np.intp]

MAX_BLOCK_BYTES = 64 * 2**20
CHUNK_ROWS = 720
"""Rows of a chunk of a sealed file: blocks that end with it inflate no chunk twice."""
_SAME = Recipe("same", ())


@dataclass(frozen=True, slots=True)
class Stretch:
    """The rows of one file, or of a time without one, in the stitched matrix.

    first: number of its first row; rows: how many; start: epoch seconds of the first one; path: None without a file that has the dataset;
    positions: i8[columns of the file], the columns' places in the union; recipe: how the cells follow from the file's datasets.
    """

    first: int
    rows: int
    start: int
    path: Path | None
    positions: Columns
    recipe: Recipe = _SAME


@dataclass(frozen=True, slots=True)
class Block:
    """Cells of consecutive rows: values f8[rows, columns], NaN where missing; positions as in Stretch."""

    first: int
    positions: Columns
    values: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Stitched:
    """A dataset over a span of files: a lazy array f8[rows, columns] with NaN where missing.

    Only what is indexed is read: matrix[100:200, 3], matrix[:, [0, 5]], numpy.asarray(matrix). Two lists select their rows and columns, not
    pairs of them. blocks() reads all cells with bounded memory. Each read sees the files as they are then; columns that a live file got
    since are left out. Reads raise FileNotFoundError for a file that is gone, NotTts for one that is damaged.

    step: seconds between rows; columns: of all files, in natural order; missing: 1.0 for missing cells and 0.0 for others instead of
    values.
    """

    dataset: str
    units: str
    step: int
    columns: tuple[str, ...]
    stretches: tuple[Stretch, ...]
    missing: bool = False
    parts: OpenParts = field(default_factory=OpenParts, repr=False, compare=False)

    ndim = 2
    dtype = np.dtype(np.float64)

    @property
    def rows(self) -> int:
        """The number of rows, with those of absent days."""
        last = self.stretches[-1]
        return last.first + last.rows

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows and columns."""
        return self.rows, len(self.columns)

    @property
    def start(self) -> int:
        """Epoch seconds of the left edge of the first row."""
        return self.stretches[0].start

    @property
    def end(self) -> int:
        """Epoch seconds of the end of the last row."""
        last = self.stretches[-1]
        return last.start + last.rows * self.step

    @cached_property
    def times(self) -> NDArray[np.int64]:
        """The left edges i8[rows], UTC epoch seconds."""
        return np.concatenate([one.start + self.step * np.arange(one.rows, dtype=np.int64) for one in self.stretches])

    @cached_property
    def places(self) -> Mapping[str, int]:
        """The number of each column."""
        return {name: i for i, name in enumerate(self.columns)}

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, key: Any) -> NDArray[np.float64]:
        rows, columns = key if isinstance(key, tuple) else (key, slice(None))
        numbers, drops_rows = _selected(slice(None) if rows is Ellipsis else rows, self.rows)
        chosen, drops_columns = _selected(self._numbers(slice(None) if columns is Ellipsis else columns), len(self.columns))
        first, last = (int(min(numbers)), int(max(numbers)) + 1) if len(numbers) else (0, 0)
        if isinstance(chosen, range) and chosen == range(len(self.columns)):
            values = self.read(first, last)
        else:
            distinct, inverse = np.unique(np.asarray(chosen, np.intp), return_inverse=True)
            values = self.read(first, last, distinct)
            values = values if np.array_equal(inverse, np.arange(len(distinct))) else values[:, inverse]
        if not (isinstance(numbers, range) and numbers.step == 1):
            values = values[np.asarray(numbers, np.intp) - first]
        values = values[:, 0] if drops_columns else values
        return values[0] if drops_rows else values

    def _numbers(self, columns: Any) -> Any:
        """Return an index of columns with numbers for names. Raises NoSuchColumn."""
        if isinstance(columns, str):
            return self.number(columns)
        if isinstance(columns, (list, tuple, np.ndarray)) and len(columns) and isinstance(columns[0], str):
            return [self.number(str(name)) for name in columns]
        return columns

    def number(self, column: str) -> int:
        """Return the number of a column. Raises NoSuchColumn."""
        if column not in self.places:
            raise NoSuchColumn(self.dataset, column, self.columns)
        return self.places[column]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:  # noqa: FBT001 - of numpy's protocol
        if copy is False:
            raise ValueError("the cells are in files: an array of them is a copy")
        return self.read(0, self.rows).astype(dtype or np.float64, copy=False)

    def read(self, first: int, last: int, columns: Columns | None = None) -> NDArray[np.float64]:
        """Return rows [first, last) of columns by number (None: all): f8, NaN where missing."""
        touched = [one for one in self.stretches if one.first < last and first < one.first + one.rows]
        width = len(self.columns) if columns is None else len(columns)
        present = [one for one in touched if one.path is not None]
        blocks = (self._block(one, max(first, one.first), min(last, one.first + one.rows), columns) for one in present)
        if len(touched) == len(present) == 1:
            block = next(blocks)
            if len(block.positions) == width:  # in order, as all of them are
                return block.values
            blocks = (one for one in (block,))
        values = np.full((last - first, width), 1.0 if self.missing else np.nan)
        for block in blocks:
            values[block.first - first : block.first - first + len(block.values), block.positions] = block.values
        return values

    def blocks(self) -> Iterator[Block]:
        """Read all cells, oldest first, at most MAX_BLOCK_BYTES or an hour of 5 s at a time.

        Cells that no file has, of absent days and of columns that a day lacks, are in no block. Where `missing`, they are in one, and 1.
        """
        everything = np.arange(len(self.columns))
        for one in self.stretches:
            if one.path is None and not self.missing:
                continue
            width = len(everything) if self.missing else len(one.positions)
            rows = max(MAX_BLOCK_BYTES // (8 * max(1, width)) // CHUNK_ROWS, 1) * CHUNK_ROWS
            for first, last in pairwise([*range(one.first, one.first + one.rows, rows), one.first + one.rows]):
                yield Block(first, everything, self.read(first, last)) if self.missing else self._block(one, first, last, None)

    def located(self, stretch: Stretch) -> tuple[Part, Shape, int, tuple[str, ...]]:
        """Return the present file of a stretch, the shape of its dataset, the file's row of its first one, and its stored datasets."""
        if stretch.path is None:
            raise ValueError("a time without a file has no cells")
        part, names = self.parts.part(stretch.path), stretch.recipe.sources or (self.dataset,)
        try:
            shape = part.shape(names[0])
        except KeyError as error:
            raise NotTts(f"{stretch.path} has no {names[0]} any more") from error
        row, rest = divmod(stretch.start - shape.start, self.step)
        if rest or row < 0 or row + stretch.rows > shape.rows or shape.step not in {0, self.step}:
            raise NotTts(f"{stretch.path} was replaced by a file of other rows: open the span again")
        return part, shape, row, names

    def _block(self, one: Stretch, first: int, last: int, columns: Columns | None) -> Block:
        """Read rows [first, last) of the matrix, which are all of one stretch. positions: in `columns`."""
        part, shape, row, names = self.located(one)
        places, chosen = self._chosen(shape.columns, columns)
        top, bottom = row + first - one.first, row + last - one.first
        sources = [part.read(name, top, bottom, self._same(part, name, shape, chosen)) for name in names]
        values = one.recipe.cells(sources, self.step)
        return Block(first, places, np.isnan(values).astype(np.float64) if self.missing else values)

    def _chosen(self, names: tuple[str, ...], columns: Columns | None) -> tuple[Columns, Columns | None]:
        """Return the places of a file's columns in the result, in order, and their numbers in the file (None: all, in the file's order)."""
        if columns is None and names == self.columns:
            return np.arange(len(names)), None
        places = self._places(names)
        if columns is not None:
            result = np.full(len(self.columns), -1, np.intp)
            result[columns] = np.arange(len(columns))
            places = np.where(places >= 0, result[places], -1)
        numbers = np.flatnonzero(places >= 0)
        numbers = numbers[np.argsort(places[numbers])]
        in_order = len(numbers) == len(names) and bool((np.diff(numbers) > 0).all())
        return places[numbers], None if in_order else numbers

    def _places(self, names: tuple[str, ...]) -> Columns:
        """Return the place of each of a file's columns in the union, -1 for one that is not in it."""
        if names == self.columns:
            return np.arange(len(names))
        return np.array([self.places.get(name, -1) for name in names], np.intp)

    def _same(self, part: Part, name: str, shape: Shape, chosen: Columns | None) -> Columns | None:
        """Return the numbers of the same columns in another dataset of the file: those of cpuuser in cpusys."""
        other = part.shape(name)
        if other.columns == shape.columns and other.rows == shape.rows:
            return chosen
        numbers = {column: i for i, column in enumerate(other.columns)}
        wanted = shape.columns if chosen is None else [shape.columns[i] for i in chosen]
        if other.rows != shape.rows or not numbers.keys() >= set(wanted):
            raise NotTts(f"{part.path}: the columns of {name} are not those of the datasets that belong to it")
        return np.array([numbers[column] for column in wanted], np.intp)


def stitch(paths: Sequence[Path], dataset: str, span: Span, parts: OpenParts | None = None) -> Stitched:
    """Open every file and return the dataset's rows that begin in the span; no cell is read.

    paths: existing or not; files without a row in the span do not matter. A rate is computed from counts where a file has only these (see
    tokiod.reader.derived); DATASET/missing is 1 where a cell is missing. Raises NoData, NoSuchDataset, StepChanged, and the errors of Part
    for a file that can't be read.
    """
    name, _, suffix = dataset.rpartition("/")
    if suffix == "missing" and "/" in name:
        found = stitch(paths, name, span, parts)
        return Stitched(name, "", found.step, found.columns, found.stretches, missing=True, parts=found.parts)
    parts = parts or OpenParts()
    return _Stitching(dataset, span, parts, tuple(paths)).stitched()


@dataclass(slots=True)
class _Found:
    """A file that has the dataset, or its sources."""

    path: Path
    shape: Shape
    recipe: Recipe


@dataclass(slots=True)
class _Stitching:
    dataset: str
    span: Span
    parts: OpenParts
    paths: tuple[Path, ...]
    units: str = ""

    def stitched(self) -> Stitched:
        found, absent = self._found()
        if not found:
            raise self._nothing(absent)
        step = _step(self.dataset, [one.shape for one in found])
        runs = list(self._runs(found, step))
        if not runs:
            raise self._no_data(absent)
        columns = _union(tuple(dict.fromkeys(one.shape.columns for _, _, one in runs)))
        stretches = self._stretches(runs, step, columns)
        return Stitched(self.dataset, self.units, step, columns, tuple(stretches), parts=self.parts)

    def _found(self) -> tuple[list[_Found], list[Path]]:
        """Return the files with rows that may be in the span, by time, and the paths without a file."""
        found, absent, ways = list[_Found](), list["Path"](), recipes(self.dataset)
        for path in self.paths:
            try:
                part = self.parts.part(path)
            except FileNotFoundError:
                absent.append(path)
                continue
            reached = (one for one in ways if part.may_reach(group_of(one.sources[0]), self.span))
            way = next((one for one in reached if all(part.has(name) for name in one.sources)), None)
            if way is not None and (shape := part.shape(way.sources[0])).start < self.span.end and self._reaches(shape):
                if not found:
                    self.units = part.units(self.dataset) if way.form == "same" else UNITS.get(self.dataset, "")
                found.append(_Found(path, shape, way))
        return sorted(found, key=lambda one: one.shape.start), absent

    def _reaches(self, shape: Shape) -> bool:
        return shape.start + shape.rows * (shape.step or DAY_SECONDS) > self.span.start

    def _no_data(self, absent: list[Path]) -> NoData:
        """Return the error of a span without a row, with the time that the files hold where that is another one."""
        parts = (self.parts.part(path) for path in self.paths if path not in absent)
        spans = [part.span() for part in parts if part.names]
        if not spans or any(one.start < self.span.end and self.span.start < one.end for one in spans):
            return NoData(self.span, absent)
        held = Span(min(one.start for one in spans), max(one.end for one in spans))
        return NoData(self.span, absent, f"; {'the file holds' if len(spans) == 1 else 'the files hold'} {held}")

    def _nothing(self, absent: list[Path]) -> NoData | NoSuchDataset:
        """Return why no file has a row: the files of the span have other datasets, or the span has no file."""
        known = set[str]()
        for path in self.paths:
            part = None if path in absent else self.parts.part(path)
            if part is not None and part.names and (span := part.span()).start < self.span.end and self.span.start < span.end:
                known |= set(part.names)
        if not known or any(known.issuperset(way.sources) for way in recipes(self.dataset)):
            return self._no_data(absent)
        none_of = f"{self.paths[0]} has no" if len(self.paths) == 1 else f"no file from {self.paths[0]} to {self.paths[-1]} has"
        return NoSuchDataset(self.dataset, known | derivable(known), none_of)

    def _stretches(self, runs: Sequence[tuple[int, int, _Found]], step: int, columns: tuple[str, ...]) -> Iterator[Stretch]:
        """Yield what is in the span: the rows of files, and between, before and after them rows without a file."""
        first, due = 0, runs[0][0] - (runs[0][0] - self.span.start) // step * step
        for begin, rows, one in runs:
            gap = max(0, -(-(begin - due) // step))
            yield from _empty(first, gap, due)
            yield Stretch(first + gap, rows, begin, one.path, _positions(one.shape.columns, columns), one.recipe)
            first, due = first + gap + rows, begin + rows * step
        yield from _empty(first, -(-(self.span.end - due) // step), due)

    def _runs(self, found: Sequence[_Found], step: int) -> Iterator[tuple[int, int, _Found]]:
        """Yield each file's first row that begins in the span, and after the last row of the file before it, and how many do."""
        after = self.span.start
        for one in found:
            start = one.shape.start
            skipped = max(0, -(-(after - start) // step))
            rows = min(one.shape.rows, -(-(self.span.end - start) // step)) - skipped
            if rows > 0:
                begin = start + skipped * step
                yield begin, rows, one
                after = begin + (rows - 1) * step + 1


def _empty(first: int, rows: int, start: int) -> Iterator[Stretch]:
    if rows > 0:
        yield Stretch(first, rows, start, None, np.array([], np.intp))


# Files share their tuples, and most days have the same one: a span costs one union, and thousands of jobs cost a few.
@kept(lambda columns: sum(map(len, columns)))
def _union(columns: tuple[tuple[str, ...], ...]) -> tuple[str, ...]:
    """Return all names in natural order."""
    ordered = tuple(sorted({name for names in columns for name in names}, key=natural_key))
    return columns[0] if columns[0] == ordered else ordered


@kept(lambda names, columns: len(names) + len(columns))
def _positions(names: tuple[str, ...], columns: tuple[str, ...]) -> Columns:
    places = {name: i for i, name in enumerate(columns)}
    found = np.array([places[name] for name in names], np.intp)
    found.flags.writeable = False
    return found


def _step(dataset: str, shapes: Sequence[Shape]) -> int:
    """Return the seconds between rows. A file with a single row may not state it: it has the step of the others."""
    steps = [(shape.start, shape.step) for shape in shapes if shape.step] or [(shapes[0].start, DAY_SECONDS)]
    for time, step in steps:
        if step != steps[0][1]:
            raise StepChanged(dataset, time, (steps[0][1], step))
    return steps[0][1]


def _selected(key: Any, size: int) -> tuple[NDArray[np.intp] | range, bool]:
    """Return the numbers that an index of one dimension selects, and whether it drops the dimension. Raises IndexError."""
    if isinstance(key, slice):
        return range(size)[key], False
    if isinstance(key, (int, np.integer)):
        return range(range(size)[int(key)], range(size)[int(key)] + 1), True
    numbers = np.asarray(key) if len(key) else np.array([], np.intp)
    if numbers.ndim != 1 or numbers.dtype.kind not in "biu":
        raise IndexError(f"{key!r} selects no rows or columns: use numbers, slices or lists of numbers, and names of columns")
    if numbers.dtype == np.bool_:
        if len(numbers) != size:
            raise IndexError(f"a mask of {len(numbers)} for a size of {size}")
        return np.flatnonzero(numbers), False
    if numbers.size and (numbers.min() < -size or numbers.max() >= size):
        raise IndexError(f"an index is out of bounds for a size of {size}")
    return numbers.astype(np.intp) % max(1, size), False
