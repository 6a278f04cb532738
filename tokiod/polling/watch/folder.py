"""The finished files of a watched folder."""

from __future__ import annotations

import asyncio
import os
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # pyinotify imports asyncore, which it doesn't need here
    import pyinotify

from tokiod.ledger.received_files import FoundFile

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tokiod.clock import Clock

REJECTED = "rejected"
"""The subfolder for malformed files."""
QUIET_SECONDS = 5.0
"""How long a file must not change, if inotify did not report that it was closed."""
_MASK = pyinotify.IN_CLOSE_WRITE | pyinotify.IN_MOVED_TO


# A file is finished in one of two ways. inotify reports that it was closed after writing, or moved in. inotify does not report files that
# arrived before the folder was watched, while the kernel's queue overflowed, or over a network file system: those are finished when two
# scans, some seconds apart, find them unchanged. A file's age proves nothing, because another machine's clock may have set it.
class Folder:
    """The files in and below a folder, without its `rejected`. Raises OSError where it can't be read."""

    def __init__(self, path: Path, clock: Clock, scan: float) -> None:
        self.path = path
        self._clock = clock
        self._scan = scan
        self._closed: set[Path] = set()
        self._seen: dict[Path, FoundFile] = {}
        self._returned: dict[Path, FoundFile] = {}
        self._woken = asyncio.Event()
        self._must_scan = True

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch the folder by inotify inside the block; without inotify watches, scans alone find the files."""
        manager = pyinotify.WatchManager()
        notifier = pyinotify.AsyncioNotifier(manager, asyncio.get_running_loop(), default_proc_fun=self._handle_event)
        try:
            manager.add_watch(str(self.path), _MASK, rec=True, auto_add=True, exclude_filter=self._is_excluded)
            yield
        finally:
            notifier.stop()

    async def finished(self) -> list[FoundFile]:
        """Wait for finished files that were not returned before; return them, oldest first."""
        while True:
            found = await asyncio.to_thread(self._scan_folder) if self._must_scan else []
            closed, self._closed = self._closed, set()
            found += [one for one in map(FoundFile.at, closed) if one is not None]
            self._returned.update({one.path: one for one in found})
            if found:
                return sorted(set(found), key=lambda one: (one.mtime_ns, str(one.path)))
            await self._pause(QUIET_SECONDS if self._seen else self._scan)

    @property
    def existing(self) -> Iterable[Path]:
        """The files in the folder at the last scan."""
        return self._returned.keys()

    def _scan_folder(self) -> list[FoundFile]:
        """Return the new files that have not changed since the last scan; after a change another scan follows soon."""
        self._must_scan = False
        now = {one.path: one for one in self._files()}
        self._returned = {path: one for path, one in self._returned.items() if path in now}
        new = {path: one for path, one in now.items() if self._returned.get(path) != one}
        same = [one for path, one in new.items() if self._seen.get(path) == one]
        self._seen = {path: one for path, one in new.items() if self._seen.get(path) != one}
        self._must_scan |= bool(self._seen)
        return same

    def _files(self) -> Iterator[FoundFile]:
        def fail(error: OSError) -> None:
            if error.filename == str(self.path):
                raise error

        for directory, within, names in os.walk(self.path, onerror=fail):
            within[:] = [name for name in within if not self._is_excluded(Path(directory, name))]
            for name in names:
                if found := FoundFile.at(Path(directory, name)):
                    yield found

    def _is_excluded(self, path: str | Path) -> bool:
        return Path(path) == self.path / REJECTED or Path(path).name.startswith(".")

    def _handle_event(self, event: Any) -> None:
        if event.mask & (pyinotify.IN_Q_OVERFLOW | pyinotify.IN_ISDIR):
            self._must_scan = True  # an overflow names no path, and a new directory may hold files from before it was watched
        elif event.mask & _MASK and not self._is_excluded(Path(event.path)):
            self._closed.add(Path(event.pathname))
        self._woken.set()

    async def _pause(self, seconds: float) -> None:
        sleep, woken = asyncio.ensure_future(self._clock.sleep(seconds)), asyncio.ensure_future(self._woken.wait())
        try:
            done, _ = await asyncio.wait({sleep, woken}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleep.cancel()
            woken.cancel()
            self._woken.clear()
        self._must_scan |= sleep in done
