"""What the compute nodes of a site measure: a function of node and minute, by the jobs that load its file system too."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from tokiod.agent.sensors import SENSORS
from tokiod.simulator.drawn import draw
from tokiod.simulator.jobs.work import HOUR, MAX_HOURS, NODES, Work

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokiod.agent.wire import JobRow
    from tokiod.simulator.site import Site

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
