"""What the writer does for its archive between windows: it creates tomorrow's files, seals days, checks the disk and missing files.

The windows of a file that is missing are collected again, as far as their sources still hold them.
"""

from __future__ import annotations

import errno
import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from tokiod.archive.seal_marker import marked_files, unmark
from tokiod.ledger.database import LedgerError
from tokiod.ledger.known_files import KnownFile
from tokiod.tts.live.files import exists
from tokiod.window import Window
from tokiod.writer.file_scan import FileScan
from tokiod.writer.seal_policy import DiskSpace, SealPolicy
from tokiod.writer.work_units import WorkUnits

if TYPE_CHECKING:
    from collections.abc import Container, Iterable
    from pathlib import Path

    from tokiod.archive.layout import FileSlot, Layout
    from tokiod.clock import Clock
    from tokiod.config.schema import Config
    from tokiod.ledger.known_files import KnownFiles
    from tokiod.ledger.ledger import Ledger
    from tokiod.sink import Sink
    from tokiod.tts.live.files import Files
    from tokiod.window_data import WindowMeta
    from tokiod.writer.file_scan import ScannedFile

log = structlog.get_logger()

SCAN_SECONDS = 10.0
"""From one scan of the files to the next."""
SEAL_RETRY_SECONDS = 300.0
"""After this time the writer tries again to seal a day that it could not seal; meanwhile it seals others."""
PREPARE_SECONDS = 3600
"""How long before midnight tomorrow's files are created."""


