"""What `tokiod agent --once` prints: what this node would report."""

from __future__ import annotations

import dataclasses
import json
import select
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokiod import __version__
from tokiod.agent.sampler import Sampler
from tokiod.agent.sensor import Readings, clean
from tokiod.agent.sensors import SENSORS
from tokiod.agent.tree import Tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tokiod.agent.metric import Value
    from tokiod.agent.sensor import Sensor

COMMAND_PATIENCE_SECONDS = 60.0
"""For the commands of sensors, which have shorter deadlines of their own."""
_POLL_SECONDS = 0.05
_SIGNIFICANT_DIGITS = 12


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
    """What the node reports at a time, in UTC epoch seconds."""

    node: str
    time: float
    version: str
    values: list[NodeValue]
    jobs: list[JobValue]
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


def node_report(node: str, time: float, monotonic: Callable[[], float], root: str = "/") -> NodeReport:
    """Sample this node once; its files are below `root`."""
    sampler, found = sample_once([sensor(Tree(root)) for sensor in SENSORS], monotonic)
    metrics = {metric.name: (sensor.name, metric) for sensor in sampler.sensors for metric in sensor.metrics}

    def described(name: str, where: str, value: Value) -> tuple[str, str, str, Value, str, str]:
        sensor, metric = metrics[name]
        return sensor, name, where, value, metric.unit, metric.kind

    return NodeReport(
        clean(node),
        time,
        __version__,
        [NodeValue(*described(*key, value)) for readings in found.values() for key, value in sorted(readings.values.items())],
        [
            JobValue(job, *described(name, where, value))
            for readings in found.values()
            for (job, where, name), value in sorted(readings.jobs.items())
        ],
        [AbsentSensor(name, reason) for name, reason in sampler.absent.items()],
        [
            DroppedReading(sensor, reason, count, readings.examples.get(reason, ""))
            for sensor, readings in found.items()
            for reason, count in sorted(readings.drops.items())
        ],
    )


def as_json(report: NodeReport) -> str:
    """Return a report as one line of JSON."""
    return json.dumps(dataclasses.asdict(report), separators=(",", ":"))


def as_text(report: NodeReport) -> str:
    """Return a report as a table for a person: per sensor, then per job, then what is absent and what was dropped."""
    jobs = len({row.job for row in report.jobs})
    lines = [f"node {report.node}: {len(report.values)} values, {jobs} job{'' if jobs == 1 else 's'}"]
    lines += _table("sensor", [(row.sensor, row.metric, row.instance, row.value, row.unit, row.kind) for row in report.values])
    lines += _table("job", [(row.job, row.metric, row.where, row.value, row.unit, row.kind) for row in report.jobs])
    if report.absent:
        lines += ["", "absent", *(f"  {row.sensor}: {row.reason}" for row in report.absent)]
    if report.dropped:
        lines += ["", "dropped", *(f"  {row.sensor}: {row.count} {row.reason} ({row.example})" for row in report.dropped)]
    return "\n".join(lines)


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
        lines.append(f"  {metric:<{widths[0]}}  {where:<{widths[1]}}  {number:>{widths[2]}} {unit:<6} {kind}")
    return lines
