"""Batch: one dataset's samples, and Rows: which of them are whole rows. Collectors make batches; the writer, sinks and clients take them.

Whole rows are samples that hold every column once and in order, row after row. Nearly all data has this form, and it is the fast case.
Processes that pass batches on without their arrays import this module, so the functions that need numpy import it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from tokiod.window import LATEST

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Count = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]
Second = Annotated[int, msgspec.Meta(ge=0, lt=LATEST)]

Extent = Literal["whole", "some", "seam"]
Form = Literal["gauge", "counter"]
"""gauge: the value of the cell itself. counter: an absolute, ever growing count, from which tokiod.tts makes differences."""

MAX_CACHED_CELLS = 2**16
"""Cells of a batch up to which its times and columns are kept for the next one: those of thousands of hosts would take hundreds of MB."""


class Rows(msgspec.Struct, frozen=True):
    """`count` whole rows, the first at `start` and each one step after the one before: every column once, in order."""

    start: Second
    count: Count

    def end(self, step: int) -> int:
        """Return when the step of the last row ends."""
        return self.start + self.count * step

    def arrays(self, step: int, width: int) -> tuple[NDArray[np.int64], NDArray[np.uint32]]:
        """Return the times and columns of the samples, [count * width] each; both are read-only, and may be shared."""
        is_small = self.count * width <= MAX_CACHED_CELLS
        times, columns = (_times, _columns) if is_small else (_times.__wrapped__, _columns.__wrapped__)
        return times(self.start, self.count, step, width), columns(self.count, width)


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """One dataset's cells: n samples of (time, column, value).

    dataset: logical TTS name, `datatargets/readbytes`; form: what the values are; step: seconds between the rows of its group;
    columns: every component the source knows for this dataset, in the source's order, also those without a sample here;
    time: i8[n] UTC epoch seconds of each sample; column: u4[n] into columns; value: f8[n] (gauge) or i8[n] (counter).
    A cell is at most once in a batch. rows: what even_rows() returns, if that is known already.
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
    """Return which rows the samples of a batch are; None unless they are whole rows, one step apart."""
    times = row_times(batch)
    if times is None:
        return None
    # Compared as Python's integers: int64 would overflow where invalid times lie far apart.
    start, end = int(times[0]), int(times[-1]) + batch.step
    if end - start != len(times) * batch.step or start < 0 or end > LATEST or not (times[1:] - times[:-1] == batch.step).all():
        return None
    return Rows(start, len(times))


def row_times(batch: Batch) -> NDArray[np.int64] | None:
    """Return the time of each row, i8[rows], at any distance from each other; None unless the samples of a batch are whole rows."""
    import numpy as np  # noqa: PLC0415 - see above

    time, column, width = batch.time, batch.column, len(batch.columns)
    n = len(time)
    if not width or not n or n % width or column[width - 1] != width - 1 or time[0] != time[width - 1]:
        return None
    times = time[::width]
    is_whole = (column.reshape(-1, width) == np.arange(width, dtype=np.uint32)).all()
    return times if is_whole and (time.reshape(-1, width) == times[:, np.newaxis]).all() else None


# The datasets of a window mostly have the same rows, and a source's windows are equally long.
@lru_cache(maxsize=4)
def _times(start: int, count: int, step: int, width: int) -> NDArray[np.int64]:
    import numpy as np  # noqa: PLC0415 - see above

    return _read_only(np.arange(start, start + count * step, step, dtype=np.int64).repeat(width))


@lru_cache(maxsize=16)
def _columns(count: int, width: int) -> NDArray[np.uint32]:
    import numpy as np  # noqa: PLC0415 - see above

    return _read_only(np.tile(np.arange(width, dtype=np.uint32), count))


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    array.setflags(write=False)
    return array
