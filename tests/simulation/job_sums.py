"""What sums over the job table must be, by a slow rule of its own: over the whole time and over any hour, before and after merges.

Each row of the table is one of the truth: it belongs to a life of its job on its target or node, and has a place in it. What was done up
to a row is what it has counted more than the row before it in that order. It belongs to the time of the row, by the clock of who asked.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tests.simulation.oracle import Wrong
from tokiod.job_columns import is_state
from tokiod.jobs.rows import SUFFIX, Wanted, table_files
from tokiod.jobs.span import Days, pieces, series, span_rows
from tokiod.jobs.table import replace_by_merged
from tokiod.simulator.jobs.expected import id_of
from tokiod.tts.live.files import REAL
from tokiod.window import iso
from tokiod.window_data import job_parts

if TYPE_CHECKING:
    import random

    from numpy.typing import NDArray

    from tokiod.jobs.rows import JobRows
    from tokiod.jobs.span import Series, SpanRows

HOUR = 3600
NOISE = 1e-9
"""Of sums of doubles."""

Pair = tuple[bytes, str]
"""A job and its target or node. A job has another key where the site's key of job ids was lost, and counts twice, as docs say."""
Sums = dict[tuple[Pair, str], tuple[float, float]]
"""The least and the most that a count of a pair may be."""


@dataclass(frozen=True, slots=True, eq=False)
class Truth:
    """n rows of a table, as the truth has them.

    pairs: of jobs and targets; pair: i8[n] indexes into them; life: i8[n], different for each life of a pair; place: i8[n], order in it;
    time: i8[n], of the row; begin: i8[n] epoch seconds of the life by its clock, -1 where its counts before the first row are not known;
    counts: i8[n] each, since the begin of the life; seen: i8[n], when the target was certainly looked at last before the row.
    """

    pairs: list[Pair]
    pair: NDArray[np.int64]
    life: NDArray[np.int64]
    place: NDArray[np.int64]
    time: NDArray[np.int64]
    begin: NDArray[np.int64]
    counts: dict[str, NDArray[np.int64]]
    seen: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.pair)

    def taken(self, which: NDArray[np.int64]) -> Truth:
        """Return some of the rows, in another order."""
        fixed = {name: getattr(self, name)[which] for name in ("pair", "life", "place", "time", "begin", "seen")}
        return replace(self, counts={name: values[which] for name, values in self.counts.items()}, **fixed)


@dataclass(frozen=True, slots=True, eq=False)
class Growth:
    """What was done up to each of n different places, in order.

    first: i8[n], the earliest row of each place or of a later one in its life, which has counted the same and more: a clock that went back
    gives a later place an earlier time. last: i8[n], the latest row of the place; since: i8[n], when that begins, at the earliest and at
    the latest.
    """

    truth: Truth
    done: dict[str, NDArray[np.int64]]
    first: NDArray[np.int64]
    last: NDArray[np.int64]
    since: tuple[NDArray[np.int64], NDArray[np.int64]]

    @classmethod
    def of(cls, truth: Truth) -> Growth:
        """Return it of rows in any order."""
        ordered = truth.taken(np.lexsort((truth.time, truth.place, truth.life, truth.pair)))
        same_life = _same(ordered.pair, ordered.life)
        starts = np.flatnonzero(~(same_life & _same(ordered.place)))
        last = ordered.time[np.append(starts[1:], len(ordered)) - 1] if len(starts) else starts
        firsts, goes_on = ordered.taken(starts), same_life[starts]
        begins, life = firsts.begin >= 0, np.cumsum(~goes_on)
        done = {name: _grown(of, life, begins) for name, of in firsts.counts.items()}
        since = np.where(goes_on, _before(last), np.where(begins, firsts.begin, firsts.time))
        return cls(firsts, done, _earliest(firsts.time, life), last, (since, np.maximum(since, np.minimum(firsts.seen, firsts.time))))

    def sums(self, start: int, end: int, *, is_ordered: bool) -> Sums:
        """Return the sums of the rows of a span.

        is_ordered: what was done up to a place belongs to its earliest row, else to any of its rows or of those that have counted more.
        """
        inside = (self.truth.time >= start) & (self.truth.time < end)
        if is_ordered:
            return self._added({name: (values * inside, values * inside) for name, values in self.done.items()})
        certain, possible = (self.first >= start) & (self.last < end), (self.first < end) & (self.last >= start)
        return self._added({name: (values * certain, values * possible) for name, values in self.done.items()})

    def spread(self, start: int, end: int) -> Sums:
        """Return the sums of a span's rows, each with its share of the time that it is about."""
        inside = (self.truth.time >= start) & (self.truth.time < end)
        low, high = (_shares(self.truth.time, since, start) * inside for since in self.since)
        return self._added({name: (values * low, values * high) for name, values in self.done.items()})

    def _added(self, found: dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]) -> Sums:
        n = len(self.truth.pairs)
        return {
            (pair, name): (low, high)
            for name, both in found.items()
            for pair, low, high in zip(self.truth.pairs, *(np.bincount(self.truth.pair, one, n).tolist() for one in both), strict=True)
        }


def check_sums(days: Days, truth: Truth, rng: random.Random, *, is_ordered: bool, scratch: Path | None) -> int:
    """Compare all that asks for sums with the truth; return how many sums were compared. Raises Wrong.

    is_ordered: no clock ever jumped. scratch: where the table is merged whole, to be asked again.
    """
    if not len(truth):
        return 0
    growth, compared, hour = Growth.of(truth), 0, _hour(truth, rng)
    spans = (int(truth.time.min()), int(truth.time.max()) + 1), hour
    for span in spans:
        compared += _compare("sums", days, span, growth.sums(*span, is_ordered=is_ordered), _plain(days, *span))
    if is_ordered:
        compared += _compare("top", days, hour, growth.spread(*hour), _spread(days, *hour))
    if scratch is not None:
        _compare_answers(days, [*spans], truth.pairs[rng.randrange(len(truth.pairs))][0], scratch)
    return compared


