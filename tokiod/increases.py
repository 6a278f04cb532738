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
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

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

    def where(self, kept: NDArray[np.bool_] | NDArray[np.int64]) -> Samples:
        """Return some of the samples. kept: bool[n], or their places."""
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
    is_older, is_implausible, steps = _refused(samples)
    since, counts, is_known, fell = _of_all(samples, steps)
    if (is_refused := is_older | is_implausible).any():
        # Series do not depend on each other: those with a refused sample are few.
        at = np.flatnonzero(np.isin(samples.series, samples.series[is_refused]))
        kept = at[~is_refused[at]]
        others = samples.where(kept)
        of_others = _of_all(others, _steps(others))
        since[at], is_known[at], fell[at] = samples.time[at], False, False
        since[kept], is_known[kept], fell[kept] = of_others[0], *of_others[2:]
        for name, values in of_others[1].items():
            counts[name][at] = 0
            counts[name][kept] = values
    return Increases(since, counts, is_known, is_older, is_implausible, fell)


def _of_all(
    samples: Samples, steps: _Steps
) -> tuple[NDArray[np.int64], dict[str, NDArray[np.int64]], NDArray[np.bool_], NDArray[np.bool_]]:
    """Return since, counts, is_known and fell of samples of which none is refused."""
    again, fell = _again(samples, steps)
    is_known = steps.follows | (samples.begin >= 0)
    return _since(samples, steps.follows, again), _grown(samples, again, steps), is_known, fell


def refused(samples: Samples) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which samples are older than one before them, and which have a count that can't be."""
    return _refused(samples)[:2]


