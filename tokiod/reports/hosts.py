"""The state of the hosts, the same for every command that shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokiod.config.hosts import sources_of, writers_host
from tokiod.published.hosts import SILENT_SECONDS, HostState
from tokiod.published.state_file import published

if TYPE_CHECKING:
    from tokiod.config.hosts import HostConfig
    from tokiod.config.schema import Config


def read(config: Config, real_now: float) -> list[HostState]:
    """Return the states of all hosts, the writer's first; none without [[host]]. real_now: of the machine's clock."""
    if (writer := writers_host(config.host)) is None:
        return []
    return [_known(config, writer), *_others(config, real_now)]


def _others(config: Config, real_now: float) -> list[HostState]:
    others = [host for host in config.host if not host.is_writers]
    try:
        found, written_at = published(config.hosts_state, list[HostState]) or ([], float("-inf"))
    except PermissionError:
        return [_unknown(config, host, f"no permission to read {config.hosts_state}") for host in others]
    if real_now - written_at > SILENT_SECONDS:
        return [_unknown(config, host, "the collectors' process of the writer's host does not run") for host in others]
    by_name = {one.name: one for one in found}
    return [by_name.get(host.name) or _unknown(config, host, "the daemon has another configuration: reload it") for host in others]


def _known(config: Config, host: HostConfig) -> HostState:
    return HostState(name=host.name, role="writer", trouble="", sources=_names(config, host), clock=0.0, clock_bound=0.0)


def _unknown(config: Config, host: HostConfig, reason: str) -> HostState:
    return HostState(name=host.name, trouble="unknown", reason=reason, sources=_names(config, host))


def _names(config: Config, host: HostConfig) -> tuple[str, ...]:
    return tuple(source.name for source in sources_of(config, host))
