"""Which cells of a batch may be stored: what lies outside the window or can't be a value is counted by reason and dropped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections import Counter

    from numpy.typing import NDArray

    from tokiod.sample import Batch
    from tokiod.window import Window


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """The storable samples of a batch: time i8[n], column [n] into batch.columns, value [n]."""

    batch: Batch
    time: NDArray[np.int64]
    column: NDArray[np.integer]
    value: NDArray[Any]


def select(batch: Batch, window: Window, dropped: Counter[str]) -> Cells:
    """Return the cells that may be stored, counting the others in `dropped`; a measured -0.0 becomes +0.0.

    All good, the normal case, costs one pass over each array and copies nothing but gauge values.
    """
    value: NDArray[Any] = batch.value
    inside = (batch.time >= window.start) & (batch.time < window.end)
    if batch.form == "counter":
        sane, reason = value >= 0, "negative counter"
    else:
        sane, reason, value = np.isfinite(value), "not a number", value + 0.0
    _count(dropped, "outside the window", ~inside)
    _count(dropped, reason, inside & ~sane)
    good = inside & sane
    if good.all():
        return Cells(batch, batch.time, batch.column, value)
    return Cells(batch, batch.time[good], batch.column[good], value[good])


def _count(dropped: Counter[str], reason: str, mask: NDArray[np.bool_]) -> None:
    if n := int(np.count_nonzero(mask)):
        dropped[reason] += n
