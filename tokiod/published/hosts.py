"""The state of the hosts, as the process that they connect to publishes it."""

from __future__ import annotations

from typing import Literal

import msgspec

SILENT_SECONDS = 30.0
"""Age of the file, in seconds of the machine's clock, after which the state of the hosts is unknown."""

Trouble = Literal["", "new", "unreachable", "stopped", "refused", "clock", "unknown"]
"""What is wrong with a host, "" if nothing is.

new: it has not connected since the daemon started; unreachable: it was connected; stopped: its process ended in order; refused: its key or
the version of its wire is not accepted; clock: it differs by more than max_clock_difference, and everything else works; unknown: the daemon
does not run, or this user may not read its file.
"""


class HostState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a host. Times are UTC epoch seconds of the daemon's clock.

    role: "writer" for the writer's host, else "collectors"; contact: of its last message; version: of tokiod; wire: its version of the
    wire; clock: seconds that its clock is ahead, accurate to clock_bound; refused: messages that were refused, by reason.
    """

    name: str
    role: Literal["writer", "collectors"] = "collectors"
    trouble: Trouble = "new"
    reason: str = ""
    sources: tuple[str, ...] = ()
    contact: float | None = None
    address: str = ""
    version: str = ""
    wire: int | None = None
    clock: float | None = None
    clock_bound: float | None = None
    refused: dict[str, int] = {}
