"""Ask the hub for a window of all nodes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from collectors.nodes.client import HubClient
from collectors.nodes.config import KEPT_SECONDS
from collectors.nodes.hub_protocol import JOB_FIELDS, Collect, Collected, Count, Counted
from collectors.nodes.to_batches import batches
from collectors.nodes.to_rows import JOB_METRICS, job_rows
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
        self._seconds_for = config.seconds_for
        self._clock = site.clock
        self._hub = HubClient(site.hub)

    async def collect(self, window: Window) -> WindowData:
        """Return a batch per metric, and the rows of the job table; nodes that did not answer have no cells, and are counted.

        Raises Transient while there is no hub, or no agent is connected to it; NotYet while the hub waits for its agents. What agents keep
        has passed an hour later, so that a backfill ends there.
        """
        collect = partial(
            Collect, start=window.start, end=window.end, step=self.step, metrics=self._metrics, job_metrics=JOB_METRICS,
            seconds=self._seconds_for(window),
        )  # fmt: skip
        try:
            answer, arrays = await self._hub.ask(collect)
        except Transient as error:
            has_passed = window.end + KEPT_SECONDS <= self._clock.time()
            raise type(error)(str(error), window.start if has_passed else error.ended_at) from None
        if not isinstance(answer, Collected):
            raise Transient(f"the hub sent {type(answer).__name__} for the request of a window")
        shape = (len(self._metrics), window.seconds // self.step, len(answer.nodes))
        width = 8 * (JOB_FIELDS + len(JOB_METRICS))
        sizes = [len(array) for array in arrays]
        if len(arrays) != 2 or sizes[0] != 8 * shape[0] * shape[1] * shape[2] or sizes[1] % width:  # noqa: PLR2004 - of Collected
            raise Transient(f"the hub sent arrays of {sizes} bytes for {shape} values, and jobs of {width} bytes each")
        values = np.frombuffer(arrays[0], "<f8").reshape(shape)
        states = np.frombuffer(arrays[1], "<f8").reshape(width // 8, sizes[1] // width)
        return WindowData(
            list(batches(values, self._metrics, answer.nodes, window.start, self.step)), answer.records, answer.dropped,
            [job_rows(states, answer.jobs, answer.nodes, window)],
        )  # fmt: skip

    async def count(self, window: Window) -> int | None:
        """Return how many rows the nodes have sent of a window, or can still send."""
        answer, _ = await self._hub.ask(partial(Count, start=window.start, end=window.end, step=self.step))
        return answer.records if isinstance(answer, Counted) else None

    async def close(self) -> None:
        """End the connection to the hub."""
        self._hub.close()
