"""What a right archive of a source holds, from the source's load alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from tokiod.simulator.site import Site
    from tokiod.window import Window

    Mask = NDArray[np.bool_]
    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """A dataset of a file: columns; timestamps i8[n]; values f8[n, c], NaN where missing.

    determined: bool[n, c], where no window that is stored later, of whatever time, can change the cell any more.
    exact: whether each value is one double and no other; sums may be added up in any order, and differ by 1e-12 of their size.
    """

    columns: tuple[str, ...]
    timestamps: Ints
    values: Floats
    determined: Mask
    exact: bool = True


class Expected(ABC):
    """What the files of a source hold once the windows `stored` are in the archive, and no others.

    A lost window is not among these, so its cells are missing. since: nothing before it is ever collected (the site's epoch if not given).
    """

    def __init__(self, site: Site, stored: Iterable[Window], since: int | None = None) -> None:
        self.site = site
        self.since = site.epoch if since is None else since
        self.stored = tuple(stored)

    @abstractmethod
    def of(self, file: Window) -> dict[str, Answer]:
        """Return the answer for every dataset of a file that spans `file`. Raises ValueError for edges that don't lie on its rows."""

    def in_archive(self, times: Ints) -> Mask:
        """Return which of the times lie in a stored window."""
        there = np.zeros(len(times), bool)
        for window in self.stored:
            there |= (window.start <= times) & (times < window.end)
        return there

    def known(self, times: Ints) -> Mask:
        """Return for which times nothing will come any more."""
        return np.asarray(self.in_archive(times) | (times < self.since))

    def answer(self, columns: tuple[str, ...], times: Ints, values: Floats, *, exact: bool = True) -> Answer:
        """Return a dataset whose cells no window changes but their own."""
        return Answer(columns, times, values, self.known(times)[:, np.newaxis].repeat(len(columns), axis=1), exact)


def steps(file: Window, step: int) -> Ints:
    """Return the left edges of a file's rows. Raises ValueError for edges that are not multiples of the step."""
    if file.start % step or file.end % step:
        raise ValueError(f"{file} does not lie on steps of {step} s")
    return np.arange(file.start, file.end, step)
