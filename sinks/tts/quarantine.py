"""Quarantine: a file that is not trusted is renamed and never written again; where only a sync failed, a copy takes its place.

The copy is made first, then the file gets the name `aside` besides its own, then the copy is renamed into its place. A file of which there
is no copy is renamed to `aside`, and so is one that can't have two names.

    failure             under the name          outcome
    copy                nothing                 its windows are collected again
    link to `aside`     the copy                the file is renamed to `aside` before the copy takes its name
    rename to `aside`   the copy                aside is empty: the copy replaced the file
                        the file, no copy       its windows are collected again; the rename is tried again before the name is used
    rename of the copy  nothing, tried twice    its windows are collected again
    directory sync      the copy, for now       the next commit syncs the directory
    kill                the file, or the copy   the next process examines it; without hard links there may be nothing under the name:
                                                then its windows are collected again
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from tokiod.sink import QuarantinedFile
from tokiod.tts.live.live_file import NotLive, SyncFailed, link_aside, set_aside
from tokiod.tts.live.rewrite import CopyFile
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

    def add(self, slot: FileSlot, file: LiveFile | None, error: Exception) -> LiveFile | None:
        """Quarantine the file in a slot, if there is one; return the copy that took its place, opened.

        file: the one that was open there, which is closed.
        """
        made = self._copy(file) if file is not None and isinstance(error, SyncFailed) else None
        aside, copied = (self._rename(slot.path), None) if made is None else self._replace(slot.path, made)
        window = Window(slot.start, slot.end)
        self._reports.append(QuarantinedFile(slot.system, window, str(slot.path), aside, str(error), salvaged=copied is not None))
        if file is not None:
            file.close()
        return copied

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

    def _copy(self, file: LiveFile) -> CopyFile | None:
        copying = CopyFile(file, self._now())
        try:
            copying.work(self._pause)
        except (OSError, NotLive):
            copying.abandon()
            return None
        return copying

    def _replace(self, path: Path, copying: CopyFile) -> tuple[str, LiveFile | None]:
        """Return the new name of a quarantined file, as _rename() does, and the copy that took its place, opened."""
        linked = self._link(path)
        aside = linked or self._rename(path)
        copied = self._put_in_place(copying) or self._put_in_place(copying)
        if copied is None:
            copying.abandon()
            return self._rename(path) if linked else aside, None
        if path in self._not_renamed:
            self._not_renamed.remove(path)
            aside = ""
        return aside, copied

    def _link(self, path: Path) -> str:
        try:
            return str(link_aside(path, self._now(), self._files))
        except OSError:
            return ""

    def _put_in_place(self, copying: CopyFile) -> LiveFile | None:
        try:
            return copying.finish()
        except OSError:
            return None

    def _now(self) -> int:
        return int(self._clock.time())
