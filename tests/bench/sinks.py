"""What a sink of Kafka costs: `tokiod sink` sends a day of 17,280 rows x 248 columns x 3 datasets to a real Kafka on the same machine."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tests.bench.measure import Row, skipped
from tests.bench.reading import LOAD, OSTS, READ, ROWS, START, STEP, WRITE
from tokiod.bus.keyed_messages import encode
from tokiod.change_sink import Block
from tokiod.clock import SystemClock
from tokiod.config import load as configuration
from tokiod.ledger.ledger import Ledger
from tokiod.reports.sinks import read as read_states
from tokiod.runtime.process_setup import python_command
from tokiod.tts.live.create import create
from tokiod.tts.live.live_file import LiveFile
from tokiod.tts.spec import FileSpec, GroupSpec, MatrixSpec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kafka_server import KafkaServer

    from tokiod.published.sinks import SinkState

RATE = 15e6
"""Bytes of cells a second."""
WINDOW_ROWS = 60 // STEP
WHAT = "the Kafka sink at 15 MB/s of cells, messages of 24 kB"
TARGET = "at most 20 % of a core"
SECONDS = 300
CONFIG = """\
timezone = "UTC"
archive.path = "{directory}/tts/%Y-%m-%d/{{system}}.hdf5"
site.names = {{ fs = "a file system" }}
sink_state = "{directory}/sinks"
[[sink]]
name = "kafka"
kind = "kafka"
servers = ["{address}"]
topic = "{topic}"
"""


def rows(directory: Path, *, quick: bool) -> Iterator[Row]:
    sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
    import kafka_server  # noqa: PLC0415 - the modules of tests/support name each other without a package

    if reason := kafka_server.missing():
        yield skipped(WHAT, TARGET, reason)
        return
    place = directory / "sinks"
    place.mkdir()
    count = ROWS // 8 if quick else ROWS
    write_day(place, count)
    with kafka_server.KafkaServer() as server:
        floor = bare_producer(server, count)
        ours, memory = sink_process(place, server, count)
    yield Row(WHAT, "% of a core", floor, ours, ours / floor, TARGET, "floor: a bare producer that sends the same messages, made before")
    yield Row("its memory", "MB", None, memory, None, "at most 100")


def write_day(place: Path, count: int) -> None:
    """Write a live day with values in its first rows, and a ledger with the beginning of a change log."""
    generator = np.random.default_rng(1)
    path = place / "tts" / f"{time.strftime('%Y-%m-%d', time.gmtime(START))}" / "fs.hdf5"
    path.parent.mkdir(parents=True)
    matrices = {name: MatrixSpec(OSTS, counter=False) for name in (READ, WRITE, LOAD)}
    groups = {name: GroupSpec(STEP, "lmt") for name in ("datatargets", "dataservers")}
    create(path, FileSpec(START, START + 86400, groups, matrices), created=START)
    file = LiveFile.open(path)
    for name in matrices:
        file.cells[name].write_rows(0, generator.gamma(0.3, 1e8, (count, len(OSTS))).round())
    file.commit()
    file.close()
    (place / "tts" / ".tokiod-readers").mkdir()
    with Ledger.open(place / "tts" / ".tokiod" / "ledger.sqlite3") as ledger:
        ledger.changes.begin_epoch(SystemClock().time())
        ledger.published_copy(place / "tts" / ".tokiod-readers" / "ledger.sqlite3", SystemClock().monotonic).refresh()


def nbytes(count: int) -> int:
    """Return the bytes of the cells of a day with so many rows."""
    return 3 * count * len(OSTS) * 8


def bare_producer(server: KafkaServer, count: int) -> float:
    """Return the share of a core of a producer with the sink's options at RATE, in percent."""
    from aiokafka import AIOKafkaProducer  # noqa: PLC0415 - an extra

    values = np.random.default_rng(1).gamma(0.3, 1e8, (WINDOW_ROWS, len(OSTS)))
    (message,) = encode(Block("fs", READ, START, STEP, OSTS, values, "bytes/s", 1, 1), 60)

    async def send() -> float:
        options = {"acks": "all", "enable_idempotence": True, "max_batch_size": 1 << 20, "max_request_size": 1 << 20}
        async with AIOKafkaProducer(bootstrap_servers=server.address, **options) as producer:
            begun = time.process_time()
            keys = (b"%s%d" % (message.key, number) for number in range(3 * count // WINDOW_ROWS))
            await asyncio.gather(*[await producer.send("bare", message.value, key, headers=message.headers) for key in keys])
            return time.process_time() - begun

    return 100 * RATE * asyncio.run(send()) / nbytes(count)


def sink_process(place: Path, server: KafkaServer, count: int) -> tuple[float, float]:
    """Return the share of a core of the sink's process at RATE, its start excluded, in percent, and its memory in MB."""
    config = place / "tokiod.toml"
    config.write_text(CONFIG.format(directory=place, address=server.address, topic="sink"))
    command = python_command("tokiod.cli.tokiod", "sink", "kafka", "--config", str(config), "--log-level", "warning")
    with subprocess.Popen(command) as process:
        try:
            cpu_at_start = _awaited(config, process.pid, lambda state: state.state == "running")
            cpu = _awaited(config, process.pid, lambda state: state.records >= 3 * count // WINDOW_ROWS and not state.backlog)
            memory = next(line for line in Path(f"/proc/{process.pid}/status").read_text().splitlines() if line.startswith("VmHWM"))
        finally:
            process.terminate()
    return 100 * RATE * (cpu - cpu_at_start) / nbytes(count), int(memory.split()[1]) * 1024 / 1e6


def _awaited(config: Path, pid: int, is_reached: Callable[[SinkState], bool]) -> float:
    """Wait until a sink's state is as it should be; return the processor seconds of its process then."""
    deadline = time.monotonic() + SECONDS
    while not is_reached(_state(config)):
        assert time.monotonic() < deadline, _state(config)
        time.sleep(0.05)
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _state(config: Path) -> SinkState:
    (state,) = read_states(configuration.load(config), time.time(), time.time())
    return state
