"""LMT, the Lustre Monitoring Tool: what cerebrod stores in MySQL every 5 s, or a copy of that in SQLite.

tables.py     what is read, and which datasets it becomes
stamps.py     local time stamps to UTC
inventory.py  which OSTs, OSSs and MDTs the file system has
cells.py      rows to batches
database.py   what is asked of a database: sqlite.py (and copy.py), mysql.py
collector.py  the join of them
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import SplitResult, unquote, urlsplit
from zoneinfo import ZoneInfo, available_timezones

import msgspec

from collectors.lmt.collector import Lmt, Options
from collectors.lmt.copies import Copies
from collectors.lmt.inventory import MdtNames  # noqa: TC001 - msgspec reads annotations
from collectors.lmt.mysql import Mysql, Server
from collectors.lmt.sqlite import Sqlite
from collectors.lmt.tables import DATASETS
from tokiod.collector import SavedOptions, SourceConfig
from tokiod.errors import TokiodError
from tokiod.units import Duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from collectors.lmt.database import Database
    from tokiod.collector import Collector, SavedCollector, Site

MAGIC = b"SQLite format 3\0"
SQLITE, MYSQL = "sqlite", "mysql"
PORT = 3306


class Config(SourceConfig, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """An LMT database.

    url: "sqlite:///absolute/path" or "mysql://user@host:port/filesystem_name", never with a password in it.
    password_file, password_env: where the password is, a secret's file or an environment variable.
    timezone: the IANA zone of TIMESTAMP_INFO; default: what the MySQL server says, or else the site's.
    interval: LMT's time step. read_timeout: how long the server may be silent.
    filesystem: the file system's name, needed where the database holds several.
    mdt_names: what the columns of mdtargets are called, the "mdt"'s name or its "host"'s, as pytokio does.
    tls: encrypt, and check the server's certificate (against tls_ca; default: the system's); tls_cert, tls_key: our own.
    """

    url: str
    password_file: str | None = None
    password_env: str | None = None
    timezone: str | None = None
    interval: Duration = Duration(5)
    read_timeout: Duration = Duration(20)
    filesystem: str | None = None
    mdt_names: MdtNames = "mdt"
    tls: bool = False
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None

    @property
    def step(self) -> int:
        """Seconds between time stamps."""
        return int(self.interval)

    def datasets(self) -> frozenset[str]:
        """Return the names of what LMT measures."""
        return DATASETS

    def faults(self) -> list[str]:
        """Return what is wrong with the URL, and options that don't go together."""
        return [*_url_faults(self.url), *self._option_faults()]

    def _option_faults(self) -> Iterator[str]:
        if self.timezone is not None and self.timezone not in available_timezones():
            yield f'timezone: there is no time zone "{self.timezone}"'
        if self.interval <= 0:
            yield "interval: must be longer than nothing"
        if self.read_timeout <= 0:
            yield "read_timeout: must be longer than nothing"
        if self.password_file and self.password_env:
            yield "password_env: the password is in password_file already"
        if (self.tls_cert is None) != (self.tls_key is None):
            yield "tls_cert: a certificate of our own needs both tls_cert and tls_key"
        if not self.tls and (self.tls_ca or self.tls_cert):
            yield "tls: must be true for tls_ca, tls_cert and tls_key to be used"
        if self.url.startswith(SQLITE) and (self.password_file or self.password_env or self.tls):
            yield "url: a SQLite file has no password and no TLS"


class Saved(SavedOptions, kw_only=True, frozen=True):
    """How to read saved copies, and servers that are read as they stand."""

    step: Annotated[int, msgspec.Meta(ge=1, description="Seconds between rows.")] = 5
    mdt_names: Annotated[MdtNames, msgspec.Meta(description="What columns of mdtargets are called after; pytokio used the host.")] = "mdt"
    filesystem: Annotated[str | None, msgspec.Meta(description="Which file system, where the database holds several.")] = None
    password_file: Annotated[str | None, msgspec.Meta(description="A server's password: the file it is in.")] = None
    password_env: Annotated[str | None, msgspec.Meta(description="A server's password: the environment variable it is in.")] = None
    tls: Annotated[bool, msgspec.Meta(description="Encrypt, and check the server's certificate.")] = False
    tls_ca: Annotated[str | None, msgspec.Meta(description="The authority of the server's certificate.  [default: the system's]")] = None
    tls_cert: Annotated[str | None, msgspec.Meta(description="Our certificate, where the server asks for one.")] = None
    tls_key: Annotated[str | None, msgspec.Meta(description="The key of our certificate.")] = None
    read_timeout: Annotated[int, msgspec.Meta(description="Seconds that a server may be silent.")] = 60

    def datasets(self) -> frozenset[str]:
        """Return the names of what LMT measures."""
        return DATASETS


