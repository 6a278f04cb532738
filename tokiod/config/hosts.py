"""The sections [[host]]: which sources run on which host, and which host the writer is on.

Without them there is one host, and nothing here matters. With them one file serves all hosts: the writer's host runs the daemon, every
other one runs `tokiod collectors`, which answers for its own sources alone. A host is found by its name or by an option of the command.
"""

from __future__ import annotations

import ipaddress
from itertools import combinations
from typing import TYPE_CHECKING, Annotated

import msgspec

from tokiod.config import checks
from tokiod.config.convert import Fault
from tokiod.errors import ConfigError, nearest
from tokiod.option import option
from tokiod.units import Duration

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from tokiod.collector import SourceConfig
    from tokiod.config.schema import Config
    from tokiod.config.toml_lines import Key


class HostConfig(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """A host on which processes of tokiod run."""

    name: Annotated[
        str,
        option(
            "The name of the host, as `hostname` prints it, with or without its domain. It is the name in commands, logs and metrics.",
            '"zone-b"',
            values="letters, digits, `.`, `_` and `-`; unique",
        ),
    ]
    sources: Annotated[
        tuple[str, ...],
        option(
            "The names of the sources that this host collects. Sources that no host names are collected on the writer's host.",
            '["bscratch-lmt", "datawarp"]',
            values="names of sources, each on one host",
        ),
    ] = ()
    endpoint: Annotated[
        str | None,
        option(
            "Where the other hosts connect. The one host that has this key is the writer's host: the daemon runs there.",
            '"tcp://10.0.0.1:5562"',
            values="tcp://ADDRESS:PORT with an IP address that the other hosts reach",
        ),
    ] = None
    secret_key_file: Annotated[
        str | None,
        option("The host's secret CURVE key, made by `tokiod keygen`; default: NAME.key_secret.", '"zone-b.key_secret"'),
    ] = None
    public_key: Annotated[
        str | None,
        option(
            "The file of the host's public key, relative to `secrets`; default: hosts/NAME.key. It is read again at each reload. A host "
            "whose file is missing on the writer's host is refused.",
            '"hosts/zone-b.key"',
            effect="reload",
        ),
    ] = None
    max_clock_difference: Annotated[
        Duration,
        option(
            "Difference of the host's clock to that of the writer's host, above which status, the log and an alert report it.",
            values="1s or more",
        ),
    ] = Duration(2)

    @property
    def is_writers(self) -> bool:
        """Whether this is the writer's host."""
        return self.endpoint is not None

    @property
    def secret_key(self) -> str:
        """The name of the file with its secret key."""
        return self.secret_key_file or f"{self.name}.key_secret"

    def public_key_path(self, secrets: Path) -> Path:
        """Return the path of its public key."""
        return secrets / (self.public_key or f"hosts/{self.name}.key")


def writers_host(hosts: Iterable[HostConfig]) -> HostConfig | None:
    """Return the writer's host; None without any [[host]]."""
    return next((host for host in hosts if host.is_writers), None)


def other_hosts(hosts: Iterable[HostConfig]) -> list[HostConfig]:
    """Return all hosts but the writer's."""
    return [host for host in hosts if not host.is_writers]


def host_of(hosts: Iterable[HostConfig], source: str) -> HostConfig | None:
    """Return the host that collects a source; None where the writer's host does, as without any [[host]]."""
    return next((host for host in other_hosts(hosts) if source in host.sources), None)


def sources_of(config: Config, host: HostConfig) -> list[SourceConfig]:
    """Return the sources that a host collects."""
    if host.is_writers:
        return [source for source in config.source if host_of(config.host, source.name) is None]
    return [source for source in config.source if source.name in host.sources]


def this_host(hosts: Sequence[HostConfig], name: str | None, hostname: str) -> HostConfig | None:
    """Return the host that a process runs on; None without any [[host]]. name: as an option gives it; hostname: the machine's.

    Raises ConfigError for a host that is not configured.
    """
    known = {host.name: host for host in hosts}
    if name is not None and name not in known:
        listed = nearest(name, known) or (f"; configured: {', '.join(known)}" if known else "; no [[host]] is configured")
        raise ConfigError([f"--host: unknown host {name!r}{listed}"])
    if not known:
        return None
    found = known.get(name or hostname) or known.get(hostname.partition(".")[0])
    short = [host for host in hosts if host.name.partition(".")[0] == hostname]
    if found is None and len(short) > 1:
        names = " and ".join(host.name for host in short)
        raise ConfigError([f"this machine is {hostname!r}, which may be {names}: give --host NAME, or the machine a name with its domain"])
    found = found or next(iter(short), None)
    if found is None:
        raise ConfigError(
            [f"this machine is {hostname!r}, which no [[host]] names ({', '.join(known)}): add a [[host]] for it, or give --host NAME"]
        )
    return found


def faults(hosts: Mapping[Key, HostConfig], sources: Iterable[SourceConfig]) -> Iterator[Fault]:
    """Check the hosts."""
    by_name = {source.name: source for source in sources}
    yield from _names(hosts)
    yield from _writers(hosts)
    seen: dict[str, tuple[Key, str]] = {}
    for key, host in hosts.items():
        if not host.max_clock_difference:
            yield Fault((*key, "max_clock_difference"), "must be 1s or more")
        for name in host.sources:
            if name in seen:
                other, place = seen[name]
                yield Fault((*key, "sources"), f"source {name} is also on host {place}: name it on one host", (*other, "sources"))
            elif (source := by_name.get(name)) is None:
                yield Fault((*key, "sources"), f"unknown source {name!r}{nearest(name, by_name)}")
            elif not host.is_writers and (reason := _stays(source)):
                yield Fault((*key, "sources"), f"source {name} {reason}, so it runs on the writer's host: remove it here")
            seen.setdefault(name, (key, host.name))


def _stays(source: SourceConfig) -> str:
    """Return why a source can't be collected on another host, empty if it can."""
    if not source.polled:
        return "watches a folder"
    return "asks the hub" if source.needs_hub else ""


def _names(hosts: Mapping[Key, HostConfig]) -> Iterator[Fault]:
    for key, host in hosts.items():
        if not checks.is_name(host.name):
            yield Fault((*key, "name"), f"expected letters, digits, '_', '.' and '-', a letter or digit first, got {host.name!r}")
    for (first, one), (second, two) in combinations(hosts.items(), 2):
        if one.name == two.name:
            yield Fault((*second, "name"), "another host has the same name", (*first, "name"))


def _writers(hosts: Mapping[Key, HostConfig]) -> Iterator[Fault]:
    found = [key for key, host in hosts.items() if host.is_writers]
    if hosts and not found:
        yield Fault(next(iter(hosts)), 'no host has an endpoint: give it to the host of the writer, as in endpoint = "tcp://10.0.0.1:5562"')
    for key in found[1:]:
        yield Fault((*key, "endpoint"), "another host has an endpoint: only the writer's host has one", (*found[0], "endpoint"))
    for key in found:
        if reason := _unfit(str(hosts[key].endpoint)):
            yield Fault((*key, "endpoint"), reason)


def _unfit(endpoint: str) -> str:
    address, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    try:
        is_wildcard = ipaddress.ip_address(address.removeprefix("[").removesuffix("]")).is_unspecified
    except ValueError:
        is_wildcard = False
    if not checks.is_tcp(endpoint) or not port.isdecimal():
        return f'expected "tcp://ADDRESS:PORT", as in "tcp://10.0.0.1:5562", got {endpoint!r}'
    if is_wildcard:
        return "the other hosts connect to this address: name the one of the writer's host that they reach"
    return checks.unfit(endpoint, is_keyed=True) or ""