def _compare_answers(days: Days, spans: list[tuple[int, int]], job: bytes, scratch: Path) -> None:
    """All that asks for sums gives one answer, before and after the table is merged. Raises Wrong."""
    whole = _plain(days, *spans[0])
    _compare("export", days, spans[0], _exact(whole), _exported(days, *spans[0]))
    if name := job_parts(job)["job"]:
        of_job = {key: value for key, value in whole.items() if job_parts(key[0][0])["job"] == name}
        _compare("job", days, spans[0], _exact(of_job), _counted(span_rows(days, *spans[0], Wanted.of_job(name))))
    with tempfile.TemporaryDirectory(dir=scratch) as directory:
        merged = _merged(days, Path(directory))
        _compare("sums after a merge", days, spans[0], _exact(whole), _plain(merged, *spans[0]))
        _compare("top after a merge", days, spans[1], _exact(_spread(days, *spans[1])), _spread(merged, *spans[1]))


def _compare(what: str, days: Days, span: tuple[int, int], wanted: Sums, found: dict[tuple[Pair, str], float]) -> int:
    for key in wanted.keys() | found.keys():
        low, high = wanted.get(key, (0.0, 0.0))
        value = found.get(key, 0.0)
        if not low - abs(low) * NOISE - NOISE <= value <= high + abs(high) * NOISE + NOISE:
            (job, target), name = key
            right = f"{low:.0f}" if low == high else f"between {low:.1f} and {high:.1f}"
            where = f"{days.system} {iso(span[0])} to {iso(span[1])}"
            raise Wrong(f"the job table, {what}: {name} of {id_of(job)} on {target}, {where}: {value:.1f}, not {right}")
    return len(wanted)


def _plain(days: Days, start: int, end: int) -> dict[tuple[Pair, str], float]:
    return _sums(series(days, start, end))


def _spread(days: Days, start: int, end: int) -> dict[tuple[Pair, str], float]:
    return _sums(series(days, start, end, spread=True))


def _exact(found: dict[tuple[Pair, str], float]) -> Sums:
    return {key: (value, value) for key, value in found.items()}


def _sums(found: Series) -> dict[tuple[Pair, str], float]:
    pairs = _pairs(found)
    return {
        (pair, name): max(value, 0)
        for name, values in found.counts.items()
        if not is_state(name)
        for pair, value in zip(pairs, values.tolist(), strict=True)
    }


def _exported(days: Days, start: int, end: int) -> dict[tuple[Pair, str], float]:
    """Return the sums of what an export writes, day by day."""
    found: dict[tuple[Pair, str], float] = {}
    for _, piece in pieces(days, start, end):
        for key, value in _counted(piece).items():
            found[key] = found.get(key, 0) + value
    return found


def _counted(table: SpanRows) -> dict[tuple[Pair, str], float]:
    pairs = _pairs(table.rows)
    found: dict[tuple[Pair, str], float] = {}
    for name, values in table.activity.counts.items():
        for pair, value in zip(pairs, values.tolist(), strict=True) if not is_state(name) else ():
            found[pair, name] = found.get((pair, name), 0) + max(value, 0)
    return found


def _pairs(of: Series | JobRows) -> list[Pair]:
    keys, places = of.jobs.tolist(), [one.decode() for one in of.targets.tolist()]
    return [(keys[job], places[target]) for job, target in zip(of.job.tolist(), of.target.tolist(), strict=True)]


def _merged(days: Days, directory: Path) -> Days:
    """Return a copy of a table in which each day is one file."""
    for date, path in days.dates().items():
        target = directory / days.system / date.isoformat()
        target.mkdir(parents=True)
        if files := table_files(path):
            start, end = min(file.start for file in files), max(file.end for file in files)
            replace_by_merged([file.path for file in files], target / f"{start}-{end}{SUFFIX}", REAL, None)
    return Days((directory,), days.system)


def _hour(truth: Truth, rng: random.Random) -> tuple[int, int]:
    start = int(truth.time[rng.randrange(len(truth))]) - rng.randrange(HOUR)
    return start, start + HOUR


def _shares(time: NDArray[np.int64], since: NDArray[np.int64], start: int) -> NDArray[np.float64]:
    whole = time - since
    return np.where(whole > 0, np.clip((time - np.maximum(since, start)) / np.maximum(whole, 1), 0.0, 1.0), 1.0)


def _earliest(time: NDArray[np.int64], life: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the least time of each place and of those after it in its life. life: ascending."""
    found = time.copy()
    for place in range(len(found) - 2, -1, -1):
        if life[place] == life[place + 1]:
            found[place] = min(found[place], found[place + 1])
    return found


def _grown(counts: NDArray[np.int64], life: NDArray[np.int64], begins: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return by how much a count is larger than the one before it in its life, 0 where it is unknown."""
    found, known = np.zeros_like(counts), np.flatnonzero(counts >= 0)
    of, more = counts[known], np.diff(counts[known], prepend=0)
    found[known] = np.maximum(np.where(_same(life[known]), more, np.where(begins[known], of, 0)), 0)
    return found


def _same(*columns: NDArray[np.int64]) -> NDArray[np.bool_]:
    found = np.ones(len(columns[0]), bool)
    found[:1] = False
    for one in columns:
        found[1:] &= one[1:] == one[:-1]
    return found


def _before(values: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate([values[:1], values[:-1]])