def live(config: Config, site: Site) -> Collector:
    """Return the collector of a database that LMT is filling."""
    zone = ZoneInfo(config.timezone) if config.timezone else site.calendar.zone
    options = Options(config.step, zone, config.timezone is not None, config.filesystem, config.mdt_names)
    if config.url.startswith(SQLITE):
        return Lmt(Sqlite(_path(config.url), finished=False), options)
    return Lmt(Mysql(_server(config.url, config, site)), options)


def saved(inputs: Sequence[str | Path], options: Saved, site: Site) -> SavedCollector:
    """Return the collector of saved copies, or of a server that is read as it stands; local times are in the site's time zone.

    Raises TokiodError for a file that is missing or not SQLite, and for a URL that is none of LMT's.
    """
    how = Options(options.step, site.calendar.zone, asserted=True, filesystem=options.filesystem, mdt_names=options.mdt_names)
    copies = [Lmt(_saved(str(name), options, site), how) for name in inputs]
    return copies[0] if len(copies) == 1 else Copies(copies)


def _saved(name: str, options: Saved, site: Site) -> Database:
    if "://" not in name:
        return Sqlite(_checked(Path(name)), finished=True)
    for fault in _url_faults(name):
        raise TokiodError(fault)
    if name.startswith(SQLITE):
        return Sqlite(_checked(_path(name)), finished=True)
    server = Mysql(_server(name, options, site))
    server.finished = True
    return server


def _path(url: str) -> Path:
    return Path(unquote(urlsplit(url).path))


def _server(text: str, access: Config | Saved, site: Site) -> Server:
    url = urlsplit(text)
    return Server(
        host=url.hostname or "",
        port=url.port or PORT,
        user=unquote(url.username or ""),
        database=unquote(url.path.strip("/")),
        read_timeout=access.read_timeout,
        password=lambda: _password(access, site),
        tls=lambda: _tls(access),
    )


def _password(config: Config | Saved, site: Site) -> str:
    if config.password_file:
        return site.secret(f"file:{config.password_file}")
    return site.secret(f"env:{config.password_env}") if config.password_env else ""


def _tls(config: Config | Saved) -> ssl.SSLContext | None:
    if not config.tls:
        return None
    context = ssl.create_default_context(cafile=config.tls_ca)
    if config.tls_cert:
        context.load_cert_chain(config.tls_cert, config.tls_key)
    return context


def _checked(path: Path) -> Path:
    try:
        with path.open("rb") as file:
            start = file.read(len(MAGIC))
    except OSError as error:
        raise TokiodError(f"{path} can't be read: {error.strerror}") from None
    if start != MAGIC:
        raise TokiodError(f"{path} is not a SQLite file: archive lmt reads copies of LMT databases in SQLite")
    return path


def _url_faults(text: str) -> Iterator[str]:
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError:
        yield "url: can't be understood; is there a password in it?"
        return
    if url.password is not None:
        yield "url: must not hold a password: put it into a file and name that in password_file"
    elif url.scheme == SQLITE:
        if url.netloc or not url.path.startswith("/"):
            yield 'url: expected three slashes and an absolute path, "sqlite:///var/lib/lmt/copy.sqlite3"'
    elif url.scheme == MYSQL:
        yield from _server_faults(url, port)
    else:
        yield 'url: expected "sqlite:///path" or "mysql://user@host:port/database"'


def _server_faults(url: SplitResult, port: int | None) -> Iterator[str]:
    missing = [name for name, part in (("user", url.username), ("host", url.hostname), ("database", url.path.strip("/"))) if not part]
    if missing or port == 0:
        yield f'url: expected "mysql://user@host:port/database", there is no {" and no ".join(missing or ["port"])}'
