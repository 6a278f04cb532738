"""The archive: windows into live TTS files, one file per system and day (or the one file of `tokioctl archive`).

A window changes its day's file and, at the seams, the neighbours (sinks.tts.seams). Everything is assignment, so a window that is applied
again, by a retry or after a kill, leaves the same files.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sinks.tts.reopened_days import IDLE_SECONDS
from sinks.tts.seams import Seams
from tokiod.archive.layout import FileSlot
from tokiod.errors import Refusal
from tokiod.ranges import Ranges
from tokiod.selection import Cells, Selection
from tokiod.sink import Applied, FileChange, UnsyncedFile
from tokiod.tts.live.live_file import FileLost, LiveFile, NotLive, SyncFailed
from tokiod.tts.schema import ABSENT
from tokiod.window import Window
from tokiod.window_data import tables_unstored

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from sinks.tts.day_files import DayFiles
    from sinks.tts.open_day_file import OpenDayFile
    from tokiod.batch import Batch
    from tokiod.sink import QuarantinedFile
    from tokiod.window_data import Collected, WindowMeta

IMPLAUSIBLE = "implausible difference"
"""Why a sample of a counter is stored and its difference is not."""


@dataclass(slots=True, eq=False)
class TtsSink:
    """Stores windows in day files, makes adjacent days fit at their seams, and syncs what windows changed.

    record_computed: is called with a system and the spans whose cells were computed since its last window, before a day of it is sealed.
    """

    days: DayFiles
    record_computed: Callable[[str, Ranges], None] | None = None
    _seams: Seams = field(init=False)
    _readable_seams: Seams = field(init=False)
    _changes: defaultdict[str, list[Batch]] = field(default_factory=lambda: defaultdict(list), init=False)
    _computed: defaultdict[str, Ranges] = field(default_factory=lambda: defaultdict(Ranges), init=False)
    _unreported: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set), init=False)

    def __post_init__(self) -> None:
        self.days.forget_changes = self._forget_changes
        self._seams = Seams(self.days.used_neighbour, self.days.reopen_neighbour, self._note_changes)
        self._readable_seams = Seams(self.days.readable_neighbour, self.days.reopen_neighbour, self._note_changes)

    # ---- windows

    def apply(self, collected: Collected) -> Applied:
        """Assign a window's cells. Raises Refusal if the window can't be stored now, or ever."""
        if collected.tables:
            raise tables_unstored(collected)
        system = collected.meta.system
        try:
            return self._apply(collected)
        except Exception as error:
            is_damaged = self._has_damaged(system, error)
            self._keep_computed()
            if is_damaged or isinstance(error, (OSError, NotLive)):
                raise Refusal(f"{system}: {error}", "retry") from error
            raise

    # Random bytes in a file make the code fail anywhere, at each attempt, until the file is quarantined.
    def _has_damaged(self, system: str, error: Exception) -> bool:
        """Look at the open files of a system where working with them failed; return whether one was quarantined."""
        return not isinstance(error, Refusal) and self.days.distrust_damaged(system)

    def commit(self) -> list[QuarantinedFile | UnsyncedFile]:
        """Sync all files with new cells, one fdatasync each, and names that are not durable; return the files where that failed."""
        tried: set[LiveFile] = set()
        unsynced: list[UnsyncedFile] = []
        for _ in ("files", "copies of those that were quarantined"):
            for day in [day for day in self.days.open_files if day.file.dirty and day.file not in tried]:
                tried.add(day.file)
                unsynced += filter(None, [self._commit(day)])
        return [*self.days.quarantined(), *unsynced]

    def _commit(self, day: OpenDayFile) -> UnsyncedFile | None:
        try:
            day.file.commit()
        except (FileLost, SyncFailed) as error:
            self.days.distrust(day.slot, day.file, error)
        except OSError as error:
            before, after = self.days.neighbour_slot(day.slot, -1), self.days.neighbour_slot(day.slot, +1)
            window = Window((before or day.slot).start, (after or day.slot).end)
            return UnsyncedFile(day.slot.system, window, str(day.slot.path), str(error))
        return None

    def _apply(self, collected: Collected) -> Applied:
        applied, meta, window = Applied(0, Counter()), collected.meta, collected.meta.window
        slot = self.days.layout(meta.system, window.start)
        selection = Selection(window, applied.dropped, 0 if slot is None else slot.start)
        chosen = [selection.cells(batch) for batch in collected.batches]
        if slot is None or (meta.extent == "seam" and not self._holds_seam(slot, meta.kind, chosen)):
            if slot is None or window.start == slot.start:
                self._close_span(meta, chosen, applied)
            return applied
        if window.end > slot.end:
            raise Refusal(f"window {window} crosses the end of {slot.path}", "never")
        if (day := self.days.with_columns(slot, meta.kind, chosen)) is not None:
            self._seams.join(day)
            counters = [cells for cells in chosen if cells.batch.form == "counter" and cells.batch.columns]
            implausible = day.implausible() if counters else 0
            for cells in chosen:
                if cells.batch.columns:
                    applied.cells += len(cells.time)
                    self._note_changes(day, day.store(cells))
            if counters:
                self._seams.update(day, counters)
                if count := day.implausible() - implausible:
                    applied.dropped[IMPLAUSIBLE] += count
        self._report_changes(meta.system, applied)
        return applied

    def _holds_seam(self, slot: FileSlot, kind: str, chosen: Sequence[Cells]) -> bool:
        """Return whether a day has a file that can hold a seam: one of another step, or of another program, can't. Raises Refusal."""
        try:
            return self.days.exists(slot) and self.days.with_columns(slot, kind, chosen) is not None
        except Refusal as error:
            if error.when != "never":
                raise
            return False

    def _close_span(self, meta: WindowMeta, chosen: Sequence[Cells], applied: Applied) -> None:
        """Store the counters of the step after a file, where no file can hold them: they close its last cells."""
        slot = FileSlot(meta.system, Path(), meta.window.start, meta.window.end)
        before = self.days.neighbour(slot, -1)
        for cells in chosen:
            if before is None or cells.batch.form != "counter":
                applied.dropped["outside the file"] += len(cells.time)
                continue
            first, samples = cells.time < slot.start + cells.batch.step, np.full(len(cells.batch.columns), ABSENT)
            samples[cells.column[first]] = cells.value[first]
            self._seams.close_last_row(slot, before, cells.batch.dataset, cells.batch.columns, samples)
        self._report_changes(meta.system, applied)

    def _note_changes(self, day: OpenDayFile, changed: Batch | None) -> None:
        """Keep changed cells until a window of the system is stored; some change when files are joined, or by a window that is refused."""
        if changed is not None:
            self._changes[day.slot.system].append(changed)

    def _forget_changes(self, system: str) -> None:
        """Drop the changed cells of a system: some are gone with a quarantined file, others are in the files of the days around it."""
        self._unreported[system].update(batch.dataset for batch in self._changes.pop(system, []))

    def _keep_computed(self) -> None:
        """Keep what was computed until a window of the system is stored: it is in the files also where this window is refused."""
        for day in self.days.open_files:
            for start, end in day.take_computed():
                self._computed[day.slot.system].add(start, end)

    def _report_changes(self, system: str, applied: Applied) -> None:
        self._keep_computed()
        applied.computed = self._computed.pop(system, applied.computed)
        applied.changes += self._changes.pop(system, [])
        applied.unreported |= self._unreported.pop(system, set())

    # ---- maintenance

    @property
    def is_busy(self) -> bool:
        """Whether files are being rewritten."""
        return self.days.rewrites.is_pending

    def run_maintenance(self) -> list[FileChange]:
        """Put finished files in place, and begin to seal a reopened day that no window comes for; return what was done since.

        The failure of a rewrite that a window waits for is left for that window, which may never come again: for a while.
        """
        self._seal_idle(IDLE_SECONDS)
        return self.days.finish_rewrites()

    def prepare(self, system: str, time: int) -> None:
        """Begin to create the file that holds a time, if it does not exist, with the columns that the file before it has."""
        slot = self.days.layout(system, time)
        before = None if slot is None else self.days.layout(system, slot.start - 1)
        if slot is None or before is None or self.days.exists(slot) or self.days.rewrites.at(slot.path) is not None:
            return
        self.days.create_next(slot, before)

    def seal(self, system: str, time: int) -> bool:
        """Begin to seal the live file that holds a time; False without one, or while it or an adjacent day is rewritten."""
        slot = self.days.layout(system, time)
        try:
            return slot is not None and self._seal(slot)
        except Refusal as error:
            if error.when != "busy":
                raise
            return False

    def adopt(self, system: str, time: int, last_used: float | None = None) -> None:
        """Seal the file that holds a time, which has a marker, once it is idle. last_used: see the contract."""
        if (slot := self.days.layout(system, time)) is not None:
            self.days.reopened.adopt(slot, last_used)

    def live_file(self, system: str, time: int) -> LiveFile | None:
        """Return the live file that holds a time, open until the sink is closed; None without one."""
        slot = self.days.layout(system, time)
        day = None if slot is None else self.days.open(slot)
        return None if day is None else day.file

    def miss(self, path: Path) -> None:
        """Quarantine a file that is missing, if it is open; the next commit reports it."""
        for day in self.days.open_files:
            if day.slot.path == path:
                self.days.distrust(day.slot, day.file, FileLost("it was unlinked or renamed", path))

    def seal_reopened(self) -> list[FileChange]:
        """Seal all reopened files now, and wait for it; return what was done. A file that can't be sealed stops no other."""
        done: list[FileChange] = []
        for path in self.days.reopened.paths:
            if (pending := self.days.rewrites.at(path)) is not None and pending.change != "sealed":
                self.days.rewrites.cancel(path)
        while set(self.days.reopened.paths) - (failed := {one.path for one in done if one.error is not None}):
            self._seal_idle(0.0, failed)
            for pending in self.days.rewrites.pending():
                while not pending.job.is_done(0.1):
                    self.days.pause()
            done += self.days.finish_rewrites()
        return done

    def close(self) -> None:
        """Cancel all rewrites and close all files."""
        self.days.close()

    def _seal_idle(self, idle_seconds: float, failed: Collection[Path] = ()) -> None:
        """Begin to seal one of the reopened files that no window has come for so long, except those that just failed."""
        for slot in self.days.reopened.idle(idle_seconds):
            if slot.path not in failed and self.days.rewrites.at(slot.path) is None:
                self.days.reopened.note_use(slot)
                try:
                    # A kill may have come between marker and rewrite: then the file is sealed already, or missing.
                    if self._seal(slot):
                        return
                    self.days.reopened.remove(slot.path)
                except Refusal as error:
                    if error.when != "busy":  # an adjacent day is changed first
                        self.days.note_failure("sealed", slot, error)
                except Exception as error:  # noqa: BLE001 - one file never stops the others; it comes again when it is idle again
                    self.days.note_failure("sealed", slot, error)

    def _seal(self, slot: FileSlot) -> bool:
        if self.days.rewrites.at(slot.path) is not None or (day := self.days.open(slot)) is None:
            return False
        try:
            self._readable_seams.join(day)
        except Exception as error:
            if self._has_damaged(slot.system, error):
                raise Refusal(f"{slot.system}: {error}", "retry") from error
            raise
        self._record_computed(slot.system)
        if day not in self.days.open_files:
            return False  # it was quarantined
        self.days.seal(day)
        return True

    # A window whose writer was killed comes again, but finds a sealed day equal: what sealing computed of it would be in no window's span.
    def _record_computed(self, system: str) -> None:
        self._keep_computed()
        if self.record_computed is not None and (spans := self._computed.get(system)):
            for day in [day for day in self.days.open_files if day.slot.system == system and day.file.dirty]:
                if (failed := self._commit(day)) is not None:
                    raise Refusal(f"{failed.path}: {failed.reason}", "retry")
            self.record_computed(system, spans)
            del self._computed[system]
