"""Check the meaning of a configuration and find conflicts between its parts. A Fault of a conflict names both values.

Each check runs on the values that could be converted, so that all errors are reported at once.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import math
import posixpath
import re
import stat
from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING
from zoneinfo import available_timezones

from tokiod.config.convert import Fault
from tokiod.errors import nearest
from tokiod.window import MAX_WINDOW_BYTES, SAMPLE_BYTES, Calendar

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Iterator, Mapping
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from tokiod.change_sink import SinkConfig
    from tokiod.collector import SourceConfig
    from tokiod.config.toml_lines import Key

MAX_IPC_PATH_BYTES = 107
"""sun_path of a Unix socket, without its NUL."""

MAX_PORT = 65535

DAY_GRANULARITY_SECONDS = 900
"""Since 2000 the days of every time zone are multiples of this. Steps that divide it need no further check, which takes 10 ms."""

_DAY = 86400
_FIXED = frozenset({"%Y", "%m", "%d", "%j", "%y"})
# Texts, which `re` compiles once when they are used: many configurations have no such values.
_PORT = r"[1-9][0-9]{0,4}"
_CLASS = r"[A-Za-z0-9][A-Za-z0-9_-]*"
_PATTERN = r"(?:[A-Za-z0-9_.*?-]|\[!?[A-Za-z0-9-]+\])+"
_FIELD = r"\{[^{}]*\}|[{}]"
_SIGNS = str.maketrans("", "", "_.-")
"""Takes the signs out of a name."""


# Every start checks names. A pattern would take 0.2 ms to compile.
def is_name(text: str) -> bool:
    """Return whether a text has only letters, digits, `_`, `.` and `-`, a letter or digit first."""
    return text.isascii() and text[:1].isalnum() and text.translate(_SIGNS).isalnum()


def timezone(zone: str, key: Key) -> Iterator[Fault]:
    """Check that a time zone exists."""
    if not _exists(zone):
        # Abbreviations are no zones: the nearest name would be that of another zone.
        hint = nearest(zone, available_timezones()) if "/" in zone else '; write a zone such as "America/Los_Angeles" or "UTC"'
        yield Fault(key, f"unknown time zone {zone!r}{hint}")


def template(path: str, key: Key, systems: set[str]) -> Iterator[Fault]:
    """Check that the path template gives each day of each system a file of its own."""
    if not path.startswith("/"):
        yield Fault(key, f"expected an absolute path, got {path!r}")
    if not path.isprintable():
        yield Fault(key, f"expected a path of printable characters, got {path!r}")
    if set("{}") & set(path.replace("{system}", "")):
        unknown = sorted(set(re.findall(_FIELD, path)) - {"{system}"})
        yield Fault(key, f"unknown field {', '.join(unknown)}: the only field is {{system}}; write the day as %Y-%m-%d")
    elif "{system}" not in path:
        yield Fault(key, "has no {system}: all systems would share a file")
    elif path.isprintable():
        yield from _clash(path, key, systems or {"system"})


def keys(table: str, named: Mapping[str, str | None]) -> Iterator[Fault]:
    """Check that keys that belong together are all set or all unset."""
    for name in (name for name, value in named.items() if not value and any(named.values())):
        there = next(other for other, value in named.items() if value)
        yield Fault((table, name), f"missing: it is needed together with {there}", (table, there))


def endpoints(bus: str, feed: str, *, is_keyed: bool = False) -> Iterator[Fault]:
    """Check that the endpoints of bus and feed can be bound, are not open to unknown clients, and differ. is_keyed: of the feed."""
    bus_key, feed_key = ("bus", "endpoint"), ("feed", "endpoint")
    if is_tcp(bus):
        yield Fault(bus_key, "the bus is a Unix socket: use ipc, and [[host]] for sources that other hosts collect (docs/hosts.md)")
    elif reason := _unfit_socket(bus):
        yield Fault(bus_key, reason)
    if reason := unfit(feed, is_keyed=is_keyed):
        yield Fault(feed_key, reason)
    if _meet(bus, feed):
        yield Fault(feed_key, "the bus and the feed have the same endpoint", bus_key)


def listeners(addresses: Mapping[Key, str]) -> Iterator[Fault]:
    """Check that no two sockets of this machine listen at one address; endpoints() checks bus and feed. addresses: by their keys."""
    for (first, one), (second, two) in combinations(addresses.items(), 2):
        if {first[0], second[0]} != {"bus", "feed"} and _meet(one, two):
            yield Fault(second, f"[{first[0]}] has the same address, or listens at all addresses of this machine with this port", first)


def open_feed(endpoint: str | None, *, is_keyed: bool, allow_anyone: bool) -> Iterator[Fault]:
    """Check that a feed is open to every local user only where the configuration states it, and that it is not contradicted."""
    is_open = endpoint is not None and is_tcp(endpoint) and unfit(endpoint, is_keyed=False) is None and not is_keyed
    if is_open and not allow_anyone:
        sentence = "every local user could subscribe to a feed on tcp without keys: use ipc, set secret_key_file, or allow_anyone = true"
        yield Fault(("feed", "endpoint"), sentence)
    elif allow_anyone and is_keyed:
        yield Fault(("feed", "allow_anyone"), "only clients with a key may subscribe", ("feed", "secret_key_file"))


def daemon_sockets(bus: str | None, feed: str | None, own: Collection[str]) -> Iterator[Fault]:
    """Check that the daemon's other sockets, named `own` in the directory of the bus, can be bound and have their names to themselves."""
    if bus is None or not bus.startswith("ipc:///") or len(_same(bus).encode()) > MAX_IPC_PATH_BYTES:
        return
    directory = posixpath.dirname(_same(bus))
    paths = [f"{directory}/{name}" for name in own]
    longest = max(paths, key=len)
    if (length := len(longest.encode())) > MAX_IPC_PATH_BYTES:
        yield Fault(("bus", "endpoint"), f"{longest}, next to it, would have {length} bytes, a socket has at most {MAX_IPC_PATH_BYTES}")
    for key, endpoint in (("bus", bus), ("feed", feed)):
        if endpoint is not None and not is_tcp(endpoint) and _same(endpoint) in paths:
            yield Fault((key, "endpoint"), f"the daemon has another socket of this name there ({', '.join(own)}): choose another name")


