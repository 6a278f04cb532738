"""The state of the sinks, the same with and without their processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from tokiod.errors import ConfigError, TokiodError, nearest
from tokiod.ledger.database import LedgerError
from tokiod.ledger.ledger import Ledger
from tokiod.published.sinks import SILENT_SECONDS, STATE_FILE, SinkState
from tokiod.published.state_file import published

if TYPE_CHECKING:
    from pathlib import Path

    from tokiod.change_sink import SinkConfig
    from tokiod.config.schema import Config
    from tokiod.ledger.changes import ChangeLog
    from tokiod.published.sinks import Trouble

LATE_SECONDS = 300
"""Of lag, after which a sink that sends is late."""


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
        found, written_at = published(path, SinkState) or (unknown, real_now)
    except PermissionError:
        return msgspec.structs.replace(unknown, state="unknown", reason=f"no permission to read {path}")
    is_silent = found.state != "stopped" and real_now - written_at > SILENT_SECONDS
    return msgspec.structs.replace(found, state="down" if is_silent else found.state)


def _judged(found: SinkState) -> SinkState:
    """Return a state with what is wrong with it."""
    words: dict[str, Trouble] = {
        "new": "new", "unknown": "unknown", "waiting": "waiting", "fatal": "fatal", "stopped": "down", "down": "down",
    }  # fmt: skip
    trouble = words.get(found.state, "late" if found.lag > LATE_SECONDS else "")
    return msgspec.structs.replace(found, trouble=trouble, pid=None if trouble == "down" else found.pid)
