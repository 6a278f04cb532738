"""What the recording of its stages costs a window: all calls of both processes, with a ring against without one, in processor time."""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import TYPE_CHECKING

from tests.bench.measure import Row
from tokiod.bus.protocol import Part
from tokiod.metrics import stages
from tokiod.window import Window
from tokiod.window_data import Collected, WindowMeta
from tokiod.window_result import Stored

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tokiod.window_result import Answer

WINDOWS = 1000
WAITS = 4
"""Of the collector for its source: connect, send, receive, close."""
SOURCE, WINDOW = "cscratch-lmt", Window(1_517_184_000, 1_517_184_060)
COLLECTED = Collected(WindowMeta(SOURCE, "lmt", "cscratch", WINDOW), [])
PART = Part.of(COLLECTED.meta, 1)


def rows(directory: Path, *, quick: bool) -> Iterator[Row]:
    (directory / "run").mkdir(mode=0o700)
    floors, own = [], []
    for _ in range(5 if quick else 21):
        floors.append(asyncio.run(_microseconds()))
        with stages.recording(directory / "rings", directory / "run", "collectors"):
            own.append(asyncio.run(_microseconds()))
    floor, ours = statistics.median(floors), statistics.median(own)
    ratio, note = statistics.median(o / f for f, o in zip(floors, own, strict=True)), f"{ours - floor:.1f} us for the recording"
    yield Row("the stages of a window, recorded in both processes", "us", floor, ours, ratio, "30 us above the floor", note)


async def _microseconds() -> float:
    """Return the processor time of a window."""
    begun = time.process_time()
    for _ in range(WINDOWS):
        await _window()
    return (time.process_time() - begun) * 1e6 / WINDOWS


async def _window() -> None:
    await stages.Collecting(_collect(), SOURCE, WINDOW, 1.0)
    answer: Answer = asyncio.get_running_loop().create_future()
    with stages.Submission(COLLECTED) as submission:
        pass
    submission.accepted(answer)
    with stages.Commit() as commit:
        for stage in ("apply", "sync", "ledger", "feed"):
            with commit.stage(stage, [PART]):
                pass
    answer.set_result(Stored(0, {}))
    await answer


async def _collect() -> Collected:
    for _ in range(WAITS):
        await asyncio.sleep(0)
    return COLLECTED
