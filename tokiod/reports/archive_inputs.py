"""Import saved files into a TTS file without a daemon, by the collectors, the conversion and the sink of live polling.

A live file next to `out` is filled, sealed and renamed to it, so `out` is always the old or the new file, whole.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
from msgspec import structs

from sinks.tts.day_files import DayFiles
from sinks.tts.sink import TtsSink
from tokiod.archive.layout import single
from tokiod.collector import collect_window
from tokiod.dropped import Dropped, sentence
from tokiod.errors import Refusal, TokiodError
from tokiod.tts.live.files import UNSYNCED
from tokiod.tts.live.live_file import NotLive
from tokiod.tts.sealed.seal import seal, unseal
from tokiod.window import Window, iso, whole_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from tokiod.clock import Clock
    from tokiod.collector import SavedCollector

WINDOW_CELLS = 400_000
"""How many cells a window has: so many that a small site's cost what a large one's do, and memory does not grow with the span."""
FIRST_ROWS, MIN_ROWS = 60, 12
"""Rows of a window before the file's columns are known, and of one of very many columns."""

MAX_WINDOW_SECONDS = 86400
"""No window of rows that are shorter than a day is longer than a day."""


class FileOrigin(msgspec.Struct, frozen=True):
    """What windows of a file are labelled with, see tokiod.collector.Origin."""

    name: str
    kind: str
    system: str
    units: Mapping[str, str]


class ImportJob(msgspec.Struct, frozen=True):
    """What to import: `span` of `collector` into the file `out`. Rows of the file that the span touches are imported whole.

    file_span: the span of the file (None: that of the existing file, or else `span`). units: those that the kind declares.
    max_rates: the largest plausible rates of counters, by dataset.
    """

    kind: str
    collector: SavedCollector
    span: Window
    file_span: Window | None
    out: Path
    units: Mapping[str, str] = msgspec.field(default_factory=dict)
    max_rates: Mapping[str, float] = msgspec.field(default_factory=dict)

    @property
    def origin(self) -> FileOrigin:
        """The source of the groups in the file, with the file as its system."""
        return FileOrigin(self.kind, self.kind, str(self.out), self.units)


class ImportResult(msgspec.Struct):
    """What was imported: whole rows of the file, cells, and dropped cells and records."""

    span: Window
    cells: int = 0
    dropped: Dropped = msgspec.field(default_factory=Dropped)

    def no_data(self, out: Path) -> TokiodError:
        """Return the error of an import that found nothing."""
        reasons = sentence(self.dropped.counts, self.dropped.why, 0)
        span = f"no data between {iso(self.span.start)} and {iso(self.span.end)}: {out} was not written"
        return TokiodError(f"{span}; {reasons}" if reasons else span)


async def archive(job: ImportJob, clock: Clock, progress: Callable[[int], None] = lambda _seconds: None) -> ImportResult:
    """Collect the rows of the span into the sealed file `out`; an existing file keeps its other cells.

    progress is called with the seconds of the span that are done. Raises CollectError, Refusal, TokiodError or OSError; `out` is
    then untouched.
    """
    live = job.out.with_name(f".{job.out.name}.live")
    live.unlink(missing_ok=True)
    now = int(clock.time())
    filled_before = job.out.exists()
    try:
        file_span = _prepare(job, live, now)
        job = structs.replace(job, span=whole_rows(job.span, file_span, job.collector.step))
        limits = {job.origin.system: job.max_rates}
        with closing(
            TtsSink(DayFiles(single(live, file_span), clock, UNSYNCED, compare=False, units={job.kind: job.units}, max_rates=limits))
        ) as sink:
            result = await _fill(job, file_span.start, sink, progress)
            await _close_seams(job, sink, result, with_before=filled_before and job.span.start > file_span.start)
            file = sink.live_file(job.origin.system, file_span.start)
            if file is None or not result.cells:
                raise result.no_data(job.out)
            seal(file, job.out, updated=now)
    except Refusal as error:
        raise Refusal(error.message.replace(str(live), str(job.out)), error.when) from None
    finally:
        live.unlink(missing_ok=True)
    return result


def _prepare(job: ImportJob, live: Path, now: int) -> Window:
    """Reopen an existing file as a live one next to it; return the span of the file to fill."""
    wanted = job.file_span or job.span
    if job.out.exists():
        existing = _unsealed(job.out, live, now)
        if job.file_span not in (None, existing):
            raise TokiodError(
                f"{job.out} holds {existing}, not {job.file_span}: leave --init-start and --init-end out, or name another file"
            )
        wanted = existing
    if job.span.start < wanted.start or job.span.end > wanted.end:
        raise TokiodError(f"{job.span} does not lie within the file's {wanted}")
    return wanted


def _unsealed(out: Path, live: Path, now: int) -> Window:
    try:
        with closing(unseal(out, live, UNSYNCED, created=now)) as file:
            return Window(file.spec.start, file.spec.end)
    except NotLive as error:
        raise TokiodError(f"{out} is not a TTS file and can't be filled: {error}; name another file") from error


async def _fill(job: ImportJob, origin: int, sink: TtsSink, progress: Callable[[int], None]) -> ImportResult:
    result, start = ImportResult(job.span), job.span.start
    while start < job.span.end:
        window = Window(start, min(start + _window_seconds(job, origin, sink), job.span.end))
        result.cells += await _store(job, window, sink, result.dropped)
        progress(window.seconds)
        start = window.end
    return result


def _window_seconds(job: ImportJob, origin: int, sink: TtsSink) -> int:
    """Return the length of the next window, whole rows of the file: as long as the cells of the columns so far are few enough."""
    step, file = job.collector.step, sink.live_file(job.origin.system, origin)
    columns = 0 if file is None else sum(len(matrix.columns) for matrix in file.spec.matrices.values())
    rows = max(WINDOW_CELLS // columns, MIN_ROWS) if columns else FIRST_ROWS
    return max(min(rows, MAX_WINDOW_SECONDS // step), 1) * step


async def _store(job: ImportJob, window: Window, sink: TtsSink, dropped: Dropped) -> int:
    """Collect and store a window; return its cells. In its own function, so that its data is freed before the next one."""
    collected = await collect_window(job.collector, job.origin, window)
    applied = sink.apply(collected)
    dropped.note(applied.dropped)
    dropped.note(collected.meta.dropped, collected.why)
    return applied.cells


async def _close_seams(job: ImportJob, sink: TtsSink, result: ImportResult, *, with_before: bool) -> None:
    """Store the counters of the steps just outside the span, which its first and last differences need.

    The step after the span always; the one before it where the existing file may hold data before it.
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
        result.dropped.note(sink.apply(replace(collected, batches=counters)).dropped)
