"""What a sealed file holds of a counter besides its cells: samples, and the states of the rule of differences around the day."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import msgspec
import numpy as np

from tokiod.tts.layout import PROVED, column_names, own_name
from tokiod.tts.schema import ABSENT
from tokiod.tts.sealed.restore_raw import RestoredRaw

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Int = NDArray[np.int64]


class SealedCounter(msgspec.Struct, frozen=True, eq=False):
    """A counter of a sealed file: its columns, kept samples i8[3, n], what is known of the others (restore_raw), and its rows.

    begin, end: the states before and after the day, i8[5, columns].
    """

    names: tuple[str, ...]
    kept: Int
    proved: NDArray[np.uint8]
    rows: int
    begin: Int
    end: Int

    @classmethod
    def read(cls, file: Any, dataset: str) -> Self:
        """Read a counter of an open file. Raises KeyError, and what h5py raises for a damaged file."""
        names, rows, kept = column_names(file[dataset]), len(file[dataset]), file[own_name("kept", dataset)]
        begin, end = (file[own_name(part, dataset)][...] for part in ("begin", "end"))
        return cls(names, kept[...], kept.attrs[PROVED], rows, begin, end)

    def restored(self, cells: Any) -> RestoredRaw:
        """Return the samples that are restored from cells, f8[rows, at least columns]; kept samples come on top of them."""
        return RestoredRaw(cells, self.kept, self.proved)

    def samples(self, row: int) -> Int:
        """Return each column's sample in the day's first row, 0, or in the next day's first one, `rows`; ABSENT without one."""
        found, here = np.full(len(self.names), ABSENT), self.kept[0] == row
        found[self.kept[1, here]] = self.kept[2, here]
        return found
