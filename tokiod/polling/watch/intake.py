"""Collects the files of a watched folder, one after the other, and moves malformed ones to its `rejected` folder."""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from tokiod.collector import collect_window
from tokiod.errors import Refusal, TokiodError
from tokiod.ledger.database import LedgerError
from tokiod.ledger.received_files import FoundFile
from tokiod.polling.retry import MAX_SOURCE_WAIT_SECONDS, backoff, busy_wait, classify, refused_by_writer
from tokiod.polling.watch.folder import REJECTED, Folder
from tokiod.window import Window

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from random import Random

    from tokiod.clock import Clock
    from tokiod.collector import SavedCollector
    from tokiod.config.watched_folder import Watched
    from tokiod.ledger.ledger import Ledger
    from tokiod.ledger.received_files import Totals
    from tokiod.window import Calendar
    from tokiod.window_data import Collected
    from tokiod.window_result import Answer

WINDOW_ROWS = 180
"""Rows collected at a time, as `tokioctl archive` does."""
FOLDER_RETRY_SECONDS = 10.0
"""Until a missing folder, or a ledger that can't be written, is tried again."""


class FileChanged(Exception):  # noqa: N818 - says what has happened
    """A file changed while it was collected: the folder finds it again."""


# A file is known by its content: the same content under another name is not collected again. It is recorded as collected when all of its
# windows are acknowledged; after a kill before that, all of it is collected again, which changes nothing, because windows are applied by
# assignment. A file may hold any part of a window, so no window counts as stored: the ledger records the files.
class Intake:
    """Collects the files in the folder of one source. make: makes a collector over one saved file; slots: as for a Backfill."""

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
        self._log = structlog.get_logger().bind(source=config.name)

    async def run(self) -> None:
        """Collect files until cancelled; neither a malformed file nor a full disk ends this."""
        while True:
            try:
                await self._watch()
            except (OSError, LedgerError) as error:
                self._set_state("waiting", f"{self._config.watch} can't be watched: {error}")
                self._log.warning("folder.failed", error=str(error))
            except Exception as error:  # noqa: BLE001 - a fault in tokiod must not end the other sources
                self._set_state("waiting", f"a fault in tokiod: {error}")
                self._log.exception("folder.broken")
            await self._clock.sleep(FOLDER_RETRY_SECONDS)

    async def _watch(self) -> None:
        self._ledger.register(self._config, int(self._clock.time()))
        folder = Folder(self._folder, self._clock, float(self._config.scan))
        with folder.watched():
            while True:
                self._set_state("running", _summary(self._received.totals(), folder.path))
                waiting = [found for found in await folder.finished() if not self._received.knows(found)]
                for number, found in enumerate(waiting, start=1):
                    self._set_state("running", f"collecting {found.path.name}, file {number} of {len(waiting)}")
                    await self._take(found)
                self._received.forget(self._clock.time() - self._config.retention, folder.existing)

    async def _take(self, found: FoundFile) -> None:
        """Collect a file with a new content, or reject it."""
        try:
            digest = await asyncio.to_thread(_digest, found.path)
            if self._received.outcome(digest) != "collected":
                await self._collect(found)
        except FileChanged:
            return
        except Exception as error:
            if (now := FoundFile.at(found.path)) != found:
                self._log.info("file.changed", path=str(found.path), now=now is not None)
                return
            if isinstance(error, OSError):
                raise
            self._reject(found, digest, error)
            return
        self._received.record(found, digest, "collected", "", self._clock.time())

    async def _collect(self, found: FoundFile) -> None:
        """Store all of a file, with as many attempts as it needs. Raises an error where another attempt can't help."""
        failures = 0
        while True:
            try:
                cells, dropped = await self._collect_once(found)
            except Exception as error:
                if classify(error) not in {"transient", "timeout", "not_yet"}:
                    raise
                failures += 1
                self._set_state("waiting", f"{found.path.name}: {error}")
                await self._clock.sleep(backoff(failures, MAX_SOURCE_WAIT_SECONDS, self._rng))
            else:
                self._log.info("file.collected", path=str(found.path), cells=cells, dropped=dict(dropped))
                return

    async def _collect_once(self, found: FoundFile) -> tuple[int, Counter[str]]:
        cells, dropped = 0, Counter[str]()
        collector = self._make(found.path)
        try:
            for span in await collector.spans():
                for window in self._calendar.split(self._aligned(span, collector.step), WINDOW_ROWS * collector.step):
                    stored, lost = await self._store(collector, window)
                    cells += stored
                    dropped.update(lost)
        finally:
            await collector.close()
        if FoundFile.at(found.path) != found:
            raise FileChanged
        return cells, dropped

    async def _store(self, collector: SavedCollector, window: Window) -> tuple[int, dict[str, int]]:
        collected = await collect_window(collector, self._config, window, extent="some")
        times = 0
        while True:
            async with self._slots:
                outcome = await (await self._submit(collected))
            if not isinstance(outcome, Refusal):
                return outcome.cells, outcome.dropped
            if outcome.when != "busy":
                raise refused_by_writer(outcome, window)
            times += 1
            await self._clock.sleep(busy_wait(times))

    def _aligned(self, span: Window, step: int) -> Window:
        return Window(self._calendar.window(span.start, step).start, self._calendar.window(span.end - 1, step).end)

    def _reject(self, found: FoundFile, digest: str, error: Exception) -> None:
        """Move a file to `rejected`, with the reason next to it; a file that can't be moved stays and is recorded."""
        is_known = isinstance(error, TokiodError)
        reason = str(error) if is_known else f"a fault in the collector of {self._config.kind}: {type(error).__name__}: {error}"
        self._log.warning("file.rejected", path=str(found.path), reason=reason, exc_info=None if is_known else error)
        try:
            rejected = _move_rejected(found.path, self._folder / REJECTED, digest)
            found = replace(found, path=rejected)
            rejected.with_name(f"{rejected.name}.reason").write_text(f"{reason}\n")
        except OSError as problem:
            self._log.warning("file.not_moved", path=str(found.path), error=str(problem))
        self._received.record(found, digest, "rejected", reason, self._clock.time())

    def _set_state(self, state: str, reason: str) -> None:
        try:
            self._ledger.set_state(self._config.name, state, reason, self._clock.time())
        except LedgerError as error:
            self._log.warning("ledger.failed", error=str(error))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=20)).hexdigest()


def _move_rejected(path: Path, folder: Path, digest: str) -> Path:
    folder.mkdir(exist_ok=True)
    target = folder / path.name
    if target.exists():
        target = folder / f"{path.name}.{digest[:8]}"
    path.rename(target)
    return target


def _summary(totals: Totals, folder: Path) -> str:
    rejected = f", {totals.rejected} rejected: see {folder / REJECTED}" if totals.rejected else ""
    return f"{totals.collected} files of {folder} collected{rejected}"
