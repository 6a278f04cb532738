"""What a sensor is, and what it hands in."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tokiod.agent.tree import why

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from tokiod.agent.metric import Metric, Value
    from tokiod.agent.tree import Tree

TICK_SECONDS, RARE_SECONDS = 1.0, 10.0
"""Between two samples of a sensor: of one whose gauges change from second to second, and of the others."""
MAX_COUNT = 1 << 62
"""No counter of a node gets so far in its time; one that fell below zero shows a number near 2^64."""
MOST = {"%": 100.0, "W": 30_000.0, "1/min": 60_000.0}
"""By unit: the largest value that a node, a device or a fan can have."""
MAX_NAME_CHARACTERS = 128


class Absent(Exception):  # noqa: N818 - a state, not a fault
    """This node does not have what the sensor reads. The text is the reason."""


def clean(name: str | bytes) -> str:
    r"""Return the name of a job, device or label for output: undecodable bytes and control characters as \xNN, and at most 128 characters.

    Users choose such names.
    """
    text = name.decode("utf-8", "backslashreplace") if isinstance(name, bytes) else name
    text = (
        text
        if text.isprintable()
        else "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)
    )
    return text[:MAX_NAME_CHARACTERS]


@dataclass(frozen=True)
class JobEnd:
    """A job whose cgroup is removed, and its last values. Exact: its CPU time is that of its end; not exact: that of the last sample."""

    job: str
    is_exact: bool
    values: dict[str, Value]


class Readings:
    """What one sensor read at one time: values, and what it could not read, by reason.

    `with readings:` around the reading of one file or item turns what goes wrong in it into a counted reason, so that the others go on.
    `values` has (metric's name, instance) -> value, `jobs` (job, where, metric's name) -> value, `wraps` the number at which a counter
    starts from zero again, where it is known, `samples` of how many a gauge is the mean, if not of one. `begun` has the jobs whose counters
    began since the reading before, `ended` those that ended.
    """

    def __init__(self) -> None:
        self.values: dict[tuple[str, str], Value] = {}
        self.jobs: dict[tuple[str, str, str], Value] = {}
        self.wraps: dict[tuple[str, str], Value] = {}
        self.samples: dict[tuple[str, str], int] = {}
        self.begun: set[str] = set()
        self.ended: list[JobEnd] = []
        self.drops: Counter[str] = Counter()
        self.examples: dict[str, str] = {}

    def add(self, metric: Metric, value: Value, instance: str = "", wraps_at: Value = 0) -> None:
        """Add a value. One that its metric cannot have is dropped, and the second of an instance."""
        if (metric.name, instance) in self.values:
            self.drop("duplicate", f"{metric.name} of {instance}")
        elif self.is_possible(metric, value):
            self.values[metric.name, instance] = value
            if wraps_at:
                self.wraps[metric.name, instance] = wraps_at

    def add_all(self, metrics: Sequence[Metric], keys: Sequence[tuple[str, str]], values: Sequence[Value]) -> None:
        """Add the values of several metrics of one instance, as add() would. keys: their names with the instance, made once."""
        if min(values, default=0) >= 0 and max(values, default=0) <= MAX_COUNT and self.values.keys().isdisjoint(keys):
            self.values.update(zip(keys, values))
        else:
            for metric, (_, instance), value in zip(metrics, keys, values):
                self.add(metric, value, instance)

    def add_job(self, job: str, where: str, metric: Metric, value: Value) -> None:
        """Add a value of a job, where it has several places (a target), or "" for the node."""
        if (job, where, metric.name) in self.jobs:
            self.drop("duplicate", f"{metric.name} of {job} {where}")
        elif self.is_possible(metric, value):
            self.jobs[job, where, metric.name] = value

    def drop(self, reason: str, example: str = "", count: int = 1) -> None:
        """Count what could not be read, with one example for a person."""
        self.drops[reason] += count
        self.examples.setdefault(reason, clean(example))

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        if isinstance(error, OSError):
            self.drop(why(error), str(error))
            return True
        if isinstance(error, (ValueError, IndexError, KeyError, OverflowError)):
            self.drop("malformed", f"{type(error).__name__}: {error}")
            return True
        return False

    def is_possible(self, metric: Metric, value: Value) -> bool:
        """Return whether a metric can have this value; if not, it is counted as dropped."""
        if not math.isfinite(value) or (value < 0 and not metric.may_be_negative):
            self.drop("malformed", f"{metric.name} is {value}")
            return False
        if abs(value) > MOST.get(metric.unit, MAX_COUNT):
            self.drop("implausible", f"{metric.name} is {value} {metric.unit}")
            return False
        return True


class Sensor:
    """A source of metrics on this node.

    `find` is called at the start and every minute; it raises Absent with the reason if there is nothing to read. `sample` is called every
    `period` seconds, TICK_SECONDS or RARE_SECONDS, and puts values or counted reasons into the readings. It may raise anything: the sampler
    counts that too.
    """

    name: ClassVar[str]
    metrics: tuple[Metric, ...]
    period: ClassVar[float] = RARE_SECONDS

    def __init__(self, tree: Tree) -> None:
        self.tree = tree

    def find(self) -> None:
        """Find what there is to read. Raise Absent."""

    def sample(self, readings: Readings, now: float) -> None:
        """Read it."""
        raise NotImplementedError

    def read_ahead(self, now: float, *, is_rare: bool) -> bool:  # noqa: ARG002 - what sensors of each second need
        """Read what understand() parses later, all samples of some seconds at once. Only sensors that are sampled each second are asked.

        is_rare: whether the other sensors are sampled now. Return False where sample() must be called now; it is called, too, where this
        raises.
        """
        return False

    def understand(self, readings: Readings) -> None:
        """Put into the readings what was read ahead since the last call: counters as they were last, gauges of all samples."""

    def fileno(self) -> int | None:
        """Return a descriptor that is readable when `heed` should be called."""
        return None

    def heed(self, readings: Readings, now: float) -> None:
        """Take what happened between two samples."""

    def is_waiting(self) -> bool:
        """Return whether a command is running whose output the next sample takes."""
        return False

    def close(self) -> None:
        """Release what is held."""
