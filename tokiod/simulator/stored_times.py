"""The times of an archive that must be filled, from its stored windows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from tokiod.window import Window


def steps(file: Window, step: int) -> NDArray[np.int64]:
    """Return the left edges of a file's rows. Raises ValueError for edges that are not multiples of the step."""
    if file.start % step or file.end % step:
        raise ValueError(f"{file} does not start and end on multiples of {step} s")
    return np.arange(file.start, file.end, step)


def within(times: NDArray[np.int64], stored: Iterable[Window]) -> NDArray[np.bool_]:
    """Return which of the times lie in one of the windows."""
    there = np.zeros(len(times), bool)
    for window in stored:
        there |= (window.start <= times) & (times < window.end)
    return there
