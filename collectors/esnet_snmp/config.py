"""What a [[source]] of this kind and `tokioctl archive` take."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003 - msgspec reads annotations
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal
from urllib.parse import urlsplit

import msgspec

from collectors.esnet_snmp.datasets import DATASETS, name_faults
from tokiod.collector import SavedOptions, SourceConfig
from tokiod.option import option
from tokiod.units import Duration

if TYPE_CHECKING:
    from collections.abc import Iterator


class Config(SourceConfig, kw_only=True, forbid_unknown_fields=True, frozen=True):
    """ESnet's service.

    settle, recount: the newest points are null for a minute or two. So a window is queried when it is a minute old, and counted again
    after 2.5 minutes, an hour and a day: where nulls have become values, it is collected again.
    """

    selected_by: ClassVar[tuple[str, ...]] = ("url", "interfaces")

    settle: Annotated[
        Duration,
        option("Delay before a window is queried: the newest points are null for a minute or two.", values="zero or more"),
    ] = Duration(60)
    recount: Annotated[
        tuple[Duration, ...],
        option(
            "Times after which points are counted again. Where nulls have become values, the window is collected again.",
            values="[] for never",
        ),
    ] = (Duration(150), Duration(3600), Duration(86400))
    url: Annotated[
        str,
        option(
            "The part of the address before /ROUTER/interface/IFNAME/in.",
            '"https://graphite.es.net/snmp/west"',
            values="http:// or https://",
        ),
    ]
    interfaces: Annotated[
        tuple[str, ...],
        option(
            "The interfaces, as ESnet's routers name them; they are the columns. One that the service does not know is queried again "
            "after ten minutes.",
            '["sunn-cr5:to_nersc_ip-d_v4"]',
            values='at least one "ROUTER:IFNAME"',
        ),
    ]
    aggregate: Annotated[
        Literal["average", "min", "max", "raw"], option('The value of a point: the "average", "min" or "max" of an interval, or "raw".')
    ] = "average"
    interval: Annotated[Duration, option("The length of a point.", values="greater than zero")] = Duration(30)
    timestep: Annotated[
        Duration | None,
        option(
            "The step of the archive's rows, if it differs from interval. Their means are computed by tokiod, never by the service.",
            '"60s"',
            values="a multiple of interval",
            effect="reload; new steps from the next day",
        ),
    ] = None
    connections: Annotated[int, option("Requests at once; a window takes one for each interface and direction.", ge=1, le=16)] = 2
    rate: Annotated[float, option("Requests per second at most.", gt=0)] = 10.0
    request_timeout: Annotated[Duration, option("Time limit of one request.", values="greater than zero")] = Duration(20)
    tls_ca: Annotated[
        str | None, option("The authorities of the server's certificate; default: those of the system.", '"/etc/tokiod/esnet-ca.pem"')
    ] = None

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

    example: ClassVar[str] = "rates.json --interface sunn-cr5:to_nersc_ip-d_v4"

    step: Annotated[int, msgspec.Meta(ge=1, description="Seconds between rows.")] = 30
    interface: Annotated[tuple[str, ...], msgspec.Meta(description="ROUTER:IFNAME.  [default: all in the files]")] = ()
    interval: Annotated[
        Annotated[int, msgspec.Meta(ge=1)] | None, msgspec.Meta(description="Seconds between points.  [default: the most common]")
    ] = None

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