@dataclass(slots=True)
class Maintenance:
    """Looks after the files of an archive that a sink stores windows in. files: reports the free space."""

    config: Config
    layout: Layout
    sink: Sink
    ledger: Ledger
    clock: Clock
    files: Files
    _scan: FileScan = field(init=False)
    _disk: DiskSpace = field(init=False)
    _units: WorkUnits = field(init=False)
    _known_files: KnownFiles = field(init=False)
    _scan_began: float = field(default=float("-inf"), init=False)
    _is_scanning: bool = field(default=False, init=False)
    _has_forgotten: bool = field(default=False, init=False)
    _seal_began: dict[Path, float] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._scan = FileScan(self._slot_of, self.clock)
        self._units = WorkUnits(self.clock)
        self._disk = DiskSpace(self.config.archive.root, self.files)
        self._known_files = self.ledger.known_files(self.config.archive.root)

    def reconfigure(self, config: Config) -> None:
        """Look after the files of other sources from now on, in the same archive."""
        self.config = config
        self._scan.clear()

    def adopt(self, last_used: float | None = None) -> None:
        """Hand the sink every file with a marker: reopened by a predecessor, or to be sealed by request. last_used: see Sink.adopt()."""
        with self._units.unit("find markers"):
            for path in marked_files(self.config.archive.root):
                with self._units.unit(f"adopt {path}"):
                    self._adopt(path, last_used)

    # A predecessor that was killed may have changed cells of a day that it had reopened, and recorded nothing: the window that changed them
    # comes again, but finds the day sealed by then, and equal.
    def adopt_of_predecessor(self) -> None:
        """Adopt as adopt(), and record in the change log that rows of these files may have changed."""
        with self._units.unit("record reopened files"):
            for path in marked_files(self.config.archive.root):
                file = self._scan.inspect(path, 0.0)
                if file is not None and file.slot is not None:
                    self.note_computed(file.slot.system, [(file.slot.start, file.slot.end)])
        self.adopt()

    def _adopt(self, path: Path, last_used: float | None) -> None:
        file = self._scan.inspect(path, 0.0)
        if file is None or file.slot is None:
            unmark(path)
        else:
            self.sink.adopt(file.slot.system, file.slot.start, last_used)

    @property
    def is_busy(self) -> bool:
        """Whether files remain to be looked at."""
        return self._is_scanning

    def run(self) -> bool:
        """Begin what is due. A unit of work that fails (a full disk, a corrupt file) is logged, and the others go on.

        Returns whether windows that the ledger called stored are no longer.
        """
        is_scanned = False
        with self._units.unit("scan the files"):
            is_scanned = self._scan_is_complete()
        if is_scanned:
            now = self.clock.time()
            self._prepare_and_seal(now)
            with self._units.unit("note the files"):
                slots = (file.slot for file in self._scan.files() if file.slot is not None)
                self._known_files.add(_known(slot) for slot in slots if slot.path not in self._known_files)
            self.forget_missing_files(self._scan.names)
        forgotten, self._has_forgotten = self._has_forgotten, False
        return forgotten

    def forget_missing_files(self, present: Container[str] = ()) -> None:
        """Forget the windows of missing files, except of days older than any retention. present: paths that were seen just now.

        Those days stay known: a clock that is ahead makes a day old until it is right again.
        Also called before the first window: a new file under the name of a missing one would hide the loss.
        """
        with self._units.unit("find missing files"):
            missing = self._known_files.missing(functools.cache(self._held_since), present)
            if missing:
                self._check_mounted()
            for one in missing:
                with self._units.unit(f"forget {one.path}"):
                    self._forget_missing(one)

    def before_create(self, slot: FileSlot) -> None:
        """Forget the windows of a file that is missing before another is created under its name. Raises OSError; then create none."""
        self._check_mounted()
        if (one := self._known_files.at(slot.path)) is not None:
            try:
                self._forget_missing(one)
            except LedgerError as error:
                raise OSError(errno.EIO, f"its file is missing, which the ledger can't record: {error}", str(slot.path)) from error

    def note_stored(self, metas: Iterable[WindowMeta]) -> None:
        """Note the files of windows that are about to be recorded as stored, so that their loss is noticed. Raises LedgerError, OSError."""
        slots = {self.layout(meta.system, meta.window.start) for meta in metas}
        new = [slot for slot in slots if slot is not None and slot.path not in self._known_files]
        self._known_files.add(_known(slot) for slot in new if exists(slot.path))

    def note_forgotten(self, path: Path) -> None:
        """Note that the ledger no longer records windows of a file. Raises LedgerError."""
        if (one := self._known_files.at(path)) is not None:
            self._known_files.remove(one)

    def note_sealed(self, path: Path) -> None:
        """Record in the change log that a file was sealed."""
        with self._units.unit(f"note that {path} was sealed"):
            if (one := self._known_files.at(path)) is not None:
                self.ledger.changes.note(one.system, [(one.window.start, one.window.end)], "sealed", self.clock.time())

    def note_computed(self, system: str, spans: Iterable[tuple[int, int]]) -> None:
        """Record in the change log that rows of a system may have changed. Raises LedgerError."""
        self.ledger.changes.note(system, spans, "rows", self.clock.time())

    def _scan_is_complete(self) -> bool:
        """Begin a scan if it is time to, or go on with it; return whether it just ended."""
        now = self.clock.monotonic()
        if not self._is_scanning:
            if now - self._scan_began < SCAN_SECONDS:
                return False
            self._scan_began = now
            self._scan.begin(self.config.archive.file_names(), self.clock.time())
            self._is_scanning = True
        self._is_scanning = not self._scan.open_some(self.clock.time())
        return not self._is_scanning

    def _prepare_and_seal(self, now: float) -> None:
        self.adopt(last_used=float("-inf"))  # a file that was marked by request waits for no more windows
        live = [(file.slot, file) for file in self._scan.files() if file.is_live and file.slot is not None]
        current = [slot for slot, _ in live if slot.start <= now < slot.end]
        disk_is_scarce = False
        with self._units.unit("look at the disk"):
            disk_is_scarce = self._disk.is_scarce(current, now)
        for slot in current:
            if slot.end - now <= PREPARE_SECONDS:
                with self._units.unit(f"prepare the day after {slot.path}"):
                    self.sink.prepare(slot.system, slot.end)
        over = sorted([(slot, file) for slot, file in live if slot.end <= now], key=lambda one: one[0].start)
        with self._units.unit("seal a day"):
            self._seal_one(over, now, disk_is_scarce=disk_is_scarce)

    def _seal_one(self, over: list[tuple[FileSlot, ScannedFile]], now: float, *, disk_is_scarce: bool) -> None:
        """Begin to seal the oldest day that is due, except days that were begun lately: those would only fail again."""
        passed = self.clock.monotonic()
        self._seal_began = {path: begun for path, begun in self._seal_began.items() if passed - begun < SEAL_RETRY_SECONDS}
        policy = SealPolicy(self.config.archive, self.config.source, self.ledger, now, disk_is_scarce=disk_is_scarce) if over else None
        for slot, file in over:
            if policy is None or slot.path in self._seal_began or not policy.is_due(slot, file.changed_at):
                continue
            with self._units.unit(f"seal {slot.path}"):
                self._seal_began[slot.path] = passed
                if self.sink.seal(slot.system, slot.start):
                    return
                del self._seal_began[slot.path]

    def _check_mounted(self) -> None:
        """Raise FileNotFoundError if the archive's file system is not mounted: nothing is lost then, and nothing may be written."""
        if not exists(self.ledger.path):
            raise FileNotFoundError(errno.ENOENT, "the archive is not there", str(self.config.archive.root))

    def _forget_missing(self, one: KnownFile) -> None:
        log.error("file.gone", path=str(one.path), reason="the file is missing; what its sources still hold of it is collected again")
        self.sink.miss(one.path)
        self.ledger.forget(one.system, one.window, self.clock.time())
        self._has_forgotten = True
        self._known_files.remove(one)

    def _held_since(self, system: str) -> float:
        """Return the epoch second from which a source of a system may still hold data: the clock may be ahead, a stored sample is not."""
        now = self.clock.time()
        ends = [row.data_end for row in self.ledger.sources() if row.system == system and row.data_end is not None]
        retention = max((int(source.retention) for source in self.config.source if source.system == system), default=0)
        return min(now, max(ends, default=now)) - retention

    def _slot_of(self, path: Path, start: int) -> FileSlot | None:
        systems = sorted(self.config.systems)
        slots = (self.layout(system, start) for system in systems)
        return next((slot for slot in slots if slot is not None and slot.path == path), None)


def _known(slot: FileSlot) -> KnownFile:
    return KnownFile(slot.path, slot.system, Window(slot.start, slot.end))
