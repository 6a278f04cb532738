"""A scene whose daemon's archive a sink of kind kafka sends to topics, and what consumers fold from these."""

from __future__ import annotations

import threading
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.support.sink_scene import SinkScene, cells_of
from tokiod.consume import Consumer, Fold, Update
from tokiod.errors import TokiodError
from tokiod.simulator.sources import LMT

if TYPE_CHECKING:
    from kafka_server import KafkaServer

    from tests.support.sink_scene import Cells, Rows

KAFKA = "kafka"
"""The name of the sink."""
SECTION = """\
kind = "kafka"
servers = ["{address}"]
topic = "{topic}-{{system}}"
timeout = "10s"
window = "{window}"
"""


def section(address: str, topic: str, window: str = "1m") -> str:
    """Return the section of a sink of kind kafka. topic: the beginning of the topics' names."""
    return SECTION.format(address=address, topic=topic, window=window)


Windows = dict[tuple[str, str, int], Update]
"""The last rows of each window of the grid, by system, dataset and start."""


@dataclass(slots=True)
class TopicScene(SinkScene):
    """server: a running Kafka; topic: the beginning of the topics' names; grid: the sink's `window`."""

    server: KafkaServer | None = None
    topic: str = ""
    grid: str = "1m"

    def prepare(self) -> None:
        """Write the configuration with the sink, and the site."""
        assert self.server is not None
        self.sections = self.sections | {KAFKA: section(self.server.address, self.topic, self.grid)}
        super(TopicScene, self).prepare()

    @property
    def topic_name(self) -> str:
        """The topic of the site's system."""
        return f"{self.topic}-{LMT.system}"

    def consumed(self) -> Cells:
        """Return what a new consumer folds from the topic."""
        assert self.server is not None
        return consumed(self.server.address, self.topic_name)


def consumed(address: str, topic: str) -> Cells:
    """Return what a new consumer folds from a topic."""
    windows: Windows = {}
    with suppress(TokiodError), Consumer(address, [topic], follow=False) as consumer:
        for one in consumer:
            windows[one.system, one.dataset, one.start] = one
    return cells_of_windows(windows)


def cells_of_windows(windows: Windows) -> Cells:
    """Return the cells of windows."""
    found: dict[tuple[str, str], list[Rows]] = defaultdict(list)
    for (system, dataset, _), one in windows.items():
        found[system, dataset].append((one.times, one.batch.columns, one.values))
    return cells_of(found)


class FollowingConsumer:
    """A consumer that runs in a thread through everything."""

    def __init__(self, scene: TopicScene) -> None:
        self.error: BaseException | None = None
        self._scene = scene
        self._windows: Windows = {}
        self._consumer: Consumer | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def cells(self) -> Cells:
        """What it has folded."""
        return cells_of_windows(self._windows.copy())

    def stop(self) -> Fold:
        """End it; return its Fold. Raises what ended it before."""
        self._stopping.set()
        self._thread.join(60)
        if self.error is not None:
            raise self.error
        assert self._consumer is not None
        return self._consumer.fold

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._follow()
        except BaseException as error:  # noqa: BLE001 - stop() raises it
            self.error = error

    def _follow(self) -> None:
        assert self._scene.server is not None
        with suppress(TokiodError), Consumer(self._scene.server.address, [self._scene.topic_name], silence=0.3) as self._consumer:
            for event in self._consumer:
                if isinstance(event, Update):
                    self._windows[event.system, event.dataset, event.start] = event
                if self._stopping.is_set():
                    return
