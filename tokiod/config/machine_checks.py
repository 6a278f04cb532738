"""Examine what a configuration names on this machine: files, directories, commands. Everything found is a warning.

The check may run as another user than the daemon, and before the archive or the sources exist.
"""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tokiod.config import written_directories
from tokiod.config.hosts import sources_of
from tokiod.runtime.secrets import places

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tokiod.change_sink import SinkConfig
    from tokiod.collector import SourceConfig
    from tokiod.config.hosts import HostConfig
    from tokiod.config.schema import Config

# The keys of all kinds have the same names for the same things.
CERTIFICATES = ("tls_ca", "tls_cert", "tls_key")
COMMANDS = ("command", "lfs", "lctl")
FILE_SUFFIX = "_file"
SQLITE = "sqlite://"


def problems(config: Config, host: HostConfig | None = None) -> list[str]:
    """Return what is missing or may not be used by this user, each as "where: sentence". host: this one; None for all sources here."""
    found = [] if host is None else list(_host(config, host))
    if host is not None and not host.is_writers:
        return found + [f"source {source.name}: {one}" for source in sources_of(config, host) for one in _source(source, config.secrets)]
    found += written_directories.problems(config)
    found += _web(config)
    for table in ("feed", "hub", "web", "jobs"):
        found += [f"{table}.{one}" for one in _secrets(getattr(config, table), config.secrets)]
    for source in config.source if host is None else sources_of(config, host):
        found += [f"source {source.name}: {one}" for one in _source(source, config.secrets)]
    for sink in config.sink:
        found += [f"sink {sink.name}: {one}" for one in _sink(sink, config.secrets)]
    return found


def _host(config: Config, host: HostConfig) -> Iterator[str]:
    """Yield the keys that a host lacks: its own, and the public ones of those that it is connected to."""
    tried = places(host.secret_key, config.secrets)
    if _are_missing(tried):
        yield f"host {host.name}: secret_key_file: no file {' or '.join(map(str, tried))}: `tokiod keygen` makes one"
    for other in config.host:
        if other.is_writers != host.is_writers and _are_missing([path := other.public_key_path(config.secrets)]):
            what = "it is refused, and its sources wait" if host.is_writers else "this host can't connect"
            yield f"host {other.name}: public_key: no file {path}: {what}"


def _sink(sink: SinkConfig, secrets: Path) -> Iterator[str]:
    yield from _secrets(sink, secrets)
    if sink.needs is not None and find_spec(sink.needs[0]) is None:
        yield f"kind: {sink.kind} needs {sink.needs[0]}, which is not installed: pip install 'tokiod[{sink.needs[1]}]'"


def _web(config: Config) -> Iterator[str]:
    """Yield what `tokiod web` would miss where it is in use: with an address or hosts of its own, or with a socket that is there."""
    web, path = config.web, Path(config.web.address)
    if web == type(web)() and _are_missing([path]):
        return
    # systemd makes the directory of the unit, which is that of the default.
    if web.address.startswith("/") and web.address != type(web)().address and not _is_directory(path.parent):
        yield f"web.address: {path.parent} is not a directory"
    if config.feed.secret_key_file and not web.secret_key_file:
        yield "web.secret_key_file: the feed requires keys; without one of its own tokiod web shows new data only when a page is loaded"


def _source(source: SourceConfig, secrets: Path) -> Iterator[str]:
    yield from _secrets(source, secrets)
    for key in CERTIFICATES:
        if path := getattr(source, key, None):
            yield from _readable(key, Path(path))
    if (url := getattr(source, "url", "")).startswith(SQLITE):
        yield from _readable("url", Path(url.removeprefix(SQLITE)))
    if folder := getattr(source, "watch", None):
        yield from _folder(Path(folder))
    for key in COMMANDS:
        words = getattr(source, key, None)
        if words and not getattr(source, "prefix", ()) and shutil.which(words[0]) is None:
            yield f"{key}: command {words[0]} not found"


def _secrets(table: Any, directory: Path) -> Iterator[str]:
    """Yield the files of secrets that are missing. Those that exist may be for another user."""
    for key in (field.name for field in msgspec.structs.fields(table) if field.name.endswith(FILE_SUFFIX)):
        name = getattr(table, key)
        if not name:
            continue
        tried = places(name, directory)
        if _are_missing(tried):
            yield f"{key}: no file {' or '.join(map(str, tried))}"


def _are_missing(paths: Sequence[Path]) -> bool:
    """Return whether none of the files is there.

    One in a directory that this user may not search counts as there: systemd, until 256, hides the credentials of a unit from ExecReload.
    """
    try:
        return not any(path.exists() for path in paths)
    except PermissionError:
        return False


def _is_directory(path: Path) -> bool:
    """Return whether a path is a directory; one that this user may not see counts as one."""
    try:
        return path.is_dir()
    except PermissionError:
        return True


def _readable(key: str, path: Path) -> Iterator[str]:
    try:
        path.stat()
    except PermissionError:
        return
    except OSError as error:
        yield f"{key}: {path}: {error.strerror}"
        return
    if not os.access(path, os.R_OK) and path.stat().st_uid == os.geteuid():
        yield f"{key}: no permission to read {path}"


def _folder(path: Path) -> Iterator[str]:
    try:
        if not path.is_dir():
            yield f"watch: {path} is not a directory" if path.exists() else f"watch: {path} does not exist"
        elif not os.access(path, os.R_OK | os.X_OK):
            yield f"watch: no permission to read {path}"
    except PermissionError:
        return
