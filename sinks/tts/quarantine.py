"""Quarantine: a file that is not trusted is renamed and never written again; where only a sync failed, a copy takes its place."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from tokiod.sink import QuarantinedFile
from tokiod.tts.live.live_file import FileLost, set_aside
from tokiod.tts.live.rewrite import copy
from tokiod.window import Window

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tokiod.archive.layout import FileSlot
    from tokiod.clock import Clock
    from tokiod.tts.live.files import Files
    from tokiod.tts.live.live_file import LiveFile


class Quarantine:
    """Quarantines files and keeps the reports for the next commit. pause: called between slices of a copy."""

    def __init__(self, clock: Clock, files: Files, pause: Callable[[], object]) -> None:
        self._clock = clock
        self._files = files
        self._pause = pause
        self._reports: list[QuarantinedFile] = []
        self._not_renamed: set[Path] = set()

    def add(self, slot: FileSlot, file: LiveFile | None, error: Exception) -> None:
        """Quarantine the file in a slot, if there is one; file: the one that was open there, which is closed."""
        aside = self._rename(slot.path)
        salvaged = file is not None and not isinstance(error, FileLost) and self._salvage(slot, file)
        self._reports.append(QuarantinedFile(slot.system, Window(slot.start, slot.end), str(slot.path), aside, str(error), salvaged))
        if file is not None:
            file.close()

    def take_reports(self) -> list[QuarantinedFile]:
        """Return the files that were quarantined since the last call."""
        reports, self._reports = self._reports, []
        return reports

    def retry_rename(self, path: Path) -> None:
        """Try again to rename a file that could not be renamed. Raises OSError while it still can't."""
        if path in self._not_renamed and self._rename(path) == str(path):
            raise OSError(errno.EIO, "is not to be trusted and can't be renamed", str(path))

    def _rename(self, path: Path) -> str:
        """Return the new name of a quarantined file: empty if it was gone, its old name if it can't be renamed (retried later)."""
        self._not_renamed.discard(path)
        try:
            return str(set_aside(path, self._now(), self._files))
        except FileNotFoundError:
            return ""
        except OSError:
            self._not_renamed.add(path)
            return str(path)

    def _salvage(self, slot: FileSlot, file: LiveFile) -> bool:
        try:
            copy(file, slot.path, file.spec, created=self._now(), pause=self._pause).close()
        except OSError:
            return False
        return True

    def _now(self) -> int:
        return int(self._clock.time())
