"""What the days next to sealed days must know of them, read once and kept as long as their files are the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokiod.tts.live.live_file import NotLive
from tokiod.tts.sealed.sealed_neighbour import SealedDay

if TYPE_CHECKING:
    from pathlib import Path

    Identity = tuple[int, ...]


class SealedDays:
    """The sealed days that were read last. most: how many are kept."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._days: dict[Path, tuple[Identity, SealedDay]] = {}

    def known(self, path: Path) -> SealedDay | None:
        """Return a day that was read before, unless its file was replaced since. Raises OSError."""
        identity, day = self._days.get(path, ((), None))
        return day if day is not None and _identity(path) == identity else None

    def read(self, path: Path) -> SealedDay | None:
        """Read a day; None where there is no file, or a damaged one. Raises OSError where the system can't read it.

        Most days have no file after them: HDF5 needs a sixth of a millisecond to find that out, stat() a microsecond.
        """
        if not (identity := _identity(path)):
            return None
        try:
            day = SealedDay.read(path)
        except (FileNotFoundError, NotLive):
            return None
        self._days[path] = identity, day
        while len(self._days) > self._most:
            del self._days[next(iter(self._days))]
        return day


def _identity(path: Path) -> Identity:
    try:
        status = path.stat()
    except FileNotFoundError:
        return ()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
