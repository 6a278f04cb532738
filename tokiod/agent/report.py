"""What `tokiod agent --once` prints: what this node would report."""

from __future__ import annotations

import dataclasses
import json
import math
import select
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokiod import __version__
from tokiod.agent.hierarchies import UNKNOWN
from tokiod.agent.rows import Row, Rows
from tokiod.agent.sampler import Sampler
from tokiod.agent.sensor import TICK_SECONDS, Readings, clean

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tokiod.agent.metric import Metric, Value
    from tokiod.agent.sensor import Sensor

COMMAND_PATIENCE_SECONDS = 60.0
"""For the commands of sensors, which have shorter deadlines of their own."""
MIN_SECONDS, MAX_SECONDS = 2.0, 3600.0
"""Of a measured span: the shortest has two samples of the sensors that are sampled each second."""
_POLL_SECONDS = 0.05
_SIGNIFICANT_DIGITS = 12
_REMEDIES = {UNKNOWN: "name its form in job_cgroups of agent.toml, if it is a job's"}


@dataclass(frozen=True)
class NodeValue:
    """A value of the node. `instance` is a disk, interface, port or sensor, or empty. A counter has counted since its source started."""

    sensor: str
    metric: str
    instance: str
    value: int | float
    unit: str
    kind: str


@dataclass(frozen=True)
class JobValue:
    """A value of a job. `job` is SCHEDULER:ID, or the job id of Lustre; `where` is a Lustre target, or empty for this node."""

    job: str
    sensor: str
    metric: str
    where: str
    value: int | float
    unit: str
    kind: str


@dataclass(frozen=True)
class EndedJob:
    """A job that ended in the measured span. Not exact: the CPU seconds are from before the end of its last process, null if unknown."""

    job: str
    cpu_seconds: float | None
    is_exact: bool


@dataclass(frozen=True)
class AbsentSensor:
    """A sensor that finds nothing to read on this node."""

    sensor: str
    reason: str


@dataclass(frozen=True)
class DroppedReading:
    """What a sensor could not read: how often for this reason, and one example."""

    sensor: str
    reason: str
    count: int
    example: str


@dataclass(frozen=True)
class NodeReport:
    """What the node reports at a time, in UTC epoch seconds.

    seconds: over which it measured until then: counters have their increases, gauges their means. 0: counters since their sources started.
    """

    node: str
    time: float
    seconds: float
    version: str
    values: list[NodeValue]
    jobs: list[JobValue]
    ended: list[EndedJob]
    absent: list[AbsentSensor]
    dropped: list[DroppedReading]


def sample_once(sensors: Iterable[Sensor], monotonic: Callable[[], float]) -> tuple[Sampler, dict[str, Readings]]:
    """Sample all sensors once, and wait for the commands that some run. Return the sampler, closed, and the readings of each sensor."""
    sampler = Sampler(sensors)
    begin = monotonic()
    found = sampler.sample(begin)
    while (now := monotonic()) - begin < COMMAND_PATIENCE_SECONDS and (waiting := [s for s in sampler.sensors if s.is_waiting()]):
        select.select((), (), (), _POLL_SECONDS)
        for sensor in waiting:
            sampler.again(sensor, found[sensor.name], now)
    sampler.close()
    return sampler, found


def measure(sensors: Iterable[Sensor], monotonic: Callable[[], float], seconds: float) -> tuple[Sampler, Row]:
    """Sample the sensors each second for a span. Return the sampler, closed, and what the node would report of the span."""
    sampler = Sampler(sensors)
    rows = Rows((metric for sensor in sampler.sensors for metric in sensor.metrics), step=seconds + TICK_SECONDS, kept=1)
    begin = following = monotonic()
    rows.take(sampler.sample(begin), 0.0)
    while (now := monotonic()) - begin < seconds:
        if now >= following:
            following += TICK_SECONDS
            rows.take(sampler.sample(now), now - begin)
        rows.take(sampler.wait(min(following, begin + seconds) - monotonic(), monotonic), min(monotonic() - begin, seconds))
    rows.take(sampler.sample(now, is_last=True), seconds)
    sampler.close()
    return sampler, rows.at(0.0)


