"""What jobs did in a span, from the rows of the table.

    a row                     belongs to the span that has the time of its poll, whole: spans next to each other add up exactly
    the last row before it    is where the first difference begins, however long before the span it is
    a restart of the counts   begins at zero (activity)

Between the last poll and the span's end jobs did what is not yet known. It belongs to the next span.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from tokiod.increases import BILLION, IMPLAUSIBLE, OLDER, place_before
from tokiod.job_columns import UNKNOWN, absent, is_state
from tokiod.jobs.activity import activity, by_lives, following, is_credible, is_next, places_before
from tokiod.jobs.rows import Wanted, indexes, joined, of_ids, polled_until, read, table_files
from tokiod.jobs.unknown import sums_at, sums_from
from tokiod.window_data import JOB_LOOKBACK_SECONDS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from pathlib import Path

    from numpy.typing import NDArray

    from tokiod.jobs.activity import Activity
    from tokiod.jobs.rows import JobRows
    from tokiod.jobs.table_file import Index

DAY_SECONDS = 86400
NEAR_SECONDS = JOB_LOOKBACK_SECONDS
UNKNOWN_SECONDS = 2 * DAY_SECONDS
"""Before a span, where the last row of a job is looked for whose counts began at an unknown time."""
ROWS_AT_ONCE = 1 << 20
"""That are in memory, roughly: an answer about many rows is made of jobs in turn."""


@dataclass(frozen=True, slots=True)
class Days:
    """The job table of a system. roots: directories of tables; of several that have a day, the first one counts."""

    roots: tuple[Path, ...]
    system: str

    def dates(self) -> dict[dt.date, Path]:
        """Return the directories of the days that exist, oldest first. Raises OSError."""
        found: dict[dt.date, Path] = {}
        for root in self.roots:
            try:
                names = [path for path in (root / self.system).iterdir() if path.is_dir()]
            except (FileNotFoundError, NotADirectoryError):
                continue
            for path in names:
                try:
                    found.setdefault(dt.date.fromisoformat(path.name), path)
                except ValueError:
                    continue
        return dict(sorted(found.items()))

    def of(self, start: int, end: int) -> list[Path]:
        """Return the directories that may have rows of a span: a site's day begins up to 14 hours before or after that of UTC."""
        first, last = (dt.datetime.fromtimestamp(time, dt.UTC).date() for time in (start - DAY_SECONDS, end + DAY_SECONDS - 1))
        return [path for date, path in self.dates().items() if first <= date <= last]

    def newest(self) -> int | None:
        """Return when the newest window ends, None without one."""
        for path in reversed(self.dates().values()):
            if files := table_files(path):
                return max(file.end for file in files)
        return None

    def date_of(self, path: Path) -> dt.date:
        """Return the day of a directory."""
        return dt.date.fromisoformat(path.name)


@dataclass(frozen=True, slots=True, eq=False)
class SpanRows:
    """n rows of a span, sorted by job, target and time, with what was done up to each since the one before it (Activity).

    odd: how many other rows were refused, and how many have a count that fell, by reason.
    """

    rows: JobRows
    activity: Activity
    odd: Mapping[str, int]


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """What each of n pairs of a job and a target did in a span; sorted by job and target.

    jobs, targets, job, target: as in JobRows; since, until: i8[n] epoch seconds, of what was done; counts: i8[n], or f8[n] of rates, of
    what is known, UNKNOWN where nothing is; a state is the largest of the span. odd: as in SpanRows.
    """

    jobs: NDArray[np.bytes_]
    targets: NDArray[np.bytes_]
    job: NDArray[np.int64]
    target: NDArray[np.int64]
    since: NDArray[np.int64]
    until: NDArray[np.int64]
    counts: dict[str, NDArray[np.int64] | NDArray[np.float64]]
    odd: Mapping[str, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.job)

    def where(self, kept: NDArray[np.bool_]) -> Series:
        """Return some of the pairs. kept: bool[n]."""
        fixed = self.job[kept], self.target[kept], self.since[kept], self.until[kept]
        return Series(self.jobs, self.targets, *fixed, {name: values[kept] for name, values in self.counts.items()}, self.odd)


