"""What the compute nodes of a site measure: a function of node and minute, by the jobs that load its file system too.

Their agents report it over real links with keys, and an archive holds it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING

import numpy as np
import zmq
from zmq.auth import create_certificates

from tokiod import __version__
from tokiod.agent.keys import read_keys
from tokiod.agent.link import Link
from tokiod.agent.rows import KEPT_ROWS
from tokiod.agent.sensors import SENSORS
from tokiod.simulator.drawn import draw
from tokiod.simulator.expected import Answer, Expected, steps
from tokiod.simulator.jobs.work import HOUR, MAX_HOURS, NODES, Work

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tokiod.agent.wire import JobRow
    from tokiod.clock import SimulatedClock
    from tokiod.simulator.site import Site
    from tokiod.window import Window


STEP = 60
"""Seconds of a row of an agent."""
CORES, MEMORY = 32, 256 << 30
"""Of a node."""
_DECLARED = {metric.name: metric for sensor in SENSORS for metric in sensor.metrics}
METRICS = tuple(_DECLARED[name] for name in ("cpu_user", "load_1min", "mem_available", "net_received"))
JOB_METRICS = (_DECLARED["job_cpu"], _DECLARED["job_mem"])


@dataclass(frozen=True, slots=True)
class NodeJob:
    """A job of a node: its name as agents report it, its begin and end in epoch seconds, and what it uses all the time."""

    name: str
    begin: int
    end: int
    cores: float
    memory: int

    def seconds(self, start: int, end: int) -> int:
        """Return for how long it runs in a span."""
        return max(0, min(self.end, end) - max(self.begin, start))


class Cluster:
    """The nodes of a site, each with the jobs that Lustre's servers count too."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.names = tuple(f"nid{number:05d}" for number in range(NODES))
        self._work = Work(site)
        self._begun = lru_cache(maxsize=16)(self._begun_in)
        self._noise = lru_cache(maxsize=4 * NODES)(lambda node, hour: draw(site, f"node {node}", hour, HOUR // STEP, 2))

    def values(self, node: str, start: int) -> dict[str, float]:
        """Return the values of a row by metric."""
        jobs = [*self._running(node, start)]
        (noise, received), end = self._noise(node, start // HOUR)[start % HOUR // STEP].tolist(), start + STEP
        busy = sum(job.cores * job.seconds(start, end) for job in jobs)
        return {
            "cpu_user": round(busy + noise, 2),
            "load_1min": round(busy / STEP + noise, 2),
            "mem_available": float(MEMORY - sum(job.memory for job in jobs) - int(noise * (1 << 30))),
            "net_received": float(int((1 + busy) * received * 1e6)),
        }

    def jobs(self, node: str, start: int) -> list[JobRow]:
        """Return the jobs of a row as the wire has them, those that ended first."""
        end = start + STEP
        rows: list[JobRow] = []
        for job in self._running(node, start):
            has_ended = job.end < end
            time = job.end if has_ended else end - 1
            rows.append((job.name, float(job.begin), float(time), has_ended, [job.cores * (time - job.begin), float(job.memory)]))
        return sorted(rows, key=lambda row: not row[3])

    def _running(self, node: str, start: int) -> Iterator[NodeJob]:
        """Yield the jobs that run in a row, or end in it: at its end they are of the next one."""
        hour = start // HOUR
        for begun in range(max(hour - MAX_HOURS, self.site.epoch // HOUR), hour + 1):
            yield from (job for job in self._begun(begun).get(node, ()) if job.begin < start + STEP and job.end >= start)

    def _begun_in(self, hour: int) -> dict[str, list[NodeJob]]:
        found: dict[str, list[NodeJob]] = {}
        for identity, begin, seconds, drawn in self._work.scheduled(hour):
            number, _user, node = identity.split(":")
            cores = 1 + int(drawn[6] * CORES)
            found.setdefault(node, []).append(NodeJob(f"slurm:{number}", begin, begin + seconds, cores, int(drawn[7] * MEMORY / 8)))
        return found


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


class NodeAnswers(Expected):
    """What the files of a site's nodes hold.

    A node whose agent did not answer in time has no cells in that row, until a recount asks it again.
    """

    def of(self, file: Window) -> dict[str, Answer]:
        """Return the answer for every dataset of a file."""
        times, cluster = steps(file, STEP), _cluster(self.site)
        there = self.in_archive(times) & (times >= self.site.epoch)
        cells = np.full((len(METRICS), len(times), len(cluster.names)), np.nan)
        for row in there.nonzero()[0].tolist():
            for column, node in enumerate(cluster.names):
                values = cluster.values(node, int(times[row]))
                cells[:, row, column] = [values[metric.name] for metric in METRICS]
        return {f"nodes/{metric.name}": self.answer(cluster.names, times, cells[place]) for place, metric in enumerate(METRICS)}


_cluster = lru_cache(maxsize=2)(Cluster)
