"""Receivers that are down for a day of simulated time: commits take as long as before, and the sinks catch up.

PYTHONPATH=tests/support python -m tests.system.sink_outage [kafka] [elasticsearch] [opensearch] [--hours 24] [--rate 180]

One daemon collects LMT of 24 OSTs. The receivers are killed, all at once, and started again one by one, in the order of the arguments; each
sink sends what it missed while the daemon is down, so that nothing else uses the processors but, beside a search server, a neighbour whose
bulk requests fill its queue of writes: it answers with status 429. The outage crosses the end of a month, and the index of the next one has
a mapping that rejects one metric until a person corrects it, and rewinds the sink.
Prints a line for each receiver and one for the commits. Exits 1 for a cell that differs, or a sink that catches up at less than 50 times
real time. Times are real ones.
"""

from __future__ import annotations

import argparse
import itertools
import json
import signal
import sys
import tempfile
import threading
import time
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self

import numpy as np
from elasticsearch_server import SearchServer
from kafka_server import KafkaServer
from kafka_topics import create_topic
from search_client import Refused
from search_documents import documents, metrics
from sink_scene import SinkScene
from topic_scene import consumed, section
from waiting import wait_for

from tokiod.clock import SimulatedClock
from tokiod.metrics.stage_ring import read_ring
from tokiod.metrics.stages import ring_path
from tokiod.simulator.site import Site
from tokiod.simulator.sources import LMT, free_port
from tokiod.window import iso

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sink_scene import Cells

BEFORE = 3 * 3600
NEXT_MONTH = 1_793_491_200
"""2026-11-01T00:00:00Z, in the middle of the outage."""
MONTH = "2026.11"
HISTORY = 600
RETENTION = 7200
"""Seconds: of a daemon that is never down."""
LEAST_SPEED = 50
NAME = "outage"
NEIGHBOURS = 3
PAUSE_SECONDS = 0.5
"""Between two bursts of a neighbour: a queue that is always full would leave the sink no turn at all."""
BURST = 10
"""Requests."""
BUSY = 429
REJECTED, BYTE = "writebytes", 127
"""The metric that the mapping of the next month rejects, and the largest value that it takes."""


class Receiver(Protocol):
    """A server that a sink sends to; unit: what it stores."""

    name: str
    unit: str

    @property
    def section(self) -> str: ...
    def prepare(self) -> None: ...
    def kill(self) -> None: ...
    def start(self) -> None: ...
    def cells(self) -> Cells: ...


class Kafka:
    """A real Kafka."""

    name, unit = "kafka", "messages"

    def __init__(self, undo: ExitStack) -> None:
        self._server = undo.enter_context(KafkaServer())

    @property
    def section(self) -> str:
        return section(self._server.address, NAME)

    def prepare(self) -> None:
        create_topic(self._server.address, f"{NAME}-{LMT.system}")

    def kill(self) -> None:
        self._server.signal(signal.SIGKILL)

    def start(self) -> None:
        self._server.start()

    def cells(self) -> Cells:
        return consumed(self._server.address, f"{NAME}-{LMT.system}")


class Search:
    """A real Elasticsearch or OpenSearch, whose queue of writes has room for one."""

    unit = "documents"

    def __init__(self, name: str, undo: ExitStack) -> None:
        self.name = name
        queue = {"thread_pool.write.size": 1, "thread_pool.write.queue_size": 1}
        # The configuration of the sink names its port, which is the same after a kill.
        self.server = undo.enter_context(SearchServer(name, settings=queue, port=free_port()))

    @property
    def section(self) -> str:
        return f'kind = "elasticsearch"\nurl = "{self.server.url}"\nprefix = "{NAME}"\n'

    @property
    def next_index(self) -> str:
        return f"{NAME}-{LMT.system}-{MONTH}"

    def prepare(self) -> None:
        """Make the index of the next month with a mapping that rejects a metric, on top of the template."""
        self.server.ask("PUT", f"/{self.next_index}", {"mappings": {"properties": {REJECTED: {"type": "byte"}}}})

    def kill(self) -> None:
        self.server.signal(signal.SIGKILL)

    def start(self) -> None:
        self.server.start()

    def cells(self) -> Cells:
        found: dict[tuple[str, str, str], tuple[list[int], list[float]]] = defaultdict(lambda: ([], []))
        for one in documents(self.server, f"{NAME}-{LMT.system}-*"):
            for dataset, value in metrics(one).items():
                times, values = found[one["system"], dataset, one["component"]]
                times.append(one["@timestamp"])
                values.append(value)
        return dict(found)

    def rejected(self) -> int:
        """Return how many rejected documents are stored."""
        self.server.ask("POST", f"/{NAME}.rejected/_refresh")
        return int(self.server.ask("GET", f"/{NAME}.rejected/_count")["count"])

    def refused(self) -> int:
        """Return how many bulk requests the full queue refused since the server runs."""
        nodes = self.server.ask("GET", "/_nodes/stats/thread_pool")["nodes"].values()
        return sum(one["thread_pool"]["write"]["rejected"] for one in nodes)


