"""What a node reports of a span of time: increases of counters, means of gauges, and the jobs. The last hour of it stays in memory."""

from __future__ import annotations

import math
from array import array
from collections import Counter, OrderedDict, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tokiod.agent.increase import Increases

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tokiod.agent.metric import Metric, Value
    from tokiod.agent.sensor import JobEnd, Readings

    Key = tuple[str, str]
    Job = tuple[str, str]

ROW_SECONDS = 60
KEPT_ROWS = 60
"""One hour. A row of 150 values takes some 20 KB, so an hour 1.2 MB."""
ABSENT_SECONDS = 3600
"""After this time an instance counts as gone that was missing in all readings, though the sensor could not read all."""
MAX_MOVED_SECONDS = 2.0
"""By which the clock may move while what is in memory is measured: the hub refuses rows of a clock that is off by more. NTP moves it by
1.8 s in an hour (500 ppm) where it does not set it."""
MAX_APART_SECONDS = 2 * MAX_MOVED_SECONDS
"""Difference of two clocks of which the hub accepts both."""
END_NOT_KEPT = "jobs", "end of a job not kept, the clock was set"


@dataclass
class JobState:
    """What is known of a job at the end of a span, or at its own.

    begin: when its counters began, in seconds since the epoch, None where that was before the agent's start; time: of its last sample in
    the span; values: of the metrics of jobs in their order, NaN where unknown: the last value of a counter, the largest of a gauge in the
    span. is_exact: its end was measured.
    """

    job: str
    where: str
    begin: float | None
    time: float
    values: array[float]
    has_ended: bool = False
    is_exact: bool = False


@dataclass
class Row:
    """One span. `values` has (metric's name, instance) -> value; `jobs` the jobs that run, `ended` those that ended in it.

    A counter of which a part of the span is unknown has no value, and is in `unknown`; what could not be read yet, but may be, is in
    `late`. offset: the clock's in which the row begins; sent: those in which its ended jobs were sent. examples: one of each reason of
    `dropped`.
    """

    start: float
    offset: float = 0.0
    values: dict[Key, Value] = field(default_factory=dict)
    jobs: dict[Job, JobState] = field(default_factory=dict)
    ended: list[JobState] = field(default_factory=list)
    dropped: Counter[tuple[str, str]] = field(default_factory=Counter)
    examples: dict[tuple[str, str], str] = field(default_factory=dict)
    unknown: set[Key] = field(default_factory=set)
    late: set[Key] = field(default_factory=set)
    sent: set[float] = field(default_factory=set)
    _counts: Counter[Key] = field(default_factory=Counter)

    def add_increase(self, key: Key, increase: Value | None) -> None:
        """Add the increase of a counter; None makes it unknown for the whole span."""
        if increase is None:
            self.unknown.add(key)
            self.values.pop(key, None)
        elif key not in self.unknown:
            self.values[key] = self.values.get(key, 0) + increase

    def add_state(self, metric: Metric, key: Key, value: Value, samples: int = 1) -> None:
        """Add a sample of a gauge, or the mean of some: the row has the mean, or the largest where instances are combined so."""
        self._counts[key] += samples
        if key not in self.values or metric.combine == "max":
            self.values[key] = max(value, self.values.get(key, value))
        else:
            self.values[key] += (value - self.values[key]) * samples / self._counts[key]

    def of_node(self, metrics: Mapping[str, Metric]) -> dict[str, Value]:
        """Return one value for each metric: its instances, combined as it declares.

        A sum in which an instance is unknown is missing: it would look like a fall.
        """
        unknown = {name for name, _ in self.unknown | self.late}
        combined: dict[str, Value] = {}
        for (name, _), value in self.values.items():
            if name not in unknown:
                known = combined.get(name)
                combined[name] = value if known is None else max(known, value) if metrics[name].combine == "max" else known + value
        return combined


