"""The collectors' end against real writer processes that are killed and frozen, and one that is slow."""

import asyncio
import os
import runpy
import signal
import sys
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from tokiod.bus import sender as bus_sender
from tokiod.bus.protocol import Part
from tokiod.bus.receiver import Arrived, Receiver
from tokiod.bus.sender import Sender, Stored

ECHO_WRITER = Path(__file__).with_name("echo_writer.py")
WINDOWS = 60
FOREVER = 30.0
"""Seconds of silence, longer than any test here."""


class Life:
    """Writer processes on one endpoint, one after the other: whenever one dies, the next is started."""

    def __init__(self, endpoint, path, *plan):
        self.command = [sys.executable, str(ECHO_WRITER), endpoint, str(path), *plan]
        self.lives = 0
        self.process = None

    async def __aenter__(self):
        self.process = await self.start()
        self.task = asyncio.create_task(self.go_on())
        return self

    async def __aexit__(self, *_):
        self.task.cancel()
        self.signal(signal.SIGKILL)
        await self.process.wait()

    async def start(self):
        self.lives += 1
        return await asyncio.create_subprocess_exec(*self.command, start_new_session=True)

    async def go_on(self):
        while True:
            await self.process.wait()
            self.process = await self.start()

    def signal(self, number):
        with suppress(ProcessLookupError):
            self.process.send_signal(number)


async def submit_all(sender, windows):
    answers = [await sender.submit(one) for one in windows]
    async with asyncio.timeout(60):
        return await asyncio.gather(*answers)


def lines(windows):
    line = runpy.run_path(str(ECHO_WRITER))["line"]
    return {line(Arrived(one, Part.of(one.meta, 1), b"")) for one in windows}


@pytest.mark.system
@pytest.mark.parametrize("step", ["received", "stored", "acknowledged"])
def test_a_writer_that_dies_at_any_step_of_its_work_loses_and_harms_no_window(endpoint, tmp_path, window, step):
    windows = [window(n, parts=3) for n in range(WINDOWS)]

    async def main():
        async with Life(endpoint, tmp_path / "stored", step, "20") as life, Sender(endpoint) as sender:
            answers = await submit_all(sender, windows)
            assert answers == [Stored(36, {})] * WINDOWS
            assert life.lives >= WINDOWS // 20

    asyncio.run(main())
    stored = Counter((tmp_path / "stored").read_text().splitlines())
    assert set(stored) == lines(windows)
    assert step == "stored" or sum(stored.values()) < 2 * WINDOWS


@pytest.mark.system
def test_windows_of_many_parts_are_stored_whole_after_the_writer_was_killed(endpoint, tmp_path, window, monkeypatch):
    monkeypatch.setattr(bus_sender, "PART_BYTES", 20_000)
    windows = [window(n, parts=26, cells=1000) for n in range(WINDOWS)]

    async def kill_now_and_then(life, sender):
        for delay in (0.0, 0.002, 0.005, 0.01, 0.02, 0.03):
            await sender.welcomed()
            await asyncio.sleep(delay)
            life.signal(signal.SIGKILL)
            while sender.state.connected:
                await asyncio.sleep(0.001)

    async def main():
        async with Life(endpoint, tmp_path / "stored") as life, Sender(endpoint, silence=FOREVER) as sender:
            killer = asyncio.create_task(kill_now_and_then(life, sender))
            answers = await submit_all(sender, windows)
            assert answers == [Stored(26 * 1000, {})] * WINDOWS
            await killer
            assert life.lives >= 6
            assert sender.state.resent > 0

    asyncio.run(main())
    assert set((tmp_path / "stored").read_text().splitlines()) == lines(windows)


@pytest.mark.system
def test_a_writer_that_is_frozen_and_thawed_repeatedly_loses_no_window_and_windows_in_flight_are_bounded(endpoint, tmp_path, window):
    windows = [window(n, parts=3, cells=3000) for n in range(WINDOWS)]

    async def freeze_now_and_then(life, sender):
        for delay in (0.0, 0.01, 0.03, 0.1):
            await sender.welcomed()
            await asyncio.sleep(delay)
            life.signal(signal.SIGSTOP)
            while sender.state.connected:
                await asyncio.sleep(0.01)
                assert sender.state.in_flight <= 4
            life.signal(signal.SIGCONT)

    async def main():
        async with Life(endpoint, tmp_path / "stored") as life, Sender(endpoint, silence=0.2) as sender:
            freezer = asyncio.create_task(freeze_now_and_then(life, sender))
            answers = await submit_all(sender, windows)
            assert answers == [Stored(9000, {})] * WINDOWS
            await freezer
            assert life.lives == 1

    asyncio.run(main())
    assert set((tmp_path / "stored").read_text().splitlines()) == lines(windows)


@pytest.mark.system
def test_a_writer_frozen_for_less_than_the_limit_keeps_its_connection(endpoint, tmp_path, window):
    async def main():
        async with Life(endpoint, tmp_path / "stored") as life, Sender(endpoint, silence=FOREVER, max_windows=3) as sender:
            await sender.welcomed()
            life.signal(signal.SIGSTOP)
            await asyncio.to_thread(os.waitid, os.P_PID, life.process.pid, os.WSTOPPED | os.WNOWAIT)
            submits = [asyncio.create_task(sender.submit(window(n, cells=3000))) for n in range(10)]
            await asyncio.sleep(0.2)
            assert (sender.state.in_flight, sender.state.in_flight_bytes) == (3, 3 * 60_000)
            assert sum(task.done() for task in submits) == 3
            life.signal(signal.SIGCONT)
            assert [(await (await task)).cells for task in submits] == [3000] * 10
            assert (life.lives, sender.state.resent) == (1, 0)

    asyncio.run(main())
    assert len((tmp_path / "stored").read_text().splitlines()) == 10


def test_a_writer_that_is_slower_than_the_limit_still_acknowledges_everything(endpoint, window):
    """Each commit lasts longer than the sender's limit: unless the limit grows, no acknowledgement comes in time."""

    def write(stopping):
        with Receiver(endpoint, "one") as receiver:
            while not stopping.is_set():
                for arrived in receiver.poll(20):
                    stopping.wait(0.15)
                    receiver.ack(arrived, 12, {})
                receiver.beat()

    async def main():
        stopping = threading.Event()
        writing = asyncio.create_task(asyncio.to_thread(write, stopping))
        async with Sender(endpoint, silence=0.05) as sender:
            answers = await submit_all(sender, [window(n) for n in range(4)])
            assert answers == [Stored(12, {})] * 4
        stopping.set()
        await writing

    asyncio.run(main())
