"""Read the configuration: one TOML file to typed structs. Unknown keys are errors, and all errors are reported at once, with their lines.

    tokiod.toml:14: source cscratch-lmt: window: expected a time span, written like "30s", "5m", "1h" or "90d", got 30

The structs are in schema.py; that of a [[source]] or [[sink]] section comes from the plugin of its `kind`: a new kind changes nothing here.
"""

from __future__ import annotations

from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from tokiod.change_sink import SinkConfig
from tokiod.collector import SourceConfig
from tokiod.config import checks, hosts, jobs, plugins, site, toml_file
from tokiod.config import convert as shape
from tokiod.config.fault_lines import fault_lines
from tokiod.config.hosts import HostConfig
from tokiod.config.jobs import JobsConfig
from tokiod.config.schema import CONTROL_SOCKET, FEED_INNER_SOCKET, HUB_INNER_SOCKET, RELAY_INNER_SOCKET, Config
from tokiod.config.sections import RETIRED_KEYS, BusConfig, FeedConfig, HubConfig, MetricsConfig, WebConfig
from tokiod.config.site import SiteConfig
from tokiod.config.watched_folder import watched
from tokiod.errors import ConfigError
from tokiod.runtime.logger import get_logger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tokiod.collector import Plugin
    from tokiod.config.convert import Fault
    from tokiod.config.toml_lines import Key

log = get_logger()

T = TypeVar("T")

_NOT_POLLED = "a source with `watch` collects files and is not polled"


class _UnknownSinkKind(SinkConfig, frozen=True):
    """A section with an unknown kind: options of its kind are ignored."""


class _UnknownKind(SourceConfig, frozen=True):
    """A section with an unknown kind: options of its kind are ignored, and it fills no dataset."""

    def datasets(self) -> frozenset[str]:
        return frozenset()


def load(path: Path, origin: Path | None = None) -> Config:
    """Read a configuration file. A relative `secrets` directory is relative to the file, or to `origin` if the file is a copy of it.

    Raises ConfigError with all errors, one line each: file:line: where: what.
    """
    return read(path, origin)[1]


def read(path: Path, origin: Path | None = None) -> tuple[str, Config]:
    """Return the text and the content of a configuration file, see load()."""
    text, document = toml_file.read(path)
    sources: dict[Key, SourceConfig] = {}
    sinks: dict[Key, SinkConfig] = {}
    machines: dict[Key, HostConfig] = {}

    # Many sources are of few kinds, and where a kind comes from is looked up each time.
    load_kind = lru_cache(plugins.load)

    def source_sections(value: Any, key: Key) -> shape.Shaped:
        faults = _sections(value, key, partial(_source, load_kind), sources)
        return tuple(sources.values()), faults

    def sink_sections(value: Any, key: Key) -> shape.Shaped:
        faults = _sections(value, key, _sink, sinks)
        return tuple(sinks.values()), faults

    def host_sections(value: Any, key: Key) -> shape.Shaped:
        faults = _sections(value, key, _host, machines)
        return tuple(machines.values()), faults

    own = {"source": source_sections, "sink": sink_sections, "host": host_sections}
    values, faults = shape.fields(document, Config, (), own)
    whole = sources.keys() - {fault.key[:2] for fault in faults}
    faults += _meaning(values, sources, whole)
    faults += checks.sinks(sinks, {one.system for one in sources.values()} | values.get(site.KEY, SiteConfig()).systems)
    faults += hosts.faults(machines, sources.values())
    faults += checks.listeners(dict(_listeners(values, machines)))
    if not (state := values.get("sink_state", Path("/"))).is_absolute():
        faults.append(shape.Fault(("sink_state",), f"expected an absolute path, got {str(state)!r}"))
    if faults:
        raise ConfigError(fault_lines(path, text, document, faults))
    config = Config(**values)
    return text, msgspec.structs.replace(config, secrets=(origin or path).absolute().parent / config.secrets)


