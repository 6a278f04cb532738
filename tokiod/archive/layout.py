"""Which file holds a time."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tokiod.window import Calendar, Window


@dataclass(frozen=True, slots=True)
class Place:
    """The file of a system for [start, end)."""

    system: str
    path: Path
    start: int
    end: int


class Layout(Protocol):
    """Says which file holds a time, or that none does."""

    def __call__(self, system: str, time: int) -> Place | None:
        """Return the place of an epoch second."""
        ...


def daily(calendar: Calendar, path_of: Callable[..., Path]) -> Layout:
    """Return the layout of a daemon: a file per system and site day. path_of(day, system) fills the template."""
    latest: dict[str, deque[Place]] = defaultdict(lambda: deque(maxlen=4))

    def place(system: str, time: int) -> Place:
        for known in latest[system]:
            if known.start <= time < known.end:
                return known
        day = calendar.day(time)
        latest[system].appendleft(Place(system, path_of(day, system), day.start, day.end))
        return latest[system][0]

    return place


def single(path: Path, span: Window) -> Layout:
    """Return the layout of `tokioctl archive`: one file of a given span, whatever the system."""

    def place(system: str, time: int) -> Place | None:
        return Place(system, path, span.start, span.end) if span.start <= time < span.end else None

    return place
