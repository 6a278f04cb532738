"""Which file of an archive holds a time."""

from __future__ import annotations

from collections import defaultdict, deque
from typing import TYPE_CHECKING, Protocol

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tokiod.window import Calendar, Window


class FileSlot(msgspec.Struct, frozen=True):
    """The path of a system's file for [start, end), whether the file exists or not. start, end: epoch seconds."""

    system: str
    path: Path
    start: int
    end: int


class Layout(Protocol):
    """Maps times to files."""

    def __call__(self, system: str, time: int) -> FileSlot | None:
        """Return the slot that holds an epoch second, None outside of all files."""
        ...


def daily(calendar: Calendar, path_of: Callable[..., Path]) -> Layout:
    """Return the layout of a daemon: a file per system and site day. path_of(day, system) fills the template."""
    recent: dict[str, deque[FileSlot]] = defaultdict(lambda: deque(maxlen=4))

    def slot(system: str, time: int) -> FileSlot:
        for known in recent[system]:
            if known.start <= time < known.end:
                return known
        day = calendar.day(time)
        recent[system].appendleft(FileSlot(system, path_of(day, system), day.start, day.end))
        return recent[system][0]

    return slot


def single(path: Path, span: Window) -> Layout:
    """Return the layout of `tokioctl archive`: one file of a given span, for every system."""

    def slot(system: str, time: int) -> FileSlot | None:
        return FileSlot(system, path, span.start, span.end) if span.start <= time < span.end else None

    return slot
