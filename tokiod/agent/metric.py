"""What a sensor declares about each of its metrics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Literal, Union

    Kind = Literal["counter", "gauge"]
    Value = Union[int, float]

JOB_PREFIX = "job_"


# Two declarations are two metrics: what is read is looked up by its metric each second, and a hash of all fields costs ten times as much.
@dataclass(frozen=True, eq=False)
class Metric:
    """One metric.

    A counter only grows, until it wraps or restarts; a gauge is a state. `combine` states how the values of several instances (disks,
    ports, sensors) become that of the node. `slack`: a counter may fall by as much without having restarted, in its unit.
    """

    name: str
    unit: str
    kind: Kind
    about: str
    combine: Literal["sum", "max"] = "sum"
    slack: float = 0.0
    may_be_negative: bool = False

    @property
    def is_of_job(self) -> bool:
        """Whether it is a value of a job, not of the node."""
        return self.name.startswith(JOB_PREFIX)


def counter(name: str, unit: str, about: str, slack: float = 0.0) -> Metric:
    """Declare a counter. Its instances are added."""
    return Metric(name, unit, "counter", about, slack=slack)


def gauge(name: str, unit: str, about: str, combine: Literal["sum", "max"] = "sum") -> Metric:
    """Declare a gauge."""
    return Metric(name, unit, "gauge", about, combine)
