"""A cluster in a simulation's time: the daemon with a hub, a proxy as its network, and agents as connections of a few processes."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from keyed import Keyring
from node_agents import METRICS, STEP, job_rows, value
from node_hub import configured

import tokiod
from tokiod.clock import SimulatedClock
from tokiod.config import load as configuration
from tokiod.errors import TokiodError
from tokiod.hub.to_rows import key_of
from tokiod.jobs.rows import read
from tokiod.ledger.ledger import Ledger
from tokiod.reader.files import Templates
from tokiod.runtime.process_setup import python_command
from tokiod.simulator.sources import free_port
from tokiod.tts.schema import missing

BEGAN = 1_800_057_600
"""00:00 UTC of a day."""
PROXY = """
import asyncio, contextlib, os, resource, sys
with contextlib.suppress(OSError):
    # A network does not wait for a processor of a busy machine.
    os.setpriority(os.PRIO_PROCESS, 0, -10)
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
async def pipe(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()
async def main():
    async def client(reader, writer):
        try:
            up, down = await asyncio.open_connection("127.0.0.1", int(sys.argv[2]))
        except OSError:
            writer.close()
            return
        both = [asyncio.ensure_future(one) for one in (pipe(reader, down), pipe(up, writer))]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        # An end that is gone must not leave the other one open: agents that dial again would use up the descriptors.
        writer.close()
        down.close()
        await asyncio.wait(both)
    async with await asyncio.start_server(client, "127.0.0.1", int(sys.argv[1]), backlog=4096) as server:
        await server.serve_forever()
asyncio.run(main())
"""


def unhashed(keys):
    """Keys of rows without the part of a job that is a hash in the table."""
    return [(node, job.rpartition(b"\x1f")[0], time) for node, job, time in keys]


class NodeSite:
    """rate: how many times as fast time runs as the machine's. The simulation begins 10 minutes after midnight."""

    def __init__(self, directory, nodes, processes, rate, *, gather=90, rows_per_second=2000, metrics=METRICS):
        self.directory, self.nodes, self.rate = directory, [f"nid{number:05}" for number in range(nodes)], rate
        self.ring = Keyring(directory / "keys")
        self.ring.allowed("compute")
        self.port, self.network = free_port(), free_port()
        self.path = configured(
            directory, self.port, gather=gather, metrics=[metric.name for metric in metrics],
            feed=f'[feed]\nendpoint = "ipc://{directory}/feed"', hub=f"rows_per_second = {rows_per_second}",
            source='recount = ["5m", "15m", "30m", "45m"]',
        )  # fmt: skip
        self.config = configuration.load(self.path)
        self.began = BEGAN + 600
        self.clock = SimulatedClock(float(self.began), time.time(), rate)
        self.log = directory / "log"
        self.agents = [self._agents(self.nodes[number::processes]) for number in range(processes)]
        self.proxy = self._proxy()
        self.daemon = self._start("tokiod.cli.tokiod", "run", "--config", str(self.path), "--clock", str(self.clock))

    def _start(self, module, *arguments):
        with self.log.open("ab") as log:
            return subprocess.Popen(python_command(module, *arguments), stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def _proxy(self):
        return subprocess.Popen([sys.executable, "-c", PROXY, str(self.network), str(self.port)])

    def _agents(self, names):
        keys = self.ring.directory
        line = [
            sys.executable, str(Path(__file__).with_name("node_agents.py")), "--endpoint", f"tcp://127.0.0.1:{self.network}",
            "--hub-key", str(keys / "server.key"), "--key", str(keys / "compute.key_secret"), "--clock", str(self.clock),
            "--began", str(self.began), "--rates", str(self.directory / "rates"), "--names", ",".join(names),
        ]  # fmt: skip
        with self.log.open("ab") as log:
            return subprocess.Popen(line, stdout=log, stderr=log, env={**os.environ, "PYTHONPATH": str(Path(tokiod.__file__).parents[1])})

    def kill(self, what):
        """SIGKILL the hub, the writer, the collectors or the daemon's network; return whether it ran."""
        if what == "network":
            self.proxy.kill()
            self.proxy.wait()
            self.proxy = self._proxy()
            return True
        for pid in Path(f"/proc/{self.daemon.pid}/task/{self.daemon.pid}/children").read_text().split():
            with contextlib.suppress(OSError):
                if what.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                    os.kill(int(pid), signal.SIGKILL)
                    return True
        return False

    def stored_until(self):
        """Return until when all windows are stored, from the first whole one on."""
        try:
            with Ledger.open_readonly(self.config.archive.ledger) as ledger:
                spans = ledger.stored("nodes")
        except (TokiodError, OSError):
            return 0
        return max((end for start, end in spans if start <= self.first), default=0)

    @property
    def first(self):
        """The begin of the first row that agents have whole."""
        return -(-self.began // STEP) * STEP

    def wrong(self, until):
        """Compare every cell before `until` with what was measured; return how many were compared, are lost, and differ."""
        compared = lost = different = 0
        with tokiod.open("cluster.nodes", self.first, until, config=str(self.path)) as archive:
            for metric in METRICS:
                cells, columns = archive.array(f"nodes/{metric.name}"), archive.columns(f"nodes/{metric.name}")
                expected = np.array(
                    [
                        [np.nan if (of := value(node, start, metric.name)) is None else of for node in self.nodes]
                        for start in range(self.first, until, STEP)
                    ]
                )
                found = np.full(expected.shape, np.nan)
                place = {node: index for index, node in enumerate(self.nodes)}
                found[:, [place[name] for name in columns]] = cells
                assert not (~np.isnan(found) & missing(found)).any()
                compared += expected.size
                lost += int((np.isnan(found) & ~np.isnan(expected)).sum())
                different += int((~np.isnan(found) & (found != expected)).sum())
        return tuple(map(sum, zip((compared, lost, different), self._wrong_jobs(until), strict=True)))

    def _wrong_jobs(self, until):
        """Compare the rows of the job table in the same way."""
        expected = {
            (node.encode(), key_of(job), int(time)): (int(begin * 10**9), int(ended), round(cpu * 1e6), int(memory))
            for node in self.nodes
            for start in range(self.first, until, STEP)
            for job, begin, time, ended, (cpu, memory) in job_rows(node, start)
        }
        rows = read(Templates(self.config.templates).jobs("cluster.nodes").dates().values(), self.first, until)
        columns = [*(rows.columns[name] for name in ("begin", "ended")), *(rows.counts[name] for name in ("cpu.sum", "mem_bytes.max"))]
        keys = zip(rows.targets[rows.target].tolist(), rows.jobs[rows.job].tolist(), rows.columns["time"].tolist(), strict=True)
        found = dict(zip(unhashed(keys), zip(*(column.tolist() for column in columns), strict=True), strict=True))
        assert len(found) == len(rows)
        expected = dict(zip(unhashed(expected), expected.values(), strict=True))
        lost, different = expected.keys() - found.keys(), [key for key in found if expected.get(key) != found[key]]
        return len(expected), len(lost), len(different)

    def rates(self):
        """Return the dials and the answers of all agents in each second of the machine."""
        seconds = {}
        with contextlib.suppress(OSError):
            for line in (self.directory / "rates").read_text().splitlines():
                second, dials, answers = map(int, line.split())
                before = seconds.get(second, (0, 0))
                seconds[second] = before[0] + dials, before[1] + answers
        return seconds

    def close(self):
        """End all processes."""
        self.daemon.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.daemon.wait(30)
        for process in (self.daemon, self.proxy, *self.agents):
            process.kill()
            process.wait()