def is_tcp(endpoint: str | None) -> bool:
    """Return whether an endpoint is on TCP, so that file permissions do not restrict its clients."""
    return endpoint is not None and endpoint.startswith("tcp://")


def is_writable_by_others(path: Path) -> bool:
    """Return whether all users may write to an existing directory."""
    try:
        return bool(path.stat().st_mode & stat.S_IWOTH)
    except OSError:
        return False


def http_address(address: str, key: Key) -> Iterator[Fault]:
    """Check an address to listen on: an IP address and a port. Names are never looked up."""
    host, _, port = address.rpartition(":")
    if not re.fullmatch(_PORT, port) or int(port) > MAX_PORT or not _is_ip(host):
        yield Fault(key, f'expected an IP address of this machine and a port, as in "127.0.0.1:9464" or "[::1]:9464", got {address!r}')


def web(address: str, hosts: Iterable[str]) -> Iterator[Fault]:
    """Check where `tokiod web` listens, which is never reachable from other machines, and the names of its hosts."""
    key = ("web", "address")
    if address.startswith("/"):
        if not address.isprintable() or address.endswith("/"):
            yield Fault(key, "expected the absolute path of a socket")
        elif (length := len(address.encode())) > MAX_IPC_PATH_BYTES:
            yield Fault(key, f"the path of a socket has at most {MAX_IPC_PATH_BYTES} bytes, this one has {length}")
    elif faults := list(http_address(address, key)):
        yield from faults
    elif not is_loopback(address):
        yield Fault(key, f"{address} is reachable from other machines: use a Unix socket or 127.0.0.1, and a reverse proxy")
    for host in hosts:
        if not is_name(host):
            yield Fault(("web", "hosts"), f"expected names without a port, got {host!r}")


def hub(endpoint: str, classes: Mapping[str, Collection[str]]) -> Iterator[Fault]:
    """Check where the hub listens, and the classes of its nodes."""
    if not is_tcp(endpoint):
        yield Fault(("hub", "endpoint"), f'expected "tcp://ADDRESS:PORT", as in "tcp://0.0.0.0:5561", got {endpoint!r}')
    elif reason := unfit(endpoint, is_keyed=True):
        yield Fault(("hub", "endpoint"), reason)
    if not classes:
        yield Fault(("hub", "classes"), 'expected at least one class with patterns of node names, as in { compute = ["nid*"] }')
    for name, patterns in classes.items():
        if not re.fullmatch(_CLASS, name):
            yield Fault(("hub", "classes"), f"expected names of letters, digits, '_' and '-', got {name!r}")
        if not patterns or not all(re.fullmatch(_PATTERN, pattern) for pattern in patterns):
            yield Fault(("hub", "classes"), f'{name}: expected patterns of letters, digits, ".", "_", "-", "*", "?" and "[0-9]"')


