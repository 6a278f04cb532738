"""The state of the hosts, from the file that the daemon writes: the same for every command that shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from tokiod.config.hosts import sources_of, writers_host

if TYPE_CHECKING:
    from tokiod.config.hosts import HostConfig
    from tokiod.config.load import Config

WRITE_SECONDS = 5.0
"""Between two writes of the states, at most, in seconds of the machine's clock."""
SILENT_SECONDS = 30.0
"""Age of the file, in the same seconds, after which the state of the hosts is unknown."""

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


def read(config: Config, real_now: float) -> list[HostState]:
    """Return the states of all hosts, the writer's first; none without [[host]]. real_now: of the machine's clock."""
    if (writer := writers_host(config)) is None:
        return []
    return [_known(config, writer), *_others(config, real_now)]


def _others(config: Config, real_now: float) -> list[HostState]:
    others = [host for host in config.host if not host.is_writers]
    path = config.hosts_state
    try:
        age = real_now - path.stat().st_mtime
        found = {one.name: one for one in msgspec.json.decode(path.read_bytes(), type=list[HostState])}
    except PermissionError:
        return [_unknown(config, host, f"no permission to read {path}") for host in others]
    except (OSError, ValueError, msgspec.DecodeError):
        age, found = SILENT_SECONDS + 1, {}
    if age > SILENT_SECONDS:
        return [_unknown(config, host, "the collectors' process of the writer's host does not run") for host in others]
    return [found.get(host.name) or _unknown(config, host, "the daemon has another configuration: reload it") for host in others]


def _known(config: Config, host: HostConfig) -> HostState:
    return HostState(name=host.name, role="writer", trouble="", sources=_names(config, host), clock=0.0, clock_bound=0.0)


def _unknown(config: Config, host: HostConfig, reason: str) -> HostState:
    return HostState(name=host.name, trouble="unknown", reason=reason, sources=_names(config, host))


def _names(config: Config, host: HostConfig) -> tuple[str, ...]:
    return tuple(source.name for source in sources_of(config, host))