def node_report(
    node: str, time: Callable[[], float], monotonic: Callable[[], float], sensors: Sequence[Sensor], seconds: float = 0.0
) -> NodeReport:
    """Measure this node by its sensors: once, or for a span of at least two seconds."""
    metrics = {metric.name: (sensor.name, metric) for sensor in sensors for metric in sensor.metrics}
    if seconds:
        sampler, row = measure(sensors, monotonic, seconds)
        jobs = job_values(row, [metric for _, metric in metrics.values() if metric.is_of_job])
    else:
        sampler, found = sample_once(sensors, monotonic)
        row, jobs = Row(0.0), {}
        for name, readings in found.items():
            row.values.update(readings.values)
            jobs.update(readings.jobs)
            row.dropped.update({(name, reason): count for reason, count in readings.drops.items()})
            row.examples.update({(name, reason): example for reason, example in readings.examples.items()})

    def described(name: str, where: str, value: Value) -> tuple[str, str, str, Value, str, str]:
        sensor, metric = metrics[name]
        return sensor, name, where, value, metric.unit, metric.kind

    order = {sensor.name: position for position, sensor in enumerate(sensors)}
    return NodeReport(
        clean(node),
        time(),
        seconds,
        __version__,
        [
            NodeValue(*described(*key, value))
            for key, value in sorted(row.values.items(), key=lambda item: (order[metrics[item[0][0]][0]], item[0]))
        ],
        [JobValue(job, *described(name, where, value)) for (job, where, name), value in sorted(jobs.items())],
        [EndedJob(state.job, jobs.get((state.job, "", "job_cpu")), state.is_exact) for state in row.ended],
        [AbsentSensor(name, reason) for name, reason in sampler.absent.items()],
        [DroppedReading(*key, count, row.examples.get(key, "")) for key, count in sorted(row.dropped.items())],
    )


def job_values(row: Row, metrics: Sequence[Metric]) -> dict[tuple[str, str, str], Value]:
    """Return the values of the jobs of a row by job, where and metric's name. metrics: those of jobs, in their order."""
    return {
        (state.job, state.where, metric.name): value
        for state in (*row.jobs.values(), *row.ended)
        for metric, value in zip(metrics, state.values)
        if not math.isnan(value)
    }


def as_json(report: NodeReport) -> str:
    """Return a report as one line of JSON."""
    return json.dumps(dataclasses.asdict(report), separators=(",", ":"))


def as_text(report: NodeReport) -> str:
    """Return a report as a table for a person: per sensor, then per job, then what is absent and what was dropped."""
    jobs = len({row.job for row in report.jobs})
    span = f" in {report.seconds:g} s" if report.seconds else ""
    lines = [f"node {report.node}: {len(report.values)} values{span}, {jobs} job{'' if jobs == 1 else 's'}"]
    lines += _table("sensor", [(row.sensor, row.metric, row.instance, row.value, row.unit, row.kind) for row in report.values])
    lines += _table("job", [(row.job, row.metric, row.where, row.value, row.unit, row.kind) for row in report.jobs])
    if report.ended:
        lines += [
            "",
            "ended",
            *(f"  {row.job}: {_used(row)}" for row in report.ended),
        ]
    if report.absent:
        lines += ["", "absent", *(f"  {row.sensor}: {row.reason}" for row in report.absent)]
    if report.dropped:
        lines += ["", "dropped"]
        lines += [f"  {row.sensor}: {row.count} {row.reason}{_example(row)}" for row in report.dropped]
    return "\n".join(lines)


def _example(row: DroppedReading) -> str:
    return (f" ({row.example})" if row.example else "") + (f": {_REMEDIES[row.reason]}" if row.reason in _REMEDIES else "")


def _used(ended: EndedJob) -> str:
    if ended.cpu_seconds is None:
        return "CPU time unknown: it ended before it could be read"
    return f"{ended.cpu_seconds:.6f} s of CPU{'' if ended.is_exact else ', at least'}"


def _table(what: str, rows: list[tuple[str, str, str, Value, str, str]]) -> list[str]:
    """Return lines of aligned cells, below a heading for each new first cell."""
    lines: list[str] = []
    heading = None
    numbers = [str(row[3]) if isinstance(row[3], int) else f"{row[3]:.{_SIGNIFICANT_DIGITS}g}" for row in rows]
    widths = [max((len(cell) for cell in cells), default=0) for cells in ([row[1] for row in rows], [row[2] for row in rows], numbers)]
    for (first, metric, where, _, unit, kind), number in zip(rows, numbers):
        if first != heading:
            heading = first
            lines += ["", f"{what} {first}"]
        # A number of something has the unit 1, which would look like a digit here.
        lines.append(f"  {metric:<{widths[0]}}  {where:<{widths[1]}}  {number:>{widths[2]}} {'' if unit == '1' else unit:<6} {kind}")
    return lines