def warnings(config: Config) -> list[str]:
    """Return warnings about values that are allowed but probably not intended."""
    found = [] if config.source else ["no [[source]] section: the daemon collects no data"]
    if config.metrics is not None and not checks.is_loopback(config.metrics.address):
        found.append(f"metrics.address: every client that reaches {config.metrics.address} can read the names and states of all sources")
    if not config.web.address.startswith("/"):
        found.append(f"web.address: every local user that reaches {config.web.address} can read the archive while `tokiod web` runs")
    elif checks.is_writable_by_others(directory := Path(config.web.address).parent):
        found.append(f"web.address: all users can write to {directory} and replace the socket")
    for name, endpoint in (("bus", config.bus.endpoint), ("feed", config.feed.endpoint)):
        directory = Path(endpoint.removeprefix("ipc://")).parent
        if not checks.is_tcp(endpoint) and checks.is_writable_by_others(directory):
            found.append(f"{name}.endpoint: all users can write to {directory} and replace the socket")
    if config.run == Path(config.feed.endpoint.removeprefix("ipc://")).parent:
        found.append(
            f"bus.endpoint: readers of the feed can enter {config.run}: give the bus a directory of its own, such as private/ there"
        )
    found += [f"bus.{key}: does nothing, the bus has no keys: remove it" for key in RETIRED_KEYS if getattr(config.bus, key) is not None]
    for source in config.source:
        if source.needs_hub and source.polled and config.hub.endpoint is None:
            found.append(f"source {source.name}: no agents can connect: set endpoint, secret_key_file, clients and classes in [hub]")
        size = checks.size_warning(source, config.archive.max_columns)
        found += [f"source {source.name}: {warning}" for warning in (*source.warnings(), *filter(None, [size]))]
    return found + [f"sink {sink.name}: {warning}" for sink in config.sink for warning in sink.warnings()]


def log_warnings(config: Config) -> None:
    """Log the warnings about a configuration, in the process that uses its sources."""
    for warning in warnings(config):
        log.warning("config.warning", warning=warning)


def _sections(sections: object, key: Key, convert: Callable[[Any, Key], tuple[T | None, list[Fault]]], found: dict[Key, T]) -> list[Fault]:
    """Convert the sections of sources, or of sinks, into `found`."""
    if not isinstance(sections, list):
        (name,) = key
        return [shape.Fault(key, f"write [[{name}]], with two brackets: one section for each {name} (got {shape.toml_type(sections)})")]
    faults: list[Fault] = []
    for index, section in enumerate(sections):
        at = (*key, index)
        config, wrong = convert(section, at)
        faults += wrong
        if config is not None:
            found[at] = config
    return faults


def _host(section: Any, key: Key) -> tuple[HostConfig | None, list[Fault]]:
    values, faults = shape.fields(section, HostConfig, key)
    config, refused = shape.build(HostConfig, values, key)
    return config, faults or refused


def _sink(section: Any, key: Key) -> tuple[SinkConfig | None, list[Fault]]:
    """Convert a section by its kind, as _source() does."""
    faults = list(shape.secrets_in_urls(section, key))
    struct: type[SinkConfig] = _UnknownSinkKind
    if isinstance(section, dict) and isinstance(section.get("kind"), str):
        try:
            struct = plugins.load_sink(section["kind"]).Config
        except ConfigError as error:
            faults += [shape.Fault((*key, "kind"), fault) for fault in error.faults]
    if struct is _UnknownSinkKind and isinstance(section, dict):
        section = {name: section[name] for name in section if name in SinkConfig.__struct_fields__}
    values, wrong = shape.fields(section, struct, key)
    config, refused = shape.build(struct, values, key)
    return config, [*faults, *(wrong or refused)]


