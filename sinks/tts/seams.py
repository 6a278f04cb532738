"""The seams between days: what a day's counters must know of the days around it, and what these must know of it.

The sample of a day's first row closes the last cell of the day before, which has it in its raw row N. Of a day without a file, or a column
that it does not have, only that row may be stored: a day takes it over. The state of the rule of differences after a day is the state
before the next one. After each window the days around are compared, and corrected where they differ, as far as
one change leads to another. A sealed day is reopened only where it differs: it is durable, so an equal one needs nothing.

A day is joined with those around it when it is opened: a kill may have come after its samples were stored and before its neighbours were
corrected. After a power loss the state before a day may be newer than the cells that follow from it, so joining computes them again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np

from sinks.tts.open_day_file import NEXT_ROW, OpenDayFile
from tokiod.tts.counters.difference_rule import aligned, in_rows_of
from tokiod.tts.schema import ABSENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from tokiod.archive.layout import FileSlot
    from tokiod.batch import Batch
    from tokiod.selection import Cells
    from tokiod.tts.sealed.sealed_neighbour import SealedDay

    Int = NDArray[np.int64]
    Neighbour = OpenDayFile | SealedDay | None


class Seams(msgspec.Struct, frozen=True):
    """Keeps days and those around them right.

    neighbour(slot, -1 or +1): the day before or after, opened if it is live, None without a file. reopen: the same for a sealed one, None
    if it can't be opened. note: takes the cells that changed. Both raise Refusal while the file is not ready; the day is joined later.
    """

    neighbour: Callable[[FileSlot, int], Neighbour]
    reopen: Callable[[FileSlot, int], OpenDayFile | None]
    note: Callable[[OpenDayFile, Batch | None], None]

    def join(self, day: OpenDayFile) -> None:
        """Join a day with those around it, and the live days after it, as far as they are not. Raises Refusal."""
        following: OpenDayFile | None = day
        while following is not None and not following.is_joined:
            following = self._join_one(following)

    def update(self, day: OpenDayFile, counters: Iterable[Cells]) -> None:
        """Correct the days around a joined one in which cells of counters were stored. Raises Refusal."""
        counters = [cells for cells in counters if len(cells.time)]
        try:
            self._correct_before(day, [cells.batch.dataset for cells in counters if day.has_first_row(cells)])
            following = self._correct_after(day, [cells.batch.dataset for cells in counters])
            if following is not None:
                self.join(following)
        except BaseException:
            day.is_joined = False
            raise

    def close_last_row(self, slot: FileSlot, before: Neighbour, dataset: str, names: tuple[str, ...], samples: Int) -> None:
        """Store the samples in the first row of a slot, i8[columns], in the day before it, which closes its last cells. Raises Refusal."""
        if before is None or not before.names(dataset):
            return
        samples = aligned(samples[np.newaxis], names, before.names(dataset))[0]
        if isinstance(before, OpenDayFile):
            self.note(before, before.store_row(dataset, NEXT_ROW, samples))
        elif ((samples != before.counters[dataset].after) & (samples != ABSENT)).any():
            reopened = self.reopen(slot, -1)
            if reopened is not None:
                self.note(reopened, reopened.store_row(dataset, NEXT_ROW, samples))
                self.join(reopened)

    def _join_one(self, day: OpenDayFile) -> OpenDayFile | None:
        """Join a day with those around it; return the day after it, if that is to be joined next."""
        day.is_joined = True
        try:
            self._take_from_before(day, self.neighbour(day.slot, -1))
            self._take_from_after(day, self.neighbour(day.slot, +1))
            self._correct_before(day, day.counters())
            return self._correct_after(day, day.counters())
        except BaseException:
            day.is_joined = False
            raise

    def _take_from_before(self, day: OpenDayFile, before: Neighbour) -> None:
        for dataset in day.counters():
            state = _next_state(before, day, dataset)
            state = day.begin(dataset) if state is None else state
            self.note(day, day.set_begin(dataset, state, force=True))
            if before is not None and (names := before.names(dataset)):
                first = before.next_samples(dataset) if isinstance(before, OpenDayFile) else before.counters[dataset].after
                first = aligned(first[np.newaxis], names, day.names(dataset))[0]
                self.note(day, day.store_row(dataset, 0, np.where(day.first_samples(dataset) == ABSENT, first, ABSENT)))

    def _take_from_after(self, day: OpenDayFile, after: Neighbour) -> None:
        for dataset in day.counters():
            if after is not None and (names := after.names(dataset)):
                first = after.first_samples(dataset) if isinstance(after, OpenDayFile) else after.counters[dataset].first
                self.note(day, day.store_row(dataset, NEXT_ROW, aligned(first[np.newaxis], names, day.names(dataset))[0]))

    def _correct_before(self, day: OpenDayFile, datasets: Iterable[str]) -> None:
        for dataset in datasets:
            before = self.neighbour(day.slot, -1)
            self.close_last_row(day.slot, before, dataset, day.names(dataset), day.first_samples(dataset))

    def _correct_after(self, day: OpenDayFile, datasets: Iterable[str]) -> OpenDayFile | None:
        """Set the states before the days after a day, as long as one changes; return the first of them that is to be joined."""
        changed_here = list(datasets)
        while changed_here:
            after = self.neighbour(day.slot, +1)
            try:
                if after is None or (isinstance(after, OpenDayFile) and not after.is_joined):
                    return after
                states = {dataset: _next_state(day, after, dataset) for dataset in changed_here if after.names(dataset)}
                if not isinstance(after, OpenDayFile):
                    differs = any(state is not None and after.counters[name].differs(state) for name, state in states.items())
                    return self.reopen(day.slot, +1) if differs else None
                changed = {name: state for name, state in states.items() if state is not None and (after.begin(name) != state).any()}
                for name, state in changed.items():
                    self.note(after, after.set_begin(name, state, force=False))
            except BaseException:
                day.is_joined = False
                raise
            day, changed_here = after, list(changed)
        return None


def _next_state(before: Neighbour, day: OpenDayFile | SealedDay, dataset: str) -> Int | None:
    """Return the state before a day that the day before it gives, in the columns and rows of the former; None without the dataset there."""
    if before is None or not (names := before.names(dataset)):
        return None
    state = before.next_state(dataset) if isinstance(before, OpenDayFile) else before.counters[dataset].next_state()
    # A source may have another step from midnight on.
    step_before, step = before.step(dataset), day.step(dataset)
    state = aligned(state, names, day.names(dataset))
    return state if step == step_before else in_rows_of(state, step_before, step)
