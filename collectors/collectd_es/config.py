"""What a [[source]] of this kind and `tokioctl archive` take."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping  # noqa: TC003 - msgspec reads annotations
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal
from urllib.parse import urlsplit

import msgspec

from collectors.collectd_es.datasets import COUNTED, DATASETS, Fields
from collectors.collectd_es.datasets import faults as field_faults
from collectors.collectd_es.query import Read  # noqa: TC001 - msgspec reads annotations
from tokiod.collector import LOCAL_HOSTS, MAX_RATE, MaxRate, SavedOptions, SourceConfig
from tokiod.option import option
from tokiod.units import Duration, Size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_DEFAULTS = Fields()
_CORES = len(os.sched_getaffinity(0))
MAX_SLICES = 64
MAX_PAGE_HITS = 10_000
"""The limit of one page, unless index.max_result_window was raised on the server."""

Values = Literal["rates", "counters"]


class DiskMaxRate(MaxRate, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """The largest plausible rates per second of a disk, or of an array of disks."""

    bytes: Annotated[float, msgspec.Meta(gt=0, le=MAX_RATE)] = 5e10


def _stored(datasets: Iterable[str], values: Values) -> tuple[str, ...]:
    return tuple(COUNTED.get(name, name) if values == "counters" else name for name in datasets)


def _counter_rates(values: Values, max_rate: MaxRate) -> Mapping[str, float]:
    return {name: max_rate.of(name) for name in COUNTED.values()} if values == "counters" else {}


class Config(SourceConfig, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """An index of collectd's documents. It is read with a user and a password, with an API key, or with neither."""

    selected_by: ClassVar[tuple[str, ...]] = ("index", "host_prefix", "device_prefix", "hosts", "devices")

    url: Annotated[
        str, option("The address of the server.", '"https://elastic1:9200"', values="http:// or https://, without a user and a password")
    ]
    index: Annotated[
        str,
        option(
            "The index of the documents.",
            '"collectd-%Y.%m.%d"',
            values="a name, an alias, a wildcard, or a template with the fields of a UTC day",
        ),
    ] = "collectd-*"
    read: Annotated[Read, option('How pages are read: by scroll or by point in time; "auto" depends on the server.')] = "auto"
    slices: Annotated[int, option("Parts of a window that are read in parallel.", ge=1, le=MAX_SLICES)] = 1
    page: Annotated[int, option("Documents of one page.", ge=1, le=MAX_PAGE_HITS)] = MAX_PAGE_HITS
    keep_alive: Annotated[
        Duration, option("How long the server keeps a scroll or a point in time between two pages.", values="greater than zero")
    ] = Duration(60)
    request_timeout: Annotated[Duration, option("Time limit of one answer.", values="greater than zero")] = Duration(30)
    max_answer: Annotated[Size, option("Size of one answer after decompression; a larger one is refused.", values="greater than zero")] = (
        Size(128 << 20)
    )
    settle: Annotated[
        Duration,
        option(
            "Delay before a window is queried: collectd, Logstash and the index's refresh_interval all take their time.",
            values="zero or more",
        ),
    ] = Duration(60)
    interval: Annotated[
        Duration,
        option(
            "collectd's time step, and the step of the archive's rows.",
            values="greater than zero",
            effect="reload; new steps from the next day",
        ),
    ] = Duration(10)
    values: Annotated[
        Values,
        option(
            'What the documents of disks hold: "rates" where StoreRates is true in collectd\'s write_http; "counters", which its network '
            "plugin and Logstash's codec send, and write_http by default: their differences are stored, as datatargets/readbytes and so on."
        ),
    ] = "rates"
    max_rate: Annotated[
        DiskMaxRate,
        option(
            "The largest plausible bytes and operations per second of a disk. A larger value is dropped and counted: its cell is missing.",
            values=f"greater than zero, up to {MAX_RATE:g}",
            effect='reload; with values = "counters" from the next day\'s file on',
        ),
    ] = DiskMaxRate()
    collect: Annotated[
        tuple[str, ...],
        option("The datasets to collect.", '["datatargets/readrates", "datatargets/writerates"]', values="some of the default"),
    ] = DATASETS
    hosts: Annotated[
        str | None,
        option("Whole host names to collect; others are dropped and counted.", "'bb\\d+'", values="a regular expression"),
    ] = None
    devices: Annotated[
        str | None,
        option(
            "Whole disk names to collect; others are dropped and counted. Default: whole disks. Partitions, dm and md devices would count "
            "the bytes of their disks again.",
            "'nvme\\d+n1'",
            values="a regular expression",
        ),
    ] = None
    host_prefix: Annotated[str, option("The server sends documents only of hosts whose names begin with this.", '"bb"')] = ""
    device_prefix: Annotated[str, option("The server sends documents only of disks whose names begin with this.", '"nvme"')] = ""
    fields: Annotated[
        Fields,
        option("The names of the documents' fields; list those that differ. A dot leads into an object.", '{ host = "host.name" }'),
    ] = Fields()
    source_filter: Annotated[bool, option("For slow links: the server omits unused fields, which costs it more.")] = False
    compress: Annotated[bool, option("For slow links: the server compresses its answers, which costs it more.")] = False
    user: Annotated[
        str | None,
        option(
            'The user of the server; with a password. It needs the privileges "read" and "view_index_metadata" on the index, nothing else.',
            '"tokiod"',
        ),
    ] = None
    password_file: Annotated[
        str | None, option("A file of secrets, or systemd credential, with the user's password.", '"elastic-password"')
    ] = None
    password_env: Annotated[
        str | None, option("An environment variable with the user's password, instead of a file.", '"ELASTIC_PASSWORD"')
    ] = None
    api_key_file: Annotated[
        str | None, option("A file of secrets, or systemd credential, with an API key, instead of a user.", '"elastic-api-key"')
    ] = None
    api_key_env: Annotated[str | None, option("An environment variable with an API key, instead of a file.", '"ELASTIC_API_KEY"')] = None
    tls_ca: Annotated[
        str | None, option("The authorities of the server's certificate; default: those of the system.", '"/etc/tokiod/elastic-ca.pem"')
    ] = None
    tls_cert: Annotated[
        str | None, option("The client's certificate, if the server requires one; with tls_key.", '"/etc/tokiod/elastic-client.pem"')
    ] = None
    tls_key: Annotated[str | None, option("The key of the client's certificate.", '"/etc/tokiod/elastic-client.key"')] = None

    @property
    def step(self) -> int:
        """Seconds between time stamps of a series."""
        return int(self.interval)

    def collected(self) -> tuple[str, ...]:
        """Return the datasets to collect by the names of DATASETS, also of counters."""
        names = {stored: name for name, stored in COUNTED.items()} if self.values == "counters" else {}
        return tuple(names.get(name, name) for name in self.collect)

    def datasets(self) -> frozenset[str]:
        """Return the datasets to collect."""
        return frozenset(_stored(self.collect, self.values))

    def max_rates(self) -> Mapping[str, float]:
        """Return the largest plausible rates of counters."""
        return _counter_rates(self.values, self.max_rate)

    def only(self, datasets: frozenset[str]) -> SourceConfig:
        """Return the same source for some datasets alone."""
        kept = (name for name, stored in zip(self.collect, _stored(self.collect, self.values), strict=True) if stored in datasets)
        return msgspec.structs.replace(self, collect=tuple(kept))

    def faults(self) -> list[str]:
        """Return the errors of the URL, and of options that contradict each other."""
        return [*_url_faults(self.url), *_pattern_faults(self), *self._access_faults(), *self._other_faults()]

    def _access_faults(self) -> Iterator[str]:
        passwords, keys = _given(self, "password_file", "password_env"), _given(self, "api_key_file", "api_key_env")
        for names in (passwords, keys):
            if len(names) > 1:
                yield f"{names[1]}: {names[0]} is set already"
        if passwords and keys:
            yield f"{keys[0]}: set either a user with a password or an API key"
        if bool(self.user) != bool(passwords):
            yield "user: requires password_file or password_env, and these require user"
        if (self.tls_cert is None) != (self.tls_key is None):
            yield "tls_cert: tls_cert and tls_key are required together"
        if not self.url.startswith("https:") and _given(self, "tls_ca", "tls_cert", "tls_key"):
            yield "url: must begin with https:// if tls_ca, tls_cert or tls_key is set"

    def _other_faults(self) -> Iterator[str]:
        for name in ("interval", "keep_alive", "request_timeout", "max_answer"):
            if getattr(self, name) <= 0:
                yield f"{name}: must be greater than zero"
        known = _stored(DATASETS, self.values)
        if unknown := sorted(self.datasets() - set(known)):
            yield f"collect: unknown dataset {', '.join(unknown)}; known: {', '.join(known)}"
        if not self.collect:
            yield "collect: at least one dataset is required; omit the key for all"
        for fault in field_faults(self.fields):
            yield f"fields: {fault}"

    def warnings(self) -> list[str]:
        """Return a warning if the password or API key crosses a network without TLS."""
        url = urlsplit(self.url)
        named = _given(self, "password_file", "password_env", "api_key_file", "api_key_env")
        is_open = url.scheme == "http" and url.hostname not in LOCAL_HOSTS
        return [f"url: the secret of {named[0]} goes to {url.hostname} without TLS"] if named and is_open else []


