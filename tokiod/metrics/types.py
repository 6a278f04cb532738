"""The types of metrics, those of Prometheus, with a fixed collection of label sets for each metric."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Role = Literal["collectors", "writer", "feed", "hub", "relay"]


class Metric:
    """A metric with a fixed collection of label sets. Other label sets are ignored, so labels never contain data.

    role: of the processes that count it; None: a scrape reads it.
    labels: the values of each; None: the names of the configured sources. Until tokiod.metrics.shared_files opens it, it costs a lookup
    in an empty dictionary, and prometheus_client is not imported.
    """

    type: ClassVar[str]

    def __init__(self, role: Role | tuple[Role, ...] | None, name: str, text: str, **labels: tuple[str, ...] | None) -> None:
        self.roles: tuple[Role, ...] = () if role is None else (role,) if isinstance(role, str) else role
        self.name, self.text, self.labels = name, text, labels
        self._parent: Any = None
        self._cells: dict[tuple[str, ...], Any] = {}

    def open(self, sources: Iterable[str]) -> None:
        """Start to count from the values in the files; call it again to add sources."""
        import prometheus_client  # noqa: PLC0415 - only with metrics in the configuration

        values = [sources if given is None else given for given in self.labels.values()]
        self._parent = self._parent or self._create(prometheus_client)
        for each in product(*values):
            if each not in self._cells:
                self._cells[each] = self._parent.labels(*each) if each else self._parent

    def _create(self, real: Any) -> Any:
        raise NotImplementedError


class Counter(Metric):
    """A count that only grows."""

    type = "counter"

    def inc(self, *labels: str, by: float = 1.0) -> None:
        """Add to the count."""
        if by and (cell := self._cells.get(labels)) is not None:
            cell.inc(by)

    def _create(self, real: Any) -> Any:
        return real.Counter(self.name, self.text, list(self.labels), registry=None)


class Gauge(Metric):
    """A value that rises and falls, and disappears with its process.

    Gauges without a role are not counted: tokiod.supervisor.metrics_snapshot reads them for each scrape.
    """

    type = "gauge"

    def set(self, value: float, *labels: str) -> None:
        """Set the value."""
        if (cell := self._cells.get(labels)) is not None:
            cell.set(value)

    def _create(self, real: Any) -> Any:
        return real.Gauge(self.name, self.text, list(self.labels), registry=None, multiprocess_mode="livesum")


class Histogram(Metric):
    """A distribution of durations."""

    type = "histogram"

    def __init__(self, role: Role | None, name: str, text: str, buckets: Sequence[float], **labels: tuple[str, ...] | None) -> None:
        super().__init__(role, name, text, **labels)
        self.buckets = buckets

    def observe(self, seconds: float, *labels: str) -> None:
        """Count a duration."""
        if (cell := self._cells.get(labels)) is not None:
            cell.observe(seconds)

    def _create(self, real: Any) -> Any:
        return real.Histogram(self.name, self.text, list(self.labels), registry=None, buckets=self.buckets)
