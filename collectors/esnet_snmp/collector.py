"""Ask ESnet's service window by window."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar

from collectors.esnet_snmp.client import Service, Unknown
from collectors.esnet_snmp.datasets import DATASETS, sent
from collectors.esnet_snmp.parse import parse
from collectors.esnet_snmp.to_batches import batches, count
from tokiod.errors import Fatal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from collectors.esnet_snmp import Config
    from collectors.esnet_snmp.parse import Points
    from collectors.esnet_snmp.to_batches import Series
    from tokiod.batch import Batch
    from tokiod.collector import Site, Tally
    from tokiod.window import Window

FORGIVEN = 600.0
"""Seconds after which an interface that the service did not know is asked for again."""
UNKNOWN = "interface that the service does not know"


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

    async def collect(self, window: Window, tally: Tally) -> AsyncIterator[Batch]:
        """Yield both directions. Raises Fatal where the service knows none of the interfaces, and what asking for one of them raises."""
        points = await self._points(window)
        tally.records = self._counted(points, window)
        if lacking := len(self._columns) - len({name for name, _ in points}):
            tally.dropped[UNKNOWN] += lacking
        for one in points.values():
            tally.dropped.update(one.dropped)
        for batch in batches(points, self._columns, int(self._config.interval), self.step, window):
            yield batch

    async def count(self, window: Window) -> int | None:
        """Return of how many rows of a window points are known by now."""
        return self._counted(await self._points(window), window)

    async def close(self) -> None:
        """Close the connections."""
        await self._service.close()

    def _counted(self, points: dict[Series, Points], window: Window) -> int:
        return count(points, int(self._config.interval), self.step, window)

    async def _points(self, window: Window) -> dict[Series, Points]:
        now = self._clock.monotonic()
        wanted = [name for name in self._columns if now >= self._unknown.get(name, now)]
        series = [(name, direction) for name in wanted for direction in DATASETS]
        found = dict(zip(series, await self._all([self._one(*one, window) for one in series]), strict=True))
        for name in {name for (name, _), points in found.items() if points is None}:
            self._unknown[name] = now + FORGIVEN
        known = {one: points for one, points in found.items() if points is not None}
        if not known:
            raise Fatal(f"{self._config.url} knows none of the interfaces, among them {self._columns[0]}: check interfaces and url")
        return known

    async def _all(self, asked: list[asyncio.Future[Points | None]]) -> list[Points | None]:
        """Return all answers, or raise what the first failure was, when no request is underway any more."""
        try:
            return list(await asyncio.gather(*asked))
        finally:
            for one in asked:
                one.cancel()
            await asyncio.gather(*asked, return_exceptions=True)

    def _one(self, name: str, direction: str, window: Window) -> asyncio.Future[Points | None]:
        return asyncio.ensure_future(self._asked(name, direction, window))

    # The end is inclusive there. A point from before the window still tells of its first row where rows are not points.
    async def _asked(self, name: str, direction: str, window: Window) -> Points | None:
        """Return what the service knows of an interface and direction, None where it doesn't know that."""
        config, (router, interface) = self._config, name.split(":", 1)
        interval = int(config.interval)
        begin = window.start - (0 if interval == self.step else interval)
        query = {"begin": str(begin), "end": str(window.end - 1), "cf": config.aggregate}
        if config.aggregate != "raw":
            query["agg"] = str(interval)
        url = self._service.url(router, "interface", sent(interface), direction)
        try:
            return parse(await self._service.get(url, query), str(url))
        except Unknown:
            return None
