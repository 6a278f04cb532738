"""By how much counts rose from one sample to the next, where the begin of the counts is known, or something else shows it.

    series   begin            counts        then
    first    known            any           the increase is the count: it counts since begin
    first    unknown          any           0: what was before is not known
    same     the same         risen         the increase is the difference
    same     the same         some fell     nothing began again. One that fell rises by 0 and goes on from the new value: a part of it
                                            (a device, a child) went away. The others rise by their differences
    same     later            any           they began again, at begin: the increase is the count. A begin within the same second is the
                                            same one as long as nothing fell
    same     earlier          none fell     the begin moved, and the counts go on: difference
    same     earlier          some fell     as with an unknown begin
    same     unknown          none fell     difference; but if the one before said `gone`, the common counts began again
    same     unknown          some fell     common counts begin again together, so all did; sums of parts did if all fell, else one by one

A sample is refused that is not later than the one before by its own snapshot, and has an earlier or no begin, or counts that fell: an old
answer, or a poll by a clock that was ahead. Both clocks, the poller's and the source's, may jump: with one begin, the order counts in which
no count falls, so a common count that fell is old whatever its snapshot. A sample with a count above MOST is refused too.

The rule of LMT's counters, of which nothing but the value is known, is another one: tokiod.tts.counters.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

MOST = 2**62
"""What a count may be: a larger one is a negative number that was printed as an unsigned one."""
OLDER = "sample that is older than the one before"
IMPLAUSIBLE = "sample with a count above 2^62"
FELL = "sample with a count that fell alone"
BILLION = 10**9
_DAY = 86400


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """n samples, sorted by series and time.

    series: i8[n]; time: i8[n] epoch seconds of the poll; begin, last: i8[n] epoch nanoseconds, of the counts' begin, -1 if unknown, and
    the source's own snapshot; gone: bool[n], after which the source had forgotten the counts; common: i8[n] each, counts that begin again
    together; parts: counts that are sums of parts; own: counts that begin again alone. Those of the last two are negative where a sample
    does not have them.
    """

    series: NDArray[np.int64]
    time: NDArray[np.int64]
    begin: NDArray[np.int64]
    last: NDArray[np.int64]
    gone: NDArray[np.bool_]
    common: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    parts: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)
    own: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.time)

    @property
    def counts(self) -> dict[str, NDArray[np.int64]]:
        """All counts."""
        return {**self.common, **self.parts, **self.own}

    @property
    def follows(self) -> NDArray[np.bool_]:
        """bool[n]: whether the sample before each is of the same series."""
        found = np.zeros(len(self), bool)
        found[1:] = self.series[1:] == self.series[:-1]
        return found

    def where(self, kept: NDArray[np.bool_]) -> Samples:
        """Return some of the samples. kept: bool[n]."""
        if kept.all():
            return self
        counts = ({name: values[kept] for name, values in of.items()} for of in (self.common, self.parts, self.own))
        fixed = (self.series[kept], self.time[kept], self.begin[kept], self.last[kept], self.gone[kept])
        return Samples(*fixed, *counts)


@dataclass(frozen=True, slots=True, eq=False)
class Increases:
    """What was counted up to each of n samples since the one before it of the same series.

    since: i8[n] epoch seconds of that one, or of the counts' begin; counts: i8[n] each, negative where the sample does not have it;
    is_known: bool[n], false where counts began at an unknown time before the first sample: then they are 0. is_older, is_implausible:
    bool[n], which samples are refused: their counts are 0, and the next sample covers their time; fell: bool[n], where a count fell alone.
    """

    since: NDArray[np.int64]
    counts: dict[str, NDArray[np.int64]]
    is_known: NDArray[np.bool_]
    is_older: NDArray[np.bool_]
    is_implausible: NDArray[np.bool_]
    fell: NDArray[np.bool_]


def increases(samples: Samples) -> Increases:
    """Return by how much counts rose."""
    is_older, is_implausible = refused(samples)
    kept = ~(is_older | is_implausible)
    found = samples.where(kept)
    again, fell = _again(found)
    since, is_known = _since(found, again), found.follows | (found.begin >= 0)
    counts = _grown(found, again)
    if not kept.all():
        since, is_known, fell = _among(since, kept, samples.time), _among(is_known, kept), _among(fell, kept)
        counts = {name: _among(values, kept) for name, values in counts.items()}
    return Increases(since, counts, is_known, is_older, is_implausible, fell)


def refused(samples: Samples) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which samples are older than one before them, and which have a count that can't be."""
    is_implausible = np.zeros(len(samples), bool)
    for values in samples.counts.values():
        is_implausible |= values > MOST
    is_older = np.zeros(len(samples), bool)
    is_older[~is_implausible] = _older(samples.where(~is_implausible))
    return is_older, is_implausible


