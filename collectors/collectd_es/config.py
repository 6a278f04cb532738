"""What a [[source]] of this kind and `tokioctl archive` take."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Annotated, ClassVar
from urllib.parse import urlsplit

import msgspec

from collectors.collectd_es.datasets import DATASETS, Fields
from collectors.collectd_es.datasets import faults as field_faults
from collectors.collectd_es.query import Read  # noqa: TC001 - msgspec reads annotations
from tokiod.collector import LOCAL_HOSTS, SavedOptions, SourceConfig
from tokiod.units import Duration, Size

if TYPE_CHECKING:
    from collections.abc import Iterator

_DEFAULTS = Fields()
_CORES = len(os.sched_getaffinity(0))
MAX_SLICES = 64
MAX_PAGE_HITS = 10_000
"""The limit of one page, unless index.max_result_window was raised on the server."""


class Config(SourceConfig, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """An index of collectd's documents.

    url: "https://host:9200", never with a password in it; index: a name, an alias, a wildcard, or a template of a UTC day.
    read: "scroll", "pit" (point in time), or "auto", which depends on the server; slices: parts of a window that are read in parallel.
    page: documents per request; keep_alive: how long the server keeps a scroll or point in time between two pages.
    collect: the datasets to collect; hosts, devices: regular expressions of whole names, others are dropped and counted;
    host_prefix, device_prefix: beginnings of names, so that the server sends no others.
    fields: names of the documents' fields. interval: collectd's time step.
    source_filter, compress: the server omits unused fields and compresses: for slow links, at the server's cost.
    max_answer: the size of one answer after decompression; a larger one is refused.
    user with password_file or password_env, or api_key_file or api_key_env; tls_ca, tls_cert, tls_key: for https.
    """

    selected_by: ClassVar[tuple[str, ...]] = ("index", "host_prefix", "device_prefix", "hosts", "devices")

    url: str
    index: str = "collectd-*"
    read: Read = "auto"
    slices: Annotated[int, msgspec.Meta(ge=1, le=MAX_SLICES)] = 1
    page: Annotated[int, msgspec.Meta(ge=1, le=MAX_PAGE_HITS)] = MAX_PAGE_HITS
    keep_alive: Duration = Duration(60)
    request_timeout: Duration = Duration(30)
    max_answer: Size = Size(128 << 20)
    settle: Duration = Duration(60)
    interval: Duration = Duration(10)
    collect: tuple[str, ...] = DATASETS
    hosts: str | None = None
    devices: str | None = None
    host_prefix: str = ""
    device_prefix: str = ""
    fields: Fields = Fields()
    source_filter: bool = False
    compress: bool = False
    user: str | None = None
    password_file: str | None = None
    password_env: str | None = None
    api_key_file: str | None = None
    api_key_env: str | None = None
    tls_ca: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None

    @property
    def step(self) -> int:
        """Seconds between time stamps of a series."""
        return int(self.interval)

    def datasets(self) -> frozenset[str]:
        """Return the datasets to collect."""
        return frozenset(self.collect)

    def only(self, datasets: frozenset[str]) -> SourceConfig:
        """Return the same source for some datasets alone."""
        return msgspec.structs.replace(self, collect=tuple(name for name in self.collect if name in datasets))

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
        if unknown := sorted(self.datasets() - set(DATASETS)):
            yield f"collect: unknown dataset {', '.join(unknown)}; known: {', '.join(DATASETS)}"
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

    step: Annotated[int, msgspec.Meta(ge=1, description="Seconds between rows.")] = 10
    hosts: Annotated[str | None, msgspec.Meta(description="Regular expression that whole host names must match.  [default: any]")] = None
    devices: Annotated[str | None, msgspec.Meta(description="Regular expression that whole disk names must match.  [default: any]")] = None
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
        return frozenset(DATASETS)


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
