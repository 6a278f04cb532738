"""Files that are never written to again: they go aside under another name, and a copy takes their place where only a sync failed."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from tokiod.sink import SetAside
from tokiod.tts.live.live_file import FileLost, set_aside
from tokiod.tts.live.rewrite import copy
from tokiod.window import Window

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tokiod.archive.layout import Place
    from tokiod.clock import Clock
    from tokiod.tts.live.files import Files
    from tokiod.tts.live.live_file import LiveFile


class Distrusted:
    """Sets files aside, and keeps what is to be told of that. pause: called between slices of a copy."""

    def __init__(self, clock: Clock, files: Files, pause: Callable[[], None]) -> None:
        self._clock = clock
        self._files = files
        self._pause = pause
        self._aside: list[SetAside] = []
        self._stuck: set[Path] = set()

    def add(self, place: Place, file: LiveFile | None, error: Exception) -> None:
        """Set aside what has a place's name, if anything has; file: what was open there, which is closed."""
        aside = self._renamed(place.path)
        salvaged = file is not None and not isinstance(error, FileLost) and self._salvaged(place, file)
        self._aside.append(SetAside(place.system, Window(place.start, place.end), str(place.path), aside, str(error), salvaged))
        if file is not None:
            file.close()

    def told(self) -> list[SetAside]:
        """Return what was set aside since this was asked last."""
        aside, self._aside = self._aside, []
        return aside

    def clear(self, path: Path) -> None:
        """Try again to rename what could not be. Raises OSError while it is still there."""
        if path in self._stuck and self._renamed(path) == str(path):
            raise OSError(errno.EIO, "is not to be trusted and can't be renamed", str(path))

    def _renamed(self, path: Path) -> str:
        """Return the name that a distrusted file has now: none if it was gone, its old one where it can't be renamed (retried later)."""
        self._stuck.discard(path)
        try:
            return str(set_aside(path, self._now(), self._files))
        except FileNotFoundError:
            return ""
        except OSError:
            self._stuck.add(path)
            return str(path)

    def _salvaged(self, place: Place, file: LiveFile) -> bool:
        try:
            copy(file, place.path, file.spec, created=self._now(), pause=self._pause).close()
        except OSError:
            return False
        return True

    def _now(self) -> int:
        return int(self._clock.time())