def _source(load_kind: Callable[[str], Plugin], section: Any, key: Key) -> tuple[SourceConfig | None, list[Fault]]:
    """Convert a section by its kind. Invalid values keep their defaults, so that the section can be checked against the others."""
    faults = list(shape.secrets_in_urls(section, key))
    struct: type[SourceConfig] = _UnknownKind
    if isinstance(section, dict) and isinstance(section.get("kind"), str):
        try:
            plugin = load_kind(section["kind"])
            struct = watched(plugin.Saved) if "watch" in section else plugin.Config
        except ConfigError as error:
            faults += [shape.Fault((*key, "kind"), fault) for fault in error.faults]
    if struct is _UnknownKind and isinstance(section, dict):
        section = {name: section[name] for name in section if name in SourceConfig.__struct_fields__}
    values, wrong = shape.fields(section, struct, key)
    if "watch" in values:
        polled = {*load_kind(section["kind"]).Config.__struct_fields__} - {*struct.__struct_fields__}
        wrong = [msgspec.structs.replace(one, sentence=f"{one.sentence}; {_NOT_POLLED}") if one.key[-1] in polled else one for one in wrong]
    config, refused = shape.build(struct, values, key)
    return config, [*faults, *(wrong or refused)]


def _listeners(values: dict[str, Any], machines: Mapping[Key, HostConfig]) -> Iterator[tuple[Key, str]]:
    """Yield the keys of the addresses at which processes of the writer's host listen, and the addresses."""
    default = {"bus": BusConfig(), "feed": FeedConfig(), "web": WebConfig()}
    for table, name in (("bus", "endpoint"), ("feed", "endpoint"), ("hub", "endpoint"), ("metrics", "address"), ("web", "address")):
        if address := getattr(values.get(table, default.get(table)), name, None):
            yield (table, name), address
    yield from (((*key, "endpoint"), host.endpoint) for key, host in machines.items() if host.endpoint is not None)


def _meaning(values: dict[str, Any], sources: dict[Key, SourceConfig], whole: set[Key]) -> Iterator[Fault]:
    zone: str | None = values.get("timezone")
    if zone is not None and (wrong := list(checks.timezone(zone, ("timezone",)))):
        yield from wrong
        zone = None
    if "archive" in values:
        yield from checks.template(values["archive"].path, ("archive", "path"), {config.system for config in sources.values()})
    yield from jobs.faults(values.get(jobs.KEY, JobsConfig()))
    yield from site.faults(values.get(site.KEY, SiteConfig()), {config.system for config in sources.values()})
    bus, feed = values.get("bus", BusConfig()), values.get("feed", FeedConfig())
    yield from checks.keys("feed", {"secret_key_file": feed.secret_key_file, "clients": feed.clients})
    web = values.get("web", WebConfig())
    yield from checks.keys("web", {"secret_key_file": web.secret_key_file, "feed_key_file": web.feed_key_file})
    yield from checks.endpoints(bus.endpoint, feed.endpoint, is_keyed=bool(feed.secret_key_file))
    yield from checks.open_feed(feed.endpoint, is_keyed=bool(feed.secret_key_file), allow_anyone=feed.allow_anyone)
    own = (CONTROL_SOCKET, FEED_INNER_SOCKET, HUB_INNER_SOCKET, RELAY_INNER_SOCKET)
    yield from checks.daemon_sockets(bus.endpoint, feed.endpoint, own)
    if isinstance(metrics := values.get("metrics"), MetricsConfig):
        yield from checks.http_address(metrics.address, ("metrics", "address"))
    yield from checks.web(web.address, web.hosts)
    hub = values.get("hub", HubConfig())
    yield from checks.keys("hub", {"endpoint": hub.endpoint, "secret_key_file": hub.secret_key_file, "clients": hub.clients})
    yield from checks.hub(hub.endpoint, hub.classes) if hub.endpoint else ()
    columns = values["archive"].max_columns if "archive" in values else None
    for key, config in sources.items():
        yield from checks.source(config, key, zone, columns) if key in whole else ()
    yield from checks.sources(sources, whole)
