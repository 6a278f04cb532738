"""`tokioctl verify`: query a source again and compare it with the archive, window by window."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from tokiod.cli.commands.completion import dataset_names, source_names
from tokiod.cli.commands.verify_view import NotCompared, VerifyOutput, show_job_table
from tokiod.cli.common.base import Failed, clock_option, config_option
from tokiod.cli.common.examples import examples
from tokiod.cli.common.lookup import filled_datasets, polled_source
from tokiod.cli.common.roles import check_collected_here
from tokiod.cli.common.times import moment
from tokiod.collector import Site
from tokiod.config import load as configuration
from tokiod.config import plugins
from tokiod.ledger.ledger import Ledger
from tokiod.ledger.published_copy import readable_ledger
from tokiod.reader.files import Templates
from tokiod.reader.jobs import check
from tokiod.reader.span import Span
from tokiod.reports.verify.job_table import odd_days
from tokiod.reports.verify.scratch_archive import VerifiedSource
from tokiod.reports.verify.verify import Verification
from tokiod.runtime.interruption import run_until_interrupted
from tokiod.runtime.process_setup import use_one_heap
from tokiod.window import LATEST, Calendar, Window
from tokiod.window_data import JOB_TABLE

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tokiod.clock import Clock
    from tokiod.collector import SourceConfig
    from tokiod.config.schema import Config

NOT_POLLED = "which cannot be queried again: convert its files with tokioctl archive and compare the result"


@click.command(
    "verify",
    epilog=examples(
        "tokioctl verify cscratch-lmt 2026-11-20 2026-11-21",
        "tokioctl verify cscratch-lmt 2026-11-20T10:00 2026-11-20T11:00 --json",
    ),
)
@click.argument("source", shell_complete=source_names)
@click.argument("start")
@click.argument("end")
@click.option(
    "--dataset",
    "datasets",
    multiple=True,
    shell_complete=dataset_names,
    help="Only this dataset, e.g. dataservers/cpuload; may be repeated.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON, times in UTC epoch seconds.")
@config_option
@clock_option
def verify_command(
    config_path: Path, clock: Clock, source: str, start: str, end: str, datasets: tuple[str, ...], *, as_json: bool
) -> None:  # fmt: skip
    """Query SOURCE again and report where the archive differs.

    START, END: 2018-01-28, 2018-01-28T00:00:00 (local to the site), 2018-01-28T08:00:00Z, 1h (before now), now, today or yesterday. Every
    stored cell between them is compared, bit by bit; nothing is changed. The daemon may run or not. `tokioctl backfill --force` collects
    differing windows again. Of a source that fills a job table, whose past can't be queried, the days are reported that have names which
    [jobs] users hides, or counts that can't be true. Exit 0 no difference, 1 differences, 2 not possible.
    """
    use_one_heap()
    config = configuration.load(config_path)
    section = polled_source(config, source, NOT_POLLED)
    if JOB_TABLE in section.tables:
        sys.exit(_verify_job_table(config, section, _asked(config.calendar, section, start, end, clock.time()), as_json=as_json))
    check_collected_here(config, source)
    chosen = filled_datasets(section, datasets)
    if readable_ledger(config.archive) is None:
        raise Failed(f"no ledger at {config.archive.ledger}: the daemon has never run on this archive")
    asked = _asked(config.calendar, section, start, end, clock.time())
    span, left_out = _span(asked, config.calendar, section, int(clock.time()), _backfilled_since(config, section))
    output = VerifyOutput(section.name, asked, left_out, as_json=as_json)
    if span is not None:
        with click.progressbar(length=span.seconds, label="verifying", file=sys.stderr, hidden=not sys.stderr.isatty()) as bar:
            try:
                run_until_interrupted(_verify(config, clock, section, chosen, span, output, _moving(span, bar.update)))
            except OSError as error:
                raise Failed(f"{error.filename or config.archive.root}: {error.strerror or error}") from error
    output.end()
    if not (output.verified.windows or output.windows):
        raise Failed(f"no window of {section.name} in {asked} could be compared")
    sys.exit(1 if output.windows else 0)


def _verify_job_table(config: Config, section: SourceConfig, span: Window, *, as_json: bool) -> int:
    """Look for what the job table of a system should not have; return the exit code. Its past can't be queried. Raises TokiodError."""
    days = Templates(config.templates).jobs(section.system)
    check(days, Span(span.start, span.end))
    found = list(odd_days(days, span.start, span.end, config.jobs.users))
    show_job_table(section.name, span, found, as_json=as_json)
    return 1 if found else 0


def _moving(span: Window, update: Callable[[int], None]) -> Callable[[int], None]:
    """Return the callback for the progress bar. The bar stands still while an earlier time is read again."""
    reached = span.start

    def move(time: int) -> None:
        nonlocal reached
        update(max(0, time - reached))
        reached = max(reached, time)

    return move


async def _verify(
    config: Config,
    clock: Clock,
    section: SourceConfig,
    datasets: frozenset[str],
    span: Window,
    output: VerifyOutput,
    progress: Callable[[int], None],
) -> None:
    calendar = config.calendar
    asked = section if datasets == section.datasets() else section.only(datasets)
    collector = plugins.load(section.kind).live(asked, Site(calendar, clock, config.secret, hub=config.hub_inner))
    try:
        if not collector.replayable:
            raise Failed(f"{section.name} cannot be queried about the past, so its data cannot be compared; see tokioctl gaps")
        with Ledger.open_readonly(readable_ledger(config.archive) or config.archive.ledger) as ledger:
            source = VerifiedSource(section, collector, calendar, clock)
            verification = Verification(config.archive, source, ledger, datasets, progress=progress)
            async for differing in verification.run(span, output.verified):
                output.add(differing)
    finally:
        await collector.close()


def _asked(calendar: Calendar, section: SourceConfig, start: str, end: str, now: float) -> Window:
    """Return the requested time span, widened to the edges of the source's windows."""
    first, last = moment("START", start, calendar.zone, now), moment("END", end, calendar.zone, now)
    if first >= last:
        raise Failed(f"START {start} must be before END {end}")
    return Window(calendar.window(first, section.window).start, calendar.window(last - 1, section.window).end)


def _backfilled_since(config: Config, section: SourceConfig) -> int:
    """Return the start of the oldest backfill that is done: the source holds more than its retention."""
    with Ledger.open_readonly(readable_ledger(config.archive) or config.archive.ledger) as ledger:
        return min([LATEST, *(job.start for job in ledger.jobs.all() if job.source == section.name and job.state == "done")])


def _span(asked: Window, calendar: Calendar, section: SourceConfig, now: int, held: int) -> tuple[Window | None, list[NotCompared]]:
    """Return the part of a time span that can be compared, and the other parts with reasons. held: the source holds data since then."""
    oldest = min(held, section.reach(calendar, now))
    closed = calendar.window(now - section.settle, section.window).start
    parts = (
        (asked.start, min(asked.end, oldest), "older than the source's retention"),
        (max(asked.start, closed), asked.end, "not settled yet"),
    )
    left_out = [NotCompared(first, last, why) for first, last, why in parts if first < last]
    first, last = max(asked.start, oldest), min(asked.end, closed)
    return (Window(first, last) if first < last else None), left_out
