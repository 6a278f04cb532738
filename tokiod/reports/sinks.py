"""The state of the sinks, from the files that their processes write: the same with and without these processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from tokiod.errors import ConfigError, TokiodError, nearest
from tokiod.ledger.database import LedgerError
from tokiod.ledger.ledger import Ledger

if TYPE_CHECKING:
    from pathlib import Path

    from tokiod.change_sink import SinkConfig
    from tokiod.config.load import Config
    from tokiod.ledger.changes import ChangeLog

STATE_FILE = "state.json"
BEAT_SECONDS = 5.0
"""Between two writes of a state, at most, in seconds of the machine's clock."""
SILENT_SECONDS = 30.0
"""After which a process that writes none counts as down."""
LATE_SECONDS = 300
"""Of lag, after which a sink that sends is late."""
MAX_REASONS = 20

Trouble = Literal["", "new", "down", "late", "waiting", "fatal", "unknown"]
"""What is wrong with a sink, "" if nothing is.

new: its process has never run; down: it does not run; late: it sends, and changes are older than LATE_SECONDS; waiting: its receiver can't
be reached now; fatal: a person must act first; unknown: this user may not read its state.
"""


class SinkState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a sink. Times are UTC epoch seconds.

    state: new, running, waiting, fatal, stopped, down or unknown; reason: of waiting and fatal; pid: of its process.
    epoch, cursor: of the change log: all changes up to this number are acknowledged, or in the backlog; lag_windows, lag: how many changes
    follow it, and seconds since the first of them; backlog: seconds of the archive that are to be sent besides.
    records, rejected: since the sink exists; last_error, last_error_at, acknowledged_at: the newest of each, empty or None without one.
    """

    name: str
    kind: str
    state: str = "new"
    trouble: Trouble = "new"
    reason: str = ""
    pid: int | None = None
    epoch: int | None = None
    cursor: int | None = None
    lag_windows: int = 0
    lag: int = 0
    backlog: int = 0
    records: int = 0
    rejected: dict[str, int] = {}
    last_error: str = ""
    last_error_at: float | None = None
    acknowledged_at: float | None = None


def configured_sink(config: Config, name: str) -> SinkConfig:
    """Return the section of a sink. Raises ConfigError for a name that is not configured."""
    known = {one.name: one for one in config.sink}
    if name not in known:
        listed = f"; configured: {', '.join(known)}" if known else "; no [[sink]] is configured"
        raise ConfigError([f"unknown sink {name!r}{nearest(name, known) or listed}"])
    return known[name]


def read(config: Config, now: float, real_now: float) -> list[SinkState]:
    """Return the states of the configured sinks. now: of the clock, for their lag; real_now: the machine's, for whether they run."""
    if not config.sink:
        return []
    found = [_read(config.sink_state / one.name, SinkState(name=one.name, kind=one.kind), real_now) for one in config.sink]
    try:
        with Ledger.open_readonly(config.archive.ledger_copy, checked=False) as ledger:
            measured = [_measured(one, ledger.changes, now) for one in found]
    except (TokiodError, LedgerError, OSError):
        measured = found
    return [_judged(one) for one in measured]


def _measured(found: SinkState, log: ChangeLog, now: float) -> SinkState:
    """Return a state with its lag by the change log, whether its process runs or not."""
    state = log.state()
    if state is None or found.cursor is None or found.epoch != state.epoch:
        return found
    oldest = next(iter(log.after(found.cursor, 1)), None)
    lag = 0 if oldest is None else max(0, int(now - oldest.time))
    return msgspec.structs.replace(found, lag_windows=log.windows_after(found.cursor), lag=lag)


def _read(directory: Path, unknown: SinkState, real_now: float) -> SinkState:
    path = directory / STATE_FILE
    try:
        written_at = path.stat().st_mtime
        found = msgspec.json.decode(path.read_bytes(), type=SinkState)
    except PermissionError:
        return msgspec.structs.replace(unknown, state="unknown", reason=f"no permission to read {path}")
    except (OSError, msgspec.DecodeError, ValueError):
        return unknown
    is_silent = found.state != "stopped" and real_now - written_at > SILENT_SECONDS
    return msgspec.structs.replace(found, state="down" if is_silent else found.state)


def _judged(found: SinkState) -> SinkState:
    """Return a state with what is wrong with it."""
    words: dict[str, Trouble] = {
        "new": "new", "unknown": "unknown", "waiting": "waiting", "fatal": "fatal", "stopped": "down", "down": "down",
    }  # fmt: skip
    trouble = words.get(found.state, "late" if found.lag > LATE_SECONDS else "")
    return msgspec.structs.replace(found, trouble=trouble, pid=None if trouble == "down" else found.pid)
