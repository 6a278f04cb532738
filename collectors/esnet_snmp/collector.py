"""Query ESnet's service window by window."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar

from collectors.esnet_snmp.client import NotFound, Service
from collectors.esnet_snmp.datasets import DATASETS, service_name
from collectors.esnet_snmp.parse import parse
from collectors.esnet_snmp.to_batches import batches, count
from tokiod.dropped import Dropped
from tokiod.errors import Fatal
from tokiod.toolkit.tasks import started
from tokiod.window_data import WindowData

if TYPE_CHECKING:
    from collectors.esnet_snmp import Config
    from collectors.esnet_snmp.parse import Points
    from collectors.esnet_snmp.to_batches import Series
    from tokiod.collector import Site
    from tokiod.window import Window

UNKNOWN_RETRY_SECONDS = 600.0
"""After this time the service is queried again about an interface that it did not know."""
UNKNOWN_INTERFACE = "interface that the service does not know"


class EsnetSnmp:
    """The collector of ESnet's service: one request for each interface and direction of a window."""

    replayable: ClassVar[bool] = True
    needs_sample_at_end: ClassVar[bool] = False

    def __init__(self, config: Config, site: Site) -> None:
        self.step = config.step
        self._config = config
        self._clock = site.clock
        self._columns = tuple(dict.fromkeys(config.interfaces))
        seconds = float(config.request_timeout)
        self._service = Service(config.url, connections=config.connections, rate=config.rate, seconds=seconds, tls_ca=config.tls_ca)
        self._unknown: dict[str, float] = {}

    async def collect(self, window: Window) -> WindowData:
        """Return both directions. Raises as points()."""
        points = await self.points(window)
        unknown = [name for name in self._columns if name not in {known for known, _ in points}]
        dropped = Dropped()
        dropped.add(UNKNOWN_INTERFACE, len(unknown), "".join(unknown[:1]), "check interfaces")
        for one in points.values():
            dropped.take(one.dropped)
        found = list(batches(points, self._columns, int(self._config.interval), self.step, window))
        return WindowData(found, self._count(points, window), dropped.counts, why=dropped.why)

    async def count(self, window: Window) -> int | None:
        """Return how many rows of a window have known points by now."""
        return self._count(await self.points(window), window)

    async def close(self) -> None:
        """Close the connections."""
        await self._service.close()

    def _count(self, points: dict[Series, Points], window: Window) -> int:
        return count(points, int(self._config.interval), self.step, window)

    async def points(self, window: Window) -> dict[Series, Points]:
        """Return the points that cover a part of a window, of all interfaces that the service knows.

        Raises Fatal if it knows none of them, Transient or Fatal for a failed request.
        """
        now = self._clock.monotonic()
        wanted = [name for name in self._columns if now >= self._unknown.get(name, now)]
        series = [(name, direction) for name in wanted for direction in DATASETS]
        async with started(self._query(*one, window) for one in series) as requests:
            found = dict(zip(series, await asyncio.gather(*requests), strict=True))
        for name in {name for (name, _), points in found.items() if points is None}:
            self._unknown[name] = now + UNKNOWN_RETRY_SECONDS
        known = {one: points for one, points in found.items() if points is not None}
        if not known:
            raise Fatal(f"{self._config.url} does not know any of the interfaces, such as {self._columns[0]}: check interfaces and url")
        return known

    # The service includes the end. Where rows are not points, a point from before the window still covers part of its first row.
    async def _query(self, name: str, direction: str, window: Window) -> Points | None:
        """Return the points of an interface and direction, None where the service does not know it."""
        config, (router, interface) = self._config, name.split(":", 1)
        interval = int(config.interval)
        begin = window.start - (0 if interval == self.step else interval)
        query = {"begin": str(begin), "end": str(window.end - 1), "cf": config.aggregate}
        if config.aggregate != "raw":
            query["agg"] = str(interval)
        url = self._service.url(router, "interface", service_name(interface), direction)
        try:
            return parse(await self._service.get(url, query), str(url))
        except NotFound:
            return None
