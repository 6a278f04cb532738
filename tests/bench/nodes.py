"""`make bench-nodes`: a cluster of 10,000 nodes with 30 metrics at 60 s through hub, collector and writer, accelerated; a day sealed.

What agents send is made here and decoded, checked, collected and encoded by the hub's own code; the windows are decoded, and stored by the
writer's sink, synced, in the files of a day. Sockets are left out: `make nodes` has them. Prints one line for each figure:

    window        processor time of the hub and of the writer for a window, and of the slowest. The hub makes batches and rows of the job
                  table and encodes them, which was the writer's share before tokiod.crossing: compare the sum, and the lag
    lag           from the last answer of a node to the window on the disk
    day           the live and the sealed file, the job table, sealing
    read          one metric of all nodes for a day, a node's day in all metrics, a job: beside the bounds
    equal         cells of the sealed day that are those that the nodes sent, of both of these; a cell that differs or is missing fails
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import tokiod
from collectors.nodes.config import DEFAULT, Config
from sinks.tts.day_files import DayFiles
from sinks.tts.sink import TtsSink
from tokiod.agent import wire
from tokiod.agent.metric import counter
from tokiod.archive.layout import daily
from tokiod.config.sections import ArchiveConfig, HubConfig
from tokiod.crossing.codec import Frame, decode
from tokiod.crossing.dialogue import Collect, Data
from tokiod.hub.hub import Hub
from tokiod.hub.to_rows import JOB_FIELDS, JOB_METRICS, job_rows
from tokiod.hub.to_window import batches
from tokiod.jobs.table import JobTable
from tokiod.testing.clock import FakeClock
from tokiod.window import Calendar, Window
from tokiod.window_data import Collected, WindowMeta
from tokiod.writer.archive_sink import ArchiveSink

DAY, STEP = 1_800_057_600, 60
SYSTEM = "cluster.nodes"
ROUNDS = 5
NODE, METRIC = 7, 0
"""Which node and metric are read back, by their numbers."""
JOBS_OF_NODE, JOB_HOURS = 1, 4
READ_NODE_S, READ_METRIC_S, READ_JOB_S = 0.341, 0.68, 0.5
"""READING.md: one OST in each of 30 files in 341 ms, as a node in each of 30 datasets; a day of 17,280 x 248 cells in 203 ms, so 680 ms for
1,440 x 10,000. A job: half a second (docs/jobs.md)."""


class AllKeys:
    """One class of nodes, which may have any name."""

    def of(self, _key):
        return "compute"

    def allows(self, _name, _node):
        return True


class Cluster:
    """The nodes, and what they send: random values, and jobs of some hours on 16 nodes each."""

    def __init__(self, nodes: int, metrics: int) -> None:
        self.names = [f"nid{number:05}" for number in range(nodes)]
        self.metrics = [counter(name, "1", "") for name in DEFAULT[:metrics]]
        self.job_metrics = [counter(name, "1", "") for name in JOB_METRICS]
        self._draw = np.random.default_rng(24)
        self.of_node = np.full((1440, metrics), np.nan)
        self.of_metric = np.full((1440, nodes), np.nan)

    def hellos(self):
        for name in self.names:
            yield name.encode(), wire.hello(name, "s", "1", STEP, DAY, self.metrics, self.job_metrics)

    def keep(self, row: int, values: np.ndarray) -> None:
        """Keep of f8[metric, row, node] what is read back. row: the first."""
        rows = slice(row, row + values.shape[1])
        self.of_node[rows], self.of_metric[rows] = values[:, :, NODE].T, values[METRIC]

    def rows(self, start: int, clock: float):
        drawn = np.round(self._draw.gamma(2.0, 1e6, (len(self.names), len(self.metrics))), 2)
        self.keep((start - DAY) // STEP, drawn.T[:, None])
        values = drawn.tolist()
        used = self._draw.gamma(2.0, 10.0, len(self.names)).tolist()
        begin = start // (3600 * JOB_HOURS) * 3600 * JOB_HOURS
        for number, name in enumerate(self.names):
            seconds = start + STEP - begin
            of_job = [round(used[number] + 30 * seconds, 6)] + [float(seconds * factor) for factor in range(1, len(self.job_metrics))]
            job = (f"slurm:{begin // 100 + number // 16}", float(begin), start + 59.0, False, of_job)
            yield name.encode(), wire.row(name, "s", start, clock, 0.0, values[number], {}, [job])


class Plant:
    """Hub, collector's code and sink over one archive."""

    def __init__(self, directory: Path, cluster: Cluster) -> None:
        self.cluster, self.clock = cluster, FakeClock(float(DAY + 100))
        self.answers: list[tuple] = []
        hub = HubConfig(endpoint="tcp://127.0.0.1:1", secret_key_file="x", clients="x", classes={"compute": ("*",)}, gather=0)
        self.hub = Hub(hub, AllKeys(), self.clock, lambda _route, _message: True, self._reply)
        self.archive, calendar = ArchiveConfig(path=f"{directory}/tts/%Y-%m-%d/{{system}}.hdf5"), Calendar("UTC")
        self.config = Config(name="n", kind="nodes", system=SYSTEM, metrics=tuple(metric.name for metric in cluster.metrics))
        tts = TtsSink(DayFiles(daily(calendar, self.archive.file), self.clock, executor="inline", max_columns=20_000))
        self.table = JobTable(self.archive.jobs, calendar, self.clock, inline=True)
        self.sink = ArchiveSink(tts, self.table)
        for route, message in cluster.hellos():
            self.hub.receive(route, b"", "", message)

    def _reply(self, *answer) -> bool:
        self.answers.append(answer)
        return True

    def window(self, start: int, rows: list[tuple[bytes, bytes]] | None = None) -> tuple[float, float, float]:
        """Pass one window; return the processor seconds of hub and writer, and the seconds from the last row to the disk."""
        self.clock.jump(start + 100 - self.clock.time())
        rows = rows or list(self.cluster.rows(start, self.clock.time()))
        before = time.process_time()
        datasets = tuple(sorted(self.config.datasets()))
        self.hub.request(b"c", Collect(1, "n", 1, start, start + STEP, float(STEP), "nodes", SYSTEM, datasets))
        for route, frame in rows:
            self.hub.receive(route, b"", "", frame)
        begun = time.perf_counter()
        self.hub.turn()
        hub = time.process_time() - before
        assert all(isinstance(answer, Data) for _, answer, _ in self.answers)
        frames = [frame for _, _, part in self.answers for frame in part]
        self.answers.clear()
        before = time.process_time()
        self._store(Window(start, start + STEP), frames)
        return hub, time.process_time() - before, time.perf_counter() - begun

    def _store(self, window: Window, frames: list[Frame]) -> None:
        data = decode(frames)
        assert data.records == len(self.cluster.names)
        self.sink.apply(Collected(WindowMeta("n", "nodes", SYSTEM, window, data.records), data.batches, data.tables))
        assert self.sink.commit() == []

    def rest_of_day(self, first: int) -> None:
        """Fill the file and the table of the day from a row on, an hour at a time: only their size and what reads them matter."""
        draw, names, nodes = np.random.default_rng(25), self.config.metrics, tuple(self.cluster.names)
        for row in range(first, 1440, 60):
            window = Window(DAY + STEP * row, DAY + STEP * min(row + 60, 1440))
            minutes = window.seconds // STEP
            self.clock.jump(window.end + 100 - self.clock.time())
            values = np.round(draw.gamma(2.0, 1e6, (len(names), minutes, len(nodes))), 2)
            self.cluster.keep(row, values)
            found = list(batches(values, names, nodes, window.start))
            states = self._states(draw, window, minutes)
            jobs = tuple(f"slurm:{window.start // 100 + number}" for number in range(-(-len(nodes) // 16)))
            rows = job_rows(states, jobs, nodes, window)
            self.sink.apply(Collected(WindowMeta("n", "nodes", SYSTEM, window), found, [rows]))
            assert self.sink.commit() == []

    def _states(self, draw: np.random.Generator, window: Window, minutes: int) -> np.ndarray:
        nodes = len(self.cluster.names)
        states = np.full((JOB_FIELDS + len(JOB_METRICS), minutes * nodes), 0.0)
        node, time_of = np.tile(np.arange(nodes), minutes), np.repeat(window.start + STEP * np.arange(minutes) + 59, nodes)
        states[:JOB_FIELDS] = node, node // 16, np.full(len(node), window.start), time_of, np.zeros(len(node))
        states[JOB_FIELDS:] = np.round((time_of - window.start) * draw.gamma(2.0, 1.0, (len(JOB_METRICS), 1)), 6)
        return states


def size(path: Path) -> float:
    """MB of files."""
    return sum(file.stat().st_size for file in ([path] if path.is_file() else path.rglob("*")) if file.is_file()) / 1e6


def _middle(of: list[float]) -> float:
    return of[len(of) // 2]


def _spread(what: str, of: list[float]) -> str:
    return f"{what} {_middle(of):.3f} s (at most {of[-1]:.3f})"


def timed(call):
    """Return the median of some calls, in seconds."""
    seconds = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begun)
    return sorted(seconds)[ROUNDS // 2]


def main(nodes: int, metrics: int, windows: int) -> int:
    """Run it; return 0 where what is read is within the bounds. windows: through the hub; the rest of the day is filled without it."""
    with tempfile.TemporaryDirectory(prefix="bench-nodes") as directory:
        plant = Plant(Path(directory), Cluster(nodes, metrics))
        begun, costs = time.perf_counter(), [plant.window(DAY + STEP * number) for number in range(windows)]
        hub, writer, lag = (sorted(of) for of in zip(*costs, strict=True))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{nodes} nodes x {metrics} metrics, {windows} windows in {time.perf_counter() - begun:.0f} s: {_spread('hub', hub)}, "
            f"{_spread('writer', writer)} of a core, {100 * (_middle(hub) + _middle(writer)) / STEP:.2f} % of it at 60 s; "
            f"{_spread('lag', lag)}; {peak:.0f} MB with the nodes",
            flush=True,
        )
        plant.rest_of_day(windows)
        calendar = Calendar("UTC")
        path, jobs = plant.archive.file(calendar.day(DAY), SYSTEM), plant.archive.jobs
        live, live_jobs = size(path), size(jobs)
        plant.clock.jump(2 * 86400)
        begun = time.perf_counter()
        plant.sink.seal(SYSTEM, DAY)
        while plant.sink.tts.is_busy:
            plant.sink.run_maintenance()
        sealing = time.perf_counter() - begun
        begun = time.perf_counter()
        for _ in range(200):
            plant.table._checked = float("-inf")
            plant.table.run()
        merging = time.perf_counter() - begun
        print(
            f"day: {live:.0f} MB live, {size(path):.0f} MB sealed in {sealing:.1f} s; job table {live_jobs:.0f} MB live, "
            f"{size(jobs):.0f} MB merged in {merging:.1f} s",
            flush=True,
        )
        return _read(plant)


def _read(plant: Plant) -> int:
    template, name = str(plant.archive.path), plant.cluster.names[NODE]

    def node() -> None:
        with tokiod.open(SYSTEM, DAY, DAY + 86400, path=template) as archive:
            for metric in plant.config.metrics:
                cells = archive.array(f"nodes/{metric}")
                assert cells[:, cells.number(name)].shape == (len(cells),)

    def metric() -> None:
        with tokiod.open(SYSTEM, DAY, DAY + 86400, path=template) as archive:
            assert archive.array(f"nodes/{plant.config.metrics[METRIC]}")[...].shape[1] == len(plant.cluster.names)

    def job() -> None:
        with tokiod.open(SYSTEM, DAY, DAY + 86400, path=template) as archive:
            assert len(archive.job_figures(str(DAY // 100)))

    figures = {
        "a node's day in all metrics": (timed(node), READ_NODE_S),
        "a metric of all nodes": (timed(metric), READ_METRIC_S),
        "a job": (timed(job), READ_JOB_S),
    }
    print("; ".join(f"{what} {1000 * seconds:.0f} ms (bound {1000 * bound:.0f})" for what, (seconds, bound) in figures.items()))
    wrong = _compare(plant)
    return int(bool(wrong) or any(seconds > bound for seconds, bound in figures.values()))


def _compare(plant: Plant) -> int:
    """Compare a node's day and a metric of all nodes with what was sent; return how many cells differ or are missing."""
    cluster, names = plant.cluster, plant.config.metrics
    with tokiod.open(SYSTEM, DAY, DAY + 86400, path=str(plant.archive.path)) as archive:
        arrays = [archive.array(f"nodes/{metric}") for metric in names]
        of_node = np.stack([cells[:, cells.number(cluster.names[NODE])] for cells in arrays], axis=1)
        columns = archive.columns(f"nodes/{names[METRIC]}")
        found = np.full(cluster.of_metric.shape, np.nan)
        place = {node: number for number, node in enumerate(cluster.names)}
        found[:, [place[node] for node in columns]] = arrays[METRIC][...]
    pairs = ((of_node, cluster.of_node), (found, cluster.of_metric))
    wrong = [int((got != sent).sum()) for got, sent in pairs]
    of_node_equal, of_metric_equal = (f"{got.size - n} of {got.size}" for (got, _), n in zip(pairs, wrong, strict=True))
    print(f"equal: a node's day {of_node_equal} cells, a metric of all nodes {of_metric_equal}")
    return sum(wrong)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for option, default in (("--nodes", 10_000), ("--metrics", 30), ("--windows", 120)):
        parser.add_argument(option, type=int, default=default)
    given = parser.parse_args()
    sys.exit(main(given.nodes, given.metrics, given.windows))
