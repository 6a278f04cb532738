"""What a sealed file holds of a counter besides its cells: samples, and the states of the rule of differences around the day.

A file of 0.1.0 holds samples only, in `edges`, whose rows are one higher: the first is the last sample of the day before, in an unknown
row. It counts as a sample in row -1, of which the state before the day is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import msgspec
import numpy as np

from tokiod.tts.counters.difference_rule import BASE, BASE_ROW, CANDIDATE, CANDIDATE_ROW, ZERO_ROW, Differences, Rule, empty_state
from tokiod.tts.layout import PROVED, column_names, own_name
from tokiod.tts.schema import ABSENT
from tokiod.tts.sealed.chunks import CHUNK_ROWS
from tokiod.tts.sealed.kept_samples import fill_raw
from tokiod.tts.sealed.restore_raw import UNPROVED, RestoredRaw

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Int = NDArray[np.int64]


class SealedCounter(msgspec.Struct, frozen=True, eq=False):
    """A counter of a sealed file: its columns, kept samples i8[3, n], what is known of the others (restore_raw), and its rows.

    begin: the state before the day, i8[5, columns]. end: the state after it, None in a file of 0.1.0.
    """

    names: tuple[str, ...]
    kept: Int
    proved: NDArray[np.uint8]
    rows: int
    begin: Int
    end: Int | None

    @classmethod
    def read(cls, file: Any, dataset: str) -> Self:
        """Read a counter of an open file. Raises KeyError, and what h5py raises for a damaged file."""
        names, rows = column_names(file[dataset]), len(file[dataset])
        if (name := own_name("kept", dataset)) in file:
            begin, end = (file[own_name(part, dataset)][...] for part in ("begin", "end"))
            return cls(names, file[name][...], file[name].attrs[PROVED], rows, begin, end)
        edges = file[own_name("edges", dataset)]
        row, column, value = kept = edges[...]
        before = np.full(len(names), ABSENT)
        before[column[row == 0]] = value[row == 0]
        kept = kept[:, row > 0] - np.array([[1], [0], [0]])
        return cls(names, kept, edges.attrs.get(PROVED, np.zeros(len(names), np.uint8)), rows, state_after(before), None)

    @property
    def is_complete(self) -> bool:
        """Whether all samples of the day can be restored."""
        return not (self.proved == UNPROVED).any()

    def restored(self, cells: Any) -> RestoredRaw:
        """Return the samples that are restored from cells, f8[rows, at least columns]; kept samples come on top of them."""
        return RestoredRaw(cells, self.kept, self.proved)

    def samples(self, row: int) -> Int:
        """Return each column's sample in the day's first row, 0, or in the next day's first one, `rows`; ABSENT without one."""
        found, here = np.full(len(self.names), ABSENT), self.kept[0] == row
        found[self.kept[1, here]] = self.kept[2, here]
        return found

    def computed_end(self, cells: Any, rule: Rule) -> Int:
        """Return the state after the day, i8[5, columns], of the restored samples; where they can't be restored, of the kept ones."""
        restored, differences = self.restored(cells), Differences(self.begin, 0, rule)
        for start in range(0, self.rows, CHUNK_ROWS):
            raw = np.full((min(CHUNK_ROWS, self.rows - start), len(self.names)), ABSENT)
            restored.fill(start, raw)
            fill_raw(self.kept, start, raw)
            differences.feed(raw)
        return differences.state


def state_after(last: Int) -> Int:
    """Return the state i8[5, columns] before a day of which only the last sample before it is known, i8[columns], ABSENT without one."""
    state = empty_state(len(last))
    moved = last > 0
    state[BASE, moved], state[BASE_ROW, moved] = last[moved], -1
    state[ZERO_ROW, last == 0] = -1
    return state


def newest_sample(state: Int) -> Int:
    """Return the newest sample of each column's state, i8[columns], ABSENT in an empty one."""
    value = np.stack([state[BASE], state[CANDIDATE], np.where(state[ZERO_ROW] == ABSENT, ABSENT, 0)])
    newest = state[[BASE_ROW, CANDIDATE_ROW, ZERO_ROW]].argmax(axis=0)
    return np.asarray(np.take_along_axis(value, newest[np.newaxis], axis=0)[0])
