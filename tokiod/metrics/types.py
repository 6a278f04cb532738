"""What can be counted: Prometheus's types of metrics, as many label sets of each as there will ever be."""

from __future__ import annotations

import time
from contextlib import contextmanager
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

Role = Literal["collectors", "writer"]


class Metric:
    """Something that is counted in all its label sets, which are fixed: what is not one of them is not counted, so no label is data.

    labels: the values that each may have; None: the names of the configured sources. Until it is opened,
    by tokiod.metrics.shared_files, it costs a look into an empty dictionary, and prometheus_client is not imported.
    """

    type: ClassVar[str]

    def __init__(self, role: Role | None, name: str, text: str, **labels: tuple[str, ...] | None) -> None:
        self.role, self.name, self.text, self.labels = role, name, text, labels
        self._parent: Any = None
        self._cells: dict[tuple[str, ...], Any] = {}

    def open(self, sources: Iterable[str]) -> None:
        """Begin to count, from what the files hold already; again, for sources that are new."""
        values = [sources if given is None else given for given in self.labels.values()]
        self._parent = self._parent or self._made()
        for each in product(*values):
            if each not in self._cells:
                self._cells[each] = self._parent.labels(*each) if each else self._parent

    def _made(self) -> Any:
        raise NotImplementedError


class Counter(Metric):
    """It only goes up."""

    type = "counter"

    def inc(self, *labels: str, by: float = 1.0) -> None:
        """Count so many more."""
        if by and (cell := self._cells.get(labels)) is not None:
            cell.inc(by)

    def _made(self) -> Any:
        from prometheus_client import Counter as Real  # noqa: PLC0415 - only where somebody wants metrics

        return Real(self.name, self.text, list(self.labels), registry=None)


class Gauge(Metric):
    """It goes up and down, and is gone when its process is.

    Those without a role are not counted; tokiod.supervisor.metrics_snapshot reads them when a client asks.
    """

    type = "gauge"

    def set(self, value: float, *labels: str) -> None:
        """Say how much it is now."""
        if (cell := self._cells.get(labels)) is not None:
            cell.set(value)

    def _made(self) -> Any:
        from prometheus_client import Gauge as Real  # noqa: PLC0415 - as above

        return Real(self.name, self.text, list(self.labels), registry=None, multiprocess_mode="livesum")


class Histogram(Metric):
    """How often something took how long."""

    type = "histogram"

    def __init__(self, role: Role, name: str, text: str, buckets: Sequence[float], **labels: tuple[str, ...] | None) -> None:
        super().__init__(role, name, text, **labels)
        self.buckets = buckets

    def observe(self, seconds: float, *labels: str) -> None:
        """Count something that took so long."""
        if (cell := self._cells.get(labels)) is not None:
            cell.observe(seconds)

    @contextmanager
    def timing(self, *labels: str) -> Iterator[None]:
        """Count how long the block takes, unless it raises."""
        begun = time.monotonic()
        yield
        self.observe(time.monotonic() - begun, *labels)

    def _made(self) -> Any:
        from prometheus_client import Histogram as Real  # noqa: PLC0415 - as above

        return Real(self.name, self.text, list(self.labels), registry=None, buckets=self.buckets)
