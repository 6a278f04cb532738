"""The log of a simulation: what happens, and what the processes log. The same seed gives the same text, byte for byte."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable, MutableMapping
    from pathlib import Path

    from tests.simulation.clock import MachineClock

LEFT_OUT = frozenset({"epoch", "seconds", "pid", "exc_info", "times"})
"""Fields that random numbers or real time determine."""
FAULTS = frozenset({"backfill.broken", "folder.broken", "process.crashed", "source.fatal"})
"""Events that only a fault of tokiod makes."""


class Journal:
    """The lines so far. faults: what was logged as a fault of tokiod; events: how often each event was logged.

    on_event: called with what is logged, by the event.
    """

    def __init__(self, directory: Path, clock: MachineClock) -> None:
        self.lines: list[str] = []
        self.faults: list[str] = []
        self.events: Counter[str] = Counter()
        self._directory = re.compile(re.escape(str(directory)))
        self._clock = clock
        self.on_event: dict[str, Callable[[MutableMapping[str, Any]], object]] = {}

    def note(self, text: str) -> None:
        """Add a line."""
        self.lines.append(f"{self._clock.monotonic():.3f} {self._directory.sub('', text)}")

    def processor(self, _logger: object, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        """Take what a process logs."""
        fields = " ".join(f"{key}={value}" for key, value in sorted(event.items()) if key not in {"event", *LEFT_OUT})
        self.note(f"log {event['event']} {fields}")
        self.events[event["event"]] += 1
        if (listener := self.on_event.get(event["event"])) is not None:
            listener(event)
        if event["event"] in FAULTS or (event.get("exc_info") and event["event"] in {"window.failed", "recount.failed"}):
            self.faults.append(f"{event['event']} {fields} {_trace(event.get('exc_info'))}")
        raise structlog.DropEvent

    def digest(self) -> str:
        """Return a digest of all lines."""
        return hashlib.sha256("\n".join(self.lines).encode()).hexdigest()[:16]


def _trace(error: object) -> str:
    import traceback  # noqa: PLC0415 - rarely

    return "".join(traceback.format_exception(error)) if isinstance(error, BaseException) else traceback.format_exc()
