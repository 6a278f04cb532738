"""What the files of an archive are: each is opened once, a few between two windows, because an archive of years has thousands."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import structlog
from msgspec import structs

from tokiod.runtime.log import Repeats
from tokiod.tts.hdf5_input import attribute
from tokiod.tts.layout import NotLive, form_of, open_for_reading

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from tokiod.archive.layout import FileSlot
    from tokiod.clock import Clock

log = structlog.get_logger()

FILES_PER_TURN = 16
"""Files that are opened between two windows: about 20 ms."""


class ScannedFile(msgspec.Struct, frozen=True):
    """What the file with this inode and size is. slot: None if its system is not configured any more.

    mtime: nanoseconds, of the disk's clock; changed_at: our clock's time when the scan found it changed.
    """

    inode: int
    # A file system may give the inode of a removed file to the next one. The size of a file of ours never changes in place.
    size: int
    start: int
    is_live: bool
    slot: FileSlot | None
    mtime: int = 0
    changed_at: float = 0.0


# Paths are texts here: a scan looks at all files of the archive, and pathlib takes three times as long for that.
class FileScan:
    """The files of an archive. slot_of: which slot a file is in that begins at an epoch second, None if it is in no slot."""

    def __init__(self, slot_of: Callable[[Path, int], FileSlot | None], clock: Clock) -> None:
        self._slot_of = slot_of
        self._repeats = Repeats(clock)
        self._scanned: dict[str, ScannedFile] = {}
        self._unread: list[str] = []

    def begin(self, names: Iterable[str], now: float) -> None:
        """Take these for all files that exist; new ones, and those whose inode or size is another, are to be opened."""
        found: dict[str, ScannedFile] = {}
        unread: list[tuple[int, str]] = []
        for name in names:
            try:
                status = os.stat(name)  # noqa: PTH116 - see above
            except OSError:
                continue
            known = self._scanned.get(name)
            if known is None or (known.inode, known.size) != (status.st_ino, status.st_size):
                unread.append((status.st_mtime_ns, name))
            else:
                found[name] = (
                    known if known.mtime == status.st_mtime_ns else structs.replace(known, mtime=status.st_mtime_ns, changed_at=now)
                )
        self._scanned = found
        self._unread = [name for _, name in sorted(unread)]

    def open_some(self, now: float) -> bool:
        """Open a few of the files that are to be opened, the youngest first; return whether all have been."""
        for _ in range(min(FILES_PER_TURN, len(self._unread))):
            name = self._unread.pop()
            if (file := self.inspect(Path(name), now)) is not None:
                self._scanned[name] = file
        return not self._unread

    def inspect(self, path: Path, now: float) -> ScannedFile | None:
        """Return what a file is; None for one that is not a TTS file of ours, which the process that needs it will report.

        Files of other programs may hold anything: whatever their reading raises is logged, and the next scan tries again.
        """
        try:
            status = path.stat()
            with open_for_reading(path) as file:
                start, is_live = int(attribute(file.id, "start")), form_of(file) == "live"
            return ScannedFile(status.st_ino, status.st_size, start, is_live, self._slot_of(path, start), status.st_mtime_ns, now)
        except (NotLive, KeyError, FileNotFoundError):
            return None
        except Exception as error:  # noqa: BLE001 - see above
            reason = f"{type(error).__name__}: {error}"
            if times := self._repeats((path, reason)):
                log.warning("file.skipped", path=str(path), error=reason, times=times)
            return None

    def clear(self) -> None:
        """Forget all files: other systems are configured now."""
        self._scanned.clear()

    @property
    def names(self) -> Collection[str]:
        """The paths of the files that were opened."""
        return self._scanned.keys()

    def files(self) -> Collection[ScannedFile]:
        """Return the files that were opened."""
        return self._scanned.values()
