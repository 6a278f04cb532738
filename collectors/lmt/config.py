"""What a [[source]] of this kind and `tokioctl archive` take."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - msgspec reads annotations
from typing import TYPE_CHECKING, Annotated, ClassVar
from urllib.parse import SplitResult, urlsplit
from zoneinfo import available_timezones

import msgspec

from collectors.lmt.datasets import COUNTERS, DATASETS, OWN_UNITS, MdtNames
from tokiod.collector import LOCAL_HOSTS, MAX_RATE, MaxRate, SavedOptions, SourceConfig
from tokiod.option import option
from tokiod.units import Duration

if TYPE_CHECKING:
    from collections.abc import Iterator

SQLITE, MYSQL = "sqlite", "mysql"


class OstMaxRate(MaxRate, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """The largest plausible rates per second: bytes read or written of an OST, operations of one type of an MDT."""

    bytes: Annotated[float, msgspec.Meta(gt=0, le=MAX_RATE)] = 5e10


def counter_rates(max_rate: MaxRate) -> dict[str, float]:
    """Return the largest plausible rate of each counter."""
    return {dataset: max_rate.of(dataset) for dataset in COUNTERS}


class Config(SourceConfig, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """An LMT database."""

    selected_by: ClassVar[tuple[str, ...]] = ("url", "filesystem")
    units: ClassVar[Mapping[str, str]] = OWN_UNITS

    url: Annotated[
        str,
        option(
            "The MySQL database of one file system, whose user needs SELECT alone, or a copy of it in SQLite.",
            '"mysql://lwatchclient@lmt1:3306/filesystem_snx11168"',
            values="mysql://USER@HOST:PORT/DATABASE or sqlite:///PATH, without a password",
        ),
    ]
    password_file: Annotated[str | None, option("A file of secrets, or systemd credential, with the password.", '"lmt-password"')] = None
    password_env: Annotated[str | None, option("An environment variable with the password, instead of a file.", '"LMT_PASSWORD"')] = None
    timezone: Annotated[
        str | None,
        option(
            "The time zone of TIMESTAMP_INFO; default: that of the server, or else the site's.",
            '"America/Los_Angeles"',
            values="an IANA name",
        ),
    ] = None
    interval: Annotated[
        Duration,
        option(
            "LMT's time step, and the step of the archive's rows.", values="greater than zero", effect="reload; new steps from the next day"
        ),
    ] = Duration(5)
    read_timeout: Annotated[Duration, option("How long the server may send nothing during an answer.", values="greater than zero")] = (
        Duration(20)
    )
    filesystem: Annotated[str | None, option("The file system, where the database holds several.", '"snx11168"')] = None
    mdt_names: Annotated[
        MdtNames, option('Name the columns of mdtargets after the "mdt", or after the "host" that it is on, as pytokio does.')
    ] = "mdt"
    max_rate: Annotated[
        OstMaxRate,
        option(
            "The largest plausible rates of a counter per second: bytes of an OST, operations of one type of an MDT. A larger difference "
            "of two samples is dropped and counted: its cell is missing.",
            values=f"greater than zero, up to {MAX_RATE:g}",
            effect="reload; from the next day's file on",
        ),
    ] = OstMaxRate()
    tls: Annotated[bool, option("Encrypt, and verify the server's certificate.")] = False
    tls_ca: Annotated[
        str | None, option("The authorities of the server's certificate; default: those of the system.", '"/etc/tokiod/lmt-ca.pem"')
    ] = None
    tls_cert: Annotated[
        str | None, option("The client's certificate, if the server requires one; with tls_key.", '"/etc/tokiod/lmt-client.pem"')
    ] = None
    tls_key: Annotated[str | None, option("The key of the client's certificate.", '"/etc/tokiod/lmt-client.key"')] = None

    @property
    def step(self) -> int:
        """Seconds between time stamps."""
        return int(self.interval)

    def datasets(self) -> frozenset[str]:
        """Return the names of what LMT measures."""
        return DATASETS

    def max_rates(self) -> Mapping[str, float]:
        """Return the largest plausible rate of each counter."""
        return counter_rates(self.max_rate)

    def faults(self) -> list[str]:
        """Return the errors of the URL, and of options that contradict each other."""
        return [*url_faults(self.url), *self._option_faults()]

    def _option_faults(self) -> Iterator[str]:
        if self.timezone is not None and self.timezone not in available_timezones():
            yield f'timezone: unknown time zone "{self.timezone}"'
        if self.interval <= 0:
            yield "interval: must be greater than zero"
        if self.read_timeout <= 0:
            yield "read_timeout: must be greater than zero"
        if self.password_file and self.password_env:
            yield "password_env: password_file is set already"
        if (self.tls_cert is None) != (self.tls_key is None):
            yield "tls_cert: tls_cert and tls_key are required together"
        if not self.tls and (self.tls_ca or self.tls_cert):
            yield "tls: must be true for tls_ca, tls_cert and tls_key to be used"
        if self.url.startswith(SQLITE) and (self.password_file or self.password_env or self.tls):
            yield "url: a SQLite file has no password and no TLS"

    def warnings(self) -> list[str]:
        """Return a warning if the password crosses a network without TLS."""
        host = urlsplit(self.url).hostname or ""
        has_password = bool(self.password_file or self.password_env)
        return [f"tls: the password goes to {host} without TLS"] if has_password and not self.tls and host not in LOCAL_HOSTS else []


class Saved(SavedOptions, kw_only=True, frozen=True):
    """How to read saved copies, and servers whose data is complete."""

    example: ClassVar[str] = "snx11025.sqlite3"

    units: ClassVar[Mapping[str, str]] = OWN_UNITS

    step: Annotated[int, msgspec.Meta(ge=1, description="Seconds between rows.")] = 5
    mdt_names: Annotated[MdtNames, msgspec.Meta(description="Name the columns of mdtargets after this; pytokio used the host.")] = "mdt"
    max_rate: Annotated[OstMaxRate, msgspec.Meta(description="Largest plausible rates of counters per second.")] = OstMaxRate()
    filesystem: Annotated[str | None, msgspec.Meta(description="The file system, where the database holds several.")] = None
    password_file: Annotated[str | None, msgspec.Meta(description="File with the server's password.")] = None
    password_env: Annotated[str | None, msgspec.Meta(description="Environment variable with the server's password.")] = None
    tls: Annotated[bool, msgspec.Meta(description="Encrypt, and verify the server's certificate.")] = False
    tls_ca: Annotated[str | None, msgspec.Meta(description="Authorities of the server's certificate.  [default: the system's]")] = None
    tls_cert: Annotated[str | None, msgspec.Meta(description="Client certificate, if the server requires one.")] = None
    tls_key: Annotated[str | None, msgspec.Meta(description="Key of the client certificate.")] = None
    read_timeout: Annotated[int, msgspec.Meta(description="Seconds for which a server may send nothing.")] = 60

    def datasets(self) -> frozenset[str]:
        """Return the names of what LMT measures."""
        return DATASETS

    def max_rates(self) -> Mapping[str, float]:
        """Return the largest plausible rate of each counter."""
        return counter_rates(self.max_rate)


def url_faults(text: str) -> Iterator[str]:
    """Yield the errors of a database's URL."""
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError:
        yield "url: is malformed; does it contain a password?"
        return
    if url.password is not None:
        yield "url: must not contain a password: put it into a file and set password_file"
    elif url.scheme == SQLITE:
        if url.netloc or not url.path.startswith("/"):
            yield 'url: expected three slashes and an absolute path, "sqlite:///var/lib/lmt/copy.sqlite3"'
    elif url.scheme == MYSQL:
        yield from _server_faults(url, port)
    else:
        given = f", got {url.scheme}://" if url.scheme and url.netloc else ""
        yield f'url: expected "sqlite:///path" or "mysql://user@host:port/database"{given}'


def _server_faults(url: SplitResult, port: int | None) -> Iterator[str]:
    missing = [name for name, part in (("user", url.username), ("host", url.hostname), ("database", url.path.strip("/"))) if not part]
    if missing or port == 0:
        yield f'url: expected "mysql://user@host:port/database", missing: {", ".join(missing or ["port"])}'