class Rows:
    """The rows of the last hour, of `step` seconds each, aligned to the clock: [start, start + step).

    An increase belongs to the row that holds the middle between its two samples. Where they are in different rows and further apart than
    half a row (the node slept, the clock was set), the counters of both rows are unknown, because how the increase is divided is. So are
    those of an instance that appears within a row.

    An instance that a sensor could not read is late: its increase is that since its own last value, once it is read again. Until then rows
    have no sum of its metric. An instance that is missing in a reading without drops, or for an hour, is gone, and a new one if it returns.

    Rows of two clocks are never in memory together: labels of the one are other times of the other. Where the clock was set, all is
    dropped but the ends of jobs: they go into rows of their own, at their times by the new clock. An end that the hub may have by that
    clock is dropped too, because the job table would count it twice.
    """

    def __init__(self, metrics: Iterable[Metric], step: float = ROW_SECONDS, kept: int = KEPT_ROWS) -> None:
        self._metrics = {metric.name: metric for metric in metrics}
        self.step, self._kept = step, kept
        self.offset = 0.0
        self._rows: OrderedDict[float, Row] = OrderedDict()
        self._increases = Increases()
        self._times: dict[str, float] = {}
        self._known: defaultdict[str, set[Key]] = defaultdict(set)
        self._late: dict[Key, float] = {}
        self._absent: dict[str, dict[Key, float]] = {}
        self.job_metrics = [metric for metric in self._metrics.values() if metric.is_of_job]
        self._places = {metric.name: place for place, metric in enumerate(self.job_metrics)}
        self._gauges = {place for place, metric in enumerate(self.job_metrics) if metric.kind == "gauge"}
        self._running: dict[Job, JobState] = {}
        self._begun: dict[str, float] = {}

    def take(self, found: Mapping[str, Readings], time: float) -> None:
        """Take the readings of the sensors at a time, in seconds since the epoch."""
        row = self.at(time)
        for sensor, readings in found.items():
            # What was not sampled has neither values nor drops.
            if (readings.values or readings.drops) and (sensor in self._absent or readings.values.keys() != self._known[sensor]):
                self._take_missing(row, sensor, readings, time)
            if readings.values:
                self._take_values(row, readings, self._increased_rows(self._times.get(sensor, time), time), time)
                self._times[sensor] = time
            self._take_jobs(row, readings, time)
            if readings.drops:
                row.dropped.update({(sensor, reason): count for reason, count in readings.drops.items()})
                row.examples = {**{(sensor, reason): example for reason, example in readings.examples.items()}, **row.examples}

    def at(self, time: float) -> Row:
        """Return the row that holds a time; it is made if it is new, and then the oldest is dropped."""
        start = time // self.step * self.step
        if start not in self._rows:
            self._rows[start] = Row(start, self.offset)
            while len(self._rows) > self._kept:
                del self._rows[min(self._rows)]
        return self._rows.get(start) or Row(start)

    def starts(self) -> list[float]:
        """Return the starts of the rows in memory, oldest first."""
        return sorted(self._rows)

    def moved(self, offset: float) -> float:
        """Note the clock's offset (tokiod.agent.clock_offset); return by how many seconds it was set since the oldest row."""
        oldest = next(iter(self._rows.values()), None)
        moved = 0.0 if oldest is None else offset - oldest.offset
        if abs(moved) > MAX_MOVED_SECONDS:
            return moved
        self.offset = offset
        return 0.0

    def set_clock(self, offset: float) -> None:
        """Drop what was measured before the clock was set."""
        moved, before = self.moved(offset), self._rows
        self.offset, self._rows = offset, OrderedDict()
        self._times.clear()
        self._late.clear()
        self._absent.clear()
        self._increases.last.clear()
        self._begun = {job: time + moved for job, time in self._begun.items()}
        for state in self._running.values():
            _move_begin(state, moved)
        for row in before.values():
            self._keep_ends(row)

    def _keep_ends(self, row: Row) -> None:
        """Put the ends of a row that was dropped into rows of the new clock."""
        apart = min((abs(self.offset - offset) for offset in row.sent), default=math.inf)
        for state in row.ended:
            state.time += self.offset - row.offset
            _move_begin(state, self.offset - row.offset)
            kept = self.at(state.time)
            if apart > MAX_APART_SECONDS:
                kept.ended.append(state)
                kept.sent |= row.sent
            elif apart > MAX_MOVED_SECONDS:
                kept.dropped[END_NOT_KEPT] += 1
                kept.examples.setdefault(END_NOT_KEPT, state.job)

    def _take_missing(self, row: Row, sensor: str, readings: Readings, time: float) -> None:
        """Note what a reading does not have of what the sensor has read before."""
        known, absent = self._known[sensor], self._absent.pop(sensor, {})
        missing = known.difference(readings.values)
        known.update(readings.values)
        since_when = {key: absent.get(key, time) for key in missing}
        # A drop may be another instance's: what has been missing for long is gone, too.
        gone = {key for key, since in since_when.items() if not readings.drops or time - since > ABSENT_SECONDS}
        known -= gone
        for key in gone:
            self._late.pop(key, None)
            self._increases.forget(key)
        missing -= gone
        if missing:
            self._absent[sensor] = {key: since_when[key] for key in missing}
        for key in missing:
            metric = self._metrics[key[0]]
            if metric.kind == "counter":
                since = self._late.setdefault(key, self._times.get(sensor, time))
                for one in (self.at(since), row):
                    one.late.add(key)
            elif metric.combine == "sum" and key not in row.values:
                row.late.add(key)

    def _take_values(self, row: Row, readings: Readings, increased: tuple[Row, ...], time: float) -> None:
        """Take the values of a sensor. increased: the rows to which increases since its values before belong."""
        counted, is_whole = increased[0], len(increased) == 1
        last, values, unknown, late = self._increases.last, counted.values, counted.unknown, self._late
        for key, value in readings.values.items():
            if is_whole and (before := last.get(key)) is not None and value >= before and key not in unknown and key not in late:
                # As below, for nearly all values of all seconds.
                last[key] = value
                values[key] = values.get(key, 0) + (value - before)
            elif (metric := self._metrics[key[0]]).kind == "gauge":
                row.add_state(metric, key, value, readings.samples.get(key, 1))
                row.late.discard(key)
            else:
                is_new = key not in self._increases
                increase = self._increases.take(metric, key, value, readings.wraps.get(key, 0))
                of_key = self._late_rows(row, key, time) if key in late else increased
                if not (is_new and time == row.start):
                    for one in of_key:
                        one.add_increase(key, increase if len(of_key) == 1 else None)

    def _take_jobs(self, row: Row, readings: Readings, time: float) -> None:
        # The first values of a job may come with a later reading.
        if readings.begun:
            self._begun.update(dict.fromkeys(readings.begun, time))
        of: Job | None = None
        for (job, where, name), value in readings.jobs.items():
            # The values of a job come together.
            if of is None or of[0] != job or of[1] != where:
                of = job, where
                state = self._state(row, of, time)
            self._put(state, name, value)
        for end in readings.ended:
            self._end(row, end, time)

    def _state(self, row: Row, job: Job, time: float) -> JobState:
        """Return a job's state in a row. Its first one in a row has the counters of the row before, so that none is missing later."""
        state = row.jobs.get(job)
        if state is None:
            before = self._running.get(job)
            if before is None:
                state = JobState(*job, self._begun.pop(job[0], None), time, array("d", [math.nan]) * len(self.job_metrics))
            else:
                state = JobState(*job, before.begin, time, before.values[:])
                for place in self._gauges:
                    state.values[place] = math.nan
            row.jobs[job] = self._running[job] = state
        state.time = time
        return state

    def _put(self, state: JobState, name: str, value: Value) -> None:
        place = self._places[name]
        # A comparison with NaN is false.
        if place not in self._gauges or not state.values[place] > value:
            state.values[place] = value

    def _end(self, row: Row, end: JobEnd, time: float) -> None:
        state = self._state(row, (end.job, ""), time)
        for name, value in end.values.items():
            self._put(state, name, value)
        state.has_ended, state.is_exact = True, end.is_exact
        row.ended.append(row.jobs.pop((end.job, "")))
        self._running.pop((end.job, ""), None)

    def _late_rows(self, row: Row, key: Key, time: float) -> tuple[Row, ...]:
        """Return the rows to which the increase of a counter that was late belongs."""
        since = self._late.pop(key)
        increased = self._increased_rows(since, time)
        if len(increased) == 1:
            for one in (self.at(since), row):
                one.late.discard(key)
        return increased

    def _increased_rows(self, before: float, time: float) -> tuple[Row, ...]:
        """Return the row to which increases between two samples belong; two of which both don't know their parts."""
        first, last = self.at(before), self.at(time)
        if first is last or 0 <= time - before <= self.step / 2:
            return (self.at((before + time) / 2),)
        return first, last


def _move_begin(state: JobState, seconds: float) -> None:
    """Move a job's begin as the clock was set, but not after one that the hub may have: the job table takes that as other counts."""
    if state.begin is not None:
        state.begin += seconds - MAX_APART_SECONDS
