"""A scene whose daemon's archive a sink of kind kafka sends to topics, and what consumers fold from these."""

from __future__ import annotations

import subprocess
import threading
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import h5py
import numpy as np
from numpy.typing import NDArray

from tests.support.faulty_scene import FaultyScene
from tokiod.consume import Consumer, Fold, Update
from tokiod.errors import TokiodError
from tokiod.runtime.process_setup import python_command
from tokiod.simulator.sources import LMT
from tokiod.tts.schema import missing

if TYPE_CHECKING:
    from pathlib import Path

    from kafka_server import KafkaServer

SECTION = """
sink_state = "{directory}/sinks"
{config}
[[sink]]
name = "kafka"
kind = "kafka"
servers = ["{address}"]
topic = "{topic}-{{system}}"
timeout = "10s"
"""

Cells = dict[tuple[str, str, str], tuple[list[int], list[float]]]
"""The cells that are not missing: epoch seconds and values, by system, dataset and column."""
Rows = tuple[NDArray[np.int64], tuple[str, ...], NDArray[np.float64]]
"""Epoch seconds i8[rows], columns, and values f8[rows, columns], NaN where missing."""
Windows = dict[tuple[str, str, int], Update]
"""The last rows of each window of the grid, by system, dataset and start."""


@dataclass(slots=True)
class TopicScene(FaultyScene):
    """server: a running Kafka; topic: the beginning of the topics' names."""

    server: KafkaServer | None = None
    topic: str = ""
    _sink: subprocess.Popen[bytes] | None = field(default=None)

    def prepare(self) -> None:
        """Write the configuration with the sink, and the site."""
        super(TopicScene, self).prepare()
        assert self.server is not None
        config = self.config_path.read_text()
        text = SECTION.format(directory=self.directory, config=config, address=self.server.address, topic=self.topic)
        self.config_path.write_text(text)
        self._config = None

    @property
    def topic_name(self) -> str:
        return f"{self.topic}-{LMT.system}"

    @property
    def sink_log(self) -> Path:
        return self.directory / "sink-log"

    def start_sink(self) -> None:
        """Start `tokiod sink`."""
        command = python_command("tokiod.cli.tokiod", "sink", "kafka", "--config", str(self.config_path), "--clock", str(self.clock))
        with self.sink_log.open("ab") as log:
            self._sink = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True)

    def kill_sink(self) -> None:
        """SIGKILL the sink."""
        if self._sink is not None:
            self._sink.kill()
            self._sink.wait()

    @property
    def sink_pid(self) -> int:
        assert self._sink is not None
        return self._sink.pid

    def stop_sink(self) -> int:
        """Stop the sink; return its exit code."""
        assert self._sink is not None
        self._sink.terminate()
        return self._sink.wait(60)

    def close(self) -> None:
        """Stop everything."""
        self.kill_sink()
        super(TopicScene, self).close()

    def tokioctl(self, *arguments: str) -> str:
        """Return what a command prints."""
        command = python_command("tokiod.cli.tokioctl", *arguments, "--config", str(self.config_path), "--clock", str(self.clock))
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def held(self) -> Cells:
        """Return all cells of the files, read with h5py alone."""
        found: dict[tuple[str, str], list[Rows]] = defaultdict(list)
        for path in self.files(LMT):
            with suppress(FileNotFoundError), h5py.File(path, "r", locking=False) as file:
                for group in (group for name, group in file.items() if not name.startswith("_")):
                    times = group["timestamps"][...]
                    for dataset in (one for one in group.values() if "columns" in one.attrs):
                        values, names = dataset[...], tuple(name.decode() for name in dataset.attrs["columns"])
                        found[LMT.system, dataset.name.strip("/")].append((times, names, np.where(missing(values), np.nan, values)))
        return cells_of(found)

    def consumed(self) -> Cells:
        """Return what a new consumer folds from the topic."""
        assert self.server is not None
        windows: Windows = {}
        with suppress(TokiodError), Consumer(self.server.address, [self.topic_name], follow=False) as consumer:
            for one in consumer:
                windows[one.system, one.dataset, one.start] = one
        return cells_of_windows(windows)


def cells_of(found: dict[tuple[str, str], list[Rows]]) -> Cells:
    """Return the cells of some rows of datasets, each row once."""
    cells: Cells = {}
    for (system, dataset), some in found.items():
        alike: dict[tuple[str, ...], list[Rows]] = defaultdict(list)
        for rows in sorted(some, key=lambda rows: int(rows[0][0])):
            alike[rows[1]].append(rows)
        for columns, parts in alike.items():
            times, values = np.concatenate([part[0] for part in parts]), np.concatenate([part[2] for part in parts])
            for index, name in enumerate(columns):
                held = ~np.isnan(values[:, index])
                before = cells.get((system, dataset, name), ([], []))
                both = sorted(zip(before[0] + times[held].tolist(), before[1] + values[held, index].tolist(), strict=True))
                if both:
                    cells[system, dataset, name] = [time for time, _ in both], [value for _, value in both]
    return cells


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
