"""Import saved files of a kind that fills the job table into one file of that form, without a daemon."""

from __future__ import annotations

from shutil import rmtree
from typing import TYPE_CHECKING

from msgspec import structs

from tokiod.collector import collect_window
from tokiod.jobs.identity import JobIdentities
from tokiod.jobs.merge import MAX_FILES, merge
from tokiod.jobs.table import write_window
from tokiod.jobs.table_file import opened
from tokiod.reports.archive_inputs import ImportResult
from tokiod.tts.live.files import UNSYNCED, put_in_place
from tokiod.window import Window, cut, whole_rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tokiod.reports.archive_inputs import ImportJob

NO_KEY = b""
"""A file with names of users hides nothing, so the hashes that keep its job ids apart need no secret."""


async def archive_rows(job: ImportJob, progress: Callable[[int], None] = lambda _seconds: None) -> ImportResult:
    """Collect the rows of the span into the file `out`; an existing file keeps its other windows. Users are stored by name.

    progress is called with the seconds of the span that are done. Raises CollectError, TokiodError or OSError; `out` is then untouched.
    """
    step = job.collector.step
    job = structs.replace(job, span=whole_rows(job.span, Window(0, job.span.end + step), step))
    parts = job.out.with_name(f".{job.out.name}.parts")
    rmtree(parts, ignore_errors=True)
    parts.mkdir()
    try:
        result, files = await _collect(job, parts, progress)
        if not result.cells:
            raise result.no_data(job.out)
        if job.out.exists():
            with opened(job.out):
                files.append(job.out)
        put_in_place(_merged(files, parts), job.out, UNSYNCED)
    finally:
        rmtree(parts, ignore_errors=True)
    return result


async def _collect(job: ImportJob, parts: Path, progress: Callable[[int], None]) -> tuple[ImportResult, list[Path]]:
    """Write a file for each window with outputs; return them, and how many rows they have."""
    result, files, identities, step = ImportResult(job.span), [], JobIdentities("names", NO_KEY), job.collector.step
    filled = {row for span in await job.collector.spans() for row in range(span.start // step, -(-span.end // step))}
    for window in cut(job.span, 0, step):
        if window.start // step in filled:
            collected = identities.applied(await collect_window(job.collector, job.origin, window))
            result.dropped.note(collected.meta.dropped, collected.why)
            for rows in collected.tables:
                files.append(parts / f"{window.start}")
                write_window(files[-1], UNSYNCED, collected.meta, rows)
                result.cells += len(rows)
        progress(window.seconds)
    return result, files


def _merged(files: list[Path], parts: Path) -> Path:
    """Merge files, as many at once as may be open."""
    level = 0
    while len(files) > 1:
        groups = [files[first : first + MAX_FILES] for first in range(0, len(files), MAX_FILES)]
        files = [parts / f"merged-{level}-{number}" for number in range(len(groups))]
        for group, merged in zip(groups, files, strict=True):
            merge(group, merged, UNSYNCED)
        level += 1
    return files[0]
