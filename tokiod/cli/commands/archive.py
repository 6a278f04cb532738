"""`tokioctl archive KIND INPUT...`: convert saved files to one sealed TTS file, without a daemon."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from tokiod.cli.commands.completion import file_names
from tokiod.cli.common.base import Failed
from tokiod.cli.common.examples import examples
from tokiod.cli.common.output import echo, echo_json
from tokiod.cli.common.struct_options import options_of
from tokiod.cli.common.times import moment, zone_of
from tokiod.clock import SystemClock
from tokiod.collector import Site
from tokiod.config import convert, plugins
from tokiod.config.checks import off_grid
from tokiod.dropped import Why, lines
from tokiod.errors import ConfigError, TokiodError
from tokiod.reports.archive_inputs import ImportJob, ImportResult, archive
from tokiod.runtime.interruption import run_until_interrupted
from tokiod.runtime.process_setup import keep_freed_memory, use_one_heap
from tokiod.runtime.secrets import secret
from tokiod.window import Calendar, Window, iso

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from zoneinfo import ZoneInfo

    from click._termui_impl import ProgressBar

    from tokiod.collector import Plugin, SavedOptions


class Archived(msgspec.Struct, frozen=True):
    """The result for the rows [start, end), UTC epoch seconds.

    cells: stored, or rows of the job table; dropped: what was not stored, by reason; why: an example and a remedy of such reasons.
    """

    output: str
    start: int
    end: int
    cells: int
    dropped: dict[str, int]
    why: dict[str, Why] = {}


class Kinds(click.Group):
    """One subcommand for each kind of source, with options made from the kind's Saved struct."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the known kinds."""
        return plugins.kinds()

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Return the command of a kind. Raises ConfigError for an unknown kind, with the nearest known one."""
        try:
            return _command(cmd_name)
        except ConfigError as error:
            if cmd_name not in plugins.kinds():
                raise
            return _refusing(cmd_name, error.faults, is_listed=True)

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Report an unknown kind as the configuration does."""
        try:
            return super().resolve_command(ctx, args)
        except ConfigError as error:
            raise Failed("\n".join(error.faults)) from error


@click.command(cls=Kinds, name="archive", epilog=examples("tokioctl archive lmt --help"))
def archive_command() -> None:
    """Convert saved files to a sealed TTS file, without a daemon.

    Exit 0 created, 2 failed.
    """


def _refusing(kind: str, faults: Sequence[str], *, is_listed: bool) -> click.Command:
    """Return the command of a kind that can't be used: it reports why."""

    def fail(**_given: object) -> None:
        raise Failed("\n".join(faults))

    given = click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)
    settings = {"ignore_unknown_options": True}
    text, short = "\n".join(faults), "Cannot be loaded."
    return click.Command(kind, params=[given], callback=fail, help=text, short_help=short, hidden=not is_listed, context_settings=settings)


def _command(kind: str) -> click.Command:
    plugin = plugins.load(kind)
    if plugin.Saved.no_files:
        return _refusing(kind, [plugin.Saved.no_files], is_listed=False)
    own = [option for option in options_of(plugin.Saved) if option.name != "step"]
    short = f"Archive saved {kind} files."
    text = f"{short}\n\n{_first_line(plugin)}\n\nExit 0 created, 2 failed."
    return click.Command(
        kind,
        params=[*_COMMON, *own],
        callback=lambda **given: _run(kind, given),
        help=text,
        short_help=short,
        epilog=_example(kind, plugin),
    )


def _example(kind: str, plugin: Plugin) -> str:
    span = "--start 2026-11-20T00:00:00Z --end 2026-11-21T00:00:00Z"
    return examples(f"tokioctl archive {kind} {plugin.Saved.example or 'INPUT'} --output day.hdf5 {span}")


def _first_line(plugin: Plugin) -> str:
    return (plugin.__doc__ or "").strip().partition("\n")[0]


_COMMON: list[click.Parameter] = [
    click.Argument(["inputs"], nargs=-1, required=True, shell_complete=file_names),
    click.Option(
        ["--output"],
        required=True,
        type=click.Path(path_type=Path, dir_okay=False),
        help="The TTS file. An existing file is filled further.",
    ),
    click.Option(
        ["--start"],
        metavar="TIME",
        required=True,
        help="Start time; without an offset local to --timezone. Rows that the span touches are filled whole.",
    ),
    click.Option(["--end"], metavar="TIME", required=True, help="End time (exclusive), formats as --start."),
    click.Option(["--init-start"], metavar="TIME", help="Start of the file.  [default: --start]"),
    click.Option(["--init-end"], metavar="TIME", help="End of the file (exclusive).  [default: --end]"),
    click.Option(["--step"], type=click.IntRange(min=1), help="Seconds between rows.  [default: depends on the kind]"),
    click.Option(["--timezone"], metavar="ZONE", help="The site's IANA time zone.", default="UTC", show_default=True),
    click.Option(["--json", "as_json"], is_flag=True, help="Print one line of JSON, times in UTC epoch seconds."),
]