class Neighbour:
    """Threads that fill the queue of writes of a server. refused: how many of their requests were refused."""

    def __init__(self, server: SearchServer) -> None:
        self.refused = 0
        self._server, self._stopping = server, threading.Event()
        line = json.dumps({"index": {}}) + "\n" + json.dumps({"text": "x" * 200}) + "\n"
        self._body = (line * 500).encode()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(NEIGHBOURS)]

    def __enter__(self) -> Self:
        for one in self._threads:
            one.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for one in self._threads:
            one.join(60)

    def _run(self) -> None:
        requests = itertools.count(1)
        while not self._stopping.wait(0 if next(requests) % BURST else PAUSE_SECONDS):
            try:
                items = self._server.ask("POST", "/neighbour/_bulk?filter_path=items.*.status", self._body)["items"]
                self.refused += any(one["index"]["status"] == BUSY for one in items)
            except Refused as error:
                self.refused += error.status == BUSY
            except OSError:
                continue


def play(receivers: list[Receiver], hours: float, rate: float) -> Iterator[str]:
    """Yield a line for each result. Raises AssertionError for the first fault."""
    down = NEXT_MONTH - int(hours * 1800)
    clock = SimulatedClock(float(down - BEFORE), time.time(), rate)
    site = Site(down - BEFORE - HISTORY, timezone="UTC", osts=24, osss=4, mdts=1, moment=60)
    sections = {one.name: one.section for one in receivers}
    with tempfile.TemporaryDirectory(prefix="sink-outage-") as name:
        scene = SinkScene(Path(name), site, clock, retention=RETENTION, sources=(LMT,), log_level="warning", sections=sections)
        scene.prepare()
        try:
            scene.start_simulator()
            scene.start_daemon()
            for one in receivers:
                scene.start_sink(one.name)
                wait_for(lambda one=one: scene.sink_state(one.name).records > 0, 120, f"{one.name}: {_log(scene, one)}")
                one.prepare()
            yield from _outage(scene, receivers, down, hours)
            for one in receivers:
                yield _caught_up(scene, one, hours)
        finally:
            scene.close()


def _outage(scene: SinkScene, receivers: list[Receiver], down: int, hours: float) -> Iterator[str]:
    """Kill the receivers for some hours, and stop the daemon; yield how long commits took."""
    _sleep_until(scene.clock, down)
    before = time.monotonic_ns()
    for one in receivers:
        one.kill()
    _sleep_until(scene.clock, down + hours * 3600)
    end = int(scene.clock.time()) // scene.window * scene.window
    wait_for(lambda: scene.complete_to(scene.site.epoch, end), 300, f"not complete; see {scene.log.read_text()[-2000:]}")
    assert scene.stop_daemon() == 0
    for one in receivers:
        state = scene.sink_state(one.name)
        assert state.trouble in {"waiting", "late"}, state
    with_them, without = _commits(scene, before)
    yield (
        f"commits: p95 {_p95(with_them):.1f} ms of {len(with_them)} with the receivers, {_p95(without):.1f} ms of {len(without)} in "
        f"{hours:g} h without them; medians {np.median(with_them) / 1e6:.1f} and {np.median(without) / 1e6:.1f} ms"
    )


