"""Collects the files of a watched folder, one after the other, and moves malformed ones to its `rejected` folder."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from tokiod.collector import collect_window
from tokiod.crossing.parts import check_size
from tokiod.dropped import Dropped
from tokiod.errors import Refusal, TokiodError
from tokiod.ledger.database import LedgerError
from tokiod.ledger.received_files import printable
from tokiod.polling.retry import busy_wait, classify, refused_by_writer
from tokiod.polling.watch.beneath import REJECTED, found_at, move_rejected, write_reason
from tokiod.polling.watch.folder import Folder
from tokiod.polling.watch.private_copy import FileChanged, Unacceptable, copied, delete_abandoned
from tokiod.runtime.backoff import MAX_SOURCE_WAIT_SECONDS, backoff
from tokiod.runtime.log import Repeats
from tokiod.window import Window

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from random import Random

    from tokiod.clock import Clock
    from tokiod.collector import SavedCollector
    from tokiod.config.watched_folder import Watched
    from tokiod.ledger.found_file import FoundFile
    from tokiod.ledger.ledger import Ledger
    from tokiod.ledger.received_files import Totals
    from tokiod.polling.watch.private_copy import PrivateCopy
    from tokiod.window import Calendar
    from tokiod.window_data import Collected
    from tokiod.window_result import Answer

WINDOW_ROWS = 180
"""Rows collected at a time, as `tokioctl archive` does."""
FOLDER_RETRY_SECONDS = 10.0
"""Until a missing folder, or a ledger that can't be written, is tried again."""


MAX_ATTEMPTS = 3
"""Attempts at a file that begin and never end, because their process is killed, until it is rejected."""
MAX_NAMED = 5
"""Newer files that are named in the log."""
MAX_REASON = 2000
"""Characters of a reason for a rejection that are kept."""


