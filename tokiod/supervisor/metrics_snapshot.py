"""What a scrape reports in addition to the counted metrics: ledger, files, disk and processes, as they are now.

A disk that hangs also hangs the thread that reads it. So one thread takes the snapshots, a request waits for it for a limited time, and
the latest snapshot is reported until it is too old.
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
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.core import Metric as Family

import tokiod
from tokiod.clock import SystemClock
from tokiod.errors import TokiodError
from tokiod.ledger.database import LedgerError
from tokiod.metrics import catalogue, shared_files
from tokiod.reports import hosts, sinks
from tokiod.reports.status import read
from tokiod.runtime.log import Repeats

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from tokiod.clock import Clock
    from tokiod.config.schema import Config
    from tokiod.metrics.types import Metric, Role
    from tokiod.published.hosts import HostState
    from tokiod.published.sinks import SinkState
    from tokiod.reports.status import Status
    from tokiod.supervisor.health import Health

log = structlog.get_logger()

INTERVAL_SECONDS = 5.0
"""Seconds between two snapshots, at least."""
WAIT_SECONDS = 2.0
"""Seconds that a request waits for a snapshot."""
NOT_STALE = {"", "empty", "partial"}
"""Troubles of a source for which it is not stale: it answers."""
MAX_AGE_SECONDS = 60.0
"""Seconds after which a snapshot is not reported any more."""

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Snapshot:
    """An archive at one time.

    files: (system, day, share filled or None, bytes); free, capacity: bytes of its disk; sinks: that it is sent to;
    hosts: all but the writer's.
    """

    status: Status
    files: tuple[tuple[str, str, float | None, int], ...]
    free: int
    capacity: int
    sinks: tuple[SinkState, ...] = ()
    hosts: tuple[HostState, ...] = ()


def take_snapshot(config: Config, now: float) -> Snapshot:
    """Read an archive. Raises TokiodError, LedgerError and OSError."""
    status, real_now = read(config, now), SystemClock().time()
    room = os.statvfs(config.archive.root)
    files = tuple(_files(config, status, now))
    return Snapshot(
        status,
        files,
        room.f_bavail * room.f_frsize,
        room.f_blocks * room.f_frsize,
        tuple(sinks.read(config, now, real_now)),
        tuple(one for one in hosts.read(config, real_now) if one.role == "collectors"),
    )


def _files(config: Config, status: Status, now: float) -> Iterator[tuple[str, str, float | None, int]]:
    calendar = config.calendar
    today = calendar.day(int(now))
    days = dict(zip(catalogue.DAYS, (calendar.day(today.start - 1), today, calendar.day(today.end)), strict=True))
    for file in status.files:
        for name, day in days.items():
            if (path := config.archive.file(day, file.system)) == Path(file.path):
                yield file.system, name, file.filled, path.stat().st_size


class Snapshots:
    """The latest snapshot of an archive, for any number of threads. config: may be replaced at any time."""

    def __init__(self, config: Config, clock: Clock) -> None:
        self.config = config
        self._clock = clock
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._begun = float("-inf")
        self._latest: tuple[float, Snapshot | None] = (float("-inf"), None)
        self._repeats = Repeats(clock)

    def latest(self) -> Snapshot | None:
        """Return the latest snapshot; None where the archive can't be read, or could not be for a while."""
        with self._lock:
            now = time.monotonic()
            is_reading = self._thread is not None and self._thread.is_alive()
            if not is_reading and now - self._begun >= INTERVAL_SECONDS:
                self._begun = now
                self._thread = threading.Thread(target=self._take, name="snapshot", daemon=True)
                self._thread.start()
            thread, seconds = self._thread, self._begun + WAIT_SECONDS - now
        if thread is not None and seconds > 0:
            thread.join(seconds)
        taken_at, snapshot = self._latest
        return snapshot if time.monotonic() - taken_at < MAX_AGE_SECONDS else None

    def _take(self) -> None:
        snapshot = None
        try:
            snapshot = take_snapshot(self.config, self._clock.time())
        except (TokiodError, LedgerError, OSError) as error:
            if times := self._repeats(str(error)):
                log.warning("metrics.failed", reason=str(error), times=times)
        self._latest = time.monotonic(), snapshot


class ArchiveCollector:
    """A collector of prometheus_client: what all processes have counted, and a snapshot. ended: HTTP connections that were, by reason."""

    def __init__(self, snapshots: Snapshots, health: Callable[[], Health], ended: Counter[str]) -> None:
        self._snapshots = snapshots
        self._health = health
        self._ended = ended

    def describe(self) -> Iterator[Any]:
        """Yield the names of all metrics, which prometheus_client needs for requests with name[]."""
        for metric in catalogue.ALL:
            yield Family(metric.name.removesuffix("_total"), metric.text, metric.type)

    def collect(self) -> Iterator[Any]:
        """Yield all metrics."""
        directory = self._snapshots.config.run / "metrics"
        yield from shared_files.collect(directory, catalogue.ROLES)
        yield from _processes(self._health(), {role: shared_files.process(directory, role) for role in catalogue.ROLES})
        yield _family(catalogue.HTTP_ENDED, {(): self._ended.total()})
        snapshot = self._snapshots.latest()
        yield _family(catalogue.LEDGER_READABLE, {(): snapshot is not None})
        if snapshot is not None:
            yield from _sources(snapshot)
            yield from _archive(snapshot)
            yield from _sinks(snapshot.sinks)
            yield from _hosts(snapshot.hosts)


