"""What is looked at when somebody asks for metrics or health: ledger, files, disk and processes, as they are now.

A disk that hangs hangs whoever looks. So one thread looks, nobody waits long for it, and what it saw last is told while it is not old.
"""

from __future__ import annotations

import os
import platform
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

import tokiod
from tokiod.errors import TokiodError
from tokiod.ledger.database import LedgerError
from tokiod.metrics import catalogue
from tokiod.metrics import shared_files as counting
from tokiod.reports.status import read, stale
from tokiod.runtime.log import Repeats
from tokiod.window import Calendar

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from tokiod.clock import Clock
    from tokiod.config.load import Config
    from tokiod.metrics.types import Metric, Role
    from tokiod.reports.status import Status

log = structlog.get_logger()

FRESH = 5.0
"""Seconds for which nobody looks again."""
PATIENCE = 2.0
"""Seconds that somebody who asks waits for a look."""
OLD = 60.0
"""Seconds after which what was seen is not told any more."""

_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Health:
    """How the daemon does. alive: the flow makes progress; ready: it has started; reason: why not; restarts: of each child so far."""

    alive: bool
    ready: bool
    reason: str = ""
    restarts: Mapping[str, int] = ()  # type: ignore[assignment]  # none


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen. stale: names of sources; files: (system, day, share filled, bytes); free, capacity: bytes of the archive's disk."""

    status: Status
    stale: frozenset[str]
    files: tuple[tuple[str, str, float, int], ...]
    free: int
    capacity: int


def look(config: Config, now: float) -> Look:
    """Look at an archive. Raises TokiodError, LedgerError and OSError."""
    status = read(config, now)
    room = os.statvfs(config.archive.root)
    files = tuple(_files(config, status, now))
    return Look(status, frozenset(stale(status, config)), files, room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize)


def _files(config: Config, status: Status, now: float) -> Iterator[tuple[str, str, float, int]]:
    calendar = Calendar(config.timezone)
    today = calendar.day(int(now))
    days = dict(zip(catalogue.DAYS, (calendar.day(today.start - 1), today, calendar.day(today.end)), strict=True))
    for file in status.files:
        for name, day in days.items():
            if (path := config.archive.file(day, file.system)) == Path(file.path):
                yield file.system, name, file.filled, path.stat().st_size


class Watch:
    """The latest look at an archive, for as many threads as ask. config: may be replaced at any time."""

    def __init__(self, config: Config, clock: Clock) -> None:
        self.config = config
        self._clock = clock
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._begun = float("-inf")
        self._seen: tuple[float, Look | None] = (float("-inf"), None)
        self._repeats = Repeats(clock)

    def latest(self) -> Look | None:
        """Return what was seen last; None where nothing can be seen, or could not for a while."""
        with self._lock:
            now = time.monotonic()
            is_looking = self._thread is not None and self._thread.is_alive()
            if not is_looking and now - self._begun >= FRESH:
                self._begun = now
                self._thread = threading.Thread(target=self._look, name="looking", daemon=True)
                self._thread.start()
            thread, patience = self._thread, self._begun + PATIENCE - now
        if thread is not None and patience > 0:
            thread.join(patience)
        at, seen = self._seen
        return seen if time.monotonic() - at < OLD else None

    def _look(self) -> None:
        seen = None
        try:
            seen = look(self.config, self._clock.time())
        except (TokiodError, LedgerError, OSError) as error:
            if times := self._repeats(str(error)):
                log.warning("metrics.failed", reason=str(error), times=times)
        self._seen = time.monotonic(), seen


class Now:
    """A collector of prometheus_client's: what all processes have counted, and what is seen now. ended: connections, by reason."""

    def __init__(self, watch: Watch, health: Callable[[], Health], ended: Counter[str]) -> None:
        self._watch = watch
        self._health = health
        self._ended = ended

    def collect(self) -> Iterator[Any]:
        """Yield all metrics."""
        directory = self._watch.config.run / "metrics"
        yield from counting.collect(directory, catalogue.ROLES)
        yield from _processes(self._health(), {role: counting.process(directory, role) for role in catalogue.ROLES})
        yield _family(catalogue.HTTP_ENDED, {(): self._ended.total()})
        seen = self._watch.latest()
        yield _family(catalogue.LEDGER_READABLE, {(): seen is not None})
        if seen is not None:
            yield from _sources(seen)
            yield from _archive(seen)


def _processes(health: Health, processes: Mapping[Role, int | None]) -> Iterator[Any]:
    yield _family(catalogue.BUILD, {(tokiod.__version__, platform.python_version()): 1})
    yield _family(catalogue.ALIVE, {(): health.alive})
    yield _family(catalogue.READY, {(): health.ready})
    yield _family(catalogue.PROCESS_UP, {(role,): process is not None for role, process in processes.items()})
    yield _family(catalogue.PROCESS_RESIDENT_BYTES, {(role,): size for role, process in processes.items() if (size := _resident(process))})
    yield _family(catalogue.PROCESS_RESTARTS, {(role,): dict(health.restarts).get(role, 0) for role in processes})


def _sources(seen: Look) -> Iterator[Any]:
    lines = seen.status.sources
    yield _family(catalogue.SOURCE_LAG_SECONDS, {(line.name,): line.lag for line in lines if line.lag is not None})
    yield _family(catalogue.SOURCE_WATERMARK, {(line.name,): line.watermark for line in lines if line.watermark is not None})
    yield _family(catalogue.SOURCE_GAP_SECONDS, {(line.name,): line.gaps.seconds for line in lines})
    yield _family(catalogue.SOURCE_LOST_SECONDS, {(line.name,): line.gaps.lost for line in lines})
    yield _family(catalogue.SOURCE_STATE, {(line.name, state): line.state == state for line in lines for state in catalogue.STATES})
    yield _family(catalogue.SOURCE_STALE, {(line.name,): line.name in seen.stale for line in lines})


def _archive(seen: Look) -> Iterator[Any]:
    jobs = seen.status.jobs
    yield _family(catalogue.FILE_FILLED, {(system, day): filled for system, day, filled, _ in seen.files})
    yield _family(catalogue.FILE_SIZE_BYTES, {(system, day): size for system, day, _, size in seen.files})
    yield _family(catalogue.BACKFILL_JOBS, {(): len(jobs)})
    yield _family(catalogue.BACKFILL_SECONDS_LEFT, {(): sum(job.seconds_left for job in jobs)})
    yield _family(catalogue.ARCHIVE_FREE_BYTES, {(): seen.free})
    yield _family(catalogue.ARCHIVE_SIZE_BYTES, {(): seen.capacity})


def _family(metric: Metric, values: Mapping[tuple[str, ...], float]) -> Any:
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415 - only where somebody wants metrics

    family = CounterMetricFamily if metric.type == "counter" else GaugeMetricFamily
    made = family(metric.name, metric.text, labels=list(metric.labels))
    for labels, value in values.items():
        made.add_metric(labels, float(value))
    return made


def _resident(process: int | None) -> int:
    """Return the bytes of memory that a process has, 0 where that can't be told."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def said(names: Iterable[str]) -> str:
    """Write names for a person."""
    return ", ".join(sorted(names))