def span_rows(days: Days, start: int, end: int, wanted: Wanted | None = None) -> SpanRows:
    """Return the rows of [start, end), and what was done up to each. Raises OSError, NotAJobTable."""
    wanted = wanted or Wanted()
    # The rows of one job are few, and next to each other.
    near = NEAR_SECONDS if wanted.job is None else DAY_SECONDS
    return _with_activity(days, days.of(start - near, end), (start - near, start, end), wanted)


def series(days: Days, start: int, end: int, counts: Collection[str] | None = None, *, spread: bool = False) -> Series:
    """Return the sums of a span, a million rows at a time. counts: names of columns, all by default. Raises as span_rows().

    spread: with each count divided evenly over the time that it is about, as far as that is known: what a count of a time before
    the span has in it is left out. It is a better estimate of rates, where polls were lost.
    """
    return _added([_summed(rows, _shares(days, rows, start) if spread else None) for _, rows in pieces(days, start, end, counts)])


def pieces(days: Days, start: int, end: int, counts: Collection[str] | None = None) -> Iterator[tuple[dt.date, SpanRows]]:
    """Yield the rows of a span with the site day of each piece, day by day and job by job. Raises as span_rows()."""
    for day, first, last in _days_of(days, start, end):
        paths, low = days.of(first - NEAR_SECONDS, last), first - NEAR_SECONDS
        before = (index for path in paths for index in indexes(path, low, first))
        for wanted in _divided([index for path in paths for index in indexes(path, first, last)], before, counts):
            yield day, _with_activity(days, paths, (low, first, last), wanted)


def count_names(days: Days, start: int, end: int) -> list[str]:
    """Return the names of all counts that the files of a span have, sorted. Raises as span_rows()."""
    return sorted({name for path in days.of(start, end) for index in indexes(path, start, end) for name in index.counts})


def target_names(days: Days, start: int, end: int) -> list[str]:
    """Return the names of all targets that the files of a span have, sorted. Raises as span_rows()."""
    found = {name for path in days.of(start, end) for index in indexes(path, start, end) for name in index.targets.tolist()}
    return sorted(name.decode("ascii") for name in found)


def row_count(days: Days, start: int, end: int) -> int:
    """Return how many rows the files have that may have rows of a span. Raises as span_rows()."""
    return sum(int(index.first[-1]) for path in days.of(start, end) for index in indexes(path, start, end))


# A day's first window may hold a row of the poll before it, whose time is in the day before: the times of rows separate days.
def _days_of(days: Days, start: int, end: int) -> list[tuple[dt.date, int, int]]:
    """Return the days of a span with the part of it that is of each, up to where the next one begins."""
    found = [(days.date_of(path), [file.start for file in table_files(path) if file.may_have(start, end)]) for path in days.of(start, end)]
    begins = [(day, min(starts)) for day, starts in found if starts]
    edges = [start, *(min(max(begin, start), end) for _, begin in begins[1:]), end]
    return [(day, edge, then) for (day, _), (edge, then) in zip(begins, pairwise(edges), strict=False) if edge < then]


# Counts that began in the span need nothing from before it. For the others the table is read backwards, to where they began.
def _with_activity(days: Days, directories: list[Path], times: tuple[int, int, int], wanted: Wanted) -> SpanRows:
    """Return the rows of a span. times: from when on rows are read, its start and its end."""
    low, start, end = times
    rows = _last_before(read(directories, low, end, wanted), start)
    begin = rows.columns["begin"]
    if wanted.counts is not None and ((begin < 0).any() or (following(rows)[1:] & (begin[1:] < begin[:-1])).any()):
        # Without their begin, or where it moved, only all counts show that they began again.
        return _with_activity(days, directories, times, replace(wanted, counts=None))
    while (first := int((since := _since(rows, start)).min(initial=low))) < low and (paths := days.of(first, low)):
        keys = rows.jobs[np.unique(rows.job[since < low])]
        # A day at a time, of those that there are.
        newest = dt.datetime.combine(days.date_of(paths[-1]), dt.time(), dt.UTC).timestamp() - DAY_SECONDS
        low, high = max(first, min(low - DAY_SECONDS, int(newest))), low
        before = read(days.of(low, high), low, high, Wanted(keys=keys, counts=wanted.counts))
        rows = _last_before(joined([rows, before]), start)
    done, is_in = activity(rows), rows.columns["time"] >= start
    kept = is_in & ~done.odd[OLDER] & ~done.odd[IMPLAUSIBLE]
    odd = {reason: n for reason, of in done.odd.items() if (n := int((of & is_in).sum()))}
    rows, done = rows.where(kept), done.where(kept)
    time = rows.columns["time"]
    if (is_next(rows)[1:] & (time[1:] < time[:-1])).any():
        order = np.lexsort((time, rows.target, rows.job))
        rows, done = rows.where(order), done.where(order)
    return SpanRows(rows, done, odd)