def place_before(values: NDArray[np.int64], follows: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return i8[n]: the place of the last sample before each, of the same series, that has a count; -1 without one."""
    places = np.arange(len(values))
    known = np.maximum.accumulate(np.where(values >= 0, places, -1))
    before = np.append(-1, known)[:-1]
    found: NDArray[np.int64] = np.where(before >= _firsts(follows), before, -1)
    return found


# Almost all samples go on from the one before. So each count is subtracted from the next one at once, and the rules are applied to the
# few samples where a begin moved or is unknown, a count fell, or a snapshot is not later: a pass over all samples for each would take
# longer than the sums that it is for, most of it for new arrays.
@dataclass(frozen=True, slots=True, eq=False)
class _Steps:
    """What samples show by the sample before them.

    places: place_before() of counts that some samples do not have; falls: where counts fell, of those that did.
    """

    follows: NDArray[np.bool_]
    places: dict[str, NDArray[np.int64]]
    falls: dict[str, NDArray[np.int64]]

    def fell(self, names: Collection[str]) -> NDArray[np.bool_]:
        """Return bool[n]: where any of some counts fell."""
        found = np.zeros(len(self.follows), bool)
        for name in self.falls.keys() & set(names):
            found[self.falls[name]] = True
        return found

    def before(self, name: str, values: NDArray[np.int64], at: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the last value of a count before some samples that follow another one, and which have one."""
        place = self.places[name][at] if name in self.places else at - 1
        return values[place], place >= 0


def _steps(samples: Samples) -> _Steps:
    found = _Steps(samples.follows, {}, {})
    fell = np.zeros(len(samples), bool)
    for name, values in samples.counts.items():
        if values.min(initial=0) >= 0:
            np.less(values[1:], values[:-1], out=fell[1:])
            fell &= found.follows
        else:
            found.places[name] = place = place_before(values, found.follows)
            fell[:] = (place >= 0) & (values >= 0) & (values < values[place])
        if fell.any():
            found.falls[name] = np.flatnonzero(fell)
    return found


def _refused(samples: Samples) -> tuple[NDArray[np.bool_], NDArray[np.bool_], _Steps]:
    """Return also the steps of the samples."""
    is_implausible = np.zeros(len(samples), bool)
    for values in samples.counts.values():
        if values.max(initial=0) > MOST:
            is_implausible |= values > MOST
    steps = _steps(samples)
    if not is_implausible.any():
        return _older(samples, steps), is_implausible, steps
    plausible = samples.where(~is_implausible)
    is_older = np.zeros(len(samples), bool)
    is_older[~is_implausible] = _older(plausible, _steps(plausible))
    return is_older, is_implausible, steps


def _firsts(follows: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return i8[n]: the place of the first sample of each one's series."""
    found: NDArray[np.int64] = np.maximum.accumulate(np.where(follows, 0, np.arange(len(follows))))
    return found


def _again(found: Samples, steps: _Steps) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return where counts began again, and where some fell though they did not."""
    again, commonly = np.zeros(len(found), bool), steps.fell(found.common)
    fell = commonly | steps.fell(found.parts)
    at = np.flatnonzero(steps.follows[1:] & ((found.begin[1:] < 0) | (found.begin[1:] != found.begin[:-1]))) + 1
    begin, before, has_fallen = found.begin[at], found.begin[at - 1], fell[at]
    is_later = (begin > before) & np.where(before >= 0, has_fallen | (begin // BILLION > before // BILLION), begin > found.last[at - 1])
    is_blind = ~is_later & ((begin < 0) | (before < 0) | (begin < before))
    all_fell = has_fallen & is_blind
    all_fell[all_fell] = ~_stood(found, steps, at[all_fell])
    again[at] = is_later | is_blind & (commonly[at] | all_fell | _were_gone(found, steps, at))
    return again, steps.follows & fell & ~again


def _stood(found: Samples, steps: _Steps, at: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return at which samples a sum of parts did not fall."""
    stood = np.zeros(len(at), bool)
    for name, values in found.parts.items() if len(at) else ():
        before, has = steps.before(name, values, at)
        stood |= has & (before > 0) & (values[at] >= before)
    return stood


def _were_gone(found: Samples, steps: _Steps, at: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return at which samples common counts of an unknown begin are new, since the source had forgotten the last ones."""
    were_gone = found.gone[at - 1] & (found.begin[at] < 0) & bool(found.common)
    if not were_gone.any():
        return were_gone
    changed = np.zeros(len(at), bool)
    for name, values in found.common.items():
        changed |= values[at] != steps.before(name, values, at)[0]
    # A source may say more than once that it forgot the counts.
    were_gone &= ~found.gone[at] | changed
    # What was done after it was forgotten is later: at the same snapshot it is an old answer, or a poll by another clock.
    last = _snapshots(found)
    return were_gone & (last[at] > last[at - 1])


def _since(found: Samples, follows: NDArray[np.bool_], again: NDArray[np.bool_]) -> NDArray[np.int64]:
    since, at = np.append(found.time[:1], found.time[:-1]), np.flatnonzero(~follows | again)
    begin, before = found.begin[at] // BILLION, since[at]
    is_blind = again[at] & (found.begin[at] <= found.begin[at - 1])
    since[at] = np.where(is_blind, np.maximum(begin, before), np.where(found.begin[at] >= 0, begin, found.time[at]))
    return since


def _grown(found: Samples, again: NDArray[np.bool_], steps: _Steps) -> dict[str, NDArray[np.int64]]:
    grown, is_unknown = _rises(found, steps), found.begin < 0
    anew, unknown = np.flatnonzero(again), np.flatnonzero(is_unknown & ~steps.follows)
    for name, values in found.counts.items():
        rise = grown[name]
        if (fell := steps.falls.get(name)) is not None:
            rise[fell] = values[fell] if name in found.own else 0
        rise[unknown] = np.minimum(values[unknown], 0)
        rise[anew] = values[anew]
    if steps.places and (len(anew) or is_unknown.any()):
        begun = np.maximum.accumulate(np.where(again, np.arange(len(found)), -1))
        has_begun = begun >= _firsts(steps.follows)
        for name, place in steps.places.items():
            rise, values = grown[name], found.counts[name]
            rise[(place < 0) & is_unknown & ~has_begun & (values >= 0)] = 0
            is_first = has_begun & (place < begun)
            rise[is_first] = values[is_first]
    return grown


def _rises(found: Samples, steps: _Steps) -> dict[str, NDArray[np.int64]]:
    """Return the difference of each count to its last value in the series; the count without one, or where it is negative."""
    bits = -steps.follows.astype(np.int64)
    before, rises = np.zeros_like(bits), {}
    for name, values in found.counts.items():
        if (place := steps.places.get(name)) is None:
            np.bitwise_and(values[:-1], bits[1:], out=before[1:])
            rises[name] = values - before
        else:
            rises[name] = np.where((place >= 0) & (values >= 0), values - values[place], values)
    return rises


def _older(found: Samples, steps: _Steps) -> NDArray[np.bool_]:
    """Return which samples are older than one before them. Only series in which a snapshot is not later are looked at one by one."""
    older, begin, last, of = np.zeros(len(found), bool), found.begin, _snapshots(found), {**found.common, **found.parts}
    fell = steps.fell(found.common)
    fell[1:] &= (begin[1:] >= 0) & (begin[1:] == begin[:-1])
    at = np.flatnonzero(fell[1:] | steps.follows[1:] & (last[1:] <= last[:-1]) & (begin[1:] <= begin[:-1])) + 1
    is_old = fell[at] | np.where(begin[at] < 0, last[at] < last[at - 1], begin[at] < begin[at - 1]) | steps.fell(of)[at]
    if is_old.any():
        _walk(found, np.unique(found.series[at[is_old]]), last, older)
    return older


def _snapshots(found: Samples) -> NDArray[np.int64]:
    """Return i8[n]: the snapshots; one that is days after its poll is no time."""
    if found.last.max(initial=0) // BILLION < found.time.min(initial=MOST) + _DAY:
        return found.last
    is_late = found.last > (found.time + _DAY) * BILLION
    return np.where(is_late, found.time * BILLION, found.last) if is_late.any() else found.last


# The first samples of all series in one step, then the second ones, and so on: most series have few.
def _walk(found: Samples, series: NDArray[np.int64], last: NDArray[np.int64], older: NDArray[np.bool_]) -> None:
    """Set which samples of some series are older than one before them. last: _snapshots()."""
    firsts = np.searchsorted(found.series, series)
    lengths = np.searchsorted(found.series, series, side="right") - firsts
    firsts, lengths = (values[np.argsort(-lengths)] for values in (firsts, lengths))
    of, common = [*found.common.values(), *found.parts.values()], len(found.common)
    began, newest, base = found.begin[firsts], last[firsts], np.array([values[firsts] for values in of]).reshape(-1, len(firsts))
    for step in range(1, int(lengths[0])):
        n = int(np.searchsorted(-lengths, -step))
        at, began, newest, base = firsts[:n] + step, began[:n], newest[:n], base[:, :n]
        this, snapshot, values = found.begin[at], last[at], np.array([values[at] for values in of]).reshape(-1, n)
        is_present, is_same = values >= 0, (this == began) & (began >= 0)
        fell = is_present & (values < base)
        needs_fall = is_same | (this < 0) & (snapshot == newest)
        is_old = (snapshot <= newest) & (this <= began) & (fell.any(axis=0) | ~needs_fall) | is_same & fell[:common].any(axis=0)
        older[at] = is_old
        goes_on = is_old | ~is_present & ~((this > began) & (began >= 0))
        base, began, newest = np.where(goes_on, base, values), np.where(is_old, began, this), np.where(is_old, newest, snapshot)
