"""collectd's documents in Elasticsearch or OpenSearch, as its write_http or Logstash puts them there, or saved pages of them.

fields.py         what a site calls their fields                        series.py     the names of what they measure
documents.py      pages to samples: hits.py, odd.py, stamps.py, tail.py  cells.py      samples to batches
query.py          what is asked; mapping.py: by which names             server.py     one transport for all servers
search.py         page after page; scroll.py, point_in_time.py: how     answers.py    is this all?
collector.py      the join of them; stanza.py: made of a stanza
saved.py          the same over saved pages: pages.py, sliding.py cut them out, parsing.py decodes them, spool.py keeps their samples
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import msgspec

from collectors.collectd_es.fields import Fields
from collectors.collectd_es.fields import faults as field_faults
from collectors.collectd_es.query import Read  # noqa: TC001 - msgspec reads annotations
from collectors.collectd_es.saved import Saved, saved
from collectors.collectd_es.series import DATASETS
from tokiod.collector import SourceConfig
from tokiod.units import Duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokiod.collector import Collector, Site

__all__ = ["Config", "Saved", "live", "saved"]

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


def live(config: Config, site: Site) -> Collector:
    """Return the collector of an index that collectd's documents go into."""
    from collectors.collectd_es.stanza import connected  # noqa: PLC0415 - saved pages and their processes need no HTTP client: 0.3 s each

    return connected(config, site)


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