class Saved(SavedOptions, kw_only=True, frozen=True):
    """How to read saved pages. Samples are kept in a temporary file in TMPDIR, some 20 bytes each."""

    example: ClassVar[str] = "pages.json.gz"

    step: Annotated[int, msgspec.Meta(ge=1, description="Seconds between rows.")] = 10
    hosts: Annotated[str | None, msgspec.Meta(description="Regular expression that whole host names must match.  [default: any]")] = None
    devices: Annotated[
        str | None, msgspec.Meta(description="Regular expression that whole disk names must match.  [default: whole disks]")
    ] = None
    values: Annotated[Values, msgspec.Meta(description="What disks' documents hold.")] = "rates"
    max_rate: Annotated[DiskMaxRate, msgspec.Meta(description="Largest plausible rates of disks per second.")] = DiskMaxRate()
    parse_workers: Annotated[int, msgspec.Meta(ge=0, le=64, description="Worker processes that parse large files.")] = min(4, _CORES)
    time_field: Annotated[str, msgspec.Meta(description="Field holding the time.")] = _DEFAULTS.time
    host_field: Annotated[str, msgspec.Meta(description="Field holding the host name.")] = _DEFAULTS.host
    plugin_field: Annotated[str, msgspec.Meta(description="Field holding the plugin.")] = _DEFAULTS.plugin
    type_field: Annotated[str, msgspec.Meta(description="Field holding the type.")] = _DEFAULTS.type
    type_instance_field: Annotated[str, msgspec.Meta(description="Field holding the type instance.")] = _DEFAULTS.type_instance
    plugin_instance_field: Annotated[str, msgspec.Meta(description="Field holding the plugin instance.")] = _DEFAULTS.plugin_instance
    value_field: Annotated[str, msgspec.Meta(description="Field holding values of memory and cpu.")] = _DEFAULTS.value
    read_field: Annotated[str, msgspec.Meta(description="Field holding what a disk read.")] = _DEFAULTS.read
    write_field: Annotated[str, msgspec.Meta(description="Field holding what a disk wrote.")] = _DEFAULTS.write

    def datasets(self) -> frozenset[str]:
        """Return all datasets of the kind."""
        return frozenset(_stored(DATASETS, self.values))

    def max_rates(self) -> Mapping[str, float]:
        """Return the largest plausible rates of counters."""
        return _counter_rates(self.values, self.max_rate)


def _given(config: Config, *names: str) -> list[str]:
    return [name for name in names if getattr(config, name)]


def _url_faults(text: str) -> Iterator[str]:
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError:
        yield "url: is malformed; does it contain a password?"
        return
    if url.username is not None or url.password is not None:
        yield "url: must not contain a user or a password: set user and password_file"
    elif url.scheme not in {"http", "https"} or not url.hostname or port == 0 or url.query or url.fragment:
        yield 'url: expected "https://host:9200"'


def _pattern_faults(config: Config) -> Iterator[str]:
    plain = re.sub(r"%[A-Za-z]", "", config.index)
    if not plain or plain != plain.lower() or re.search(r'[\s/\\?"<>|#]|\A[_-]', plain):
        yield f"index: {config.index!r} is not a valid name of an index: use lower case without blanks and slashes"
    for code in re.findall(r"%(.?)", config.index):
        if code not in "Ymdj":
            yield f"index: %{code} is not supported; use %Y, %m, %d and %j of a UTC day"
    for name in ("hosts", "devices"):
        try:
            re.compile(getattr(config, name) or "")
        except re.error as error:
            yield f"{name}: not a regular expression: {error}"
