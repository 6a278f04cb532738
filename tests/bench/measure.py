"""What a figure is: ours against what the machine can do, measured in turns in one run, medians of both."""

from __future__ import annotations

import gc
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


@dataclass(frozen=True)
class Row:
    """One line of the table. floor, ours: in `unit`; ratio: ours to floor, in time, so that less is better; target: in words."""

    what: str
    unit: str
    floor: float | None
    ours: float | None
    ratio: float | None
    target: str
    note: str = ""

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def wide_console() -> Console:
    """Return a console that breaks no row of a table in a file."""
    return Console(width=None if sys.stdout.isatty() else 240)


def skipped(what: str, target: str, why: str) -> Row:
    return Row(what, "", None, None, None, target, why)


def paired(floor: Callable[[], object], ours: Callable[[], object], times: int) -> tuple[float, float, float]:
    """Return the median seconds of both, run in turns after one turn that doesn't count, and the median of the ratios turn by turn."""
    return _medians([(_seconds(floor), _seconds(ours)) for _ in range(times + 1)])


async def paired_awaits(
    floor: Callable[[], Awaitable[object]], ours: Callable[[], Awaitable[object]], times: int
) -> tuple[float, float, float]:
    """Do the same with coroutines."""
    return _medians([(await _awaited(floor), await _awaited(ours)) for _ in range(times + 1)])


def _medians(pairs: list[tuple[float, float]]) -> tuple[float, float, float]:
    floors, own = zip(*pairs[1:], strict=True)
    return statistics.median(floors), statistics.median(own), statistics.median(o / f for f, o in pairs[1:])


def _seconds(act: Callable[[], object]) -> float:
    gc.collect()
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


async def _awaited(act: Callable[[], Awaitable[object]]) -> float:
    gc.collect()
    start = time.perf_counter()
    await act()
    return time.perf_counter() - start


def timed(what: str, unit: str, scale: float, pair: tuple[float, float, float], target: str, note: str = "") -> Row:
    """A row whose figures are seconds times `scale`."""
    floor, ours, ratio = pair
    return Row(what, unit, floor * scale, ours * scale, ratio, target, note)


def rated(what: str, unit: str, count: float, pair: tuple[float, float, float], target: str, note: str = "") -> Row:
    """A row whose figures are `count` per second."""
    floor, ours, ratio = pair
    return Row(what, unit, count / floor, count / ours, ratio, target, note)
