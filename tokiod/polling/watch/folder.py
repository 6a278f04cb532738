"""The finished files of a watched folder."""

from __future__ import annotations

import asyncio
import logging
import os
import warnings
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # pyinotify imports asyncore, which it doesn't need here
    import pyinotify

from tokiod.ledger.received_files import printable
from tokiod.polling.watch.beneath import REJECTED, found_at, scan
from tokiod.runtime.log import Repeats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tokiod.clock import Clock
    from tokiod.ledger.found_file import FoundFile
    from tokiod.polling.watch.beneath import Listing

QUIET_SECONDS = 5.0
"""How long a file must not change, if inotify did not report that it was closed."""
MIN_SCAN_SECONDS = 1.0
"""Between two scans, however many directories are made."""
MAX_WATCHES = 1024
"""Directories that inotify watches; files in the others are found by scans."""
_MASK = pyinotify.IN_CLOSE_WRITE | pyinotify.IN_MOVED_TO

log = structlog.get_logger()
# It logs each directory that vanishes before it is watched, on a handler of its own, past our log.
pyinotify.log.setLevel(logging.CRITICAL)
pyinotify.log.handlers.clear()


# A file is finished in one of two ways. inotify reports that it was closed after writing, or moved in. inotify does not report files that
# arrived before the folder was watched, while the kernel's queue overflowed, or over a network file system, and pyinotify loses events
# with names that are not UTF-8: such files are finished when two scans, at least QUIET_SECONDS apart, find them unchanged. A file's age
# proves nothing, because another machine's clock may have set it.
class Folder:
    """The files in and below a folder, without its `rejected`. Raises OSError where it can't be read.

    existing: all files in the folder at the last scan, and those that were found since; None where it did not reach all.
    """

    def __init__(self, path: Path, clock: Clock, scan_seconds: float) -> None:
        self.path = path
        self.existing: dict[Path, FoundFile] | None = None
        self._clock = clock
        self._scan_seconds = scan_seconds
        self._closed: set[Path] = set()
        self._seen: dict[Path, tuple[FoundFile, float]] = {}
        self._returned: dict[Path, FoundFile] = {}
        self._directories = {path}
        self._woken = asyncio.Event()
        self._scanned_at = self._next_scan = float("-inf")
        self._repeats = Repeats(clock)
        self._manager: pyinotify.WatchManager | None = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch the folder by inotify inside the block; without inotify watches, scans alone find the files."""
        self._manager = pyinotify.WatchManager()
        notifier = _Notifier(self._manager, self._handle_event, self._scan_soon)
        try:
            self._watch([self.path])
            yield
        finally:
            notifier.stop()
            self._manager = None

    async def finished(self) -> list[FoundFile]:
        """Wait for finished files that were not returned before; return them, oldest first.

        The list may be empty after the first scan, and after one that misses files.
        """
        while True:
            known = self.existing
            found = await self._scan_folder() if self._clock.monotonic() >= self._next_scan else []
            closed, self._closed = self._closed, set()
            if closed:
                found += await asyncio.to_thread(lambda paths: [one for path in paths if (one := found_at(self.path, path))], closed)
            self._returned.update({one.path: one for one in found})
            if self.existing is not None:
                self.existing |= {one.path: one for one in found}
            is_missing = self.existing is not None and (known is None or not known.keys() <= self.existing.keys())
            if found or (is_missing and not self._seen):
                return sorted(set(found), key=lambda one: (one.mtime_ns, os.fsencode(one.path)))
            await self._pause(self._next_scan - self._clock.monotonic())

    def retry(self, found: FoundFile) -> None:
        """Return a file again after a later scan."""
        self._returned.pop(found.path, None)

    def return_all(self) -> None:
        """Return all files again."""
        self._returned.clear()
        self._scan_soon()

    async def _scan_folder(self) -> list[FoundFile]:
        """Return the new files that have not changed for QUIET_SECONDS; the next scan is when others may have been quiet so long."""
        now = self._scanned_at = self._clock.monotonic()
        self._next_scan = now + self._scan_seconds
        listing = await asyncio.to_thread(scan, self.path, self._is_excluded)
        self._report(listing)
        files = {one.path: one for one in listing.files}
        self.existing = None if listing.problems else dict(files)
        self._returned = {path: one for path, one in self._returned.items() if path in files}
        new = {path: one for path, one in files.items() if self._returned.get(path) != one}
        since = {path: self._seen[path][1] if path in self._seen and self._seen[path][0] == one else now for path, one in new.items()}
        quiet = [one for path, one in new.items() if now - since[path] >= QUIET_SECONDS]
        self._seen = {path: (one, since[path]) for path, one in new.items() if now - since[path] < QUIET_SECONDS}
        self._next_scan = min([self._next_scan, *(seen_at + QUIET_SECONDS for _, seen_at in self._seen.values())])
        self._watch_directories(listing.directories)
        return quiet

    def _report(self, listing: Listing) -> None:
        for problem in dict.fromkeys(listing.problems):
            if times := self._repeats(problem):
                log.warning("folder.incomplete", path=str(self.path), reason=printable(problem), times=times)

    def _watch_directories(self, found: list[Path]) -> None:
        """Watch all directories, again those that replaced others; what new ones held before they were watched, another scan finds."""
        self._watch(found)
        is_new = not self._directories.issuperset(found)
        self._directories = set(found)
        if is_new:
            self._scan_soon()

    def _watch(self, directories: Iterable[Path]) -> None:
        for path in directories:
            if self._manager is not None and len(self._manager.watches) < MAX_WATCHES:
                with suppress(UnicodeError):  # pyinotify can't encode all names
                    mask = _MASK | pyinotify.IN_CREATE | pyinotify.IN_ONLYDIR
                    self._manager.add_watch(str(path), mask | (pyinotify.IN_DONT_FOLLOW if path != self.path else 0))

    def _is_excluded(self, path: Path) -> bool:
        return path == self.path / REJECTED or path.name.startswith(".")

    def _handle_event(self, event: Any) -> None:
        if event.mask & (pyinotify.IN_Q_OVERFLOW | pyinotify.IN_ISDIR):
            self._scan_soon()  # an overflow names no path, and a new directory may hold files from before it was watched
        elif event.mask & _MASK:
            self._closed.add(Path(event.pathname))
            self._woken.set()

    def _scan_soon(self) -> None:
        self._next_scan = min(self._next_scan, self._scanned_at + MIN_SCAN_SECONDS)
        self._woken.set()

    async def _pause(self, seconds: float) -> None:
        sleep, woken = asyncio.ensure_future(self._clock.sleep(seconds)), asyncio.ensure_future(self._woken.wait())
        try:
            await asyncio.wait({sleep, woken}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleep.cancel()
            woken.cancel()
            self._woken.clear()


class _Notifier(pyinotify.AsyncioNotifier):  # type: ignore[misc] # pyinotify has no types
    """Reads events; calls on_loss for those that pyinotify can't decode, and for the ones it read together with them."""

    def __init__(self, manager: pyinotify.WatchManager, on_event: Callable[[Any], None], on_loss: Callable[[], None]) -> None:
        self._on_loss = on_loss
        super().__init__(manager, asyncio.get_running_loop(), default_proc_fun=on_event)

    def handle_read(self, *arguments: Any, **keywords: Any) -> None:
        try:
            super().handle_read(*arguments, **keywords)
        except UnicodeDecodeError:
            self._on_loss()
