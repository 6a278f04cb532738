"""Files in, TTS out, without a daemon: the same collectors, the same conversion and the same sink as the live path.

The file is filled beside its place and moved there sealed, so OUT is always the old or the new file, whole.
"""

from __future__ import annotations

from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sinks.tts.day_files import Shelf
from sinks.tts.sink import TtsSink
from tokiod.archive.layout import single
from tokiod.collector import SourceConfig, collect_window
from tokiod.errors import TokiodError
from tokiod.tts.live.files import UNSYNCED
from tokiod.tts.live.live_file import NotLive
from tokiod.tts.sealed.seal import seal, unseal
from tokiod.window import Window, iso

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tokiod.clock import Clock
    from tokiod.collector import Collector
    from tokiod.sink import Applied
    from tokiod.window import Calendar

ROWS = 180
"""Steps collected at a time: memory does not grow with the span, and 180 rows of a large site are some 10 MB; each window costs the same
again, however long it is, so they are counted in rows and not in seconds. No window is longer than a day."""


@dataclass(frozen=True, slots=True)
class Job:
    """What to archive: `span` out of `collector` into the file `out`.

    file_span: what the file holds (None: what it holds already, or else the span).
    """

    kind: str
    collector: Collector
    span: Window
    file_span: Window | None
    out: Path

    @property
    def origin(self) -> SourceConfig:
        """The source that the kind's groups name, the file as its system."""
        return SourceConfig(name=self.kind, kind=self.kind, system=str(self.out))


@dataclass(slots=True)
class Result:
    """What was archived: windows, cells, dropped cells by reason."""

    cells: int = 0
    dropped: Counter[str] = field(default_factory=Counter)


async def archive(job: Job, calendar: Calendar, clock: Clock, progress: Callable[[int], None] = lambda _seconds: None) -> Result:
    """Collect the span and leave it sealed in `out`; cells that the file already holds are kept.

    progress is called with the seconds of the span that are done. Raises CollectError, Refusal, TokiodError or OSError; `out` is
    then untouched.
    """
    live = job.out.with_name(f".{job.out.name}.live")
    live.unlink(missing_ok=True)
    now = int(clock.time())
    filled_before = job.out.exists()
    try:
        file_span = _opened(job, live, now)
        shelf = Shelf(single(live, file_span), clock, UNSYNCED)
        with closing(TtsSink(shelf, compare=False)) as sink:
            result = await _fill(job, sink, calendar, progress)
            await _close_seams(job, sink, result, with_before=filled_before and job.span.start > file_span.start)
            volume = shelf.ending_at(str(job.out), file_span.end)
            if volume is None or not (result.cells or filled_before):
                raise TokiodError(f"no data between {iso(job.span.start)} and {iso(job.span.end)}: {job.out} was not written")
            seal(volume.file, job.out, updated=now)
    finally:
        live.unlink(missing_ok=True)
    return result


def _opened(job: Job, live: Path, now: int) -> Window:
    """Open an existing file up beside its place; return the span of the file to fill."""
    wanted = job.file_span or job.span
    if job.out.exists():
        held = _unsealed(job.out, live, now)
        if job.file_span not in (None, held):
            raise TokiodError(f"{job.out} holds {held}, not {job.file_span}: leave --init-start and --init-end out, or name another file")
        wanted = held
    if job.span.start < wanted.start or job.span.end > wanted.end:
        raise TokiodError(f"{job.span} does not lie within the file's {wanted}")
    return wanted


def _unsealed(out: Path, live: Path, now: int) -> Window:
    try:
        with closing(unseal(out, live, UNSYNCED, created=now)) as file:
            return Window(file.spec.start, file.spec.end)
    except NotLive as error:
        raise TokiodError(f"{out} can't be filled further, it is no TTS file: {error}; name another file") from error


async def _fill(job: Job, sink: TtsSink, calendar: Calendar, progress: Callable[[int], None]) -> Result:
    result = Result()
    for window in calendar.split(job.span, ROWS * job.collector.step):
        applied = await _stored(job, window, sink)
        result.cells += applied.cells
        result.dropped.update(applied.dropped)
        progress(window.seconds)
    return result


async def _stored(job: Job, window: Window, sink: TtsSink) -> Applied:
    """Collect a window and store it; a function of its own, so that it is gone before the next one comes: memory stays flat."""
    collected = await collect_window(job.collector, job.origin, window)
    applied = sink.apply(collected)
    applied.dropped.update(collected.meta.dropped)
    return applied


async def _close_seams(job: Job, sink: TtsSink, result: Result, *, with_before: bool) -> None:
    """Take the counters of the steps just outside the span: they make the differences at its seams.

    Behind the span always (the last cell needs them); before it where the file may have been filled earlier.
    """
    if not job.collector.needs_sample_at_end:
        return
    step = job.collector.step
    seams = [Window(job.span.end, job.span.end + step)]
    if with_before:
        seams.append(Window(job.span.start - step, job.span.start))
    for window in seams:
        collected = await collect_window(job.collector, job.origin, window)
        counters = [batch for batch in collected.batches if batch.form == "counter"]
        result.dropped.update(sink.apply(replace(collected, batches=counters)).dropped)