def _run(kind: str, given: dict[str, Any]) -> None:
    try:
        _archive(kind, given)
    except TokiodError as error:
        raise Failed(str(error)) from error
    except OSError as error:
        raise Failed(f"{error.filename or given['output']}: {error.strerror or error}") from error


def _archive(kind: str, given: dict[str, Any]) -> None:
    use_one_heap()
    keep_freed_memory(32)
    _check_directory(given["output"].parent)
    zone = zone_of(given["timezone"])
    calendar = Calendar(given["timezone"])
    span = _window("start", given["start"], given["end"], zone)
    file_span = None
    if given["init_start"] is not None or given["init_end"] is not None:
        file_span = _window("init-start", given["init_start"] or given["start"], given["init_end"] or given["end"], zone)
    with click.progressbar(length=span.seconds, label="archiving", file=sys.stderr, hidden=not sys.stderr.isatty()) as bar:
        site = Site(calendar, SystemClock(), lambda reference: secret(reference, Path()), _reading(bar, given["inputs"]), shows_users=True)
        options = _options(kind, given)
        collector = plugins.load(kind).saved(list(given["inputs"]), options, site)
        job = ImportJob(kind, collector, span, file_span, given["output"], options.units, options.max_rates())
        result = run_until_interrupted(_closing(job, bar.update, fills_table=bool(options.tables)))
    _report(given, result, "rows" if options.tables else "cells")


def _check_directory(directory: Path) -> None:
    """Check the output directory before hours of reading."""
    if not directory.is_dir():
        raise Failed(f"--output: directory {directory} does not exist")
    if not os.access(directory, os.W_OK | os.X_OK):
        raise Failed(f"--output: no permission to write to directory {directory}")


def _reading(bar: ProgressBar[int], inputs: Sequence[str]) -> Callable[[int], None]:
    """Return the callback for bytes read, for collectors that read whole files before their first window."""
    total, done = sum(Path(name).stat().st_size for name in inputs if Path(name).is_file()), 0

    def read(count: int) -> None:
        nonlocal done
        done += count
        bar.label = "archiving" if done >= total else f"reading {100 * done // total} %"
        bar.render_progress()

    return read


def _options(kind: str, given: dict[str, Any]) -> SavedOptions:
    saved = plugins.load(kind).Saved
    names = {f.name for f in msgspec.structs.fields(saved)}
    options = {n: given[n] for n in names if given.get(n) is not None}
    if given["step"] is not None and "step" not in names:
        raise Failed(f"--step: the files of kind {kind} determine the step; omit --step")
    if given["step"] is not None and (sentence := off_grid(given["step"], given["timezone"])):
        raise Failed(f"--step: {sentence}")
    _check_bounds(options, saved)
    return saved(**options)


def _check_bounds(options: dict[str, Any], saved: type[SavedOptions]) -> None:
    """Refuse what the configuration refuses. click knows the types of the options, not their bounds, and structs do not check them."""
    plain = {name: value for name, value in options.items() if not isinstance(value, msgspec.Struct)}
    for fault in convert.fields(plain, saved, ())[1]:
        raise Failed(f"--{str(fault.key[0]).replace('_', '-')}: {fault.sentence}, got {plain.get(str(fault.key[0]))}")


async def _closing(job: ImportJob, progress: Callable[[int], None], *, fills_table: bool) -> ImportResult:
    try:
        if not fills_table:
            return await archive(job, SystemClock(), progress)
        from tokiod.reports.archive_rows import archive_rows  # noqa: PLC0415 - one kind needs it, and it takes 15 ms to import

        return await archive_rows(job, progress)
    finally:
        await job.collector.close()


def _window(what: str, start: str, end: str, zone: ZoneInfo) -> Window:
    now = SystemClock().time()
    first, last = moment(f"--{what}", start, zone, now), moment(f"--{what.replace('start', 'end')}", end, zone, now)
    if first >= last:
        raise Failed(f"--{what} {start} must be before its end {end}")
    return Window(first, last)


def _report(given: dict[str, Any], result: ImportResult, units: str) -> None:
    dropped = result.dropped
    if given["as_json"]:
        archived = Archived(str(given["output"]), result.span.start, result.span.end, result.cells, dict(dropped.counts), dropped.why)
        echo_json(archived)
        return
    echo(f"{given['output']}: {result.cells} {units} of {iso(result.span.start)} to {iso(result.span.end)}")
    for text in lines(dropped.counts, dropped.why):
        echo(text, err=True)
