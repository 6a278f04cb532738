"""The agents of a site's nodes: real links with keys, and rows that are known."""

from __future__ import annotations

import os
from random import Random
from typing import TYPE_CHECKING

import zmq
from zmq.auth import create_certificates

from tokiod import __version__
from tokiod.agent.keys import read_keys
from tokiod.agent.link import Link
from tokiod.agent.rows import KEPT_ROWS
from tokiod.simulator.nodes.cluster import JOB_METRICS, METRICS, STEP, Cluster

if TYPE_CHECKING:
    from pathlib import Path

    from tokiod.agent.wire import JobRow
    from tokiod.clock import SimulatedClock
    from tokiod.simulator.site import Site

HUB, CLASS = "hub", "compute"
CLIENTS = "clients"
"""The directory with the public key of the class."""
TURN_SECONDS = 0.02
"""Real seconds between two turns of all links: a part of what the hub waits for answers, also where time runs fast."""


class SimulatedRows:
    """The last hour of a node. It has run since the site's epoch."""

    def __init__(self, cluster: Cluster, node: str, clock: SimulatedClock) -> None:
        self._cluster, self._node, self._clock = cluster, node, clock

    def starts(self) -> list[float]:
        """Return the starts of the rows in memory, oldest first."""
        now, epoch = int(self._clock.time()) // STEP * STEP, self._cluster.site.epoch
        return [float(start) for start in range(max(now - (KEPT_ROWS - 1) * STEP, -(-epoch // STEP) * STEP), now + 1, STEP)]

    def values(self, start: float) -> tuple[dict[str, float], dict[str, int]]:
        """Return the values of a row by metric; no reading was dropped."""
        return self._cluster.values(self._node, int(start)), {}

    def jobs(self, start: float) -> list[JobRow]:
        """Return the jobs of a row."""
        return self._cluster.jobs(self._node, int(start))


def make_keys(directory: Path) -> None:
    """Make the hub's keys and those of the class, unless they are there; the hub accepts the class."""
    clients = directory / CLIENTS
    if clients.exists():
        return
    clients.mkdir(parents=True)
    for name in (HUB, CLASS):
        os.chmod(create_certificates(directory, name)[1], 0o600)  # noqa: PTH101 - a path as text
    os.link(directory / f"{CLASS}.key", clients / f"{CLASS}.key")


async def report(site: Site, clock: SimulatedClock, keys: Path, endpoint: str) -> None:
    """Run the agents of all nodes until it is cancelled."""
    make_keys(keys)
    cluster, context = Cluster(site), zmq.Context()
    own = read_keys(str(keys / f"{HUB}.key"), str(keys / f"{CLASS}.key_secret"))
    links = [
        Link(
            context, endpoint, own, node, os.urandom(8).hex(), __version__, STEP, METRICS, JOB_METRICS,
            SimulatedRows(cluster, node, clock), clock.time, clock.monotonic, Random(),  # noqa: S311 - jitter
        )
        for node in cluster.names
    ]  # fmt: skip
    try:
        while True:
            for link in links:
                link.turn()
            await clock.sleep(TURN_SECONDS * clock.rate)
    finally:
        for link in links:
            link.close()
        context.destroy(linger=0)
