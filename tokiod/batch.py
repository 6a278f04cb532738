"""Batch: one dataset's samples, and which of them are whole rows: what collectors yield, and the writer, sinks and clients take.

Whole rows are samples that are every column once and in order, row after row. Nearly all data comes so, and this is the fast case.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

LATEST = 250_000_000_000
"""The last epoch second that a calendar has: the year 9999 ends."""
Count = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]
Second = Annotated[int, msgspec.Meta(ge=0, lt=LATEST)]

Extent = Literal["whole", "some", "seam"]
Form = Literal["gauge", "counter"]
"""gauge: the value of the cell itself. counter: an absolute, ever growing count, from which tts/ makes differences."""

SHARED = 2**16
"""Cells of a message up to which its times and columns are kept for the next one: those of thousands of hosts would take hundreds of MB."""


class Rows(msgspec.Struct, frozen=True):
    """`count` whole rows, at `start` and each step after it: every column once, in order."""

    start: Second
    count: Count

    def end(self, step: int) -> int:
        """Return when the step of the last row ends."""
        return self.start + self.count * step


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """One dataset's cells: n samples of (time, column, value).

    dataset: logical TTS name, `datatargets/readbytes`; form: what the values are; step: seconds between the rows of its group;
    columns: every component the source knows for this dataset, in the source's order, also those without a sample here;
    time: i8[n] UTC epoch seconds of each sample; column: u4[n] into columns; value: f8[n] (gauge) or i8[n] (counter).
    A cell stands at most once in a batch. rows: where it is known that the samples are whole rows, which are the fast ones.
    """

    dataset: str
    form: Form
    step: int
    columns: tuple[str, ...]
    time: NDArray[np.int64]
    column: NDArray[np.uint32]
    value: NDArray[np.float64] | NDArray[np.int64]
    rows: Rows | None = None

    def __len__(self) -> int:
        return len(self.time)

    @property
    def nbytes(self) -> int:
        """Bytes of the three arrays."""
        return self.time.nbytes + self.column.nbytes + self.value.nbytes


def even_rows(batch: Batch) -> Rows | None:
    """Return which rows the samples of a batch are, if they are whole rows that follow one another by steps."""
    times = times_of_rows(batch.time, batch.column, len(batch.columns))
    if times is None:
        return None
    # Compared as Python's own numbers, which have no end: times that nobody has may lie so far apart that int64 turns over.
    start, end = int(times[0]), int(times[-1]) + batch.step
    if end - start != len(times) * batch.step or start < 0 or end > LATEST or not (times[1:] - times[:-1] == batch.step).all():
        return None
    return Rows(start, len(times))


def times_of_rows(time: NDArray[np.int64], column: NDArray[np.integer[Any]], width: int) -> NDArray[np.int64] | None:
    """Return the time of each row, i8[rows], if samples of `width` columns are whole rows."""
    n = len(time)
    if not width or not n or n % width or column[width - 1] != width - 1 or time[0] != time[width - 1]:
        return None
    times = time[::width]
    whole = (column.reshape(-1, width) == columns_of(1, width)).all()
    return times if whole and (time.reshape(-1, width) == times[:, np.newaxis]).all() else None


def times_of(start: int, count: int, step: int, width: int) -> NDArray[np.int64]:
    """Return the times of the samples of `count` rows, the first of them at `start`; it may be shared, and is read-only."""
    make = _times_of if count * width <= SHARED else _times_of.__wrapped__
    return make(start, count, step, width)


def columns_of(count: int, width: int) -> NDArray[np.uint32]:
    """Return the columns of the samples of `count` rows; it may be shared, and is read-only."""
    make = _columns_of if count * width <= SHARED else _columns_of.__wrapped__
    return make(count, width)


# The datasets of a window mostly have the same rows, and a source's windows are equally long.
@lru_cache(maxsize=4)
def _times_of(start: int, count: int, step: int, width: int) -> NDArray[np.int64]:
    return _read_only(np.arange(start, start + count * step, step, dtype=np.int64).repeat(width))


@lru_cache(maxsize=16)
def _columns_of(count: int, width: int) -> NDArray[np.uint32]:
    return _read_only(np.tile(np.arange(width, dtype=np.uint32), count))


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array
