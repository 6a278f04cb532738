"""The archive: windows into live TTS files, one file per system and day (or the one file of `tokioctl archive`).

A window changes its day's file and, at the seams, the neighbours (sinks.tts.seams). Everything is assignment, so a window that is applied
again, by a retry or after a kill, leaves the same files.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from sinks.tts.open_day_file import OpenDayFile, spec_for
from sinks.tts.quarantine import Quarantine
from sinks.tts.reopened_days import IDLE_SECONDS, ReopenedFiles
from sinks.tts.rewrite_worker import InlineExecutor, ThreadExecutor
from sinks.tts.rewrites import RewriteQueue
from sinks.tts.sealed_days import SealedDays
from sinks.tts.seams import Seams
from tokiod.archive.layout import FileSlot
from tokiod.errors import Refusal
from tokiod.selection import Cells, Selection
from tokiod.sink import Applied, FileChange, UnsyncedFile
from tokiod.tts.counters.difference_rule import Rule
from tokiod.tts.live.create import no_pause
from tokiod.tts.live.files import REAL, Files, exists
from tokiod.tts.live.live_file import FileLost, LiveFile, NotLive, OutdatedFile, SyncFailed
from tokiod.tts.live.rewrite import ConvertFile, CreateFile, CreateNextDay, GrowFile, SealFile, UnsealFile
from tokiod.tts.schema import ABSENT
from tokiod.tts.sealed.seal import is_sealed
from tokiod.window import Window
from tokiod.window_data import tables_unstored

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from sinks.tts.rewrite_worker import Executor
    from sinks.tts.rewrites import Change, PendingRewrite
    from sinks.tts.seams import Neighbour
    from tokiod.archive.layout import Layout
    from tokiod.batch import Batch
    from tokiod.clock import Clock
    from tokiod.sink import QuarantinedFile
    from tokiod.tts.live.create import Pause
    from tokiod.tts.live.rewrite import Rewrite
    from tokiod.tts.spec import FileSpec
    from tokiod.window_data import Collected, WindowMeta

MIN_OPEN = 6
"""Files that are needed at a time: a day, those around it, and those around these."""
IMPLAUSIBLE = "implausible difference"
"""Why a sample of a counter is stored and its difference is not."""

_IN_PROGRESS: dict[Change, str] = {
    "made": "created", "grown": "grown", "opened": "reopened", "sealed": "sealed", "converted": "converted from tokiod 0.1.0"
}  # fmt: skip


@dataclass(slots=True, eq=False)
class TtsSink:
    """Stores windows in TTS files: opens, creates, grows and reopens the files that windows need, keeps a few open, and syncs them.

    The executor does long work, inline or in threads: meanwhile a window whose file, or that of an adjacent day that must change, is
    being created, grown, reopened or converted is refused, and comes again soon. A file that is not trusted any more (a failed sync,
    truncated or replaced by another process, not a live file) is quarantined and reported by the next commit; where only the sync failed,
    a copy takes its place, so nothing that was committed is lost.

    layout: which file holds a time. clock: its time is the `updated` attribute of datasets. compare: find out which cells change, for the
    feed (reads before it writes). max_open: files that stay open. max_columns: of a dataset, so that a faulty source can't fill the disk.
    units: those that a kind declares, by kind and dataset. steps: those of the sources, by system and kind: the next day's file gets them,
    whatever the file before has. max_rates: the largest plausible rates of counters per second, by system and dataset, for new files.
    pause: called between slices of work that is done inline.
    before_create: called before a file is created in a slot without one; raises OSError where it must not be.
    """

    layout: Layout
    clock: Clock
    files: Files = REAL
    executor: Executor | Literal["inline", "threads"] = "inline"
    compare: bool = True
    max_open: int = 8
    max_columns: int = 50_000
    units: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    steps: Mapping[str, Mapping[str, Collection[int]]] = field(default_factory=dict)
    max_rates: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    pause: Pause = no_pause
    before_create: Callable[[FileSlot], None] = lambda _slot: None
    _open: OrderedDict[Path, OpenDayFile] = field(default_factory=OrderedDict, init=False)
    _done: list[FileChange] = field(default_factory=list, init=False)
    _rewrites: RewriteQueue = field(init=False)
    _quarantine: Quarantine = field(init=False)
    _reopened: ReopenedFiles = field(init=False)
    _seams: Seams = field(init=False)
    _readable_seams: Seams = field(init=False)
    _sealed_days: SealedDays = field(init=False)
    _changes: defaultdict[str, list[Batch]] = field(default_factory=lambda: defaultdict(list), init=False)

    def __post_init__(self) -> None:
        if self.executor == "inline":
            self.executor = InlineExecutor(self.pause)
        elif self.executor == "threads":
            self.executor = ThreadExecutor()
        self._rewrites = RewriteQueue(self.executor)
        self._quarantine = Quarantine(self.clock, self.files, self.pause)
        self._reopened = ReopenedFiles(self.clock)
        self._sealed_days = SealedDays(self.max_open)
        self._seams = Seams(self._used_neighbour, self._reopen_neighbour, self._note_changes)
        self._readable_seams = Seams(self._readable_neighbour, self._reopen_neighbour, self._note_changes)

    # ---- windows

    def apply(self, collected: Collected) -> Applied:
        """Assign a window's cells. Raises Refusal if the window can't be stored now, or ever."""
        if collected.tables:
            raise tables_unstored(collected)
        try:
            return self._apply(collected)
        except (OSError, NotLive) as error:
            raise Refusal(f"{collected.meta.system}: {error}", "retry") from error

    def commit(self) -> list[QuarantinedFile | UnsyncedFile]:
        """Sync all files with new cells, one fdatasync each, and names that are not durable; return the files where that failed."""
        tried: set[LiveFile] = set()
        unsynced: list[UnsyncedFile] = []
        for _ in ("files", "copies of those that were quarantined"):
            for day in [day for day in self._open.values() if day.file.dirty and day.file not in tried]:
                tried.add(day.file)
                unsynced += filter(None, [self._commit(day)])
        return [*self._quarantine.take_reports(), *unsynced]

    def _commit(self, day: OpenDayFile) -> UnsyncedFile | None:
        try:
            day.file.commit()
        except (FileLost, SyncFailed) as error:
            self._distrust(day.slot, day.file, error)
        except OSError as error:
            before, after = self._neighbour_slot(day.slot, -1), self._neighbour_slot(day.slot, +1)
            window = Window((before or day.slot).start, (after or day.slot).end)
            return UnsyncedFile(day.slot.system, window, str(day.slot.path), str(error))
        return None

    def _apply(self, collected: Collected) -> Applied:
        applied, meta, window = Applied(0, Counter()), collected.meta, collected.meta.window
        slot = self.layout(meta.system, window.start)
        selection = Selection(window, applied.dropped, 0 if slot is None else slot.start)
        chosen = [selection.cells(batch) for batch in collected.batches]
        if slot is None or (meta.extent == "seam" and not self._exists(slot)):
            self._close_span(meta, chosen, applied)
            return applied
        if window.end > slot.end:
            raise Refusal(f"window {window} crosses the end of {slot.path}", "never")
        if (day := self._file_for(slot, meta.kind, chosen)) is not None:
            implausible = day.implausible()
            stored = [cells for cells in chosen if cells.batch.columns]
            for cells in stored:
                applied.cells += len(cells.time)
                self._note_changes(day, day.store(cells))
            self._seams.update(day, stored)
            if count := day.implausible() - implausible:
                applied.dropped[IMPLAUSIBLE] += count
        applied.changes += self._changes.pop(meta.system, [])
        return applied

    def _close_span(self, meta: WindowMeta, chosen: Sequence[Cells], applied: Applied) -> None:
        """Store the counters of the step after the last file: they close its last cells."""
        slot = FileSlot(meta.system, Path(), meta.window.start, meta.window.end)
        before = self._neighbour(slot, -1)
        for cells in chosen:
            if before is None or cells.batch.form != "counter":
                applied.dropped["outside the file"] += len(cells.time)
                continue
            first, samples = cells.time < slot.start + cells.batch.step, np.full(len(cells.batch.columns), ABSENT)
            samples[cells.column[first]] = cells.value[first]
            self._seams.close_last_row(slot, before, cells.batch.dataset, cells.batch.columns, samples)
        applied.changes += self._changes.pop(meta.system, [])

    def _note_changes(self, day: OpenDayFile, changed: Batch | None) -> None:
        """Keep changed cells until a window of the system is stored; some change when files are joined, or by a window that is refused."""
        if changed is not None:
            self._changes[day.slot.system].append(changed)

    # ---- maintenance

    def run_maintenance(self) -> list[FileChange]:
        """Put finished files in place, and begin to seal a reopened day that no window comes for; return what was done since.

        The failure of a rewrite that a window waits for is left for that window, which may never come again: for a while.
        """
        self._seal_idle(IDLE_SECONDS)
        return self._finish_rewrites()

    def prepare(self, system: str, time: int) -> None:
        """Begin to create the file that holds a time, if it does not exist, with the columns that the file before it has."""
        slot = self.layout(system, time)
        before = None if slot is None else self.layout(system, slot.start - 1)
        if slot is None or before is None or self._exists(slot) or self._rewrites.at(slot.path) is not None:
            return
        self.before_create(slot)
        span, steps = (slot.start, slot.end), self.steps.get(system, {})
        made = CreateNextDay(
            slot.path,
            before.path,
            span,
            self._now(),
            self._limit(slot),
            self.files,
            lambda one: one.step in steps.get(one.source, {one.step}),
        )
        self._rewrites.begin(slot, "made", made)

    def seal(self, system: str, time: int) -> bool:
        """Begin to seal the live file that holds a time; False without one, or while it or an adjacent day is rewritten."""
        slot = self.layout(system, time)
        try:
            return slot is not None and self._seal(slot)
        except Refusal as error:
            if error.when != "busy":
                raise
            return False

    def adopt(self, system: str, time: int, last_used: float | None = None) -> None:
        """Seal the file that holds a time, which has a marker, once it is idle. last_used: see the contract."""
        if (slot := self.layout(system, time)) is not None:
            self._reopened.adopt(slot, last_used)

    def live_file(self, system: str, time: int) -> LiveFile | None:
        """Return the live file that holds a time, open until the sink is closed; None without one."""
        slot = self.layout(system, time)
        day = None if slot is None else self._open_file(slot, reopen=False)
        return None if day is None else day.file

    def miss(self, path: Path) -> None:
        """Quarantine a file that is missing, if it is open; the next commit reports it."""
        if (day := self._open.get(path)) is not None:
            self._distrust(day.slot, day.file, FileLost("it was unlinked or renamed", path))

    def seal_reopened(self) -> list[FileChange]:
        """Seal all reopened files now, and wait for it; return what was done. A file that can't be sealed stops no other."""
        done: list[FileChange] = []
        for path in self._reopened.paths:
            if (pending := self._rewrites.at(path)) is not None and pending.change != "sealed":
                self._rewrites.cancel(path)
        while set(self._reopened.paths) - (failed := {one.path for one in done if one.error is not None}):
            self._seal_idle(0.0, failed)
            for pending in self._rewrites.pending():
                while not pending.job.is_done(0.1):
                    self.pause()
            done += self._finish_rewrites()
        return done

    def close(self) -> None:
        """Cancel all rewrites and close all files."""
        self._rewrites.close()
        while self._open:
            self._open.popitem()[1].file.close()

    def _seal_idle(self, idle_seconds: float, failed: Collection[Path] = ()) -> None:
        """Begin to seal one of the reopened files that no window has come for so long, except those that just failed."""
        for slot in self._reopened.idle(idle_seconds):
            if slot.path not in failed and self._rewrites.at(slot.path) is None:
                self._reopened.note_use(slot)
                try:
                    # A kill may have come between marker and rewrite: then the file is sealed already, or missing.
                    if self._seal(slot):
                        return
                    self._reopened.remove(slot.path)
                except Refusal as error:
                    if error.when != "busy":  # an adjacent day is changed first
                        self._done.append(FileChange("sealed", slot.path, error))
                except Exception as error:  # noqa: BLE001 - one file never stops the others; it comes again when it is idle again
                    self._done.append(FileChange("sealed", slot.path, error))

    def _seal(self, slot: FileSlot) -> bool:
        if self._rewrites.at(slot.path) is not None or (day := self._open_file(slot, reopen=False)) is None:
            return False
        self._readable_seams.join(day)
        try:
            self._rewrites.begin(slot, "sealed", SealFile(day.file, self._now()))
        except (FileLost, SyncFailed) as error:
            self._distrust(slot, day.file, error)
        return True

    def _finish_rewrites(self) -> list[FileChange]:
        for pending in self._rewrites.done():
            if not pending.is_left_to_window(self.clock.monotonic()):
                try:
                    self._finish_rewrite(pending)
                except Exception as error:  # noqa: BLE001 - a damaged file may raise anything; one file never stops the others
                    self._done.append(FileChange(pending.change, pending.slot.path, error))
        done, self._done = self._done, []
        return done

    # ---- files

    def _file_for(self, slot: FileSlot, kind: str, chosen: Sequence[Cells]) -> OpenDayFile | None:
        """Return the slot's file with every dataset and column in `chosen`, created or grown if needed.

        None if there is no file yet and nothing to store in one. Raises Refusal if the batches contradict the file, or it isn't ready yet.
        """
        self._reopened.note_use(slot)
        day = self._open_file(slot)
        while day is None or not all(day.fits(cells.batch) for cells in chosen):
            wanted = spec_for(slot, kind, self.units.get(kind, {}), lambda *of: self._max_step(slot.system, *of), chosen)
            if day is None and not wanted.matrices:
                return None
            day = self._create_or_grow(slot, day, wanted)
        self._seams.join(day)
        return day

    def _exists(self, slot: FileSlot) -> bool:
        return slot.path in self._open or exists(slot.path)

    def _open_file(self, slot: FileSlot, *, reopen: bool = True) -> OpenDayFile | None:
        """Return the slot's file if it exists; None for a sealed one unless it is to be reopened, which may raise Refusal."""
        if slot.path in self._open:
            self._open.move_to_end(slot.path)
            return self._open[slot.path]
        self._quarantine.retry_rename(slot.path)
        if not exists(slot.path):
            return None
        try:
            file = LiveFile.open(slot.path, self.files)
        except OutdatedFile:
            return self._await_rewrite(slot, "converted", lambda: ConvertFile(slot.path, *self._conversion(slot)))
        except NotLive as error:
            if not is_sealed(slot.path):
                self._distrust(slot, None, error)
                self._quarantine.retry_rename(slot.path)  # no file is created over one that could not be renamed
                return None
            return self._reopen(slot) if reopen else None
        return self._keep_open(OpenDayFile(slot, file, self.compare))

    def _neighbour_slot(self, slot: FileSlot, direction: int) -> FileSlot | None:
        return self.layout(slot.system, slot.end if direction > 0 else slot.start - 1)

    def _used_neighbour(self, slot: FileSlot, direction: int) -> Neighbour:
        """Return the day after or before as _neighbour() does, for a window: the next one may change it."""
        if (neighbour := self._neighbour_slot(slot, direction)) is not None:
            self._reopened.note_use(neighbour)
        return self._neighbour(slot, direction)

    def _neighbour(self, slot: FileSlot, direction: int) -> Neighbour:
        """Return the day after (+1) or before (-1), which stays sealed if it is."""
        neighbour = self._neighbour_slot(slot, direction)
        if neighbour is None:
            return None
        if neighbour.path not in self._open and (sealed := self._sealed_days.known(neighbour.path)) is not None:
            return sealed
        return self._open_file(neighbour, reopen=False) or self._sealed_days.read(neighbour.path)

    def _readable_neighbour(self, slot: FileSlot, direction: int) -> Neighbour:
        """Return the day after or before as _neighbour() does, None if it can't be read: once it can be, it is joined itself."""
        try:
            return self._neighbour(slot, direction)
        except OSError:
            return None

    def _reopen_neighbour(self, slot: FileSlot, direction: int) -> OpenDayFile | None:
        """Reopen the sealed day after (+1) or before (-1)."""
        neighbour = self._neighbour_slot(slot, direction)
        return None if neighbour is None else self._reopen(neighbour)

    def _reopen(self, slot: FileSlot) -> OpenDayFile | None:
        self._reopened.add(slot)
        return self._await_rewrite(slot, "opened", lambda: UnsealFile(slot.path, *self._conversion(slot)))

    def _conversion(self, slot: FileSlot) -> tuple[Callable[[FileSpec], FileSpec], int, Files, Path | None]:
        """Return what a rewrite of a file that may be of 0.1.0 needs: limits, time, files, and the day before."""
        return self._limit(slot), self._now(), self.files, self._path_before(slot)

    def _path_before(self, slot: FileSlot) -> Path | None:
        before = self._neighbour_slot(slot, -1)
        return None if before is None else before.path

    def _limit(self, slot: FileSlot) -> Callable[[FileSpec], FileSpec]:
        """Return a function that sets the largest plausible steps of the counters of a spec."""

        def limit(spec: FileSpec) -> FileSpec:
            matrices = {
                name: replace(matrix, max_step=self._max_step(slot.system, name, spec.step(name))) if matrix.counter else matrix
                for name, matrix in spec.matrices.items()
            }
            return replace(spec, matrices=matrices)

        return limit

    def _max_step(self, system: str, dataset: str, step: int) -> int:
        return Rule.of(step, self.max_rates.get(system, {}).get(dataset)).max_step

    def _create_or_grow(self, slot: FileSlot, day: OpenDayFile | None, wanted: FileSpec) -> OpenDayFile | None:
        """Create or grow the file for `wanted`; the result may lack some of it if a rewrite for an earlier window was in progress."""
        try:
            spec = wanted if day is None else day.file.spec.merged(wanted)
        except ValueError as error:
            raise Refusal(f"{slot.path}: {error}", "never") from error
        _check_columns(slot.path, spec, self.max_columns)
        if day is None:
            if self._rewrites.at(slot.path) is None:
                self.before_create(slot)
            return self._await_rewrite(slot, "made", lambda: CreateFile(slot.path, spec, self._now(), self.files, self._path_before(slot)))
        live = day.file
        if (pending := self._rewrites.at(slot.path)) is not None and pending.change == "sealed":
            self._rewrites.cancel(slot.path)
        return self._await_rewrite(slot, "grown", lambda: GrowFile(live, spec, self._now(), self._path_before(slot)))

    def _await_rewrite(self, slot: FileSlot, change: Change, rewrite: Callable[[], Rewrite]) -> OpenDayFile | None:
        """Return the file that a window needs, once its rewrite is done; refuse the window until then."""
        pending = self._rewrites.at(slot.path) or self._rewrites.begin(slot, change, rewrite())
        if not self._rewrites.wait_for(pending, self.clock.monotonic()):
            raise Refusal(f"{slot.path} is being {_IN_PROGRESS[change]}", "busy")
        return self._finish_rewrite(pending)

    def _finish_rewrite(self, pending: PendingRewrite) -> OpenDayFile | None:
        """Put a new file in place; return it, None if it is sealed."""
        slot, before = pending.slot, self._open.get(pending.slot.path)
        try:
            file = self._rewrites.finish(pending)
        except FileLost as error:
            if error.filename == str(slot.path):  # and not the temporary file
                self._distrust(slot, None if before is None else before.file, error)
            raise
        except NotLive as error:
            if pending.change in ("opened", "converted"):
                self._distrust(slot, None, error)
            raise
        self._done.append(FileChange(pending.change, slot.path))
        if file is None:
            self._open.pop(slot.path, None)
            self._reopened.remove(slot.path)
            return None
        return self._keep_open(OpenDayFile(slot, file, self.compare))

    def _keep_open(self, day: OpenDayFile) -> OpenDayFile:
        self._open[day.slot.path] = day
        self._open.move_to_end(day.slot.path)
        for path, old in list(self._open.items())[: -max(self.max_open, MIN_OPEN)]:
            if not old.file.dirty and self._rewrites.at(path) is None:
                old.file.close()
                del self._open[path]
        return day

    def _distrust(self, slot: FileSlot, file: LiveFile | None, error: Exception) -> None:
        self._rewrites.cancel(slot.path)
        self._open.pop(slot.path, None)
        self._changes.pop(slot.system, None)
        if (copied := self._quarantine.add(slot, file, error)) is not None:
            self._keep_open(OpenDayFile(slot, copied, self.compare))

    def _now(self) -> int:
        return int(self.clock.time())


def _check_columns(path: Path, spec: FileSpec, most: int) -> None:
    for dataset, matrix in spec.matrices.items():
        if len(matrix.columns) > most:
            raise Refusal(
                f"{path}: {dataset} would have {len(matrix.columns)} columns, archive.max_columns allows {most}: "
                "raise it if the site is as large as that",
                "never",
            )