def _since(rows: JobRows, start: int) -> NDArray[np.int64]:
    """Return i8[n] epoch seconds: from when on rows before a span must be read, to know what was done up to each of its rows.

    A life's first row, or its first with some count, needs rows since the counts began, or for UNKNOWN_SECONDS. A row before the span needs
    rows since its last operation: a clock that was ahead gave an old poll a late time, and those rows show it.
    """
    follows, (time, begin, last) = following(rows), (rows.columns[name] for name in ("time", "begin", "last"))
    is_first = ~follows
    for name, place in places_before(rows, follows).items():
        is_first |= (rows.counts[name] >= 0) & (place < 0)
    is_first &= time >= start
    since = np.where(begin >= 0, begin // BILLION, start - UNKNOWN_SECONDS)
    found: NDArray[np.int64] = np.where(is_first, since, np.where(time < start, last // BILLION, start))
    return found


def _last_before(rows: JobRows, start: int) -> JobRows:
    """Leave out rows before a span, but for the last of each life that has rows in it, and that has each count; sort by_lives()."""
    rows = by_lives(rows)
    time = rows.columns["time"]
    if not (is_before := time < start).any():
        return rows
    firsts = np.flatnonzero(~following(rows))
    lengths = np.diff(np.append(firsts, len(rows)))
    goes_on = np.repeat(time[firsts + lengths - 1] >= start, lengths)
    # The rows before the span that may be kept, and the last one of each life among them.
    at = np.flatnonzero(is_before & goes_on & is_credible(rows))
    life = np.repeat(np.arange(len(firsts)), lengths)[at]
    follows = np.append(False, life[1:] == life[:-1])[: len(at)]
    since = ends = np.flatnonzero(~np.append(follows, False)[1:])
    for name, counts in rows.counts.items():
        if not is_state(name) and counts.min() < 0:
            place = place_before(counts[at], follows)
            last = np.where(counts[at[ends]] >= 0, ends, place[ends])
            since = np.where(last >= 0, np.minimum(since, last), since)
    is_kept = np.zeros(len(at) + 1, np.int64)
    np.add.at(is_kept, since, 1)
    np.add.at(is_kept, ends + 1, -1)
    kept = ~is_before
    kept[at[np.cumsum(is_kept)[:-1] > 0]] = True
    return rows.where(kept)


def _divided(found: list[Index], before: Iterable[Index], counts: Collection[str] | None) -> Iterator[Wanted]:
    """Yield jobs in turn, which have some million rows together. before: of files that may have their last rows before the span."""
    if sum(int(index.first[-1]) for index in found) <= ROWS_AT_ONCE:
        yield Wanted(counts=counts)
        return
    indexed = [(index.jobs, np.diff(index.first)) for index in found]
    indexed += [(index.jobs, np.zeros(len(index.jobs), np.int64)) for index in before]
    jobs, of_each = map(np.concatenate, zip(*indexed, strict=True))
    keys, place = np.unique(jobs, return_inverse=True)
    piece = np.cumsum(np.bincount(place, of_each, len(keys))) // ROWS_AT_ONCE
    stands = of_ids(keys)
    if not np.array_equal(stands, np.arange(len(keys))):  # a job has other keys in some files, which may be far from each other
        piece = piece[stands]
        yield from (Wanted(keys=keys[piece == one], counts=counts) for one in np.unique(piece))
        return
    edges = [None, *keys[1:][np.diff(piece) > 0].tolist(), None]
    for low, high in pairwise(edges):
        yield Wanted(low=low, high=high, counts=counts)


def _summed(found: SpanRows, weights: NDArray[np.float64] | None) -> Series:
    rows, done = found.rows, found.activity
    firsts = np.flatnonzero(~is_next(rows))
    if not len(firsts):
        return replace(_added([]), odd=found.odd)
    until = rows.columns["time"]
    return Series(
        rows.jobs,
        rows.targets,
        rows.job[firsts],
        rows.target[firsts],
        done.since[firsts],
        until[np.append(firsts[1:], len(rows)) - 1],
        {
            name: np.maximum.reduceat(values, firsts) if is_state(name) else sums_from(firsts, values, weights)
            for name, values in done.counts.items()
        },
        found.odd,
    )


def _shares(days: Days, found: SpanRows, start: int) -> NDArray[np.float64]:
    """Return which share of each row's counts is of the span.

    A job without a row did nothing until its target was last polled before the span. Of a lost hour, its share is evenly divided.
    """
    rows, since = found.rows, found.activity.since
    time, begin = rows.columns["time"], rows.columns["begin"] // BILLION
    # Of counts that were not seen before, all since their begin is new.
    is_open = (since < start) & (since != begin)
    if is_open.any():
        needed, low = rows.targets[np.unique(rows.target[is_open])], int(since[is_open].min())
        polled = np.zeros(len(rows.targets), np.int64)
        polled[np.searchsorted(rows.targets, needed)] = _polled(days, low, start, needed)
        since = np.where(is_open, np.maximum(since, polled[rows.target]), since)
    inside, whole = time - np.maximum(since, start), time - since
    return np.where(whole > 0, np.clip(inside / np.maximum(whole, 1), 0.0, 1.0), 1.0)


def _polled(days: Days, low: int, start: int, targets: NDArray[np.bytes_]) -> NDArray[np.int64]:
    """Return i8[targets]: until when each was polled before a span, by windows after `low` of at most some days; 0 where none was."""
    found = np.zeros(len(targets), np.int64)
    for path in reversed(days.of(max(low, start - DAY_SECONDS), start)):
        found = np.maximum(found, polled_until(path, max(low, int(found.min())), start, targets))
    return found


def _added(found: list[Series]) -> Series:
    """Return the sums of several parts of a span."""
    empty, none = np.empty(0, "S1"), np.empty(0, np.int64)
    odd = sum((Counter(one.odd) for one in found), Counter())
    found = [one for one in found if len(one)]
    if not found:
        return Series(empty, empty, none, none, none, none, {}, odd)
    if len(found) == 1:
        return replace(found[0], odd=odd)
    jobs, targets = (np.unique(np.concatenate([getattr(one, name) for one in found])) for name in ("jobs", "targets"))
    job = np.concatenate([np.searchsorted(jobs, one.jobs)[one.job] for one in found])
    target = np.concatenate([np.searchsorted(targets, one.targets)[one.target] for one in found])
    pair, place = np.unique(job * len(targets) + target, return_inverse=True)
    since, until = np.full(len(pair), np.iinfo(np.int64).max), np.zeros(len(pair), np.int64)
    np.minimum.at(since, place, np.concatenate([one.since for one in found]))
    np.maximum.at(until, place, np.concatenate([one.until for one in found]))
    counts: dict[str, NDArray[np.int64] | NDArray[np.float64]] = {}
    for name in dict.fromkeys(name for one in found for name in one.counts):
        values = np.concatenate([one.counts[name] if name in one.counts else np.full(len(one), absent(name)) for one in found])
        if is_state(name):
            counts[name] = np.full(len(pair), UNKNOWN, values.dtype)
            np.maximum.at(counts[name], place, values)
        else:
            counts[name] = sums_at(place, values, len(pair))
    return Series(jobs, targets, pair // len(targets), pair % len(targets), since, until, counts, odd)
