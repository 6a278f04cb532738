"""`tokioctl fetch`: the raw output of a source in files, which `tokioctl archive` reads."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from tokiod.cli.commands.completion import source_names
from tokiod.cli.common.base import Failed, clock_option, config_option
from tokiod.cli.common.examples import examples
from tokiod.cli.common.lookup import polled_source
from tokiod.cli.common.output import echo, echo_json
from tokiod.cli.common.roles import check_collected_here
from tokiod.cli.common.times import moment
from tokiod.collector import Site
from tokiod.config import load as configuration
from tokiod.config import plugins
from tokiod.errors import TokiodError
from tokiod.reports.fetch import Fetch, fetchable
from tokiod.runtime.interruption import run_until_interrupted
from tokiod.window import Window, iso

if TYPE_CHECKING:
    from tokiod.clock import Clock
    from tokiod.collector import SourceConfig
    from tokiod.config.schema import Config
    from tokiod.reports.fetch import Fetched, MissingWindow

EXIT_MISSING = 1
NOT_POLLED = "whose files are its raw output: `tokioctl archive` reads them where they are"


class MissingSpan(msgspec.Struct, frozen=True):
    """A window [start, end), UTC epoch seconds, and why it was not fetched in its time."""

    start: int
    end: int
    reason: str


class FetchedFiles(msgspec.Struct, frozen=True):
    """The files of the span [start, end), UTC epoch seconds.

    kept: how many of the files were there before; bytes: of all; archive: the command that makes a TTS file of them; missing: windows of a
    source without a past that the other files lack.
    """

    source: str
    kind: str
    start: int
    end: int
    files: list[str]
    kept: int
    bytes: int
    archive: list[str]
    missing: list[MissingSpan]


@click.command("fetch", epilog=examples("tokioctl fetch cscratch-lmt 2026-11-20 2026-11-21 --output /data/raw"))
@click.argument("source", shell_complete=source_names)
@click.argument("start")
@click.argument("end")
@click.option("--output", required=True, type=click.Path(path_type=Path, file_okay=False), help="The directory; it is made if needed.")
@click.option("--force", is_flag=True, help="Fetch again what the directory holds already.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON, times in UTC epoch seconds.")
@config_option
@clock_option
def fetch_command(config_path: Path, clock: Clock, source: str, start: str, end: str, output: Path, *, force: bool, as_json: bool) -> None:
    """Fetch the raw output of SOURCE from START to END.

    START, END: 2018-01-28, 2018-01-28T00:00:00 (local to the site), 2018-01-28T08:00:00Z, 1h (before now), now, today or yesterday. Whole
    windows are fetched, as the source returns them, in files that `tokioctl archive` reads. A file has its name when it is complete: the
    same command goes on after an interrupt. A source without a past is recorded until END; a window that fails is missing. The daemon may
    run or not; the archive is not touched. Exit 0 fetched, 1 windows are missing, 2 failed.
    """
    config = configuration.load(config_path)
    section = polled_source(config, source, NOT_POLLED)
    check_collected_here(config, source)
    wanted = _span(config, clock, start, end)
    try:
        fetched, options = run_until_interrupted(_fetched(config, section, clock, wanted, output, force=force))
    except TokiodError as error:
        raise Failed(f"{source}: {error}") from error
    except OSError as error:
        raise Failed(f"{error.filename or output}: {error.strerror or error}") from error
    _report(section, fetched, options, as_json=as_json)
    if fetched.missing:
        raise SystemExit(EXIT_MISSING)


async def _fetched(
    config: Config, section: SourceConfig, clock: Clock, wanted: Window, output: Path, *, force: bool
) -> tuple[Fetched, list[str]]:
    calendar = config.calendar
    raw = plugins.raw_source(section, Site(calendar, clock, config.secret))
    try:
        span = fetchable(section, raw, wanted, calendar, clock)
        _make(output)
        if span.end < wanted.end or span.start > wanted.start:
            echo(f"{section.name}: only {span} can be fetched now", err=True)
        with click.progressbar(length=span.seconds, label="fetch", file=sys.stderr, hidden=not sys.stderr.isatty()) as bar:

            def miss(missing: MissingWindow) -> None:
                echo(f"{section.name}: {missing.window} is missing: {missing.reason}", err=True)

            fetched = await Fetch(section, raw, span, output, calendar, clock, force, bar.update, miss).run()
    finally:
        await raw.collector.close()
    return fetched, raw.options()


def _span(config: Config, clock: Clock, start: str, end: str) -> Window:
    zone, now = config.calendar.zone, clock.time()
    first, last = moment("START", start, zone, now), moment("END", end, zone, now)
    if first >= last:
        raise Failed(f"START {start} must be before END {end}")
    return Window(first, last)


def _make(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Failed(f"--output: {error.filename}: {error.strerror}") from error
    if not os.access(directory, os.W_OK | os.X_OK):
        raise Failed(f"--output: no permission to write to directory {directory}")


def _report(section: SourceConfig, fetched: Fetched, options: list[str], *, as_json: bool) -> None:
    files, span = [str(path) for path in fetched.files], fetched.span
    times = ["--start", iso(span.start), "--end", iso(span.end)]
    command = ["tokioctl", "archive", section.kind, *files, "--output", f"{section.system}.hdf5", *times, *options]
    nbytes = sum(path.stat().st_size for path in fetched.files)
    if as_json:
        missing = [MissingSpan(window.start, window.end, reason) for window, reason in fetched.missing]
        echo_json(FetchedFiles(section.name, section.kind, span.start, span.end, files, fetched.kept, nbytes, command, missing))
        return
    for path in fetched.files:
        echo(path)
    echo(f"{section.name}: {span} in {len(files)} files, {nbytes} bytes" + (f"; {fetched.kept} were there" if fetched.kept else ""))
    if fetched.missing:
        echo(f"missing: {sum(one.window.seconds for one in fetched.missing)} s in {len(fetched.missing)} windows")
    echo(f"to archive: {shlex.join(command)}")
