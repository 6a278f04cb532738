"""All metrics: those that the processes count, and those that a scrape reads.

`[metrics]` in the configuration turns them on. Without it a metric costs one lookup in an empty dictionary.

    catalogue.WINDOWS.inc("cscratch-lmt", "stored")

Label sets are fixed (tokiod.metrics.types): names of configured sources and the words listed here, no column's name, no error's text.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, get_args

from tokiod.errors import TokiodError
from tokiod.metrics.shared_files import begin
from tokiod.metrics.types import Counter, Gauge, Histogram, Metric
from tokiod.runtime.logger import get_logger
from tokiod.window_result import Outcome, Stored

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tokiod.archive.lock import ProcessLock
    from tokiod.collector import SourceConfig
    from tokiod.metrics.types import Role
    from tokiod.sink import FileChange
    from tokiod.window_data import Collected
    from tokiod.window_result import Answer

log = get_logger()

SOURCES = None
ROLES: tuple[Role, ...] = ("collectors", "writer", "feed", "hub", "relay")
OUTCOMES = ("stored", *get_args(Outcome), "lost")
STATES = ("new", "unknown", "running", "waiting", "fatal", "empty", "stopped")
SINK_STATES = ("new", "running", "waiting", "fatal", "stopped", "down", "unknown")
DAYS = ("yesterday", "today", "tomorrow")
HUB_REFUSALS = (
    "clock",
    "class",
    "version",
    "too many nodes",
    "malformed",
    "no hello",
    "other metrics",
    "not asked",
    "older session",
    "second name",
)
HUB_READINGS = ("unknown scheduler cgroup", "job without a cgroup in cpuacct", "too many jobs", "other")
HOST_REFUSALS = ("another host's name", "not asked", "malformed", "version", "older process")
HOST_TROUBLES = ("new", "unreachable", "stopped", "refused", "clock", "unknown")
REFUSALS = ("unknown key", "no key", "wrong server key", "junk", "unfinished", "too many of its address", "too much unread")
NOT_COVERED = ("unknown source", "another system or kind", "unknown dataset", "another step", "future day", "day before the retention")
CHANGES = ("made", "grown", "opened", "sealed")

_SHORT = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_LONG = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)

# ---- counted by the collectors' process

WINDOWS = Counter(
    "collectors",
    "tokiod_windows_total",
    "Attempts at windows by outcome, live and backfilled. stored: acknowledged by the writer; transient, timeout, bug, "
    "fatal: failed and retried; not_yet: the source does not have the data yet; busy: its file is being created; rejected: "
    "can't be stored; lost: no longer available.",
    source=SOURCES,
    outcome=OUTCOMES,
)
STAGE = Histogram(
    "collectors",
    "tokiod_stage_seconds",
    "Seconds that a window takes. collect: query, read and parse, for live polling; fetch, parse: what of it waits for the source, and "
    "what computes; submit: wait until the writer accepts more; store: from submission to acknowledgement.",
    _LONG,
    source=SOURCES,
    stage=("collect", "fetch", "parse", "submit", "store"),
)
RECORDS = Counter("collectors", "tokiod_records_total", "Records (rows, documents) in stored windows.", source=SOURCES)
CELLS = Counter("collectors", "tokiod_cells_total", "Cells of the archive that stored windows filled.", source=SOURCES)
CELLS_DROPPED = Counter("collectors", "tokiod_cells_dropped_total", "Cells of stored windows that were dropped.", source=SOURCES)
RETRIES = Counter("collectors", "tokiod_retries_total", "Windows that were collected again after a failed attempt.", source=SOURCES)
LATE_RECORDS = Counter("collectors", "tokiod_late_records_total", "Records that arrived too late and that a recount found.", source=SOURCES)
CLOCK_JUMPS = Counter(
    "collectors", "tokiod_clock_jumps_total", "Jumps of the wall clock that the source's poller detected.", source=SOURCES
)
UNACKNOWLEDGED_WINDOWS = Gauge(
    "collectors", "tokiod_bus_unacknowledged_windows", "Windows in flight: sent to the writer and not acknowledged."
)
UNACKNOWLEDGED_BYTES = Gauge("collectors", "tokiod_bus_unacknowledged_bytes", "Bytes of the windows in flight.")
RESENT_WINDOWS = Counter(
    "collectors", "tokiod_bus_resent_windows_total", "Windows sent to the writer again, after it restarted or the connection was lost."
)

# ---- counted by the writer's process

BUS_COLLECTORS = Gauge("writer", "tokiod_bus_collectors", "Collectors' processes that are connected to the writer.")
BUS_INCOMPLETE_BYTES = Gauge("writer", "tokiod_bus_incomplete_bytes", "Bytes of windows of which the writer has received a part only.")
WAITING_WINDOWS = Gauge("writer", "tokiod_writer_waiting_windows", "Windows that the writer has received and not stored yet.")
WRITER_STAGE = Histogram(
    "writer",
    "tokiod_writer_seconds",
    "Seconds of the writer's work. apply: the cells of one window into the file; sync: all applied windows to the disk; "
    "ledger: their transaction; feed: publication of one window.",
    _SHORT,
    stage=("apply", "sync", "ledger", "feed"),
)
WRITER_CELLS = Counter(
    "writer", "tokiod_writer_cells_total", "Cells that the writer has assigned, including those of windows that were sent twice."
)
FILE_CHANGES = Counter(
    "writer",
    "tokiod_file_changes_total",
    "Files of days by change. made: created; grown: more columns; opened: reopened for late data after sealing; sealed.",
    change=CHANGES,
    result=("done", "failed"),
)
FILES_QUARANTINED = Counter("writer", "tokiod_files_quarantined_total", "Files that can no longer be trusted and were renamed.")
MAINTENANCE_FAILURES = Counter(
    "writer",
    "tokiod_maintenance_failures_total",
    "Units of maintenance that failed, such as a file that can't be sealed; each is tried again.",
)
BUS_DROPPED = Counter(
    "writer", "tokiod_bus_dropped_messages_total", "Messages on the inner bus that were malformed, stale, duplicate or too many."
)
WINDOWS_NOT_COVERED = Counter(
    "writer",
    "tokiod_windows_not_covered_total",
    "Windows that the writer refused because its configuration does not cover them.",
    reason=NOT_COVERED,
)

# ---- counted by the feed's process; refused connections by the hub and the relay too

REFUSED_CONNECTIONS = Counter(
    ("feed", "hub", "relay"),
    "tokiod_refused_connections_total",
    "Connections to the feed, the hub or the socket of the other hosts, over TCP or with keys, that were refused: unknown key, no key, the "
    "key of another server, another protocol (junk), closed before authentication (unfinished), too many of its address at once; or ended "
    "when memory was short: too much of what it had sent was unread.",
    socket=("feed", "hub", "hosts"),
    reason=REFUSALS,
)
FEED_MALFORMED = Counter("feed", "tokiod_feed_malformed_messages_total", "Messages to the feed that are not subscriptions.")
FEED_TOPICS = Gauge("feed", "tokiod_feed_topics", "Subscriptions to the feed as ZeroMQ counts them: each prefix of a topic once.")
FEED_SUBSCRIPTIONS = Counter("feed", "tokiod_feed_subscriptions_total", "Subscriptions to the feed.")
FEED_PUBLISHED = Counter(
    "feed", "tokiod_feed_messages_total", "Messages published on the feed. ZeroMQ does not report which of them a slow subscriber misses."
)
FEED_FELL_BEHIND = Counter(
    ("writer", "feed"),
    "tokiod_feed_fell_behind_total",
    "Messages of the feed at which a subscriber, or the feed's own process, began to miss some, because it reads too slowly or not at all.",
)
FEED_OVERLOADS = Counter(
    "feed",
    "tokiod_feed_overloads_total",
    "Times at which all subscribers were disconnected, because their subscriptions or unread messages took too much memory.",
)

# ---- counted by the hub's process

HUB_NODES = Gauge("hub", "tokiod_hub_nodes", "Nodes whose agents are connected to the hub.")
HUB_MISSING = Gauge("hub", "tokiod_hub_missing_nodes", "Known nodes without a row of the newest window; tokioctl nodes names them.")
HUB_ROWS = Counter("hub", "tokiod_hub_rows_total", "Rows that agents have sent.")
HUB_REFUSED = Counter(
    "hub",
    "tokiod_hub_refused_messages_total",
    "Messages of agents that were refused. clock: it differs by more than 2 s; class: a name that the key's class may not use; "
    "version: an unknown version of the wire; older session: another agent of the same name came later; second name: a connection has one.",
    reason=HUB_REFUSALS,
)
HUB_DROPPED_READINGS = Counter(
    "hub",
    "tokiod_hub_dropped_readings_total",
    "What agents could not read or understand; tokioctl nodes has the reasons and examples. unknown scheduler cgroup: it is in the "
    "directory of a scheduler and has none of the forms of a job (docs/sensors/jobs.md).",
    reason=HUB_READINGS,
)
HUB_OVERLOADS = Counter("hub", "tokiod_hub_overloads_total", "Times at which all agents were disconnected: they took too much memory.")

# ---- counted by the relay

RELAY_OVERLOADS = Counter("relay", "tokiod_relay_overloads_total", "Times at which all hosts were disconnected: they took too much memory.")

# ---- read by a scrape (tokiod.supervisor.metrics_snapshot)

BUILD = Gauge(None, "tokiod_build_info", "Always 1; the labels are the versions of tokiod and Python.", version=(), python=())
ALIVE = Gauge(None, "tokiod_alive", "1 while the daemon makes progress, as /healthz reports.")
READY = Gauge(None, "tokiod_ready", "1 once the daemon has started, as /readyz reports.")
PROCESS_UP = Gauge(None, "tokiod_process_up", "1 while the process in this role runs.", process=ROLES)
PROCESS_RESIDENT_BYTES = Gauge(None, "tokiod_process_resident_memory_bytes", "Resident memory of the process in this role.", process=ROLES)
PROCESS_RESTARTS = Counter(None, "tokiod_process_restarts_total", "Restarts of the process in this role.", process=ROLES)
HTTP_ENDED = Counter(
    None,
    "tokiod_http_ended_total",
    "Connections to the address of these metrics that the server ended, because they were too slow or too many.",
)
LEDGER_READABLE = Gauge(None, "tokiod_ledger_readable", "1 if the ledger could be read; without it the state of the sources is unknown.")
SOURCE_LAG_SECONDS = Gauge(None, "tokiod_source_lag_seconds", "Seconds from the end of the newest stored window to now.", source=SOURCES)
SOURCE_WATERMARK = Gauge(
    None, "tokiod_source_watermark_timestamp_seconds", "The time up to which no data of a source is missing.", source=SOURCES
)
SOURCE_GAP_SECONDS = Gauge(None, "tokiod_source_gap_seconds", "Seconds that are due and not stored.", source=SOURCES)
SOURCE_LOST_SECONDS = Gauge(None, "tokiod_source_lost_seconds", "Seconds that are no longer available.", source=SOURCES)
SOURCE_EMPTY_WINDOWS = Gauge(
    None,
    "tokiod_source_empty_windows",
    "Windows in a row without a record, up to the newest one that the source answered.",
    source=SOURCES,
)
SOURCE_STATE = Gauge(None, "tokiod_source_state", "1 for the current state of a source, 0 for the others.", source=SOURCES, state=STATES)
SOURCE_STALE = Gauge(
    None, "tokiod_source_stale", "1 for a source that is late, or waits for its server or an administrator.", source=SOURCES
)
SINK_STATE = Gauge(None, "tokiod_sink_state", "1 for the current state of a sink, 0 for the others.", sink=(), state=SINK_STATES)
SINK_STALE = Gauge(
    None, "tokiod_sink_stale", "1 for a sink that is late, waits for its receiver or an administrator, or does not run.", sink=()
)
SINK_LAG_SECONDS = Gauge(
    None, "tokiod_sink_lag_seconds", "Age of the oldest change that the receiver of a sink has not acknowledged; 0 without one.", sink=()
)
SINK_LAG_WINDOWS = Gauge(
    None,
    "tokiod_sink_lag_windows",
    "Changes of the change log, each of one or more windows, that the receiver has not acknowledged.",
    sink=(),
)
SINK_BACKLOG_SECONDS = Gauge(
    None, "tokiod_sink_backlog_seconds", "Seconds of the archive that a sink sends besides, such as after its first start.", sink=()
)
SINK_RECORDS = Counter(
    None, "tokiod_sink_records_total", "Records (messages, documents, files) that the receiver of a sink acknowledged.", sink=()
)
SINK_REJECTED = Counter(
    None,
    "tokiod_sink_rejected_total",
    "Records that the receiver of a sink rejected for ever, by reason: at most 20 phrases of the kind of the sink.",
    sink=(),
    reason=(),
)
SINK_LAST_ERROR = Gauge(
    None,
    "tokiod_sink_last_error_timestamp_seconds",
    "When a sink last failed; tokioctl sinks has the sentence. Absent if it never did.",
    sink=(),
)
HOST_UP = Gauge(None, "tokiod_host_up", "1 while a host's collectors are connected to the daemon, 0 while they are not.", host=())
HOST_TROUBLE = Gauge(
    None, "tokiod_host_trouble", "1 for what is wrong with a host, 0 for the other words; tokioctl status has the sentence.", host=(),
    trouble=HOST_TROUBLES,
)  # fmt: skip
HOST_CONTACT = Gauge(None, "tokiod_host_contact_timestamp_seconds", "Time of the last message of a host. Absent before the first.", host=())
HOST_CLOCK_DIFFERENCE = Gauge(
    None,
    "tokiod_host_clock_difference_seconds",
    "Seconds that a host's clock is ahead of the writer's host's. Absent while unknown.",
    host=(),
)
HOST_REFUSED = Counter(
    None,
    "tokiod_host_refused_messages_total",
    "Messages on the connection of a host's key that were refused, such as a window of a source of another host.",
    host=(),
    reason=HOST_REFUSALS,
)
FILE_FILLED = Gauge(
    None,
    "tokiod_file_filled_ratio",
    "Share of a day's windows that are stored, over the polled sources of its system with datasets.",
    system=(),
    day=DAYS,
)
FILE_SIZE_BYTES = Gauge(None, "tokiod_file_size_bytes", "Size of a system's file of a day.", system=(), day=DAYS)
BACKFILL_JOBS = Gauge(None, "tokiod_backfill_jobs", "Backfills that are not finished.")
BACKFILL_SECONDS_LEFT = Gauge(None, "tokiod_backfill_left_seconds", "Seconds of the past that backfills still have to collect.")
ARCHIVE_FREE_BYTES = Gauge(None, "tokiod_archive_free_bytes", "Free bytes on the disk of the archive.")
ARCHIVE_SIZE_BYTES = Gauge(None, "tokiod_archive_size_bytes", "Size of the disk of the archive.")

ALL: tuple[Metric, ...] = tuple(value for value in dict(globals()).values() if isinstance(value, Metric))

_roles: list[ProcessLock] = []


def start_counting(directory: Path | None, role: Role, configured: Iterable[SourceConfig]) -> None:
    """Start to count in a role, or add the sources of another configuration; nothing without a directory.

    A failure is logged and stops nothing.
    """
    if directory is None:
        return
    sources, mine = [source.name for source in configured], [metric for metric in ALL if role in metric.roles]
    try:
        if _roles:
            _open(mine, sources)
        else:
            _roles.append(begin(directory, role, mine, sources))
    except (TokiodError, OSError) as error:
        log.warning("metrics.failed", reason=f"metrics of the {role} are not counted: {error}")


def _open(metrics: Iterable[Metric], sources: list[str]) -> None:
    for metric in metrics:
        metric.open(sources)


def count_answer(collected: Collected, answer: Answer) -> None:
    """Count a window in flight once it is stored."""
    if _roles:
        answer.add_done_callback(partial(_answered, collected))


def _answered(collected: Collected, answer: Answer) -> None:
    if answer.cancelled() or not isinstance(stored := answer.result(), Stored):
        return
    source = collected.meta.source
    WINDOWS.inc(source, "stored", by=collected.meta.is_whole)
    RECORDS.inc(source, by=collected.meta.records or 0)
    CELLS.inc(source, by=stored.cells)
    CELLS_DROPPED.inc(source, by=sum(stored.dropped.values()))


def set_in_flight(windows: int, nbytes: int, resent: int = 0) -> None:
    """Set the windows and bytes in flight. resent: windows that were just sent again."""
    UNACKNOWLEDGED_WINDOWS.set(windows)
    UNACKNOWLEDGED_BYTES.set(nbytes)
    RESENT_WINDOWS.inc(by=resent)


def count_file_change(done: FileChange) -> None:
    """Count a change of a file, done or failed."""
    FILE_CHANGES.inc(done.change, "done" if done.error is None else "failed")
