"""What a [[source]] of this kind, and `tokioctl archive`, may be told."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import msgspec

from collectors.collectd_es.datasets import DATASETS, Fields
from collectors.collectd_es.datasets import faults as field_faults
from collectors.collectd_es.query import Read  # noqa: TC001 - msgspec reads annotations
from tokiod.collector import SavedOptions, SourceConfig
from tokiod.units import Duration

if TYPE_CHECKING:
    from collections.abc import Iterator

_OF_HITS = Fields()
_CORES = len(os.sched_getaffinity(0))
MOST_SLICES = 64
LARGEST_PAGE = 10_000
"""What servers allow in one page, unless index.max_result_window was raised."""


class Config(SourceConfig, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """An index of collectd's documents.

    url: "https://host:9200", never with a password in it; index: a name, an alias, a wildcard, or a template of a UTC day.
    read: "scroll", "pit" (point in time), or what suits the server; slices: how many parts of a window are read side by side.
    page: documents at a time; keep_alive: how long the server keeps its place for us between two pages.
    collect: the datasets that are wanted; hosts, devices: what whole names look like, others are dropped and counted;
    host_prefix, device_prefix: how they begin, so that the server sends no others.
    fields: what the documents' fields are called. interval: collectd's time step.
    source_filter, compress: have the server leave out what is not needed and compress: for slow links, it costs the server more.
    user with password_file or password_env, or api_key_file or api_key_env; tls_ca, tls_cert, tls_key: for https.
    """

    url: str
    index: str = "collectd-*"
    read: Read = "auto"
    slices: Annotated[int, msgspec.Meta(ge=1, le=MOST_SLICES)] = 1
    page: Annotated[int, msgspec.Meta(ge=1, le=LARGEST_PAGE)] = LARGEST_PAGE
    keep_alive: Duration = Duration(60)
    request_timeout: Duration = Duration(30)
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
        """Return the names of what is wanted."""
        return frozenset(self.collect)

    def only(self, datasets: frozenset[str]) -> SourceConfig:
        """Return the same source, asked for some datasets alone."""
        return msgspec.structs.replace(self, collect=tuple(name for name in self.collect if name in datasets))

    def faults(self) -> list[str]:
        """Return what is wrong with the URL, and options that don't go together."""
        return [*_url_faults(self.url), *_pattern_faults(self), *self._access_faults(), *self._other_faults()]

    def _access_faults(self) -> Iterator[str]:
        passwords, keys = _given(self, "password_file", "password_env"), _given(self, "api_key_file", "api_key_env")
        for names in (passwords, keys):
            if len(names) > 1:
                yield f"{names[1]}: there is {names[0]} already"
        if passwords and keys:
            yield f"{keys[0]}: a user with a password or an API key, not both"
        if bool(self.user) != bool(passwords):
            yield "user: goes together with password_file or password_env"
        if (self.tls_cert is None) != (self.tls_key is None):
            yield "tls_cert: a certificate of our own needs both tls_cert and tls_key"
        if not self.url.startswith("https:") and _given(self, "tls_ca", "tls_cert", "tls_key"):
            yield "url: must begin with https:// for tls_ca, tls_cert and tls_key to be used"

    def _other_faults(self) -> Iterator[str]:
        for name in ("interval", "keep_alive", "request_timeout"):
            if getattr(self, name) <= 0:
                yield f"{name}: must be longer than nothing"
        if unknown := sorted(self.datasets() - set(DATASETS)):
            yield f"collect: collectd has no {', '.join(unknown)}; it has {', '.join(DATASETS)}"
        if not self.collect:
            yield "collect: name at least one dataset, or leave it out for all"
        for fault in field_faults(self.fields):
            yield f"fields: {fault}"


class Saved(SavedOptions, kw_only=True, frozen=True):
    """How to read saved pages. Their samples wait in a file in TMPDIR, some 20 bytes of each."""

    step: Annotated[int, msgspec.Meta(ge=1, description="Seconds between rows.")] = 10
    hosts: Annotated[
        str | None, msgspec.Meta(description="What hosts are called: a regular expression of the whole name.  [default: any]")
    ] = None
    devices: Annotated[str | None, msgspec.Meta(description="The same of disks.  [default: any]")] = None
    parse_workers: Annotated[int, msgspec.Meta(ge=0, le=64, description="Processes that parse large files.")] = min(4, _CORES)
    time_field: Annotated[str, msgspec.Meta(description="What the field of the time is called.")] = _OF_HITS.time
    host_field: Annotated[str, msgspec.Meta(description="... of the host.")] = _OF_HITS.host
    plugin_field: Annotated[str, msgspec.Meta(description="... of the plugin.")] = _OF_HITS.plugin
    type_field: Annotated[str, msgspec.Meta(description="... of the type.")] = _OF_HITS.type
    type_instance_field: Annotated[str, msgspec.Meta(description="... of the type instance.")] = _OF_HITS.type_instance
    plugin_instance_field: Annotated[str, msgspec.Meta(description="... of the plugin instance.")] = _OF_HITS.plugin_instance
    value_field: Annotated[str, msgspec.Meta(description="... of memory's and cpu's values.")] = _OF_HITS.value
    read_field: Annotated[str, msgspec.Meta(description="... of what a disk read.")] = _OF_HITS.read
    write_field: Annotated[str, msgspec.Meta(description="... of what a disk wrote.")] = _OF_HITS.write

    def datasets(self) -> frozenset[str]:
        """Return the names of all that collectd measures."""
        return frozenset(DATASETS)


def _given(config: Config, *names: str) -> list[str]:
    return [name for name in names if getattr(config, name)]


def _url_faults(text: str) -> Iterator[str]:
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError:
        yield "url: can't be understood; is there a password in it?"
        return
    if url.username is not None or url.password is not None:
        yield "url: must not hold a user or a password: name them in user and password_file"
    elif url.scheme not in {"http", "https"} or not url.hostname or port == 0 or url.query or url.fragment:
        yield 'url: expected "https://host:9200"'


def _pattern_faults(config: Config) -> Iterator[str]:
    plain = re.sub(r"%[A-Za-z]", "", config.index)
    if not plain or plain != plain.lower() or re.search(r'[\s/\\?"<>|#]|\A[_-]', plain):
        yield f"index: {config.index!r} can't be the name of an index: those are in lower case, without blanks and slashes"
    for code in re.findall(r"%(.?)", config.index):
        if code not in "Ymdj":
            yield f"index: %{code} is no part of a UTC day; %Y, %m, %d and %j are"
    for name in ("hosts", "devices"):
        try:
            re.compile(getattr(config, name) or "")
        except re.error as error:
            yield f"{name}: no regular expression: {error}"
