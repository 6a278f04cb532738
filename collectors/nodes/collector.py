"""Ask the hub for a window of all nodes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from collectors.nodes.client import HubClient
from collectors.nodes.hub_protocol import Collect, Collected, Count, Counted
from collectors.nodes.to_batches import batches
from tokiod.errors import Transient
from tokiod.window_data import WindowData

if TYPE_CHECKING:
    from collectors.nodes.config import Config
    from tokiod.collector import Site
    from tokiod.window import Window


class Nodes:
    """The collector of the nodes. Its past is the hour that agents have in memory."""

    replayable: ClassVar[bool] = True
    needs_sample_at_end: ClassVar[bool] = False

    def __init__(self, config: Config, site: Site) -> None:
        self.step = config.step
        self._metrics = config.metrics
        self._hub = HubClient(site.hub)

    async def collect(self, window: Window) -> WindowData:
        """Return a batch per metric; nodes that did not answer have no cells, and are counted.

        Raises Transient while there is no hub, or no agent is connected to it; NotYet while the hub waits for its agents.
        """
        collect = partial(Collect, start=window.start, end=window.end, step=self.step, metrics=self._metrics)
        answer, data = await self._hub.ask(collect)
        if not isinstance(answer, Collected):
            raise Transient(f"the hub sent {type(answer).__name__} for the request of a window")
        shape = (len(self._metrics), window.seconds // self.step, len(answer.nodes))
        if len(data) != 8 * shape[0] * shape[1] * shape[2]:
            raise Transient(f"the hub sent {len(data)} bytes for {shape} values")
        values = np.frombuffer(data, "<f8").reshape(shape)
        return WindowData(list(batches(values, self._metrics, answer.nodes, window.start, self.step)), answer.records, answer.dropped)

    async def count(self, window: Window) -> int | None:
        """Return how many rows the nodes have sent of a window, or can still send."""
        answer, _ = await self._hub.ask(partial(Count, start=window.start, end=window.end, step=self.step))
        return answer.records if isinstance(answer, Counted) else None

    async def close(self) -> None:
        """End the connection to the hub."""
        self._hub.close()