def is_loopback(address: str) -> bool:
    """Return whether an IP address and port are reachable from this machine only."""
    return _is_loopback(address.rpartition(":")[0].strip("[]"))


def source(config: SourceConfig, key: Key, zone: str | None, max_columns: int | None = None) -> Iterator[Fault]:
    """Check one source: its names, its time spans, the size of its windows, and the checks of its kind.

    max_columns: largest number of columns of a dataset, None if it is unknown.
    """
    for field in ("name", "system"):
        if not is_name(getattr(config, field)):
            yield Fault(
                (*key, field), f"expected letters, digits, '_', '.' and '-', a letter or digit first, got {getattr(config, field)!r}"
            )
    if config.empty_after == 0:
        yield Fault((*key, "empty_after"), 'must be greater than zero; write "never" if the source may be silent')
    if not config.timeout:
        yield Fault((*key, "timeout"), "must be greater than zero")
    own = [_of_plugin(fault, type(config).__struct_fields__, key) for fault in config.faults()]
    yield from own
    if not own:
        yield from _spans(config, key) if config.polled else ()
        yield from _off_grid(config, key, zone)
        yield from _sizes(config, key, max_columns)


def size_warning(config: SourceConfig, max_columns: int) -> str | None:
    """Return a warning if windows with as many columns as a dataset may have would be refused; None if all fit."""
    unnamed = config.datasets() - config.columns().keys()
    if not config.polled or not unnamed:
        return None
    room = MAX_WINDOW_BYTES - _named_bytes(config, config.window)
    most = room // (config.window // config.step * len(unnamed) * SAMPLE_BYTES)
    if most >= max_columns:
        return None
    return (
        f"window: a window of {config.window} s is refused where its {len(unnamed)} datasets have more than {most} columns each "
        f"({MAX_WINDOW_BYTES >> 20} MiB); archive.max_columns allows {max_columns}: set a shorter window, or a smaller archive.max_columns"
    )


def sources(configs: Mapping[Key, SourceConfig], whole: Container[Key]) -> Iterator[Fault]:
    """Check that no two sources have the same name, fill the same dataset of a system, or use different steps in one group.

    whole: the keys of the sources without invalid fields, in which no default replaces one.
    """
    for (first, one), (second, two) in combinations(configs.items(), 2):
        if one.name == two.name:
            yield Fault((*second, "name"), "another source has the same name", (*first, "name"))
        if (folder := getattr(one, "watch", None)) is not None and folder == getattr(two, "watch", None):
            yield Fault((*second, "watch"), "another source watches the same folder", (*first, "watch"))
        if one.system == two.system and not (one.faults() or two.faults()):
            yield from _rivals(one, two, first, second)
            if first in whole and second in whole:
                yield from _out_of_step(one, two, first, second)


def sinks(configs: Mapping[Key, SinkConfig], systems: AbstractSet[str]) -> Iterator[Fault]:
    """Check the sinks: that their names differ, that their systems exist, and the checks of their kinds. systems: those that are known."""
    for key, config in configs.items():
        if not is_name(config.name):
            yield Fault((*key, "name"), f"expected letters, digits, '_', '.' and '-', a letter or digit first, got {config.name!r}")
        for system in config.systems:
            if system not in systems:
                yield Fault((*key, "systems"), f"no source fills the system {system!r}{nearest(system, systems)}")
        if not config.timeout:
            yield Fault((*key, "timeout"), "must be greater than zero")
        for fault in config.faults():
            yield _of_plugin(fault, type(config).__struct_fields__, key)
    for (first, one), (second, two) in combinations(configs.items(), 2):
        if one.name == two.name:
            yield Fault((*second, "name"), "another sink has the same name", (*first, "name"))


def _exists(zone: str) -> bool:
    try:
        Calendar(zone)
    except (KeyError, ValueError, OSError):
        return False
    return True


# With fields of fixed width, two equal names have the same length, so their systems have too. Then each field is at the same place in
# both and is equal. Other templates are checked date by date, which takes 20 ms.
def _is_plain(path: str) -> bool:
    fields = set(re.findall(r"%.", path))
    return "{system}" in path and fields <= _FIXED and "%Y" in fields and ({"%m", "%d"} <= fields or "%j" in fields)


