"""The tables of the TOML file as structs, with the help and the default of each option. [site], [jobs] and [[host]] have their modules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec

from tokiod.option import option
from tokiod.path_template import files_of, fill, filled, jobs_of, names_of, root_of
from tokiod.units import Duration, Size

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterator
    from pathlib import Path

    from tokiod.window import Day


class ArchiveConfig(msgspec.Struct, kw_only=True, frozen=True):
    """Where the TTS files are, and when they are sealed."""

    path: Annotated[
        str,
        option(
            "The path of the TTS files: strftime's fields for the site's date, {system} for the system of a [[source]]. The ledger is in "
            ".tokiod/ of the longest directory without fields, and a copy for readers of the archive in .tokiod-readers/.",
            '"/var/lib/tokiod/tts/%Y-%m-%d/{system}.hdf5"',
            values="an absolute path with {system} and fields that differ each day",
        ),
    ]
    seal_after: Annotated[
        Duration,
        option(
            "A day is sealed (compressed, with its columns in natural order) when it is over and complete, or this long after its end if "
            "no data arrived for an hour. Later data reopens the file, and it is sealed again."
        ),
    ] = Duration(2 * 86400)
    keep_live_days: Annotated[
        int, option("Number of days that complete files stay live. When the disk gets full, they are sealed earlier.", ge=0)
    ] = 0
    max_columns: Annotated[
        int,
        option(
            "Largest number of columns of a dataset. Windows with more are rejected, so that a faulty source can't fill the disk.", ge=1
        ),
    ] = 50_000

    @property
    def root(self) -> Path:
        """The longest directory that all files share."""
        return root_of(self.path)

    @property
    def private(self) -> Path:
        """The directory of the ledger and the lock, for the daemon's user alone."""
        return self.root / ".tokiod"

    @property
    def ledger(self) -> Path:
        """The archive's SQLite ledger."""
        return self.private / "ledger.sqlite3"

    @property
    def lock(self) -> Path:
        """The file that the archive's one writer holds an flock on."""
        return self.private / "lock"

    @property
    def ledger_copy(self) -> Path:
        """The copy of the ledger for the readers of the archive."""
        return self.root / ".tokiod-readers" / "ledger.sqlite3"

    @property
    def owner(self) -> Path:
        """The file that shows the readers of the archive which process writes it."""
        return self.root / ".tokiod-readers" / "writer.pid"

    @property
    def jobs(self) -> Path:
        """The directory of the job table."""
        return jobs_of(self.path)

    def file(self, day: Day, system: str) -> Path:
        """Return the TTS file of a system and a site day."""
        return self.file_of(day.date, system)

    def file_of(self, date: dt.date, system: str) -> Path:
        """Return the TTS file of a system and a date at the site."""
        return fill(self.path, date, system)

    def file_name(self, day: Day, system: str) -> str:
        """Return the path of the same file as a text, which takes a tenth of the time: many files do not exist."""
        return filled(self.path, day.date, system)

    def files(self) -> Iterator[Path]:
        """Yield the existing files of all days and systems."""
        return files_of(self.path)

    def file_names(self) -> Iterator[str]:
        """Yield the paths of the same files as texts."""
        return names_of(self.path)


RETIRED_KEYS = ("secret_key_file", "client_secret_key_file", "clients")
"""Of the bus: they do nothing, and are known, so that an old configuration can be read."""


class BusConfig(msgspec.Struct, kw_only=True, frozen=True):
    """The bus from the collectors to the writer, on one machine. RETIRED_KEYS were for a bus on TCP."""

    endpoint: Annotated[
        str,
        option(
            "Where the writer listens: a Unix socket. Its directory also holds the control socket, so only the daemon's user may access "
            "it, and it is not that of the feed.",
            values="ipc:///path",
            effect="reload (the processes restart); another directory: restart of the daemon",
        ),
    ] = "ipc:///run/tokiod/private/bus"
    secret_key_file: Annotated[str | None, option("Does nothing. It was the writer's key for a bus on TCP.", '"bus.key_secret"')] = None
    client_secret_key_file: Annotated[str | None, option("Does nothing. It was the collectors' key.", '"collectors.key_secret"')] = None
    clients: Annotated[str | None, option("Does nothing. It was the directory of the keys of other senders.", '"bus-clients"')] = None
    max_windows: Annotated[
        int, option("Largest number of windows in flight. A slow writer slows the collectors; no data is dropped.", ge=1)
    ] = 4
    max_bytes: Annotated[Size, option("Largest size of all windows in flight.", values="greater than zero")] = Size(64 * 2**20)


