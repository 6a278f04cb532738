"""The cursor of a sink: how far its receiver has acknowledged, in a small file of its own state directory.

What is still to be sent is at any time: all changes after `seq` of the epoch, and the spans of `backlog`. A span that takes long is moved
to the backlog, and the cursor passes its change; so a sink that has much to send sends new rows first, and goes on where it was killed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import msgspec
import structlog

from tokiod.errors import TokiodError, Transient
from tokiod.ranges import Ranges
from tokiod.tts.live.files import REAL, replace_file
from tokiod.window import Window

if TYPE_CHECKING:
    from pathlib import Path

    from tokiod.tts.live.files import Files

log = structlog.get_logger()

FILE = "cursor.json"


class Backlog(msgspec.Struct, frozen=True):
    """Spans of a system that are to be sent, as [start, end) epoch seconds, oldest first; revision: of the blocks made of them."""

    revision: int
    spans: tuple[tuple[int, int], ...] = ()

    def with_span(self, window: Window, revision: int) -> Self:
        """Return one with another span. What is read from now on covers both revisions."""
        ranges = Ranges(self.spans)
        ranges.add(window.start, window.end)
        return type(self)(max(revision, self.revision), tuple(ranges))

    def without(self, window: Window) -> Self:
        """Return one without a span that was sent."""
        ranges = Ranges(self.spans)
        ranges.remove(window.start, window.end)
        return type(self)(self.revision, tuple(ranges))

    @property
    def seconds(self) -> int:
        """Seconds of its spans."""
        return sum(end - start for start, end in self.spans)


class StoredDay(msgspec.Struct, frozen=True):
    """A site day that a sink of days has. revision: that it covers; file: which file it was, empty once the day is no longer sealed."""

    revision: int
    file: tuple[int, ...] = ()


class Cursor(msgspec.Struct, frozen=True):
    """How far a sink is. seq: the number of the last change that is acknowledged or in the backlog.

    systems: those that it sends; days: of a sink of days, by system and ISO date; rewind: the last request to rewind that it followed.
    """

    epoch: int
    seq: int
    systems: tuple[str, ...] = ()
    backlog: dict[str, Backlog] = {}
    days: dict[str, dict[str, StoredDay]] = {}
    rewind: str = ""

    def moved(self, seq: int) -> Self:
        """Return the cursor after the changes up to a number."""
        return msgspec.structs.replace(self, seq=seq)

    def later(self, system: str, window: Window, revision: int) -> Self:
        """Return the cursor with a span in the backlog."""
        known = self.backlog.get(system, Backlog(revision))
        return msgspec.structs.replace(self, backlog=self.backlog | {system: known.with_span(window, revision)})

    def sent(self, system: str, window: Window) -> Self:
        """Return the cursor without a span of the backlog, which was acknowledged."""
        left = self.backlog[system].without(window)
        rest = {name: one for name, one in self.backlog.items() if name != system}
        return msgspec.structs.replace(self, backlog=rest | ({system: left} if left.spans else {}))

    def day(self, system: str, date: str, stored: StoredDay) -> Self:
        """Return the cursor with the state of a day."""
        return msgspec.structs.replace(self, days=self.days | {system: self.days.get(system, {}) | {date: stored}})

    @property
    def backlog_seconds(self) -> int:
        """Seconds of all spans of the backlog."""
        return sum(one.seconds for one in self.backlog.values())

    def newest_of_backlog(self) -> tuple[str, Window, int] | None:
        """Return the newest span of the backlog, with its system and revision; None without one."""
        newest = max(((one.spans[-1][1], system) for system, one in self.backlog.items() if one.spans), default=None)
        if newest is None:
            return None
        _, system = newest
        one = self.backlog[system]
        return system, Window(*one.spans[-1]), one.revision


class CursorFile:
    """The file of a cursor."""

    def __init__(self, directory: Path, files: Files = REAL) -> None:
        self.path = directory / FILE
        self._files = files

    def load(self) -> Cursor | None:
        """Return the cursor, None without one. A damaged file counts as none: all is sent again. Raises TokiodError if it can't be read."""
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=Cursor)
        except FileNotFoundError:
            return None
        except (msgspec.DecodeError, ValueError) as error:
            log.warning("sink.cursor_damaged", path=str(self.path), error=str(error))
            return None
        except OSError as error:
            raise TokiodError(f"the cursor {self.path} can't be read: {error.strerror}") from None

    def save(self, cursor: Cursor) -> None:
        """Write the cursor durably. Raises Transient."""
        try:
            replace_file(self.path, msgspec.json.encode(cursor), self._files)
        except OSError as error:
            raise Transient(f"the cursor {self.path} can't be written: {error.strerror}") from error
