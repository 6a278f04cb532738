"""What a [[source]] of this kind, and `tokioctl archive`, may be told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated
from urllib.parse import SplitResult, urlsplit
from zoneinfo import available_timezones

import msgspec

from collectors.lmt.datasets import DATASETS, MdtNames
from tokiod.collector import SavedOptions, SourceConfig
from tokiod.units import Duration

if TYPE_CHECKING:
    from collections.abc import Iterator

SQLITE, MYSQL = "sqlite", "mysql"


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
        return [*url_faults(self.url), *self._option_faults()]

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


def url_faults(text: str) -> Iterator[str]:
    """Yield what is wrong with a URL of LMT's."""
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
