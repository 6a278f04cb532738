"""The stages of windows that cross a real bus add up to their age at the acknowledgement; a kill at any event leaves them readable."""

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from time import monotonic_ns
from types import SimpleNamespace

import pytest

from tokiod.bus import protocol
from tokiod.bus.connection import ZmqConnector
from tokiod.bus.sender import Sender
from tokiod.metrics import stages
from tokiod.metrics.stage_ring import STAGES, StageRing, read_ring
from tokiod.reports.stages import read_stages
from tokiod.window_result import Stored

WINDOWS = 1000
MILLISECOND = 1_000_000


class Timed:
    """A connector over ZeroMQ that notes when each acknowledgement is received."""

    def __init__(self):
        self._connector = ZmqConnector()
        self.received = {}

    @contextmanager
    def connected(self, endpoint):
        with self._connector.connected(endpoint) as connection:

            async def receive():
                frame = await connection.receive()
                if isinstance(message := protocol.decode_from_writer(frame), protocol.Ack):
                    self.received[message.start] = monotonic_ns()
                return frame

            yield SimpleNamespace(send=connection.send, receive=receive, ended=connection.ended)

    def close(self):
        self._connector.close()


async def store(sender, collected, due, clocks):
    """Collect and submit a window; note the clock as close to both ends of its age as a caller can."""
    start = collected.meta.window.start

    async def collect():
        clocks[start] = [monotonic_ns()]
        await asyncio.sleep(0)
        return collected

    before = monotonic_ns()
    answer = await sender.submit(await stages.Collecting(collect(), "cscratch-lmt", collected.meta.window, due))
    answer.add_done_callback(lambda _: clocks[start].extend((before, monotonic_ns())))
    return answer


def test_the_stages_of_a_thousand_windows_add_up_to_their_age_at_the_acknowledgement(tmp_path, endpoint, window):
    timed, clocks, due = Timed(), {}, 12.5

    async def scene():
        async with Sender(endpoint, silence=30.0, max_windows=8, connector=lambda: timed) as sender:
            answers = [await store(sender, window(number), due, clocks) for number in range(WINDOWS)]
            return await asyncio.gather(*answers)

    with subprocess.Popen([sys.executable, Path(__file__).with_name("echo_writer.py"), endpoint, tmp_path / "stored"]) as writer:
        try:
            with stages.recording(tmp_path / "rings", tmp_path / "run", "collectors"):
                stored = asyncio.run(scene())
                recorded = {one.start: one for one in read_stages(tmp_path / "rings")}
        finally:
            writer.kill()
    assert all(isinstance(one, Stored) for one in stored)
    assert recorded.keys() == clocks.keys()
    for start, (inner_begin, outer_begin, outer_end) in clocks.items():
        one = recorded[start]
        assert [span.stage for span in one.stages] == ["due", "ask", "fetch", "parse", "submit", "bus"]
        age = (sum(span.seconds for span in one.stages) - due) * 1e9
        assert timed.received[start] - inner_begin - MILLISECOND <= age <= outer_end - outer_begin + MILLISECOND


def record(collected):
    """Record all stages of a window, as both processes do."""
    meta = collected.meta

    async def collect():
        await asyncio.sleep(0)
        return collected

    async def scene():
        await stages.Collecting(collect(), meta.source, meta.window, 1.0)
        with stages.Submission(collected) as submission:
            pass
        answer = asyncio.get_running_loop().create_future()
        submission.accepted(answer)
        attempt = SimpleNamespace(source=meta.source, start=meta.window.start, end=meta.window.end, attempt=1)
        with stages.Commit() as commit:
            for stage in STAGES["commit"]:
                with commit.stage(stage, [attempt]):
                    pass
        answer.set_result(Stored(1, {}))
        await asyncio.sleep(0)

    asyncio.run(scene())


WRITES = [("collection", 3), ("collection", 5), ("submission", 1), ("submission", 2)]
WRITES += [("commit", marks) for marks in (1, 2, 3, 4, 5)] + [("submission", 3)]
"""What each write of a window adds: a kind, and how many marks it has then."""


@pytest.mark.parametrize("writes", range(len(WRITES) + 1))
def test_after_a_kill_at_any_write_what_was_recorded_is_read(tmp_path, window, monkeypatch, writes):
    write, left = StageRing.write, iter(range(writes))

    def write_or_die(ring, slot):
        if next(left, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)
        write(ring, slot)

    if not (child := os.fork()):
        monkeypatch.setattr(StageRing, "write", write_or_die)
        with stages.recording(tmp_path / "rings", tmp_path / "run", "collectors"):
            record(window(1))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    found = read_ring(stages.ring_path(tmp_path / "rings", "collectors"))
    assert (os.WIFSIGNALED(status), found.is_live, found.damaged) == (writes < len(WRITES), False, 0)
    assert {work.kind: sum(map(bool, work.marks)) for work in found.works} == dict(WRITES[:writes])
    assert [work.outcome for work in found.works if work.marks[-1]] == ["done"] * sum(bool(work.marks[-1]) for work in found.works)
