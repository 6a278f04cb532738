"""The archive's day files: opened, created, grown, reopened and sealed, a few kept open, and quarantined when they fail."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from sinks.tts.open_day_file import OpenDayFile, spec_for
from sinks.tts.quarantine import Quarantine
from sinks.tts.reopened_days import ReopenedFiles
from sinks.tts.rewrite_worker import InlineExecutor, ThreadExecutor
from sinks.tts.rewrites import RewriteQueue
from sinks.tts.seal_process import write_sealed_apart
from sinks.tts.sealed_days import SealedDays
from tokiod.errors import Refusal
from tokiod.sink import FileChange
from tokiod.tts.counters.difference_rule import Rule
from tokiod.tts.live.create import no_pause
from tokiod.tts.live.files import REAL, Files, exists
from tokiod.tts.live.live_file import FileLost, LiveFile, NotLive, SyncFailed
from tokiod.tts.live.rewrite import CreateFile, CreateNextDay, GrowFile, SealFile, UnsealFile
from tokiod.tts.sealed.seal import sealed_spec, write_sealed
from tokiod.window import Window

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from sinks.tts.rewrite_worker import Executor
    from sinks.tts.rewrites import Change, PendingRewrite
    from sinks.tts.seams import Neighbour
    from tokiod.archive.layout import FileSlot, Layout
    from tokiod.clock import Clock
    from tokiod.selection import Cells
    from tokiod.sink import QuarantinedFile
    from tokiod.tts.live.create import Pause
    from tokiod.tts.live.rewrite import Rewrite, WriteSealed
    from tokiod.tts.spec import FileSpec

MIN_OPEN = 6
"""Files that are needed at a time: a day, those around it, and those around these."""

_IN_PROGRESS: dict[Change, str] = {
    "made": "created", "grown": "grown", "opened": "reopened", "sealed": "sealed"
}  # fmt: skip


class OtherDay(Refusal):
    """The file in a slot has the rows of another span: of the same date in another time zone."""


@dataclass(slots=True, eq=False)
class DayFiles:
    """Opens, creates, grows, reopens and seals the files that windows need, one per slot, and keeps a few open.

    The executor does long work, inline or in threads, of which one has files sealed in a process of their own: meanwhile a window whose
    file, or that of an adjacent day that must change, is being created, grown or reopened is refused, and comes again soon. A
    file that is not trusted any more (a failed sync, truncated or replaced by another process, not a live file) is quarantined and reported
    by the next commit; where only the sync failed, a copy takes its place, so nothing that was committed is lost.

    layout: which file holds a time. clock: its time is the `updated` attribute of datasets. compare: find out which cells change, for the
    feed (reads before it writes). max_open: files that stay open. max_columns: of a dataset, so that a faulty source can't fill the disk.
    units: those that a kind declares, by kind and dataset. steps: those of the sources, by system and kind: the next day's file gets them,
    whatever the file before has. max_rates: the largest plausible rates of counters per second, by system and dataset, for new files.
    pause: called between slices of work that is done inline.
    before_create: called before a file is created in a slot without one; raises OSError where it must not be.
    forget_changes: called with the system of a file that is quarantined, so that its changed cells are not reported.
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
    forget_changes: Callable[[str], None] = lambda _system: None
    reopened: ReopenedFiles = field(init=False)
    rewrites: RewriteQueue = field(init=False)
    _open: OrderedDict[Path, OpenDayFile] = field(default_factory=OrderedDict, init=False)
    _done: list[FileChange] = field(default_factory=list, init=False)
    _quarantine: Quarantine = field(init=False)
    _sealed_days: SealedDays = field(init=False)
    _write_sealed: WriteSealed = field(default=write_sealed, init=False)

    def __post_init__(self) -> None:
        if self.executor == "inline":
            self.executor = InlineExecutor(self.pause)
        elif self.executor == "threads":
            self.executor, self._write_sealed = ThreadExecutor(), write_sealed_apart
        self.reopened = ReopenedFiles(self.clock, self.files)
        self.rewrites = RewriteQueue(self.executor)
        self._quarantine = Quarantine(self.clock, self.files, self.pause)
        self._sealed_days = SealedDays(self.max_open)

    # ---- open files

    @property
    def open_files(self) -> list[OpenDayFile]:
        """Those that are open, the one that was used last at the end."""
        return list(self._open.values())

    def quarantined(self) -> list[QuarantinedFile]:
        """Return the files that were quarantined since the last call."""
        return self._quarantine.take_reports()

    def with_columns(self, slot: FileSlot, kind: str, chosen: Sequence[Cells]) -> OpenDayFile | None:
        """Return the slot's file with every dataset and column in `chosen`, created or grown if needed.

        None if there is no file yet and nothing to store in one. Raises Refusal if the batches contradict the file, or it isn't ready yet.
        """
        self.reopened.note_use(slot)
        day = self.open(slot, lambda spec: self._merged(slot, spec, self._wanted(slot, kind, chosen)))
        while day is None or not all(day.fits(cells.batch) for cells in chosen):
            wanted = self._wanted(slot, kind, chosen)
            if day is None and not wanted.matrices:
                return None
            day = self._create_or_grow(slot, day, wanted)
        return day

    def _wanted(self, slot: FileSlot, kind: str, chosen: Sequence[Cells]) -> FileSpec:
        return spec_for(slot, kind, self.units.get(kind, {}), lambda *of: self._max_step(slot.system, *of), chosen)

    def exists(self, slot: FileSlot) -> bool:
        """Return whether a slot has a file."""
        return slot.path in self._open or exists(slot.path)

    def open(self, slot: FileSlot, check: Callable[[FileSpec], FileSpec] | None = None) -> OpenDayFile | None:
        """Return the slot's file if it exists, a sealed one only with `check`, None otherwise.

        check: takes what a sealed file has, and raises Refusal if it must not be reopened: that writes it anew.
        """
        if (day := self._open.get(slot.path)) is not None:
            # Before anything is read from it for this window: random bytes would become samples of the days around it.
            if not day.file.was_overwritten():
                self._open.move_to_end(slot.path)
                return day
            self.distrust(slot, day.file, FileLost("another process wrote to it", slot.path))
        self._quarantine.retry_rename(slot.path)
        if not exists(slot.path):
            return None
        try:
            file = LiveFile.open(slot.path, self.files)
        except NotLive as error:
            if (spec := sealed_spec(slot.path)) is None:
                self.distrust(slot, None, error)
                self._quarantine.retry_rename(slot.path)  # no file is created over one that could not be renamed
                return None
            _check_span(slot, spec)
            return None if check is None or check(spec) is None else self._reopen(slot)
        return self._take(slot, file)

    def neighbour_slot(self, slot: FileSlot, direction: int) -> FileSlot | None:
        """Return the slot of the day after (+1) or before (-1); None where the layout ends."""
        return self.layout(slot.system, slot.end if direction > 0 else slot.start - 1)

    def used_neighbour(self, slot: FileSlot, direction: int) -> Neighbour:
        """Return the day after or before as _neighbour() does, for a window: the next one may change it."""
        if (neighbour := self.neighbour_slot(slot, direction)) is not None:
            self.reopened.note_use(neighbour)
        return self.neighbour(slot, direction)

    def neighbour(self, slot: FileSlot, direction: int) -> Neighbour:
        """Return the day after (+1) or before (-1), which stays sealed if it is; None if its file is of another day."""
        neighbour = self.neighbour_slot(slot, direction)
        if neighbour is None:
            return None
        if neighbour.path not in self._open and (sealed := self._sealed_days.known(neighbour.path)) is not None:
            return sealed
        try:
            return self.open(neighbour) or self._sealed_days.read(neighbour.path)
        except OtherDay:
            return None

    def readable_neighbour(self, slot: FileSlot, direction: int) -> Neighbour:
        """Return the day after or before as _neighbour() does, None if it can't be read: once it can be, it is joined itself."""
        try:
            return self.neighbour(slot, direction)
        except OSError:
            return None

    def reopen_neighbour(self, slot: FileSlot, direction: int) -> OpenDayFile | None:
        """Reopen the sealed day after (+1) or before (-1)."""
        neighbour = self.neighbour_slot(slot, direction)
        return None if neighbour is None else self._reopen(neighbour)

    def _reopen(self, slot: FileSlot) -> OpenDayFile | None:
        self.reopened.add(slot)
        return self._await_rewrite(slot, "opened", lambda: UnsealFile(slot.path, self._now(), self.files))

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
        spec = self._merged(slot, None if day is None else day.file.spec, wanted)
        if day is None:
            if self.rewrites.at(slot.path) is None:
                self.before_create(slot)
            return self._await_rewrite(slot, "made", lambda: CreateFile(slot.path, spec, self._now(), self.files))
        live = day.file
        if (pending := self.rewrites.at(slot.path)) is not None and pending.change == "sealed":
            self.rewrites.cancel(slot.path)
        return self._await_rewrite(slot, "grown", lambda: GrowFile(live, spec, self._now()))

    def _merged(self, slot: FileSlot, spec: FileSpec | None, wanted: FileSpec) -> FileSpec:
        """Return what a slot's file must have, which has `spec` now. Raises Refusal where it can't have both."""
        try:
            merged = wanted if spec is None else spec.merged(wanted)
        except ValueError as error:
            raise Refusal(f"{slot.path}: {error}", "never") from error
        _check_columns(slot.path, merged, self.max_columns)
        return merged

    def _await_rewrite(self, slot: FileSlot, change: Change, rewrite: Callable[[], Rewrite]) -> OpenDayFile | None:
        """Return the file that a window needs, once its rewrite is done; refuse the window until then."""
        pending = self.rewrites.at(slot.path) or self.rewrites.begin(slot, change, rewrite())
        if not self.rewrites.wait_for(pending, self.clock.monotonic()):
            raise Refusal(f"{slot.path} is being {_IN_PROGRESS[change]}", "busy")
        return self._finish_rewrite(pending)

    def _finish_rewrite(self, pending: PendingRewrite) -> OpenDayFile | None:
        """Put a new file in place; return it, None if it is sealed."""
        slot, before = pending.slot, self._open.get(pending.slot.path)
        try:
            file = self.rewrites.finish(pending)
        except FileLost as error:
            if error.filename == str(slot.path):  # and not the temporary file
                self.distrust(slot, None if before is None else before.file, error)
            raise
        except NotLive as error:
            if pending.change == "opened":
                self.distrust(slot, None, error)
            raise
        self._done.append(FileChange(pending.change, slot.path))
        if file is None:
            self._open.pop(slot.path, None)
            self.reopened.remove(slot.path)
            return None
        return self._take(slot, file)

    def _take(self, slot: FileSlot, file: LiveFile) -> OpenDayFile:
        """Keep a file open in its slot. Raises OtherDay; then it is closed."""
        try:
            _check_span(slot, file.spec)
        except OtherDay:
            file.close()
            raise
        return self._keep_open(OpenDayFile(slot, file, self.compare))

    def _keep_open(self, day: OpenDayFile) -> OpenDayFile:
        self._open[day.slot.path] = day
        self._open.move_to_end(day.slot.path)
        for path, old in list(self._open.items())[: -max(self.max_open, MIN_OPEN)]:
            if not old.file.dirty and self.rewrites.at(path) is None:
                self._close_unused(old)
        return day

    def _close_unused(self, day: OpenDayFile) -> None:
        """Close a file that is still what was committed; quarantine another: what opens it next could not tell an older copy from it.

        A file that can't be looked at stays open: that proves nothing, and the next one that is opened tries again.
        """
        try:
            day.file.check()
        except FileLost as error:
            self.distrust(day.slot, day.file, error)
        except OSError:
            return
        else:
            day.file.close()
            del self._open[day.slot.path]

    def distrust_damaged(self, system: str) -> bool:
        """Look at the open files of a system, and quarantine those that are not what this process opened or wrote; return whether any is.

        Called when their content made the code fail. A file that can't be looked at stays: that proves nothing against it.
        """
        found = False
        for day in [day for day in self.open_files if day.slot.system == system]:
            try:
                day.file.check()
                day.file.check_spans()
            except (FileLost, NotLive) as error:
                self.distrust(day.slot, day.file, error)
                found = True
            except OSError:
                continue
        return found

    def distrust(self, slot: FileSlot, file: LiveFile | None, error: Exception) -> None:
        """Quarantine the file of a slot, if there is one; where only its sync failed, a copy takes its place. file: as it is open."""
        self.rewrites.cancel(slot.path)
        self._open.pop(slot.path, None)
        self.forget_changes(slot.system)
        if (copied := self._quarantine.add(slot, file, error)) is not None:
            self._keep_open(OpenDayFile(slot, copied, self.compare))

    def _now(self) -> int:
        return int(self.clock.time())

    # ---- rewrites of maintenance

    def create_next(self, slot: FileSlot, before: FileSlot) -> None:
        """Begin to create the file of a slot that has none, with the columns of the one before it that are still used."""
        self.before_create(slot)
        span, steps = (slot.start, slot.end), self.steps.get(slot.system, {})
        made = CreateNextDay(
            slot.path,
            before.path,
            span,
            self._now(),
            self._limit(slot),
            self.files,
            lambda one: one.step in steps.get(one.source, {one.step}),
        )
        self.rewrites.begin(slot, "made", made)

    def seal(self, day: OpenDayFile) -> None:
        """Begin to seal a live file."""
        try:
            self.rewrites.begin(day.slot, "sealed", SealFile(day.file, self._now(), self._write_sealed))
        except (FileLost, SyncFailed) as error:
            self.distrust(day.slot, day.file, error)

    def note_failure(self, change: Change, slot: FileSlot, error: Exception) -> None:
        """Note a rewrite that could not be begun; finish_rewrites() reports it."""
        self._done.append(FileChange(change, slot.path, error))

    def finish_rewrites(self) -> list[FileChange]:
        """Put finished files in place; return what was done since the last call.

        The failure of a rewrite that a window waits for is left for that window, which may never come again: for a while.
        """
        self.rewrites.release()
        for pending in self.rewrites.done():
            if not pending.is_left_to_window(self.clock.monotonic()):
                try:
                    self._finish_rewrite(pending)
                except Exception as error:  # noqa: BLE001 - a damaged file may raise anything; one file never stops the others
                    self.distrust_damaged(pending.slot.system)
                    self._done.append(FileChange(pending.change, pending.slot.path, error))
        done, self._done = self._done, []
        return done

    def close(self) -> None:
        """Cancel all rewrites and close all files."""
        self.rewrites.close()
        while self._open:
            self._open.popitem()[1].file.close()


# Rows are counted from the day's start, so a window would come into wrong rows of it, which look right.
def _check_span(slot: FileSlot, spec: FileSpec) -> None:
    """Raise OtherDay unless a file has the rows of its slot."""
    if (spec.start, spec.end) != (slot.start, slot.end):
        raise OtherDay(
            f"{slot.path}: it has the rows of {Window(spec.start, spec.end)}, not of {Window(slot.start, slot.end)}, "
            "its day in `timezone`: restore the time zone in which it was made, or move it away",
            "never",
        )


def _check_columns(path: Path, spec: FileSpec, most: int) -> None:
    for dataset, matrix in spec.matrices.items():
        if len(matrix.columns) > most:
            raise Refusal(
                f"{path}: {dataset} would have {len(matrix.columns)} columns, archive.max_columns allows {most}: "
                "raise it if the site is as large as that",
                "never",
            )