def _clash(path: str, key: Key, systems: set[str]) -> Iterator[Fault]:
    if _is_plain(path):
        return
    owner: dict[str, str] = {}
    for date in _dates():
        dated = date.strftime(path)
        for system in sorted(systems):
            this = f"{date} of {system}"
            other = owner.setdefault(dated.replace("{system}", system), this)
            if other != this:
                yield Fault(key, f"no file for each day: {other} and {this} would both be {dated.replace('{system}', system)}")
                return


def unfit(endpoint: str, *, is_keyed: bool) -> str | None:
    """Return the error of an endpoint. The message does not show it: it could be a misplaced URL with a password."""
    if not is_tcp(endpoint):
        return _unfit_socket(endpoint, ' or "tcp://127.0.0.1:PORT"')
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    # libzmq takes a larger number without its high bits, and listens at that port.
    if not re.fullmatch(_PORT, port) or int(port) > MAX_PORT:
        return 'expected a port, as in "tcp://127.0.0.1:5556"'
    if _is_loopback(host.strip("[]")):
        return None
    if not is_keyed:
        return "tcp beyond loopback needs keys: set secret_key_file (docs/security.md), or use ipc or 127.0.0.1"
    return None if _is_ip(host) else 'expected an IP address of this machine, "0.0.0.0" for all; names are not resolved'


def _unfit_socket(endpoint: str, alternative: str = "") -> str | None:
    """Return the error of the endpoint of a Unix socket. alternative: what it might be instead."""
    scheme, _, path = endpoint.partition("://")
    if scheme != "ipc" or not path.startswith("/") or path.endswith("/") or not path.isprintable():
        return f'expected "ipc:///an/absolute/path"{alternative}'
    if (length := len(path.encode())) > MAX_IPC_PATH_BYTES:
        return f"the path of a socket has at most {MAX_IPC_PATH_BYTES} bytes, this one has {length}"
    return None


def _is_ip(host: str) -> bool:
    """Return whether the text is an IP address, with brackets for version 6."""
    try:
        version = ipaddress.ip_address(host.removeprefix("[").removesuffix("]")).version
    except ValueError:
        return False
    return (version == 6) == (host[:1] == "[" and host[-1:] == "]")  # noqa: PLR2004 - IPv6


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _meet(one: str, two: str) -> bool:
    """Return whether only one of two sockets can be opened: they have one path, or one port at one address, which may be a wildcard."""
    if _same(one) == _same(two):
        return True
    hosts, ports = zip(*(_same(address).rpartition(":")[::2] for address in (one, two)), strict=True)
    if not ports[0].isdecimal() or ports[0] != ports[1] or not all(map(_is_ip, hosts)):
        return False
    first, second = (ipaddress.ip_address(host.strip("[]")) for host in hosts)
    return first.version == second.version and (first == second or first.is_unspecified or second.is_unspecified)


def _same(endpoint: str) -> str:
    scheme, _, rest = endpoint.partition("://")
    if endpoint.startswith("/"):
        return posixpath.normpath(endpoint)
    return posixpath.normpath(rest) if scheme == "ipc" else endpoint.removeprefix("tcp://").replace("localhost", "127.0.0.1")


def _of_plugin(fault: str, names: tuple[str, ...], key: Key) -> Fault:
    field, _, sentence = fault.partition(": ")
    return Fault((*key, field), sentence) if field in names else Fault(key, fault)


def _spans(config: SourceConfig, key: Key) -> Iterator[Fault]:
    window, step = config.window, config.step
    if step < 1 or window < 1:
        yield Fault((*key, "window"), f"window ({window} s) and step ({step} s) must be greater than zero")
        return
    if window % step:
        yield Fault((*key, "window"), f"{window} s is not a multiple of the source's step of {step} s")
    if _DAY % window:
        near = _divisors(window, step)
        yield Fault((*key, "window"), f"24 h must be a whole number of windows of {window} s; {near} would do")
    if config.retention < window:
        yield Fault((*key, "retention"), f"{config.retention} s is shorter than the window of {window} s")


def _named_bytes(config: SourceConfig, seconds: int) -> int:
    """Return the bytes of the samples of a window, in the columns that the configuration names."""
    return seconds // config.step * sum(config.columns().values()) * SAMPLE_BYTES


