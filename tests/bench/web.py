"""`tokiod web`: a month of days one by one, as the page asks for them, and what a hundred viewers cost it and the writer."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from tests.bench import reading
from tests.bench.measure import Row
from tests.bench.memory import resident
from tokiod.clock import SimulatedClock
from tokiod.reports.stages import WRITER_STAGES, chosen, read_stages
from tokiod.simulator.scene import Scene
from tokiod.simulator.site import Site

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DAYS, PIXELS_OF_A_DAY, CONNECTIONS = 30, 24, 5
"""A browser allows six connections, one of which is for the events."""
CONFIG = """\
timezone = "UTC"
[archive]
path = "{0}/%Y-%m-%d.{{system}}"
[bus]
endpoint = "ipc://{0}/bus"
[web]
address = "{0}/http"
[[source]]
name = "one"
kind = "lmt"
system = "hdf5"
url = "sqlite:///none"
"""


VIEWERS, IDLE_VIEWERS, FASTER, TURN_SECONDS = 100, 10, 20, 20
MIDNIGHT = 1_517_184_000
DATASET, PIXEL_SECONDS = "datatargets/readbytes", 10
LINES = (DATASET, "mdtargets/opens,mdtargets/closes", "dataservers/cpuload&across=max", "mdservers/cpuload&across=max")


def rows(directory: Path, *, quick: bool) -> Iterator[Row]:
    yield from month(directory / "month", 10 if quick else DAYS)
    yield from viewers(directory / "viewers", turns=2 if quick else 10)


def month(place: Path, days: int) -> Iterator[Row]:
    """Ask for each day of 17,280 x 248 in its own request. The files are DAY.hdf5, so the system's name is hdf5."""
    place.mkdir()
    reading.archive(place, days)
    config = place / "tokiod.toml"
    config.write_text(CONFIG.format(place))
    for path in place.glob("*.hdf5"):  # from the disk, not from the system's memory
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with web(config, f"{reading.START + days * reading.DAY}@0x0") as process:
        address = place / "http"
        (first, cold), (_, warm) = _days(address, days), _days(address, days)
        whole = _seconds(address, _picture(0, days, 720))
        memory = resident(process.pid)
    size = f"{days} days of 17,280 x 248"
    note = f"floor: the first day; {memory:.0f} MB"
    yield Row(f"{size} as pictures, day by day, none kept", "s", first, cold, cold / first, "below 4 s", note)
    yield Row("the same again", "s", None, warm, None, "below 1 s", f"all in one request: {whole:.1f} s")


def viewers(place: Path, turns: int) -> Iterator[Row]:
    """Measure the commits of a site's writer in turns with and without a web process that has a hundred viewers."""
    site = Site(epoch=MIDNIGHT + 3000, timezone="UTC", osts=248, osss=248, mdts=5)
    scene = Scene(place, site, SimulatedClock(MIDNIGHT + 3600.0, time.time(), FASTER))
    scene.prepare()
    with scene.config_path.open("a") as config:
        config.write(f'[web]\naddress = "{place}/http"\n')
    pairs, peak = [], 0.0
    try:
        scene.start_simulator()
        scene.start_daemon()
        time.sleep(TURN_SECONDS)
        for turn in range(turns):
            before = _commits(scene)
            with web(scene.config_path, str(scene.clock)) as process, _audience(place / "http"):
                watched = _commits(scene)
                peak = max(peak, resident(process.pid))
            # Every second turn is compared with what follows it, so that a machine that gets busier favours neither.
            pairs.append((before if turn % 2 else _commits(scene), watched))
    finally:
        scene.close()
    alone, watched = (statistics.median(column) * 1e3 for column in zip(*pairs, strict=True))
    ratios = sorted(watched / alone for alone, watched in pairs)
    ratio, spread = statistics.median(ratios), f"ratios from {ratios[0]:.2f} to {ratios[-1]:.2f}"
    what = f"a commit with {VIEWERS} viewers, {IDLE_VIEWERS} of which never read, without them and with them"
    yield Row(what, "ms", alone, watched, ratio, "at most 1.05", f"{turns} turns of {TURN_SECONDS} s, {spread}")
    yield Row("tokiod web with these viewers, resident memory", "MB", None, peak, None, "below 100 MB")


