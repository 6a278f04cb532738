"""Which host of a configuration a command runs on."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from tokiod.cli.common.base import Failed
from tokiod.config.hosts import host_of, sources_of, this_host
from tokiod.errors import ConfigError

if TYPE_CHECKING:
    from tokiod.collector import SourceConfig
    from tokiod.config.hosts import HostConfig
    from tokiod.config.schema import Config
    from tokiod.published.hosts import HostState


def role(config: Config, name: str | None) -> HostConfig | None:
    """Return this host; None without any [[host]]. name: of --host. Raises ConfigError for a host that is not configured."""
    return this_host(config.host, name, socket.gethostname())


def known_role(config: Config) -> HostConfig | None:
    """Return this host by the name of the machine; None where no [[host]] has it, as on a machine where a file is only checked."""
    try:
        return role(config, None)
    except ConfigError:
        return None


def check_writers_host(config: Config, name: str | None) -> None:
    """Raise ConfigError on a host that is not the writer's. name: of --host."""
    host = role(config, name)
    if host is not None and not host.is_writers:
        raise ConfigError([f"this is host {host.name}, and the archive is on another host: run `tokiod collectors` here (docs/hosts.md)"])


def check_collected_here(config: Config, source: str) -> None:
    """Raise Failed for a source that this machine can't query, because another host collects it."""
    host = host_of(config.host, source)
    if host is not None and host != role(config, None):
        raise Failed(f"{source} is collected on host {host.name}: run this there")


def collected_here(config: Config, name: str | None = None) -> list[SourceConfig]:
    """Return the sources that this machine collects: those of its host, all without any [[host]]. name: of --host. Raises ConfigError."""
    host = role(config, name)
    return list(config.source) if host is None else sources_of(config, host)


def other_role(name: str, config: Config) -> HostConfig:
    """Return a host that is not the writer's, at each reload. Raises ConfigError where it is no longer one."""
    host = this_host(config.host, name, "")
    if host is None or host.is_writers:
        raise ConfigError([f"host {name}: it collects its sources while this process runs; restart it to give it another role"])
    return host


def host_line(host: HostState) -> str:
    """Return the state of a host in one line."""
    state = host.trouble or ("the writer's" if host.role == "writer" else "connected")
    of = f", tokiod {host.version}" if host.version else ""
    return f"{host.name}: {state}{of}, {len(host.sources)} source{'' if len(host.sources) == 1 else 's'}" + (
        host.reason and f": {host.reason}"
    )
