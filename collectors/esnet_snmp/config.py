"""What a [[source]] of this kind and `tokioctl archive` take."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - msgspec reads annotations
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal
from urllib.parse import urlsplit

import msgspec

from collectors.esnet_snmp.datasets import DATASETS, name_faults
from tokiod.collector import SavedOptions, SourceConfig
from tokiod.units import Duration

if TYPE_CHECKING:
    from collections.abc import Iterator


class Config(SourceConfig, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """ESnet's service.

    url: the part before /ROUTER/interface/...; interfaces: "ROUTER:IFNAME", which are also the columns.
    aggregate, interval: the function and length of a point; timestep: seconds between rows of the archive, default: interval.
    connections: requests at once; rate: requests per second; request_timeout: of each request; tls_ca: authorities to trust.
    settle, recount: the newest points are null for a minute or two. So a window is queried when it is a minute old, and counted again
    after 2.5 minutes, an hour and a day: where nulls have become values, it is collected again.
    """

    selected_by: ClassVar[tuple[str, ...]] = ("url", "interfaces")

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

    def columns(self) -> Mapping[str, int]:
        """Return the number of interfaces, for both directions."""
        return dict.fromkeys(DATASETS.values(), len(set(self.interfaces)))

    def faults(self) -> list[str]:
        """Return the errors of URL, names and time spans."""
        return list(self._faults())

    def _faults(self) -> Iterator[str]:
        yield from _url_faults(self.url)
        yield from (f"interfaces: {fault}" for fault in name_faults(self.interfaces))
        if not self.interfaces:
            yield 'interfaces: at least one is required, as "ROUTER:IFNAME"'
        for name in ("interval", "request_timeout"):
            if getattr(self, name) <= 0:
                yield f"{name}: must be greater than zero"
        if self.step <= 0:
            yield "timestep: must be greater than zero"


class Saved(SavedOptions, kw_only=True, frozen=True):
    """The interfaces, and the lengths of points and rows."""

    step: Annotated[int, msgspec.Meta(ge=1, description="Seconds between rows.")] = 30
    interface: Annotated[tuple[str, ...], msgspec.Meta(description="ROUTER:IFNAME.  [default: all in the files]")] = ()
    interval: Annotated[int | None, msgspec.Meta(ge=1, description="Seconds between points.  [default: the most common]")] = None

    def datasets(self) -> frozenset[str]:
        """Return both directions."""
        return frozenset(DATASETS.values())

    def faults(self) -> list[str]:
        """Return the errors of names."""
        return [f"interface: {fault}" for fault in name_faults(self.interface)]


def _url_faults(text: str) -> Iterator[str]:
    try:
        url = urlsplit(text)
        url.port  # noqa: B018 - raises for an invalid one
    except ValueError:
        yield "url: is malformed"
        return
    if url.scheme not in {"http", "https"} or not url.hostname or url.query or url.fragment:
        yield 'url: expected "https://host/path"'
