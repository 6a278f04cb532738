"""What a [[source]] of this kind, and `tokioctl archive`, may be told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import urlsplit

import msgspec

from collectors.esnet_snmp.datasets import DATASETS, name_faults
from tokiod.collector import SavedOptions, SourceConfig
from tokiod.units import Duration

if TYPE_CHECKING:
    from collections.abc import Iterator


class Config(SourceConfig, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """ESnet's service.

    url: what stands before /ROUTER/interface/...; interfaces: "ROUTER:IFNAME", which are also the columns.
    aggregate, interval: what a point is of so many seconds; timestep: between rows of the archive, default: the interval.
    connections, rate: how many requests at once, and a second; request_timeout: of each; tls_ca: whose certificates are believed.
    settle, recount: the newest points are null for a minute or two. So a window is asked for when it is a minute old, and counted
    again after two and a half, an hour and a day: where nulls have become values it is asked for again.
    """

    settle: Duration = Duration(60)
    recount: tuple[Duration, ...] = (Duration(150), Duration(3600), Duration(86400))
    url: str
    interfaces: tuple[str, ...]
    aggregate: Literal["average", "min", "max", "raw"] = "average"
    interval: Duration = Duration(30)
    timestep: Duration | None = None
    connections: Annotated[int, msgspec.Meta(ge=1, le=16)] = 2
    rate: Annotated[float, msgspec.Meta(gt=0)] = 10.0
    request_timeout: Duration = Duration(20)
    tls_ca: str | None = None

    @property
    def step(self) -> int:
        """Seconds between rows."""
        return int(self.interval if self.timestep is None else self.timestep)

    def datasets(self) -> frozenset[str]:
        """Return both directions."""
        return frozenset(DATASETS.values())

    def faults(self) -> list[str]:
        """Return what is wrong with the URL, names and lengths."""
        return list(self._faults())

    def _faults(self) -> Iterator[str]:
        yield from _url_faults(self.url)
        yield from (f"interfaces: {fault}" for fault in name_faults(self.interfaces))
        if not self.interfaces:
            yield 'interfaces: name at least one, as "ROUTER:IFNAME"'
        for name in ("interval", "request_timeout"):
            if getattr(self, name) <= 0:
                yield f"{name}: must be longer than nothing"
        if self.step <= 0:
            yield "timestep: must be longer than nothing"


class Saved(SavedOptions, kw_only=True, frozen=True):
    """Which interfaces, and how far apart points and rows are."""

    step: Annotated[int, msgspec.Meta(ge=1, description="Seconds between rows.")] = 30
    interface: Annotated[tuple[str, ...], msgspec.Meta(description="ROUTER:IFNAME.  [default: all that are in the files]")] = ()
    interval: Annotated[int | None, msgspec.Meta(ge=1, description="Seconds between points.  [default: the most common]")] = None

    def datasets(self) -> frozenset[str]:
        """Return both directions."""
        return frozenset(DATASETS.values())

    def faults(self) -> list[str]:
        """Return what is wrong with names."""
        return [f"interface: {fault}" for fault in name_faults(self.interface)]


def _url_faults(text: str) -> Iterator[str]:
    try:
        url = urlsplit(text)
        url.port  # noqa: B018 - raises for one that is none
    except ValueError:
        yield "url: can't be understood"
        return
    if url.scheme not in {"http", "https"} or not url.hostname or url.query or url.fragment:
        yield 'url: expected "https://host/path"'
