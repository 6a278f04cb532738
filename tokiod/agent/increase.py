"""The increase of counters between two samples, and sums over parts that come and go."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from tokiod.agent.metric import Metric, Value

Name = TypeVar("Name")


class Increases:
    """The last value of each counter, in `last`.

    A counter that falls has wrapped, if it is known where it wraps and it was in the upper half and is in the lower; it was corrected, if
    it fell by its metric's slack at most, and counts as unchanged; else it has restarted, and the increase since the sample before is
    unknown: what it reached before it restarted was not seen.
    """

    def __init__(self) -> None:
        self.last: dict[Hashable, Value] = {}

    def __contains__(self, key: Hashable) -> bool:
        return key in self.last

    def take(self, metric: Metric, key: Hashable, value: Value, wraps_at: Value = 0) -> Value | None:
        """Return the increase since the value before; None if it is unknown: the first value, or the first after a restart."""
        last = self.last.get(key)
        if last is None or value >= last:
            self.last[key] = value
            return None if last is None else value - last
        if last - value <= metric.slack:
            return 0
        self.last[key] = value
        if wraps_at and value < wraps_at / 2 < last <= wraps_at:
            return value + wraps_at - last
        return None

    def forget(self, key: Hashable) -> None:
        """Drop the value of an instance that is gone."""
        self.last.pop(key, None)


class Sums(Generic[Name]):
    """Sums of counters over parts, such as what a job read from each disk. No sum ever falls.

    A part that is gone keeps its share of the sums, and one that is back counts from zero. A count that falls although its part is there
    has lost something that is not listed (a step's cgroup was removed, and the kernel forgot what it had counted): it adds nothing, and
    goes on from its new value.
    """

    def __init__(self) -> None:
        self._last: dict[str, dict[Name, Value]] = {}
        self._sums: dict[Name, Value] = {}

    def take(self, parts: Mapping[str, Mapping[Name, Value]]) -> dict[Name, Value]:
        """Take the counts of all parts that are there; return the sums. A count that is not given could not be read: it stays as it was."""
        for part in self._last.keys() - parts.keys():
            del self._last[part]
        for part, counts in parts.items():
            last = self._last.setdefault(part, {})
            for name, value in counts.items():
                self._sums[name] = self._sums.get(name, 0) + max(0, value - last.get(name, 0))
                last[name] = value
        return self._sums
