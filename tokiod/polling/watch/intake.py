"""The files of a watched folder, one after the other: a file in, windows out, and what becomes of a file that is no such thing."""

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
from tokiod.polling.retry import CAP, backoff, classify, moment, refused_by_writer
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

ROWS = 180
"""Rows collected at a time, as `tokioctl archive` does."""
PAUSE = 10.0
"""Seconds after which a folder that isn't there, or a ledger that can't be written, is tried again."""


class Changed(Exception):  # noqa: N818 - says what has happened
    """A file is not what it was when its collecting began: it will be told of again."""


# A file is known by its content: the same again, under any name, is nothing new. It is noted as collected when all of its windows are
# acknowledged; a kill before that collects all of it again, which changes nothing, because windows are applied by assignment. Of a
# window a file may hold any part, so none counts as stored: what is known is which files were had.
class Intake:
    """Collects whatever is put into the folder of one source. make: a collector over one saved file; room: as for a Backfill."""

    def __init__(  # noqa: PLR0913, PLR0917 - everything that a test replaces
        self,
        config: Watched,
        make: Callable[[Path], SavedCollector],
        ledger: Ledger,
        submit: Callable[[Collected], Awaitable[Answer]],
        room: asyncio.Semaphore,
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
        self._room = room
        self._calendar = calendar
        self._clock = clock
        self._rng = rng
        self._log = structlog.get_logger().bind(source=config.name)

    async def run(self) -> None:
        """Collect files as they come, until cancelled; no file and no full disk ends this."""
        while True:
            try:
                await self._watch()
            except (OSError, LedgerError) as error:
                self._say("waiting", f"{self._config.watch} can't be looked after: {error}")
                self._log.warning("folder.failed", error=str(error))
            except Exception as error:  # noqa: BLE001 - it must not end the other sources
                self._say("waiting", f"a fault in tokiod: {error}")
                self._log.exception("folder.broken")
            await self._clock.sleep(PAUSE)

    async def _watch(self) -> None:
        self._ledger.register(self._config, int(self._clock.time()))
        folder = Folder(self._folder, self._clock, float(self._config.scan))
        with folder.watched():
            while True:
                self._say("running", _sentence(self._received.totals(), folder.path))
                waiting = [found for found in await folder.finished() if not self._received.knows(found)]
                for number, found in enumerate(waiting, start=1):
                    self._say("running", f"collecting {found.path.name}, file {number} of {len(waiting)}")
                    await self._take(found)
                self._received.forget(self._clock.time() - self._config.retention, folder.there)

    async def _take(self, found: FoundFile) -> None:
        """Collect a file, unless it was, or set it apart."""
        try:
            digest = await asyncio.to_thread(_digest, found.path)
            if self._received.outcome(digest) != "collected":
                await self._collect(found)
        except Changed:
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
        """Have all of a file stored, however often that must be tried. Raises whatever says that it never can be."""
        failures = 0
        while True:
            try:
                cells, dropped = await self._all(found)
            except Exception as error:
                if classify(error) not in {"transient", "timeout", "not_yet"}:
                    raise
                failures += 1
                self._say("waiting", f"{found.path.name}: {error}")
                await self._clock.sleep(backoff(failures, CAP, self._rng))
            else:
                self._log.info("file.collected", path=str(found.path), cells=cells, dropped=dict(dropped))
                return

    async def _all(self, found: FoundFile) -> tuple[int, Counter[str]]:
        cells, dropped = 0, Counter[str]()
        collector = self._make(found.path)
        try:
            for span in await collector.spans():
                for window in self._calendar.split(self._aligned(span, collector.step), ROWS * collector.step):
                    stored, lost = await self._store(collector, window)
                    cells += stored
                    dropped.update(lost)
        finally:
            await collector.close()
        if FoundFile.at(found.path) != found:
            raise Changed
        return cells, dropped

    async def _store(self, collector: SavedCollector, window: Window) -> tuple[int, dict[str, int]]:
        collected = await collect_window(collector, self._config, window, extent="some")
        times = 0
        while True:
            async with self._room:
                outcome = await (await self._submit(collected))
            if not isinstance(outcome, Refusal):
                return outcome.cells, outcome.dropped
            if outcome.when != "busy":
                raise refused_by_writer(outcome, window)
            times += 1
            await self._clock.sleep(moment(times))

    def _aligned(self, span: Window, step: int) -> Window:
        return Window(self._calendar.window(span.start, step).start, self._calendar.window(span.end - 1, step).end)

    def _reject(self, found: FoundFile, digest: str, error: Exception) -> None:
        """Move a file apart, with the reason beside it; where that can't be, it stays and is known."""
        is_known = isinstance(error, TokiodError)
        reason = str(error) if is_known else f"a fault in the collector of {self._config.kind}: {type(error).__name__}: {error}"
        self._log.warning("file.rejected", path=str(found.path), reason=reason, exc_info=None if is_known else error)
        try:
            apart = _moved_apart(found.path, self._folder / REJECTED, digest)
            found = replace(found, path=apart)
            apart.with_name(f"{apart.name}.reason").write_text(f"{reason}\n")
        except OSError as problem:
            self._log.warning("file.not_moved", path=str(found.path), error=str(problem))
        self._received.record(found, digest, "rejected", reason, self._clock.time())

    def _say(self, state: str, reason: str) -> None:
        try:
            self._ledger.set_state(self._config.name, state, reason, self._clock.time())
        except LedgerError as error:
            self._log.warning("ledger.failed", error=str(error))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=20)).hexdigest()


def _moved_apart(path: Path, folder: Path, digest: str) -> Path:
    folder.mkdir(exist_ok=True)
    apart = folder / path.name
    if apart.exists():
        apart = folder / f"{path.name}.{digest[:8]}"
    path.rename(apart)
    return apart


def _sentence(totals: Totals, folder: Path) -> str:
    rejected = f", {totals.rejected} rejected: see {folder / REJECTED}" if totals.rejected else ""
    return f"{totals.collected} files of {folder} collected{rejected}"
