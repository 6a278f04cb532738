"""The raw output of a source in files that `tokioctl archive` reads: for `tokioctl fetch`.

A file holds whole windows of one site day at most, and has its name only when it is complete: a fetch that is repeated goes on after the
last file. A source without a past is fetched window by window, while each is the present one: a window that fails is missing in the file,
and the next ones are fetched.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from tokiod.errors import TokiodError, Transient
from tokiod.times import iso
from tokiod.tts.live.files import replacing
from tokiod.window import Window, cut

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tokiod.clock import Clock
    from tokiod.collector import RawFile, RawSource, SourceConfig
    from tokiod.window import Calendar

RETRY_SECONDS = (1.0, 5.0, 15.0)
"""Before a window is fetched again that failed in a way that may be over soon."""


class MissingWindow(NamedTuple):
    """A window of a source without a past that could not be fetched in its time, and why."""

    window: Window
    reason: str


@dataclass(slots=True)
class Fetched:
    """What was fetched. span: of the files; files: all of them, oldest first; kept: how many were there already.

    missing: the windows that the new files lack.
    """

    span: Window
    files: list[Path] = field(default_factory=list)
    kept: int = 0
    missing: list[MissingWindow] = field(default_factory=list)


class NotFetchedError(TokiodError):
    """A window that was not fetched for a reason that may be over soon: later, or in the time that a source without a past has for it."""

    def __init__(self, window: Window, reason: str) -> None:
        super().__init__(f"{window}: {reason}")
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Fetch:
    """What to fetch: `span`, whose edges are those of the source's windows, into files in `directory`.

    force: fetch again what is there. progress: is called with seconds of the span that are done; miss: with each window that is missing.
    """

    config: SourceConfig
    raw: RawSource
    span: Window
    directory: Path
    calendar: Calendar
    clock: Clock
    force: bool = False
    progress: Callable[[int], None] = lambda _seconds: None
    miss: Callable[[MissingWindow], None] = lambda _missing: None

    async def run(self) -> Fetched:
        """Fetch all that is not there. Raises TokiodError, OSError; files that are complete stay.

        Also raises TokiodError where each window of a file is missing: the file is not made then.
        """
        fetched = Fetched(self.span)
        for span in self.calendar.split(self.span, self.raw.file_seconds):
            path = self.directory / f"{self.config.name}_{_stamp(span.start)}_{_stamp(span.end)}{self.raw.suffix}"
            if path.exists() and not self.force:
                fetched.kept += 1
                self.progress(span.seconds)
            else:
                fetched.missing += await self._fill(path, span)
            fetched.files.append(path)
        return fetched

    async def _fill(self, path: Path, span: Window) -> list[MissingWindow]:
        with replacing(path) as temporary:
            temporary.unlink(missing_ok=True)
            try:
                file = await asyncio.to_thread(self.raw.create, temporary)
                try:
                    missing = await self._add_all(file, span)
                finally:
                    await asyncio.to_thread(file.close)
                _sync(temporary)
            except asyncio.CancelledError:
                temporary.unlink(missing_ok=True)
                raise
            return missing

    async def _add_all(self, file: RawFile, span: Window) -> list[MissingWindow]:
        """Append what can be fetched of a span; return what is missing, if anything is fetched. Raises TokiodError, OSError."""
        windows, missing = list(self._windows(span)), list[MissingWindow]()
        for window in windows:
            try:
                await asyncio.to_thread(file.add, await self._fetch(window))
            except NotFetchedError as error:
                if self.raw.collector.replayable or len(missing) + 1 == len(windows):
                    raise
                missing.append(MissingWindow(window, error.reason))
                self.miss(missing[-1])
            self.progress(min(window.end, span.end) - window.start)
        return missing

    def _windows(self, span: Window) -> Iterator[Window]:
        """Yield the windows of a file. The last cells of counters are differences to the samples after them."""
        length = max(self.raw.window_seconds // self.config.window, 1) * self.config.window
        yield from cut(span, self.calendar.day(span.start).start, length)
        if self.raw.collector.needs_sample_at_end:
            yield Window(span.end, span.end + self.raw.collector.step)

    async def _fetch(self, window: Window) -> Any:
        if not self.raw.collector.replayable:
            await self.clock.sleep(max(0.0, window.start - self.clock.time()))
        for pause in (*RETRY_SECONDS, None):
            try:
                async with asyncio.timeout(self.config.seconds_for(window)):
                    return await self.raw.fetch(window)
            except (Transient, TimeoutError) as error:
                if pause is None or not self._may_wait(window, pause):
                    raise NotFetchedError(window, str(error) or "no answer in time") from error
                await self.clock.sleep(pause)
        raise AssertionError("unreachable")

    def _may_wait(self, window: Window, pause: float) -> bool:
        return self.raw.collector.replayable or self.clock.time() + pause < window.end


def fetchable(config: SourceConfig, raw: RawSource, wanted: Window, calendar: Calendar, clock: Clock) -> Window:
    """Return the windows of a span that can be fetched: settled ones, of a source without a past the present one and later ones.

    Raises TokiodError without any.
    """
    now = int(clock.time())
    first, last = calendar.window(wanted.start, config.window).start, calendar.window(wanted.end - 1, config.window).end
    if raw.collector.replayable:
        step = raw.collector.step if raw.collector.needs_sample_at_end else 0
        last = min(last, calendar.window(now - config.settle - step, config.window).start)
        reason = f"nothing before END is older than settle, {config.settle} s: the newest data may be incomplete"
    else:
        first = max(first, calendar.window(now, config.window).start)
        reason = f"{config.name} has no past: START and END must be around now, {iso(now)}; the command then runs until END"
    if first >= last:
        raise TokiodError(reason)
    return Window(first, last)


def _stamp(time: int) -> str:
    return iso(time).replace("-", "").replace(":", "")


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