def _sizes(config: SourceConfig, key: Key, max_columns: int | None) -> Iterator[Fault]:
    """Check that the columns which the configuration names fit into a dataset, and their samples into a window."""
    for dataset, count in config.columns().items():
        if max_columns is not None and count > max_columns:
            yield Fault(key, f"{dataset} would have {count} columns, archive.max_columns allows {max_columns}")
            return
    if config.polled and config.step >= 1 and (nbytes := _named_bytes(config, config.window)) > MAX_WINDOW_BYTES:
        shorter = [seconds for seconds in _fitting(config.step) if _named_bytes(config, seconds) <= MAX_WINDOW_BYTES]
        remedy = f"{shorter[-1]} s would do" if shorter else "name fewer columns"
        size, limit = -(-nbytes >> 20), MAX_WINDOW_BYTES >> 20
        yield Fault((*key, "window"), f"a window of {config.window} s would have {size} MiB, the limit is {limit} MiB; {remedy}")


def _fitting(step: int) -> list[int]:
    """Return the windows that are multiples of a step and divide a day, shortest first."""
    return [seconds for seconds in range(step, _DAY + 1, step) if _DAY % seconds == 0]


def _divisors(window: int, step: int) -> str:
    """Format the nearest windows that are multiples of a step and divide a day."""
    fitting = _fitting(step)
    shorter, longer = [one for one in fitting if one < window][-1:], [one for one in fitting if one > window][:1]
    return " or ".join(f"{seconds} s" for seconds in shorter + longer) or "no window"


def _dates() -> Iterator[dt.date]:
    """Yield four years and a day of another decade. They differ in each part that a template can omit."""
    yield from (dt.date(2024, 1, 1) + dt.timedelta(days=n) for n in range(4 * 365 + 1))
    yield dt.date(2034, 1, 1)


def off_grid(step: int, zone: str) -> str:
    """Return why rows of a step don't fit the days of a zone, "" if they do."""
    if DAY_GRANULARITY_SECONDS % step and (grid := _grid(zone)) % step:
        return f"steps of {step} s do not divide the days of {zone}, which begin and end at multiples of {grid} s (UTC)"
    return ""


def _off_grid(config: SourceConfig, key: Key, zone: str | None) -> Iterator[Fault]:
    if config.step >= 1 and zone is not None and (sentence := off_grid(config.step, zone)):
        yield Fault(key, sentence)


def _weeks() -> Iterator[dt.date]:
    """Yield dates that cover all UTC offsets which a zone had for a week or longer since 2000, or is known to get."""
    return (dt.date(2000, 1, 1) + dt.timedelta(weeks=n) for n in range(40 * 52))


@lru_cache
def _grid(zone: str) -> int:
    """Return the largest number of seconds that divides every midnight of a zone, and thus the length of each of its days."""
    info = Calendar(zone).zone
    offsets = {info.utcoffset(dt.datetime.combine(date, dt.time(), info)) or dt.timedelta() for date in _weeks()}
    return math.gcd(_DAY, *(int(offset.total_seconds()) for offset in offsets))


def _rivals(one: SourceConfig, two: SourceConfig, first: Key, second: Key) -> Iterator[Fault]:
    if shared := one.datasets() & two.datasets():
        yield Fault(second, f"{_first(shared)} of {two.system} is also filled by source {one.name}", first)
    elif {*one.tables} & {*two.tables} and (shared := _shared(one.reporters(), two.reporters())):
        sentence = f"{_first(shared)} of {two.system} is asked by source {one.name} too: rows of jobs would be stored twice"
        yield Fault(second, sentence, first)


def _shared(one: frozenset[str], two: frozenset[str]) -> frozenset[str]:
    """Return what both report, and the parts of what the other one reports whole."""
    return (one & two) | {name for name in one ^ two if name.rpartition("/")[0] in one | two}


def _out_of_step(one: SourceConfig, two: SourceConfig, first: Key, second: Key) -> Iterator[Fault]:
    shared = _groups(one) & _groups(two)
    if shared and one.step != two.step:
        where = f"{_first(shared)} of {two.system}"
        yield Fault(second, f"has steps of {two.step} s in {where}, but source {one.name} has {one.step} s", first)


def _first(names: AbstractSet[str]) -> str:
    return f"{min(names)} and {len(names) - 1} more" if len(names) > 1 else min(names)


def _groups(config: SourceConfig) -> set[str]:
    return {dataset.partition("/")[0] for dataset in config.datasets()}
