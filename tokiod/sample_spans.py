"""Where samples lie: the few spans of time that hold all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokiod.ranges import Ranges
from tokiod.window import Window

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

SPAN_GAP_SECONDS = 3600
"""A longer time without samples begins another span: one stray sample of 1970 must not cause fifty years of windows."""


def spans_of(times: NDArray[np.int64], step: int) -> list[Window]:
    """Return the spans that hold i8[n] epoch seconds in any order, oldest first. step: seconds that a sample lasts."""
    if not len(times):
        return []
    ordered = np.unique(times)
    last = np.append(np.diff(ordered) > SPAN_GAP_SECONDS + step, True)
    first = np.append(True, last[:-1])
    return [Window(start, end + step) for start, end in zip(ordered[first].tolist(), ordered[last].tolist(), strict=True)]


def joined(spans: Iterable[Window]) -> list[Window]:
    """Join spans that overlap or touch; return the disjoint ones, oldest first."""
    return [Window(start, end) for start, end in Ranges((span.start, span.end) for span in spans)]
