"""The collector that a stanza describes, and the one over saved copies."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit
from zoneinfo import ZoneInfo

from collectors.lmt.client_mysql import Mysql, Server
from collectors.lmt.client_sqlite import Sqlite
from collectors.lmt.collector import Lmt, Options
from collectors.lmt.config import SQLITE, url_faults
from collectors.lmt.saved_files import Copies
from tokiod.errors import TokiodError
from tokiod.toolkit.tls import client_context

if TYPE_CHECKING:
    from collections.abc import Sequence

    from collectors.lmt.client import Database
    from collectors.lmt.config import Config, Saved
    from tokiod.collector import Collector, SavedCollector, Site

SQLITE_HEADER = b"SQLite format 3\0"
DEFAULT_PORT = 3306


def connected(config: Config, site: Site) -> Collector:
    """Return the collector of a database that LMT is filling."""
    zone = ZoneInfo(config.timezone) if config.timezone else site.calendar.zone
    options = Options(config.step, zone, config.timezone is not None, config.filesystem, config.mdt_names)
    if config.url.startswith(SQLITE):
        return Lmt(Sqlite(_path(config.url), finished=False), options)
    return Lmt(Mysql(_server(config.url, config, site)), options)


def opened(inputs: Sequence[str | Path], options: Saved, site: Site) -> SavedCollector:
    """Return the collector of saved copies, or of a server that is read as it stands; local times are in the site's time zone.

    Raises TokiodError for a file that is missing or not SQLite, and for a URL that is none of LMT's.
    """
    how = Options(options.step, site.calendar.zone, asserted=True, filesystem=options.filesystem, mdt_names=options.mdt_names)
    copies = [Lmt(_saved(str(name), options, site), how) for name in inputs]
    return copies[0] if len(copies) == 1 else Copies(copies)


def _saved(name: str, options: Saved, site: Site) -> Database:
    if "://" not in name:
        return Sqlite(_checked(Path(name)), finished=True)
    for fault in url_faults(name):
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
        port=url.port or DEFAULT_PORT,
        user=unquote(url.username or ""),
        database=unquote(url.path.strip("/")),
        read_timeout=access.read_timeout,
        password=lambda: _password(access, site),
        tls=lambda: client_context(access.tls_ca, access.tls_cert, access.tls_key) if access.tls else None,
    )


def _password(config: Config | Saved, site: Site) -> str:
    if config.password_file:
        return site.secret(f"file:{config.password_file}")
    return site.secret(f"env:{config.password_env}") if config.password_env else ""


def _checked(path: Path) -> Path:
    try:
        with path.open("rb") as file:
            start = file.read(len(SQLITE_HEADER))
    except OSError as error:
        raise TokiodError(f"{path} can't be read: {error.strerror}") from None
    if start != SQLITE_HEADER:
        raise TokiodError(f"{path} is not a SQLite file: archive lmt reads copies of LMT databases in SQLite")
    return path
