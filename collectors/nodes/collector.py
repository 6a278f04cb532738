"""Ask the hub for a window of all nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from collectors.nodes.client import HubClient
from collectors.nodes.config import KEPT_SECONDS, STEP_SECONDS
from tokiod.crossing.remote import RemoteCollector
from tokiod.errors import Transient

if TYPE_CHECKING:
    from collectors.nodes.config import Config
    from tokiod.collector import Site
    from tokiod.window import Window
    from tokiod.window_data import WindowData


class Nodes:
    """The collector of the nodes. Its past is the hour that agents have in memory."""

    replayable: ClassVar[bool] = True
    needs_sample_at_end: ClassVar[bool] = False

    def __init__(self, config: Config, site: Site) -> None:
        self.step = STEP_SECONDS
        self._clock = site.clock
        self._hub = HubClient(site.hub)
        self._lane = RemoteCollector(self._hub, config, self, site.clock, config.datasets())

    async def collect(self, window: Window) -> WindowData:
        """Return a batch per metric, and the rows of the job table; nodes that did not answer have no cells, and are counted.

        Raises Transient while there is no hub, or no agent is connected to it; NotYet while the hub waits for its agents. What agents keep
        has passed an hour later, so that a backfill ends there.
        """
        try:
            return await self._lane.collect(window)
        except Transient as error:
            has_passed = window.end + KEPT_SECONDS <= self._clock.time()
            raise type(error)(str(error), window.start if has_passed else error.ended_at) from None

    async def count(self, window: Window) -> int | None:
        """Return how many rows the nodes have sent of a window, or can still send."""
        return await self._lane.count(window)

    async def close(self) -> None:
        """End the connection to the hub."""
        self._hub.close()