class FeedConfig(msgspec.Struct, kw_only=True, frozen=True):
    """The feed from the writer to subscribers."""

    endpoint: Annotated[str, option("Where subscribers connect: a Unix socket, or TCP.", values="ipc:///path or tcp://host:port")] = (
        "ipc:///run/tokiod/feed"
    )
    secret_key_file: Annotated[
        str | None, option("The feed's secret CURVE key, made by `tokiod keygen`; a feed on the network needs one.", '"feed.key_secret"')
    ] = None
    clients: Annotated[
        str | None,
        option("A directory of the public keys of the permitted subscribers; it is read again at each reload.", '"feed-clients"'),
    ] = None
    allow_anyone: Annotated[bool, option("Let every local user subscribe over TCP, without a key.")] = False

    @property
    def local_endpoint(self) -> str:
        """Where subscribers on this machine connect: a server that listens on all addresses listens on loopback too."""
        return self.endpoint.replace("//*:", "//127.0.0.1:")


class MetricsConfig(msgspec.Struct, kw_only=True, frozen=True):
    """The address at which metrics and health are served over HTTP."""

    address: Annotated[
        str,
        option("An IP address and a port. Each client that reaches it may read.", values="ADDRESS:PORT, [ADDRESS]:PORT for IPv6"),
    ] = "127.0.0.1:9464"


class HubConfig(msgspec.Struct, kw_only=True, frozen=True):
    """Where the agents of compute nodes connect. See tokiod.hub."""

    endpoint: Annotated[
        str | None,
        option(
            "Where the hub listens for the agents of nodes. Without it there is no hub.",
            '"tcp://10.0.0.1:5561"',
            values="tcp://ADDRESS:PORT of this machine",
        ),
    ] = None
    secret_key_file: Annotated[
        str | None, option("The hub's secret CURVE key, made by `tokiod keygen`; set if and only if endpoint is.", '"hub.key_secret"')
    ] = None
    clients: Annotated[
        str | None,
        option(
            "A directory of the agents' public keys, named CLASS.key or CLASS.ANYTHING.key; it is read again at each reload.",
            '"hub-clients"',
        ),
    ] = None
    classes: Annotated[
        dict[str, tuple[str, ...]],
        option(
            "The classes of nodes, and the names that the nodes of each may have, as patterns with `*`, `?` and `[0-9]`.",
            '{ compute = ["nid*"], login = ["login[0-9][0-9]"] }',
            values="at least one class, each with a pattern",
        ),
    ] = msgspec.field(default_factory=dict)
    max_nodes: Annotated[int, option("Largest number of node names of each class. Further ones are refused.", ge=1)] = 20_000
    rows_per_second: Annotated[
        int,
        option(
            "The rate at which nodes send: their answers are spread over the time that follows from it, or over the time that the source "
            "waits, where that is shorter.",
            ge=1,
        ),
    ] = 2000
    gather: Annotated[
        Duration,
        option("How long after its start the hub waits for agents to connect, before it answers the source of kind `nodes`."),
    ] = Duration(90)


class WebConfig(msgspec.Struct, kw_only=True, frozen=True):
    """Where `tokiod web` serves, and how it follows the feed."""

    address: Annotated[
        str,
        option(
            "A Unix socket, which the group of the process may use, or an address of this machine alone, which every local user may use. "
            "A reverse proxy gives other machines access, with TLS and a login.",
            values="an absolute path, 127.0.0.1:PORT or [::1]:PORT",
            effect="restart of tokiod web",
        ),
    ] = "/run/tokiod-web/http"
    hosts: Annotated[
        tuple[str, ...],
        option(
            "Names that a client may give as the Host of its requests, besides localhost and IP addresses: that of the reverse proxy.",
            '["storage.example.org"]',
            effect="reload of tokiod web",
        ),
    ] = ()
    secret_key_file: Annotated[
        str | None,
        option(
            "The secret CURVE key with which `tokiod web` subscribes to a feed with keys, made by `tokiod keygen`. Its public key is among "
            "those in `clients` of the feed.",
            '"web.key_secret"',
            effect="reload of tokiod web",
        ),
    ] = None
    feed_key_file: Annotated[
        str | None,
        option("The feed's public key; set if and only if secret_key_file is.", '"feed.key"', effect="reload of tokiod web"),
    ] = None