def _commits(scene: SinkScene, instant: int) -> tuple[list[int], list[int]]:
    """Return the times of commits before and after an instant of the monotonic clock, ns, as the writer recorded them."""
    recording = read_ring(ring_path(scene.config.stages, "writer"))
    assert recording is not None
    assert recording.damaged == 0
    found: tuple[list[int], list[int]] = ([], [])
    for one in recording.works:
        if one.kind == "commit" and one.marks[-1]:
            found[one.marks[0] > instant].append(one.marks[-1] - one.marks[0])
    return found


def _p95(times: list[int]) -> float:
    return float(np.percentile(times, 95)) / 1e6


def _caught_up(scene: SinkScene, receiver: Receiver, hours: float) -> str:
    """Start a receiver again; return how fast its sink sent what it had missed. All cells are equal then."""
    records, busy = scene.sink_state(receiver.name).records, ""
    receiver.start()
    begun = time.monotonic()
    if isinstance(receiver, Search):
        with Neighbour(receiver.server) as neighbour:
            _wait_for_all(scene, receiver)
        own = receiver.refused() - neighbour.refused
        assert own > 0, "the queue of writes was never full for the sink"
        busy = f", {own} requests of which were refused with 429"
    else:
        _wait_for_all(scene, receiver)
    seconds = time.monotonic() - begun
    sent = scene.sink_state(receiver.name).records - records
    corrected = _correct(scene, receiver) if isinstance(receiver, Search) else ""
    held, received = scene.held(), receiver.cells()
    assert received.keys() == held.keys(), received.keys() ^ held.keys()
    assert all(received[name] == held[name] for name in held), [name for name in held if received[name] != held[name]]
    speed = hours * 3600 / seconds
    assert speed >= LEAST_SPEED, speed
    cells = sum(len(times) for times, _ in held.values())
    return (
        f"{receiver.name}: {hours:g} h caught up in {seconds:.0f} s, {speed:.0f} times real time, {sent / seconds:,.0f} {receiver.unit}/s"
        f"{busy}{corrected}; {cells} cells equal"
    )


def _correct(scene: SinkScene, receiver: Search) -> str:
    """Correct the mapping as a person would; return what it had rejected."""
    state, rejected = scene.sink_state(receiver.name), _too_large(scene.held())
    assert rejected > 0
    assert receiver.rejected() == rejected
    # One that is sent again is rejected, and counted, again.
    assert sum(state.rejected.values()) >= rejected
    receiver.server.ask("DELETE", f"/{receiver.next_index}")
    scene.tokioctl("sinks", "rewind", receiver.name, "--from", iso(NEXT_MONTH))
    wait_for(lambda: not any((scene.config.sink_state / receiver.name).glob("rewind-*.json")), 60, _log(scene, receiver))
    _wait_for_all(scene, receiver)
    return f", {rejected} rejected by a mapping ({', '.join(state.rejected)}) and sent again after its correction"


def _too_large(cells: Cells) -> int:
    """Return how many cells of the metric that the mapping rejects are in the next month and no byte, each of another document."""
    found = 0
    for (_, dataset, _), (times, values) in cells.items():
        if dataset.endswith(f"/{REJECTED}"):
            found += int(np.sum((np.asarray(times) >= NEXT_MONTH) & (np.abs(np.trunc(values)) > BYTE)))
    return found


def _wait_for_all(scene: SinkScene, receiver: Receiver) -> None:
    def is_done() -> bool:
        state = scene.sink_state(receiver.name)
        return state.state == "running" and not state.lag_windows and not state.backlog

    wait_for(is_done, 3600, f"{receiver.name} does not catch up; {_log(scene, receiver)}")


def _sleep_until(clock: SimulatedClock, instant: float) -> None:
    time.sleep(max(0.0, (instant - clock.time()) / clock.rate))


def _log(scene: SinkScene, receiver: Receiver) -> str:
    return scene.sink_log(receiver.name).read_text()[-2000:]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("receivers", nargs="*", help="kafka, elasticsearch, opensearch; all without")
    parser.add_argument("--hours", type=float, default=24)
    parser.add_argument("--rate", type=float, default=180)
    wanted = parser.parse_args()
    names = wanted.receivers or ["kafka", "elasticsearch", "opensearch"]
    with ExitStack() as undo:
        receivers = [Kafka(undo) if name == "kafka" else Search(name, undo) for name in names]
        for line in play(receivers, wanted.hours, wanted.rate):
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
