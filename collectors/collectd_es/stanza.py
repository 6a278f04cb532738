"""The collector that a stanza describes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from collectors.collectd_es.client import Access, Server, basic
from collectors.collectd_es.collector import CollectdEs, Options
from collectors.collectd_es.query import Wanted
from collectors.collectd_es.series import Series
from tokiod.toolkit.tls import client_context

if TYPE_CHECKING:
    from collectors.collectd_es import Config
    from tokiod.collector import Collector, Site


def connected(config: Config, site: Site) -> Collector:
    """Return the collector of an index that collectd's documents go into."""
    wanted = Wanted(config.datasets(), config.host_prefix, config.device_prefix)
    options = Options(
        index=config.index, step=config.step, fields=config.fields, wanted=wanted, read=config.read, slices=config.slices,
        page=config.page, keep_alive=int(config.keep_alive), source_filter=config.source_filter,
    )  # fmt: skip
    access = Access(
        url=config.url.rstrip("/"),
        user=config.user or "",
        timeout=float(config.request_timeout),
        compress=config.compress,
        authorization=lambda: _authorization(config, site),
        tls=lambda: client_context(config.tls_ca, config.tls_cert, config.tls_key) if config.url.startswith("https:") else None,
    )
    series = Series(*(None if shape is None else re.compile(shape) for shape in (config.hosts, config.devices)))
    return CollectdEs(Server(access, config.index), series, options)


def _authorization(config: Config, site: Site) -> str:
    for kind in ("file", "env"):
        if name := getattr(config, f"password_{kind}"):
            return basic(config.user or "", site.secret(f"{kind}:{name}"))
        if name := getattr(config, f"api_key_{kind}"):
            return f"ApiKey {site.secret(f'{kind}:{name}')}"
    return ""