# A file is known by its content: the same content under another name is not collected again. It is recorded as collected when all of its
# windows are acknowledged; after a kill before that, all of it is collected again, which changes nothing, because windows are applied by
# assignment. A file may hold any part of a window, so no window counts as stored: the ledger records the files, and the spans in which they
# have samples, so that those of a lost day are collected again.
#
# Of files with samples of the same time, the newest counts. Files are collected in the order of their times. One that is collected later
# than newer ones (it could not be read before, or its day was lost) is followed by these once more.
#
# Other users may write to the folder, and change a file at any moment: what is collected is a private copy.
class Intake:
    """Collects the files in the folder of one source. make: makes a collector over the copy of a file; slots: as for a Backfill."""

    def __init__(  # noqa: PLR0913, PLR0917 - everything that a test replaces
        self,
        config: Watched,
        make: Callable[[Path], SavedCollector],
        ledger: Ledger,
        submit: Callable[[Collected], Awaitable[Answer]],
        slots: asyncio.Semaphore,
        calendar: Calendar,
        clock: Clock,
        rng: Random,
    ) -> None:
        self._config = config
        self._folder = Path(config.watch)
        self._make = make
        self._ledger = ledger
        self._received = ledger.received_files(config.name)
        self._submit = submit
        self._slots = slots
        self._calendar = calendar
        self._clock = clock
        self._rng = rng
        self._watching: Folder | None = None
        self._reloads = 0
        self._exposure = ""
        self._last_file = clock.monotonic()
        self._is_waiting = False
        self._state = ""
        self._repeats = Repeats(clock)
        self._log = structlog.get_logger().bind(source=config.name)

    def reload(self) -> None:
        """Look at all files again: the ledger may record less than before."""
        self._reloads += 1
        if self._watching is not None:
            self._watching.return_all()

    async def run(self) -> None:
        """Collect files until cancelled; neither a malformed file nor a full disk ends this."""
        silence = asyncio.create_task(self._report_silence())
        try:
            await self._run()
        finally:
            silence.cancel()

    async def _run(self) -> None:
        while True:
            try:
                await self._watch()
            except (OSError, LedgerError) as error:
                self._set_state("waiting", f"{self._config.watch} can't be watched: {error}")
                self._log.warning("folder.failed", error=str(error))
            except Exception as error:  # noqa: BLE001 - a fault in tokiod must not end the other sources
                self._set_state("waiting", f"a fault in tokiod: {error}")
                self._log.exception("folder.broken")
            self._is_waiting = False
            await self._clock.sleep(FOLDER_RETRY_SECONDS)

    async def _report_silence(self) -> None:
        """Report it when no file has come for `empty_after`."""
        while True:
            left = self._last_file + self._config.empty_seconds - self._clock.monotonic()
            await self._clock.sleep(max(FOLDER_RETRY_SECONDS, left))
            with suppress(LedgerError):
                if self._state == "running" and self._is_waiting and self._is_empty():
                    self._report_waiting()

    def _is_empty(self) -> bool:
        """Return whether no file has come for `empty_after`; without that key, only a folder that never had one is empty."""
        is_silent = self._clock.monotonic() - self._last_file >= self._config.empty_seconds
        return is_silent and (self._config.empty_after is not None or not self._received.totals().collected)

    def _report_waiting(self) -> None:
        """Report that all files are collected, and whether the folder is empty."""
        self._is_waiting = True
        totals = self._received.totals()
        if not self._is_empty():
            self._set_state("running", _summary(totals, self._folder, self._exposure))
            return
        missing = "no file was ever collected" if not totals.collected else f"no file in {self._config.empty_seconds} s"
        reason = f"up, but {missing} from {self._folder}{_rejected(totals, self._folder)}; check kind = {self._config.kind!r} and watch"
        if self._repeats(("source.empty", totals)):
            self._log.warning("source.empty", reason=reason)
        self._set_state("empty", reason)

    async def _watch(self) -> None:
        self._ledger.register(self._config, int(self._clock.time()))
        await asyncio.to_thread(delete_abandoned, self._prefix)
        self._watching = folder = Folder(self._folder, self._clock, float(self._config.scan))
        with folder.watched():
            while True:
                self._report_waiting()
                waiting = [found for found in await folder.finished() if not self._is_known(found)]
                self._is_waiting = not waiting
                for number, found in enumerate(waiting, start=1):
                    self._set_state("running", f"collecting {printable(found.path.name)}, file {number} of {len(waiting)}")
                    await self._take(folder, found)
                if folder.existing is not None:
                    self._received.forget(self._clock.time() - self._config.retention, folder.existing)
                    self._received.forget_unended(folder.existing.values())

    def _is_known(self, found: FoundFile) -> bool:
        try:
            return self._received.knows(found)
        except LedgerError:
            raise
        except Exception:  # noqa: BLE001 - _take() reports it
            return False

    async def _take(self, folder: Folder, found: FoundFile) -> None:
        """Collect a file with a new content, or reject it; whatever fails with this file, the others follow. Raises LedgerError."""
        try:
            await self._take_copy(folder, found)
        except FileChanged:
            folder.retry(found)
        except LedgerError:
            raise
        except Exception as error:  # noqa: BLE001 - one file never stops the others
            folder.retry(found)
            if times := self._repeats((found.path, str(error))):
                reason = f"{type(error).__name__}: {error}"
                self._log.warning("file.failed", path=found.shown, error=printable(reason), times=times)

    async def _take_copy(self, folder: Folder, found: FoundFile) -> None:
        """Copy a file and collect or reject the copy. Raises FileChanged, OSError and LedgerError."""
        try:
            copy = await asyncio.to_thread(copied, self._folder, found, int(self._config.max_size), self._prefix)
        except Unacceptable as error:
            await self._reject(found, f"unread-{found.inode}-{found.size}-{found.mtime_ns}", str(error))
            return
        try:
            if self._received.outcome(copy.digest) == "collected":
                self._received.record(found, copy.digest, "collected", "", self._clock.time())
            else:
                await self._attempt(folder, found, copy)
        finally:
            await asyncio.to_thread(copy.delete)

    async def _attempt(self, folder: Folder, found: FoundFile, copy: PrivateCopy) -> None:
        reloads = self._reloads
        unended = self._received.begin(copy.digest)
        try:
            if unended >= MAX_ATTEMPTS:
                raise TokiodError(f"{unended} attempts to collect it began and never ended")  # noqa: TRY301 - rejected as other errors are
            spans = await self._collect(found, copy)
        except Exception as error:
            if await asyncio.to_thread(found_at, self._folder, found.path) != found:
                raise FileChanged from error
            if isinstance(error, (OSError, LedgerError)):
                raise
            await self._reject(found, copy.digest, self._reason(error, copy), None if isinstance(error, TokiodError) else error)
        else:
            # What was stored before the ledger changed may be lost again.
            if self._reloads != reloads or await asyncio.to_thread(found_at, self._folder, found.path) != found:
                raise FileChanged
            if newer := self._received.record(found, copy.digest, "collected", "", self._clock.time(), spans):
                self._log.info("file.older", path=found.shown, newer=newer[:MAX_NAMED], number=len(newer))
                folder.return_all()
            self._last_file = self._clock.monotonic()
        finally:
            self._received.end(copy.digest)

    async def _collect(self, found: FoundFile, copy: PrivateCopy) -> list[Window]:
        """Store all of a file, with as many attempts as it needs; return its spans. Raises an error where another attempt can't help."""
        failures = 0
        while True:
            try:
                cells, dropped, spans = await self._collect_once(copy)
            except Exception as error:
                if classify(error) not in {"transient", "timeout", "not_yet"}:
                    raise
                failures += 1
                self._set_state("waiting", f"{printable(found.path.name)}: {self._reason(error, copy)}")
                await self._clock.sleep(backoff(failures, MAX_SOURCE_WAIT_SECONDS, self._rng))
            else:
                self._log.info("file.collected", path=found.shown, owner=found.owner, cells=cells, dropped=dict(dropped.counts))
                if dropped.why:
                    self._ledger.set_why(self._config.name, dropped.why)
                return spans

    async def _collect_once(self, copy: PrivateCopy) -> tuple[int, Dropped, list[Window]]:
        cells, dropped = 0, Dropped()
        collector = self._make(copy.path)
        try:
            spans = [self._aligned(span, collector.step) for span in await collector.spans()]
            self._note_exposure(getattr(collector, "exposure", ""))
            for span in spans:
                for window in self._calendar.split(span, WINDOW_ROWS * collector.step):
                    cells += await self._store(collector, window, dropped)
        finally:
            await collector.close()
        return cells, dropped, spans

    async def _store(self, collector: SavedCollector, window: Window, dropped: Dropped) -> int:
        """Store a window, in halves where it is too large to cross; return the number of its cells and note what was dropped."""
        rows = window.seconds // collector.step
        collected: Collected | None
        try:
            collected = await collect_window(collector, self._config, window, extent="some")
            check_size(self._config.name, collected.nbytes)
        except Refusal:
            if rows <= 1:
                raise
            collected = None
        if collected is None:
            middle = window.start + rows // 2 * collector.step
            halves = Window(window.start, middle), Window(middle, window.end)
            return sum([await self._store(collector, half, dropped) for half in halves])
        times = 0
        while True:
            async with self._slots:
                outcome = await (await self._submit(collected))
            if not isinstance(outcome, Refusal):
                dropped.note(outcome.dropped, collected.why)
                return outcome.cells
            if outcome.when != "busy":
                raise refused_by_writer(outcome, window)
            times += 1
            await self._clock.sleep(busy_wait(times))

    def _note_exposure(self, reason: str) -> None:
        self._exposure = reason
        if reason and (times := self._repeats(("reader.not_isolated", reason))):
            self._log.warning("reader.not_isolated", reason=f"files are read with access to {reason}", times=times)

    def _aligned(self, span: Window, step: int) -> Window:
        return Window(self._calendar.window(span.start, step).start, self._calendar.window(span.end - 1, step).end)

    def _reason(self, error: Exception, copy: PrivateCopy) -> str:
        is_known = isinstance(error, TokiodError)
        reason = str(error) if is_known else f"a fault in the collector of {self._config.kind}: {type(error).__name__}: {error}"
        return printable(reason).replace(f"{copy.path.parent}/", "")[:MAX_REASON]

    async def _reject(self, found: FoundFile, digest: str, reason: str, fault: Exception | None = None) -> None:
        """Move a file to `rejected`, with the reason next to it; a file that can't be moved stays and is recorded."""
        self._log.warning("file.rejected", path=found.shown, owner=found.owner, reason=reason, exc_info=fault)
        try:
            rejected = await asyncio.to_thread(move_rejected, self._folder, found, digest)
            found = replace(found, path=rejected)
            await asyncio.to_thread(write_reason, self._folder, rejected, reason)
        except (OSError, TokiodError) as problem:
            self._log.warning("file.not_moved", path=found.shown, error=printable(str(problem)))
        self._received.record(found, digest, "rejected", reason, self._clock.time())

    @property
    def _prefix(self) -> str:
        """What the names of private copies begin with."""
        return f"tokiod-{self._config.name}-file-"

    def _set_state(self, state: str, reason: str) -> None:
        self._state = state
        try:
            self._ledger.set_state(self._config.name, state, printable(reason), self._clock.time())
        except LedgerError as error:
            self._log.warning("ledger.failed", error=str(error))


def _summary(totals: Totals, folder: Path, exposure: str) -> str:
    exposed = f"; read with access to {exposure}" if exposure else ""
    return f"{totals.collected} files of {folder} collected{_rejected(totals, folder)}{exposed}"


def _rejected(totals: Totals, folder: Path) -> str:
    return f", {totals.rejected} rejected: see {folder / REJECTED}" if totals.rejected else ""
