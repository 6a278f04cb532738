"""Folding: of the messages of a window, those with the highest revision count. Pure: messages in, rows out."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from tokiod.bus.keyed_messages import decode
from tokiod.errors import Malformed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tokiod.batch import Batch
    from tokiod.bus.keyed_messages import WindowPart

REMEMBERED_WINDOWS = 100_000
"""Windows whose revision is known: messages are out of order only around the kill of a sink, by a few seconds."""

_Window = tuple[str, str, int]
_Revision = tuple[int, int]
Place = tuple[str, int]
"""A topic and a partition."""


@dataclass(frozen=True, slots=True, eq=False)
class Update:
    """Rows as they are stored now: they replace all that is known of the dataset in [start, end), epoch seconds, UTC.

    batch: every cell of the rows, gauges, NaN where missing. A column that is not in batch.columns has no cell in these rows.
    epoch, revision: rows with a lower (epoch, revision) are older; with the same, the later ones count.
    """

    system: str
    batch: Batch
    start: int
    end: int
    epoch: int
    revision: int
    units: str

    @property
    def dataset(self) -> str:
        """The dataset whose rows these are."""
        return self.batch.dataset

    @property
    def times(self) -> NDArray[np.int64]:
        """The left edges i8[rows] of the rows, epoch seconds."""
        return np.arange(self.start, self.end, self.batch.step, dtype=np.int64)

    @property
    def values(self) -> NDArray[np.float64]:
        """The cells f8[rows, columns], NaN where missing."""
        return np.asarray(self.batch.value, np.float64).reshape(len(self.times), len(self.batch.columns))


@dataclass(slots=True)
class _Incomplete:
    revision: _Revision
    place: Place
    offset: int
    parts: dict[int, WindowPart] = field(default_factory=dict)


class Fold:
    """Joins the parts of windows, and drops what is older than what was returned before.

    malformed: messages that could not be decoded; outdated: those with a lower revision than an earlier message of the window; incomplete:
    windows without all of their parts, as where the topic no longer has the first ones.
    remembered: windows whose revision is known, the latest ones.
    """

    def __init__(self, remembered: int = REMEMBERED_WINDOWS) -> None:
        self.malformed = self.outdated = self.incomplete = 0
        self._remembered = remembered
        self._newest: OrderedDict[_Window, _Revision] = OrderedDict()
        self._incomplete: dict[_Window, _Incomplete] = {}

    def take(
        self,
        key: bytes | None,
        headers: Sequence[tuple[str, bytes]],
        value: bytes | None,
        place: Place = ("", 0),
        offset: int = 0,
    ) -> Update | None:
        """Return the rows that a message completes. place, offset: of the message, for first_incomplete()."""
        try:
            part = decode(key, headers, value)
            return self._update(part, place, offset)
        except Malformed:
            self.malformed += 1
            return None

    def first_incomplete(self, place: Place) -> int | None:
        """Return the offset of the first message of a partition whose window lacks parts, None if there is no such one."""
        return min((one.offset for one in self._incomplete.values() if one.place == place), default=None)

    def _update(self, part: WindowPart, place: Place, offset: int) -> Update | None:
        window, revision = (part.system, part.dataset, part.start), (part.epoch, part.revision)
        self._end_others(window, place)
        if revision < self._newest.get(window, revision):
            self.outdated += 1
            return None
        parts = {0: part} if part.parts == 1 else self._joined(window, part, place, offset)
        if parts is None:
            return None
        self._incomplete.pop(window, None)
        self._remember(window, revision)
        batch = _side_by_side([parts[number].batch for number in range(part.parts)])
        return Update(part.system, batch, part.start, part.end, part.epoch, part.revision, part.units)

    def _end_others(self, window: _Window, place: Place) -> None:
        """Give up windows without all of their parts that another one follows: a sink sends the parts of each one after another."""
        for other in [other for other, one in self._incomplete.items() if one.place == place and other[0] == window[0] and other != window]:
            del self._incomplete[other]
            self.incomplete += 1

    def _joined(self, window: _Window, part: WindowPart, place: Place, offset: int) -> dict[int, WindowPart] | None:
        """Return the parts of a window once all are there."""
        revision, known = (part.epoch, part.revision), self._incomplete.get(window)
        if known is not None and revision < known.revision:
            self.outdated += 1
            return None
        if known is None or known.revision != revision or _shape(next(iter(known.parts.values()))) != _shape(part):
            known = self._incomplete[window] = _Incomplete(revision, place, offset)
        known.parts[part.part] = part
        return known.parts if len(known.parts) == part.parts else None

    def _remember(self, window: _Window, revision: _Revision) -> None:
        self._newest[window] = revision
        self._newest.move_to_end(window)
        if len(self._newest) > self._remembered:
            self._newest.popitem(last=False)


def _shape(part: WindowPart) -> tuple[int, int, int]:
    return part.parts, part.end, part.batch.step


def _side_by_side(batches: list[Batch]) -> Batch:
    """Return one batch of batches that have the same rows of different columns. Raises Malformed for a column in two of them."""
    first = batches[0]
    if len(batches) == 1:
        return first
    columns = tuple(name for batch in batches for name in batch.columns)
    if len(set(columns)) != len(columns) or first.rows is None or any(batch.rows != first.rows for batch in batches):
        raise Malformed("columns", f"the parts of a window of {first.dataset} have a column in common, or different rows")
    cells = np.hstack([np.asarray(batch.value, np.float64).reshape(-1, len(batch.columns)) for batch in batches])
    time, column = first.rows.arrays(first.step, len(columns))
    return replace(first, columns=columns, time=time, column=column, value=cells.ravel())