def place_before(values: NDArray[np.int64], follows: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return i8[n]: the place of the last sample before each, of the same series, that has a count; -1 without one."""
    places = np.arange(len(values))
    known = np.maximum.accumulate(np.where(values >= 0, places, -1))
    before = np.append(-1, known)[:-1]
    found: NDArray[np.int64] = np.where(before >= _firsts(follows), before, -1)
    return found


def _firsts(follows: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return i8[n]: the place of the first sample of each one's series."""
    found: NDArray[np.int64] = np.maximum.accumulate(np.where(follows, 0, np.arange(len(follows))))
    return found


def _before(values: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.append(values[:1], values[:-1])


def _last(values: NDArray[np.int64], follows: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the last value of a count before each sample, and where there is one."""
    if not (values < 0).any():
        return _before(values), follows
    place = place_before(values, follows)
    return values[place], place >= 0


def _again(found: Samples) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return where counts began again, and where some fell though they did not."""
    follows, n = found.follows, len(found)
    fell, stood, commonly, changed = (np.zeros(n, bool) for _ in range(4))
    for is_common, of in ((True, found.common), (False, found.parts)):
        for values in of.values():
            before, has = _last(values, follows)
            less = has & (values >= 0) & (values < before)
            fell |= less
            if is_common:
                commonly |= less
                changed |= values != before
            else:
                stood |= has & (values >= 0) & (before > 0) & ~less
    begin, before = found.begin, _before(found.begin)
    is_later = (begin > before) & np.where(before >= 0, fell | (begin // BILLION > before // BILLION), begin > _before(found.last))
    is_blind = ~is_later & ((begin < 0) | (before < 0) | (begin < before))
    # A source may say more than once that it forgot the counts.
    was_gone = np.append(False, found.gone)[:-1] & (begin < 0) & ~(found.gone & ~changed) & bool(found.common)
    # What was done after it was forgotten is later: at the same snapshot it is an old answer, or a poll by another clock.
    was_gone &= _snapshots(found) > _before(_snapshots(found))
    again = follows & (is_later | is_blind & (commonly | fell & ~stood | was_gone))
    return again, follows & fell & ~again


def _since(found: Samples, again: NDArray[np.bool_]) -> NDArray[np.int64]:
    begin, before = found.begin // BILLION, _before(found.time)
    is_blind = again & (found.begin <= _before(found.begin))
    starts = np.where(is_blind, np.maximum(begin, before), np.where(found.begin >= 0, begin, found.time))
    since: NDArray[np.int64] = np.where(found.follows & ~again, before, starts)
    return since


def _grown(found: Samples, again: NDArray[np.bool_]) -> dict[str, NDArray[np.int64]]:
    follows = found.follows
    has_begun = np.maximum.accumulate(np.where(again, np.arange(len(found)), -1)) >= _firsts(follows)
    has_begun |= found.begin >= 0
    grown = {}
    for name, values in found.counts.items():
        before, goes_on = _last(values, follows & ~again)
        is_less = goes_on & (values < before)
        from_zero = ~goes_on & has_begun | (is_less if name in found.own else False)
        rise = np.where(from_zero, values, np.where(goes_on & ~is_less, values - before, 0))
        grown[name] = np.where(values >= 0, rise, values)
    return grown


def _older(found: Samples) -> NDArray[np.bool_]:
    """Return which samples are older than one before them. Only series in which a snapshot is not later are looked at one by one."""
    older, follows, before, last = np.zeros(len(found), bool), found.follows, _before(found.begin), _snapshots(found)
    fell = np.zeros(len(found), bool)
    for values in found.common.values():
        counted, has = _last(values, follows)
        fell |= has & (values >= 0) & (values < counted)
    fell &= (found.begin >= 0) & (found.begin == before)
    suspect = fell | follows & (last <= _before(last)) & (found.begin <= before)
    at, of = np.flatnonzero(suspect), {**found.common, **found.parts}
    if not len(at):
        return older
    begin = found.begin[at]
    is_old = fell[at] | np.where(begin < 0, last[at] < last[at - 1], begin < before[at])
    for values in of.values():
        counted, has = _last(values, follows)
        is_old |= has[at] & (values[at] >= 0) & (values[at] < counted[at])
    for number in np.unique(found.series[at[is_old]]):
        first, end = np.searchsorted(found.series, [number, number + 1])
        counts = np.array([values[first:end] for values in of.values()], np.int64).reshape(len(of), end - first).T
        older[first:end] = _older_of_one(found.begin[first:end].tolist(), last[first:end].tolist(), counts, len(found.common))
    return older


def _snapshots(found: Samples) -> NDArray[np.int64]:
    """Return i8[n]: the snapshots; one that is days after its poll is no time."""
    return np.where(found.last > (found.time + _DAY) * BILLION, found.time * BILLION, found.last)


def _older_of_one(begin: list[int], last: list[int], counts: NDArray[np.int64], common: int) -> list[bool]:
    """Return which samples of one series are older than one before them. counts: i8[n, counts], the first `common` of them common."""
    older = [False]
    began, newest, base = begin[0], last[0], counts[0]
    for this, snapshot, values in zip(begin[1:], last[1:], counts[1:], strict=True):
        is_present = values >= 0
        fell = is_present & (values < base)
        needs_fall = this == began >= 0 or (this < 0 and snapshot == newest)
        is_old = snapshot <= newest and this <= began and bool(fell.any() or not needs_fall)
        is_old |= this == began >= 0 and bool(fell[:common].any())
        older.append(is_old)
        if not is_old:
            base = values if this > began >= 0 else np.where(is_present, values, base)
            began, newest = this, snapshot
    return older


def _among(values: NDArray[Any], kept: NDArray[np.bool_], others: NDArray[Any] | int = 0) -> NDArray[Any]:
    """Return values of the samples that are kept, among others."""
    found = np.zeros(len(kept), values.dtype)
    found[:] = others
    found[kept] = values
    return found
