"""What the files of an archive are: each is opened once, a few at a time, for windows wait meanwhile and years have thousands."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tokiod.tts.layout import NotLive, form_of, open_for_reading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from tokiod.archive.layout import Place

AT_ONCE = 16
"""Files that are opened between two windows: about 20 ms."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a file with this inode is; place: whose it is, None of a system that is not configured any more.

    mtime: in nanoseconds, of the disk's clock; changed_at: when that was seen to change, in our clock's time.
    """

    inode: int
    start: int
    is_live: bool
    place: Place | None
    mtime: int = 0
    changed_at: float = 0.0


class FilesSeen:
    """The files that are there. place_of: whose a file is that begins at an epoch second, None where it is nobody's."""

    def __init__(self, place_of: Callable[[Path, int], Place | None]) -> None:
        self._place_of = place_of
        self._all: dict[Path, Seen] = {}
        self._unread: list[Path] = []

    def look(self, paths: Iterable[Path], now: float) -> None:
        """Take these for all there are; those that are new, or are other files than before, are to be read."""
        found: dict[Path, Seen] = {}
        unread: list[tuple[int, Path]] = []
        for path in paths:
            try:
                status = path.stat()
            except OSError:
                continue
            seen = self._all.get(path)
            if seen is None or seen.inode != status.st_ino:
                unread.append((status.st_mtime_ns, path))
            else:
                found[path] = seen if seen.mtime == status.st_mtime_ns else replace(seen, mtime=status.st_mtime_ns, changed_at=now)
        self._all = found
        self._unread = [path for _, path in sorted(unread)]

    def read(self, now: float) -> bool:
        """Open some of those that are to be read, the youngest first; return whether all are read."""
        for _ in range(min(AT_ONCE, len(self._unread))):
            path = self._unread.pop()
            if (seen := self.look_at(path, now)) is not None:
                self._all[path] = seen
        return not self._unread

    def look_at(self, path: Path, now: float) -> Seen | None:
        """Return what a file is, None for one that is no TTS file of ours: whoever needs it will say what is wrong with it."""
        try:
            status = path.stat()
            with open_for_reading(path) as file:
                start, is_live = int(file.attrs["start"]), form_of(file) == "live"
        except (NotLive, KeyError, TypeError, OSError):
            return None
        return Seen(status.st_ino, start, is_live, self._place_of(path, start), status.st_mtime_ns, now)

    def clear(self) -> None:
        """Forget all: other systems are configured now."""
        self._all.clear()

    def items(self) -> Iterable[tuple[Path, Seen]]:
        """Return the files that were read."""
        return self._all.items()
