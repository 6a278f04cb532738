"""All metrics: what is counted on the way of a number, and what is looked at when somebody asks.

`[metrics]` in the configuration turns them on; without it, nothing here costs anything.

    catalogue.WINDOWS.inc("cscratch-lmt", "stored")

Label sets are fixed (tokiod.metrics.types): names of configured sources and the words listed here, never a column or an error's text.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, get_args

import structlog

from tokiod.errors import TokiodError
from tokiod.metrics.shared_files import begin
from tokiod.metrics.types import Counter, Gauge, Histogram, Metric
from tokiod.window_result import Outcome, Stored

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tokiod.archive.lock import ArchiveLock
    from tokiod.config.load import Config
    from tokiod.metrics.types import Role
    from tokiod.sink import Done
    from tokiod.window_data import Collected
    from tokiod.window_result import Answer

log = structlog.get_logger()

SOURCES = None
ROLES: tuple[Role, ...] = ("collectors", "writer")
OUTCOMES = ("stored", *get_args(Outcome), "lost")
STATES = ("new", "unknown", "running", "waiting", "fatal", "stopped")
DAYS = ("yesterday", "today", "tomorrow")
REFUSALS = ("unknown key", "no key", "wrong server key", "junk", "unfinished")
CHANGES = ("made", "grown", "opened", "sealed")

_SHORT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_LONG = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)

# ---- counted by the collectors' process

WINDOWS = Counter(
    "collectors",
    "tokiod_windows_total",
    "Windows by what became of an attempt at them, live and backfilled. stored: acknowledged by the writer; transient, timeout, bug, "
    "fatal: failed and asked for again; not_yet: the source has not got that far; busy: its file is just being made; rejected: can't be "
    "stored; lost: can't be had any more.",
    source=SOURCES,
    outcome=OUTCOMES,
)
STAGE = Histogram(
    "collectors",
    "tokiod_stage_seconds",
    "Seconds that a window takes. collect: the source's answer to live polling, read and parsed; submit: waiting until the "
    "writer takes more; store: from there until it is acknowledged as stored.",
    _LONG,
    source=SOURCES,
    stage=("collect", "submit", "store"),
)
RECORDS = Counter("collectors", "tokiod_records_total", "Records (rows, documents) in the stored windows.", source=SOURCES)
CELLS = Counter("collectors", "tokiod_cells_total", "Cells of the archive that stored windows filled.", source=SOURCES)
CELLS_DROPPED = Counter("collectors", "tokiod_cells_dropped_total", "Cells of stored windows that could not be kept.", source=SOURCES)
RETRIES = Counter("collectors", "tokiod_retries_total", "Windows that were asked for again after a failed attempt.", source=SOURCES)
LATE_RECORDS = Counter(
    "collectors", "tokiod_late_records_total", "Records that had come too late and were found by the recount.", source=SOURCES
)
CLOCK_JUMPS = Counter("collectors", "tokiod_clock_jumps_total", "Jumps of the wall clock that the source's poller noticed.", source=SOURCES)
UNACKNOWLEDGED_WINDOWS = Gauge(
    "collectors", "tokiod_bus_unacknowledged_windows", "Windows on their way to the writer and not acknowledged."
)
UNACKNOWLEDGED_BYTES = Gauge("collectors", "tokiod_bus_unacknowledged_bytes", "Bytes of the windows that are not acknowledged.")
RESENT_WINDOWS = Counter(
    "collectors", "tokiod_bus_resent_windows_total", "Windows sent to the writer again, because it or the connection was gone."
)

# ---- counted by the writer's process

WAITING_WINDOWS = Gauge("writer", "tokiod_writer_waiting_windows", "Windows that the writer has received and not stored yet.")
WRITER_STAGE = Histogram(
    "writer",
    "tokiod_writer_seconds",
    "Seconds of the writer's work. apply: a window's cells into the file; sync: all that wait, to the disk; ledger: its transaction.",
    _SHORT,
    stage=("apply", "sync", "ledger"),
)
WRITER_CELLS = Counter("writer", "tokiod_writer_cells_total", "Cells that the writer has assigned, those of windows that came twice too.")
FILE_CHANGES = Counter(
    "writer",
    "tokiod_file_changes_total",
    "Files of days that were made, grown (new columns), opened up (late data in a sealed day) or sealed.",
    change=CHANGES,
    result=("done", "failed"),
)
FILES_QUARANTINED = Counter("writer", "tokiod_files_set_aside_total", "Files that could not be trusted any more and were renamed.")
BUS_DROPPED = Counter(
    "writer", "tokiod_bus_dropped_messages_total", "Messages on the inner bus that were malformed, stale, doubled or too many."
)
REFUSED_CONNECTIONS = Counter(
    "writer",
    "tokiod_refused_connections_total",
    "Connections to the feed or the inner bus over TCP, or with keys, that were not let in: their key is nobody's, they have none, they "
    "have one for another server, they speak something else, or they were gone before they had said who they are.",
    socket=("feed", "bus"),
    reason=REFUSALS,
)
FEED_MALFORMED = Counter("writer", "tokiod_feed_malformed_messages_total", "Messages to the feed that are no subscriptions.")
FEED_TOPICS = Gauge("writer", "tokiod_feed_topics", "Subscriptions to the feed, counted as ZeroMQ tells them: each prefix of a topic once.")
FEED_SUBSCRIPTIONS = Counter("writer", "tokiod_feed_subscriptions_total", "Subscriptions to the feed that were made.")
FEED_PUBLISHED = Counter(
    "writer", "tokiod_feed_messages_total", "Messages given to the feed; what a slow subscriber misses, ZeroMQ doesn't tell."
)
FEED_FELL_BEHIND = Counter(
    "writer",
    "tokiod_feed_fell_behind_total",
    "Messages of the feed with which a subscriber began to miss some, because it doesn't read, or not fast enough.",
)

# ---- looked at when somebody asks (tokiod.supervisor.metrics_snapshot)

BUILD = Gauge(None, "tokiod_build_info", "Always 1; the labels say which tokiod this is.", version=(), python=())
ALIVE = Gauge(None, "tokiod_alive", "Whether the flow makes progress, as /healthz says.")
READY = Gauge(None, "tokiod_ready", "Whether the daemon has started, as /readyz says.")
PROCESS_UP = Gauge(None, "tokiod_process_up", "Whether the process in this role runs.", process=ROLES)
PROCESS_RESIDENT_BYTES = Gauge(None, "tokiod_process_resident_memory_bytes", "Memory of the process in this role.", process=ROLES)
PROCESS_RESTARTS = Counter(
    None, "tokiod_process_restarts_total", "How often the process in this role had to be started again.", process=ROLES
)
HTTP_ENDED = Counter(
    None, "tokiod_http_ended_total", "Connections to the address of these metrics that hung, or were too many, and were ended."
)
LEDGER_READABLE = Gauge(
    None, "tokiod_ledger_readable", "Whether the ledger could be read just now; without it, nothing is known of the sources."
)
SOURCE_LAG_SECONDS = Gauge(None, "tokiod_source_lag_seconds", "Seconds from the end of the newest stored window to now.", source=SOURCES)
SOURCE_WATERMARK = Gauge(
    None, "tokiod_source_watermark_timestamp_seconds", "The time before which nothing is missing of a source.", source=SOURCES
)
SOURCE_GAP_SECONDS = Gauge(None, "tokiod_source_gap_seconds", "Seconds that are due and not stored.", source=SOURCES)
SOURCE_LOST_SECONDS = Gauge(None, "tokiod_source_lost_seconds", "Seconds that can't be had any more.", source=SOURCES)
SOURCE_STATE = Gauge(None, "tokiod_source_state", "1 for the state in which a source is, 0 for the others.", source=SOURCES, state=STATES)
SOURCE_STALE = Gauge(None, "tokiod_source_stale", "1 for a source that is late or waits for its server or a person.", source=SOURCES)
FILE_FILLED = Gauge(
    None, "tokiod_file_filled_ratio", "Share of a day's windows that are stored, over its system's sources.", system=(), day=DAYS
)
FILE_SIZE_BYTES = Gauge(None, "tokiod_file_size_bytes", "Size of a system's file of a day.", system=(), day=DAYS)
BACKFILL_JOBS = Gauge(None, "tokiod_backfill_jobs", "Backfills that are not finished.")
BACKFILL_SECONDS_LEFT = Gauge(None, "tokiod_backfill_left_seconds", "Seconds of the past that backfills have still to fill.")
ARCHIVE_FREE_BYTES = Gauge(None, "tokiod_archive_free_bytes", "Bytes left for the archive on its disk.")
ARCHIVE_SIZE_BYTES = Gauge(None, "tokiod_archive_size_bytes", "Size of the archive's disk.")

ALL: tuple[Metric, ...] = tuple(value for value in dict(globals()).values() if isinstance(value, Metric))

_roles: list[ArchiveLock] = []


def start_counting(config: Config, role: Role) -> None:
    """Begin to count in a role, or go on with other sources, if the configuration has metrics. Never stops what it counts."""
    if config.metrics is None:
        return
    sources, mine = [source.name for source in config.source], [metric for metric in ALL if metric.role == role]
    try:
        if _roles:
            _open(mine, sources)
        else:
            _roles.append(begin(config.run / "metrics", role, mine, sources))
    except (TokiodError, OSError) as error:
        log.warning("metrics.failed", reason=f"the {role} are not counted: {error}")


def _open(metrics: Iterable[Metric], sources: list[str]) -> None:
    for metric in metrics:
        metric.open(sources)


def count_submitted(collected: Collected, answer: Answer, seconds: float) -> None:
    """Count a window that waited so long until it could be handed over, and what becomes of it if it is stored."""
    if _roles:
        STAGE.observe(seconds, collected.meta.source, "submit")
        answer.add_done_callback(partial(_answered, collected, answer.get_loop().time()))


def _answered(collected: Collected, begun: float, answer: Answer) -> None:
    if answer.cancelled() or not isinstance(stored := answer.result(), Stored):
        return
    source = collected.meta.source
    STAGE.observe(answer.get_loop().time() - begun, source, "store")
    WINDOWS.inc(source, "stored", by=collected.meta.is_whole)
    RECORDS.inc(source, by=collected.meta.records or 0)
    CELLS.inc(source, by=stored.cells)
    CELLS_DROPPED.inc(source, by=sum(stored.dropped.values()))


def set_in_flight(windows: int, nbytes: int, resent: int = 0) -> None:
    """Set how many windows and bytes wait for their acknowledgement; resent: windows sent again just now."""
    UNACKNOWLEDGED_WINDOWS.set(windows)
    UNACKNOWLEDGED_BYTES.set(nbytes)
    RESENT_WINDOWS.inc(by=resent)


def count_file_change(done: Done) -> None:
    """Count something that was done to a file, or was not."""
    FILE_CHANGES.inc(done.what, "done" if done.error is None else "failed")
