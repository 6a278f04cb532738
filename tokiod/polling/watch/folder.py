"""Which files have come into a folder and are finished."""

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
"""The folder within, for what is no file of the kind."""
QUIET = 5.0
"""Seconds in which a file that nobody saw being closed must not have changed."""
_MASK = pyinotify.IN_CLOSE_WRITE | pyinotify.IN_MOVED_TO


# Two ways of knowing that a file is finished. inotify tells that it was closed after writing, or moved in. Of all others, those that
# came while nobody watched, that came in a rush in which the kernel's queue overflowed, or over a network file system, nothing is
# told: they are finished once two looks, some seconds apart, see the same. Ages are no way: the file's clock may not be ours.
class Folder:
    """The files in and below a folder, without its `rejected`. Raises OSError where it can't be read."""

    def __init__(self, path: Path, clock: Clock, scan: float) -> None:
        self.path = path
        self._clock = clock
        self._scan = scan
        self._closed: set[Path] = set()
        self._seen: dict[Path, FoundFile] = {}
        self._returned: dict[Path, FoundFile] = {}
        self._told = asyncio.Event()
        self._must_look = True

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Hear of what happens in the folder while inside; also of nothing, where there are no inotify watches to be had."""
        manager = pyinotify.WatchManager()
        notifier = pyinotify.AsyncioNotifier(manager, asyncio.get_running_loop(), default_proc_fun=self._tell)
        try:
            manager.add_watch(str(self.path), _MASK, rec=True, auto_add=True, exclude_filter=self._is_apart)
            yield
        finally:
            notifier.stop()

    async def finished(self) -> list[FoundFile]:
        """Wait until there may be files that are finished and were not told before, and return them, oldest first."""
        while True:
            found = await asyncio.to_thread(self._look) if self._must_look else []
            closed, self._closed = self._closed, set()
            found += [one for one in map(FoundFile.at, closed) if one is not None]
            self._returned.update({one.path: one for one in found})
            if found:
                return sorted(set(found), key=lambda one: (one.mtime_ns, str(one.path)))
            await self._pause(QUIET if self._seen else self._scan)

    @property
    def there(self) -> Iterable[Path]:
        """What was in the folder when everything in it was last looked at."""
        return self._returned.keys()

    def _look(self) -> list[FoundFile]:
        """Return what is new and looks as it did the time before; what doesn't is to be looked at again soon."""
        self._must_look = False
        now = {one.path: one for one in self._files()}
        self._returned = {path: one for path, one in self._returned.items() if path in now}
        new = {path: one for path, one in now.items() if self._returned.get(path) != one}
        same = [one for path, one in new.items() if self._seen.get(path) == one]
        self._seen = {path: one for path, one in new.items() if self._seen.get(path) != one}
        self._must_look |= bool(self._seen)
        return same

    def _files(self) -> Iterator[FoundFile]:
        def fail(error: OSError) -> None:
            if error.filename == str(self.path):
                raise error

        for directory, within, names in os.walk(self.path, onerror=fail):
            within[:] = [name for name in within if not self._is_apart(Path(directory, name))]
            for name in names:
                if found := FoundFile.at(Path(directory, name)):
                    yield found

    def _is_apart(self, path: str | Path) -> bool:
        return Path(path) == self.path / REJECTED or Path(path).name.startswith(".")

    def _tell(self, event: Any) -> None:
        if event.mask & (pyinotify.IN_Q_OVERFLOW | pyinotify.IN_ISDIR):
            self._must_look = True  # an overflow is about no path, and a directory may hold files from before it was watched
        elif event.mask & _MASK and not self._is_apart(Path(event.path)):
            self._closed.add(Path(event.pathname))
        self._told.set()

    async def _pause(self, seconds: float) -> None:
        sleep, told = asyncio.ensure_future(self._clock.sleep(seconds)), asyncio.ensure_future(self._told.wait())
        try:
            done, _ = await asyncio.wait({sleep, told}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleep.cancel()
            told.cancel()
            self._told.clear()
        self._must_look |= sleep in done