def _processes(health: Health, processes: Mapping[Role, int | None]) -> Iterator[Any]:
    yield _family(catalogue.BUILD, {(tokiod.__version__, platform.python_version()): 1})
    yield _family(catalogue.ALIVE, {(): health.alive})
    yield _family(catalogue.READY, {(): health.ready})
    yield _family(catalogue.PROCESS_UP, {(role,): process is not None for role, process in processes.items()})
    yield _family(catalogue.PROCESS_RESIDENT_BYTES, {(role,): size for role, process in processes.items() if (size := _resident(process))})
    yield _family(catalogue.PROCESS_RESTARTS, {(role,): health.restarts.get(role, 0) for role in processes})


def _sources(snapshot: Snapshot) -> Iterator[Any]:
    lines = snapshot.status.sources
    yield _family(catalogue.SOURCE_LAG_SECONDS, {(line.name,): line.lag for line in lines if line.lag is not None})
    yield _family(catalogue.SOURCE_WATERMARK, {(line.name,): line.watermark for line in lines if line.watermark is not None})
    yield _family(catalogue.SOURCE_GAP_SECONDS, {(line.name,): line.gaps.seconds for line in lines})
    yield _family(catalogue.SOURCE_LOST_SECONDS, {(line.name,): line.gaps.lost for line in lines})
    yield _family(catalogue.SOURCE_EMPTY_WINDOWS, {(line.name,): line.empty_windows for line in lines})
    yield _family(catalogue.SOURCE_STATE, {(line.name, state): line.state == state for line in lines for state in catalogue.STATES})
    yield _family(catalogue.SOURCE_STALE, {(line.name,): line.trouble not in NOT_STALE for line in lines})


def _archive(snapshot: Snapshot) -> Iterator[Any]:
    jobs = snapshot.status.jobs
    yield _family(catalogue.FILE_FILLED, {(system, day): filled for system, day, filled, _ in snapshot.files if filled is not None})
    yield _family(catalogue.FILE_SIZE_BYTES, {(system, day): size for system, day, _, size in snapshot.files})
    yield _family(catalogue.BACKFILL_JOBS, {(): len(jobs)})
    yield _family(catalogue.BACKFILL_SECONDS_LEFT, {(): sum(job.seconds_left for job in jobs)})
    yield _family(catalogue.ARCHIVE_FREE_BYTES, {(): snapshot.free})
    yield _family(catalogue.ARCHIVE_SIZE_BYTES, {(): snapshot.capacity})


def _sinks(found: Sequence[SinkState]) -> Iterator[Any]:
    yield _family(catalogue.SINK_STATE, {(one.name, state): one.state == state for one in found for state in catalogue.SINK_STATES})
    yield _family(catalogue.SINK_STALE, {(one.name,): one.trouble not in NOT_STALE for one in found})
    yield _family(catalogue.SINK_LAG_SECONDS, {(one.name,): one.lag for one in found})
    yield _family(catalogue.SINK_LAG_WINDOWS, {(one.name,): one.lag_windows for one in found})
    yield _family(catalogue.SINK_BACKLOG_SECONDS, {(one.name,): one.backlog for one in found})
    yield _family(catalogue.SINK_RECORDS, {(one.name,): one.records for one in found})
    yield _family(catalogue.SINK_REJECTED, {(one.name, reason): count for one in found for reason, count in one.rejected.items()})
    yield _family(catalogue.SINK_LAST_ERROR, {(one.name,): one.last_error_at for one in found if one.last_error_at is not None})


def _hosts(found: Sequence[HostState]) -> Iterator[Any]:
    yield _family(catalogue.HOST_UP, {(one.name,): one.trouble in {"", "clock"} for one in found})
    yield _family(catalogue.HOST_TROUBLE, {(one.name, word): one.trouble == word for one in found for word in catalogue.HOST_TROUBLES})
    yield _family(catalogue.HOST_CONTACT, {(one.name,): one.contact for one in found if one.contact is not None})
    yield _family(catalogue.HOST_CLOCK_DIFFERENCE, {(one.name,): one.clock for one in found if one.clock is not None})
    yield _family(
        catalogue.HOST_REFUSED, {(one.name, reason): one.refused.get(reason, 0) for one in found for reason in catalogue.HOST_REFUSALS}
    )


def _family(metric: Metric, values: Mapping[tuple[str, ...], float]) -> Any:
    family = (CounterMetricFamily if metric.type == "counter" else GaugeMetricFamily)(metric.name, metric.text, labels=list(metric.labels))
    for labels, value in values.items():
        family.add_metric(labels, float(value))
    return family


def _resident(process: int | None) -> int:
    """Return the bytes of memory of a process, 0 where they are unknown."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return 0


def join_names(names: Iterable[str]) -> str:
    """Return names in alphabetical order, for a message."""
    return ", ".join(sorted(names))