def _commits(scene: Scene) -> float:
    """Return the median seconds of the commits in the next turn: apply, sync and ledger."""
    begun = time.time()
    time.sleep(TURN_SECONDS)
    windows = [one for one in chosen(read_stages(scene.config.stages), set(), begun) if one.kind == "window" and one.state == "stored"]
    return statistics.median(sum(span.seconds for span in one.stages if span.stage in WRITER_STAGES) for one in windows)


@contextmanager
def _audience(address: Path) -> Iterator[None]:
    """Have viewers follow the events; each that reads them fetches the pixels of every change of its dataset."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    watching = [asyncio.run_coroutine_threadsafe(_viewer(address, number), loop) for number in range(VIEWERS)]
    try:
        yield
        for one in watching:
            if one.done():
                one.result()
    finally:
        for one in watching:
            one.cancel()
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0.1), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


async def _viewer(address: Path, number: int) -> None:
    """Follow the events as the page does: of each change of its dataset it fetches the pixels, and those of the lines below the map."""
    head = f"Host: localhost\r\nX-Forwarded-For: 10.0.0.{number}\r\n\r\n"
    reader, writer = await asyncio.open_unix_connection(address)
    writer.write(f"GET /api/v1/events HTTP/1.0\r\n{head}".encode())
    if number < IDLE_VIEWERS:
        await asyncio.sleep(3600)
    async for line in reader:
        change = json.loads(line[6:]) if line.startswith(b"data: {") and b"span" in line else {}
        if change.get("span") and change["dataset"] == DATASET:
            first, last = change["span"]
            where = f"start={first}&end={last + 1}&width={-(-(last + 1 - first) // PIXEL_SECONDS)}"
            for path in (f"matrix?dataset={DATASET}", *(f"line?dataset={line}" for line in LINES)):
                await _fetch(address, f"GET /api/v1/{path}&system={change['system']}&{where} HTTP/1.0\r\n{head}")
    raise RuntimeError("the events ended")


async def _fetch(address: Path, request: str) -> None:
    reader, writer = await asyncio.open_unix_connection(address)
    writer.write(request.encode())
    answer = await reader.read()
    writer.close()
    if not answer.startswith(b"HTTP/1.0 200"):
        raise RuntimeError(f"{answer[:200]!r} for {request}")


def _days(address: Path, days: int) -> tuple[float, float]:
    """Return the seconds until the first day and until all days are there."""
    begun = time.perf_counter()
    with ThreadPoolExecutor(CONNECTIONS) as browser:
        done = list(browser.map(lambda day: (_seconds(address, _picture(day, 1, PIXELS_OF_A_DAY)), time.perf_counter())[1], range(days)))
    return min(done) - begun, max(done) - begun


def _picture(day: int, count: int, width: int) -> str:
    start = reading.START + day * reading.DAY
    return f"/api/v1/matrix?system=hdf5&dataset={reading.READ}&start={start}&end={start + count * reading.DAY}&width={width}"


def _seconds(address: Path, path: str) -> float:
    begun = time.perf_counter()
    connection = http.client.HTTPConnection("localhost")
    connection.sock = connected(address)
    connection.request("GET", path, headers={"Accept-Encoding": "deflate"})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    if answer.status != 200:
        raise RuntimeError(f"{answer.status} for {path}")
    return time.perf_counter() - begun


def connected(address: Path) -> socket.socket:
    client = socket.socket(socket.AF_UNIX)
    client.connect(str(address))
    return client


@contextmanager
def web(config: Path, clock: str, port: int | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """Run `tokiod web` as its unit does; port: of its address, without one a Unix socket."""
    command = ["nice", "-n", "5", sys.executable, "-P", "-m", "tokiod.cli.tokiod", "web", "--config", str(config), "--clock", clock]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    with config.with_name("web.log").open("ab") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
    try:
        while process.poll() is None:
            with suppress(OSError):
                (connected(config.with_name("http")) if port is None else socket.create_connection(("127.0.0.1", port))).close()
                break
            time.sleep(0.05)
        yield process
    finally:
        process.terminate()
        process.wait(30)
