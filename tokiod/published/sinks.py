"""The state of a sink, as its process publishes it in its directory."""

from __future__ import annotations

from typing import Literal

import msgspec

STATE_FILE = "state.json"
BEAT_SECONDS = 5.0
"""Between two writes of a state, at most, in seconds of the machine's clock."""
SILENT_SECONDS = 30.0
"""After which a process that writes none counts as down."""
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
