"""The configuration that a daemon runs with: a copy, so that a file that is being edited can't stop a process from restarting."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import msgspec

from tokiod.archive.lock import lock_owner
from tokiod.archive.rights import make_private
from tokiod.bus.curve import feed_server_keys, hosts_server_keys
from tokiod.config import load as configuration
from tokiod.config.schema import Config
from tokiod.errors import ConfigError
from tokiod.hub.classes import hub_keys
from tokiod.runtime.full_disk import FULL
from tokiod.supervisor.control_socket import Reloaded
from tokiod.tts.live.files import NameNotDurable, replace_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COPY_NAME = "running.toml"


class ConfigCopy:
    """A copy of the configuration file next to the daemon's sockets, and what another version of the file would change."""

    def __init__(self, origin: Path) -> None:
        """Read and copy the file. Raises ConfigError."""
        self._origin = origin
        self._text, self.config = configuration.read(origin)
        _check_keys(self.config)
        self._copy = self.config.run / COPY_NAME
        self._former = self._copy.with_name(f"{COPY_NAME}.before")
        self._next = self._text, self.config
        self._write(self._text)

    @property
    def arguments(self) -> list[str]:
        """The command-line arguments with which a process reads the copy."""
        return ["--config", str(self._copy), "--origin", str(self._origin)]

    def read(self) -> Reloaded:
        """Read the file again, and return what it would change. Raises ConfigError, also for a change that requires a new daemon."""
        text, config = configuration.read(self._origin)
        _check_keys(config)
        if config.run != self.config.run:
            raise ConfigError([f"{self._origin}: bus: endpoint: its directory can't change while the daemon runs; restart it"])
        if config.archive.lock != self.config.archive.lock and (owner := lock_owner(config.archive.lock)) is not None:
            raise ConfigError([f"{self._origin}: archive: path: process {owner} writes to {config.archive.root}"])
        self._next = text, config
        return changes(self.config, config)

    def accept(self) -> tuple[str, Config]:
        """Use what was read last; return what roll_back() needs. Raises ConfigError where it can't be copied; then nothing has changed."""
        before = self._text, self.config
        with contextlib.suppress(OSError):
            self._former.unlink(missing_ok=True)
            self._former.hardlink_to(self._copy)
        self._write(self._next[0])
        self._text, self.config = self._next
        return before

    def roll_back(self, before: tuple[str, Config]) -> None:
        """Use an earlier configuration. Raises as accept() where the copy before this one is gone."""
        try:
            self._former.replace(self._copy)  # a disk that has become full has room for that
        except OSError:
            self._write(before[0])
        self._text, self.config = before

    def _write(self, text: str) -> None:
        try:
            make_private(self._copy.parent)
            # A copy that a power loss takes away is made again by the next start.
            with contextlib.suppress(NameNotDurable):
                replace_file(self._copy, text.encode())
        except OSError as error:
            remedy = "make room there" if error.errno in FULL else "the directory must exist and be writable"
            raise ConfigError([f"{self._copy}: {error.strerror}: {remedy}"]) from None


def _check_keys(config: Config) -> None:
    """Read all keys that a configuration names for the daemon and its hub. Raises ConfigError."""
    feed_server_keys(config.feed, config.secrets)
    hosts_server_keys(config.host, config.secrets)
    if config.hub.endpoint is not None:
        hub_keys(config.hub, config.secrets)


def changes(old: Config, new: Config) -> Reloaded:
    """Return the differences between two configurations, and whether they need a restart of the processes.

    Every key but the sources, the log level and [site] needs one, and so does the first or last source that is not replayable, because the
    ledger is synced more often for it.
    """
    before, after = ({source.name: source for source in config.source} for config in (old, new))
    both = before.keys() & after.keys()
    changed = {name for name in both if before[name] != after[name]}
    fields = [field for field in Config.__struct_fields__ if field not in {"source", "log_level", "site"}]
    are_replayable = [all(source.replayable for source in config.source) for config in (old, new)]
    return Reloaded(
        sorted(after.keys() - before.keys()),
        sorted(before.keys() - after.keys()),
        sorted(changed),
        sorted(both - changed),
        restarted=are_replayable[0] != are_replayable[1] or any(getattr(old, field) != getattr(new, field) for field in fields),
        keys=list(_changed_keys(old, new)),
        warnings=list(_warnings(old, new)),
    )


def _changed_keys(old: Config, new: Config) -> Iterator[str]:
    for field in Config.__struct_fields__:
        one, two = getattr(old, field), getattr(new, field)
        if field == "source" or one == two:
            continue
        if isinstance(one, msgspec.Struct) and isinstance(two, msgspec.Struct):
            yield from (f"{field}.{key}" for key in one.__struct_fields__ if getattr(one, key) != getattr(two, key))
        else:
            yield field


def _warnings(old: Config, new: Config) -> Iterator[str]:
    if old.archive.path != new.archive.path:
        yield (
            f"archive.path: the files below {old.archive.root} stay there and are read no more; the sources' past is collected into "
            f"{new.archive.root} as far as `retention` reaches, unless the files are moved"
        )
    if old.web.address != new.web.address:
        yield "web.address: tokiod web, where it runs, keeps the address of its start until `systemctl restart tokiod-web`"
