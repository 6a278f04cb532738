"""Agents of nodes whose values are known: their links are real, what they measured is a function of node, row and metric."""

import argparse
import contextlib
import os
import random
import resource
import select
import sys
import time
import zlib
from pathlib import Path

import zmq

from tokiod.agent.keys import read_keys
from tokiod.agent.link import Link
from tokiod.agent.metric import counter, gauge
from tokiod.clock import SimulatedClock

STEP = 60
JOB_METRICS = (counter("job_cpu", "s", ""), gauge("job_mem", "B", ""))
METRICS = (gauge("load_1min", "1", ""), counter("net_sent", "B", ""), gauge("mem_free", "B", ""), gauge("temperature", "degC", ""))


def value(node, start, metric):
    """What a node measured in a row; None where it has no value."""
    drawn = zlib.crc32(f"{node} {start} {metric}".encode())
    return None if drawn % 97 == 0 else float(drawn % (100 if metric == "temperature" else 1_000_000))


def job_rows(node, start):
    """The jobs of a node in a row, as the wire sends them: one of an hour, and one of each minute, which ends.

    A job of an hour is on four nodes.
    """
    begin = start // 3600 * 3600
    long = begin // 3600 * 1000 + zlib.crc32(node.encode()) % 250
    seconds = start + 59 - begin
    short = f"slurm:{start}{zlib.crc32(node.encode()) % 10_000}"
    return [
        (short, start + 1.5, start + 3.25, True, [0.75, 5e6]),
        (f"slurm:{long}", float(begin), start + 59.0, False, [seconds * 0.5, 1e9 + start % 7]),
    ]


class KnownRows:
    """The last hour of a node since it started."""

    def __init__(self, node, clock_time, began, metrics=METRICS):
        self._node, self._time, self._began, self._metrics = node, clock_time, began, metrics

    def starts(self):
        now = int(self._time())
        first = max(-(-int(self._began) // STEP) * STEP, (now // STEP - 59) * STEP)
        return [float(start) for start in range(first, now + 1, STEP)]

    def values(self, start):
        found = {metric.name: value(self._node, int(start), metric.name) for metric in self._metrics}
        return {name: of for name, of in found.items() if of is not None}, {}

    def jobs(self, start):
        return job_rows(self._node, int(start))


def link(context, endpoint, keys, node, clock, *, began=0.0, metrics=METRICS, session=None, seed=None, step=STEP):
    """Make the link of a node."""
    rows = KnownRows(node, clock.time, began, metrics)
    session = session or os.urandom(4).hex()
    given = session, "1.0", step, metrics, JOB_METRICS, rows, clock.time, clock.monotonic, random.Random(seed)
    return Link(context, endpoint, keys, node, *given)


def main():
    """Run the agents of many nodes in this process until it is killed; print how often they dialled, each second."""
    parser = argparse.ArgumentParser()
    for name in ("--endpoint", "--hub-key", "--key", "--clock", "--names"):
        parser.add_argument(name, required=True)
    parser.add_argument("--began", type=float, default=0.0)
    parser.add_argument("--rates", type=Path)
    given = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    clock, context = SimulatedClock.parse(given.clock), zmq.Context()
    context.max_sockets = 65_536
    keys = read_keys(given.hub_key, given.key)
    links = [link(context, given.endpoint, keys, name, clock, began=given.began) for name in given.names.split(",")]
    run(links, clock, given.rates)


def run(links, clock, rates=None):
    """Turn the links as their descriptors become readable or something is due, and all of them once a second of the machine."""
    poller, watched, turned, counted = select.epoll(), {}, 0.0, (time.time(), 0, 0)
    of_links = [((), ())] * len(links)
    while os.getppid() != 1:
        ready = {watched[fd] for fd, _ in poller.poll(0.05) if fd in watched}
        now, simulated = time.monotonic(), clock.monotonic()
        ready |= {index for index, one in enumerate(links) if one.next_due() <= simulated}
        if now - turned > 1:
            ready, turned = set(range(len(links))), now
        for index in ready:
            one = links[index]
            one.turn()
            # A descriptor is asked for only where there may be another one: that costs more than all else.
            if of_links[index][0] == (state := (one.dials, one.state)):
                continue
            for fd in of_links[index][1]:
                if watched.get(fd) == index:
                    del watched[fd]
                    _unregister(poller, fd)
            of_links[index] = state, one.filenos()
            for fd in of_links[index][1]:
                watched[fd] = index
                _unregister(poller, fd)
                poller.register(fd, select.EPOLLIN | select.EPOLLET)
        if rates is not None and time.time() - counted[0] >= 1:
            dials, answers = sum(one.dials for one in links), sum(one.answered for one in links)
            with rates.open("a") as file:
                file.write(f"{int(time.time())} {dials - counted[1]} {answers - counted[2]}\n")
            counted = (time.time(), dials, answers)


def _unregister(poller, fd):
    with contextlib.suppress(OSError, ValueError):
        poller.unregister(fd)


if __name__ == "__main__":
    sys.exit(main())
