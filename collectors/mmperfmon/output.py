"""What the output of `mmperfmon query` says."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from collectors.mmperfmon.legend import Legend

STAMP = len("2019-05-15-12:01:00")


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Columns of a legend, from `first` on. stamps: the rows' time stamps, one behind the other; value: f8[rows, columns], NaN: null."""

    legend: Legend
    first: int
    stamps: bytes
    value: NDArray[np.float64]


@dataclass(slots=True)
class Output:
    """What was read of an output. dropped: values that can't be told, or lines where their number can't either, by reason."""

    tables: list[Table] = field(default_factory=list)
    legends: list[Legend] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
