"""`tokioctl top`: which jobs or users load a file system, now or in a past span, from the job table."""

from __future__ import annotations

import pwd
import sys
import time
from functools import cache
from pathlib import Path
from shutil import which
from typing import TYPE_CHECKING, Any, NoReturn

import click
from msgspec.structs import replace
from rich.live import Live

from tokiod.analysis.slurm import described
from tokiod.analysis.top import METADATA, NODE_SUMS, SUMS, Top, top
from tokiod.cli.commands.completion import system_or_file_names
from tokiod.cli.commands.status_view import live_display
from tokiod.cli.commands.top_view import parts
from tokiod.cli.common.base import Failed, clock_option, config_option
from tokiod.cli.common.examples import examples
from tokiod.cli.common.lookup import instead
from tokiod.cli.common.named_files import configured
from tokiod.cli.common.output import echo_json
from tokiod.cli.common.tables import show
from tokiod.cli.common.times import moment, zone_of
from tokiod.config import load as configuration
from tokiod.errors import TokiodError
from tokiod.job_columns import kind_for
from tokiod.jobs.one_file import one_file
from tokiod.reader.files import Templates
from tokiod.reader.span import Span
from tokiod.runtime.interruption import held_interrupts
from tokiod.times import iso
from tokiod.window_data import JOB_TABLE

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterator

    from tokiod.clock import Clock
    from tokiod.config.schema import Config
    from tokiod.jobs.one_file import OneFile

LIVE_WINDOWS = 2
"""Of the job table, that rates are about where no time is given."""
LATE_WINDOWS = 5
"""After which the newest window is no longer of the present."""
WINDOW_SECONDS = 60
"""Of a table without a source."""
REFRESH_SECONDS = 30.0
"""Between two readings without a new window."""
SACCT_SECONDS = 10.0
"""Time limit of sacct: the list is complete without it."""


@click.command(
    "top",
    epilog=examples(
        "tokioctl top cscratch",
        "tokioctl top cscratch --by open --user",
        "tokioctl top cscratch --by metadata --target MDT0002",
        "tokioctl top cscratch --since 1d --limit 5 --json",
        "tokioctl top cluster.nodes --by memory",
        "tokioctl top day.jobs --limit 5",
    ),
)
@click.argument("system", metavar="SYSTEM|FILE", shell_complete=system_or_file_names)
@click.option(
    "--by",
    default="",
    metavar="WHAT",
    help=f"What the list is sorted by: {', '.join(SUMS)}, {METADATA}, or an operation, as Lustre names it, such as open; of compute nodes "
    f"{', '.join(NODE_SUMS)}, or a figure, such as page_faults.  [default: the first]",
)
@click.option("--user", "by_user", is_flag=True, help="List users instead of jobs.")
@click.option("--target", metavar="TARGET", default="", help="Only what was done on this target: MDT0002, or a pattern such as '*-OST00*'.")
@click.option(
    "--since",
    metavar="TIME|SPAN",
    help="A past span: ISO 8601, or a time span before now such as 1h.  [default: the last two windows, of a FILE all]",
)
@click.option("--until", metavar="TIME|SPAN", help="End of the past span, formats as --since.  [default: now]")
@click.option("--limit", type=click.IntRange(1, 10_000), default=20, show_default=True, help="How many are listed.")
@click.option(
    "--watch/--once",
    default=None,
    help="Show it again with each new window until Ctrl-C, or once.  [default: watch in a terminal without --since]",
)
@click.option("--timezone", metavar="ZONE", help="IANA time zone of all times.  [default: the configuration's]")
@click.option(
    "--json", "as_json", is_flag=True, help="Print one line of JSON, times in UTC epoch seconds; one for each reading with --watch."
)
@config_option
@clock_option
def top_command(config_path: Path, clock: Clock, system: str, *, as_json: bool, watch: bool | None, **given: Any) -> None:
    """Show which jobs load a file system, or use compute nodes, now.

    Rates are means of the span. share: of what all jobs did. Processes outside of jobs are listed by their command and user. Names come
    from sacct, if this machine has it and [jobs] users is "names". It reads files and does not need the daemon (docs/jobs.md). FILE: of the
    job table, as `tokioctl archive` writes it; it needs no configuration.

    Exit 0 shown, or watched until Ctrl-C, 2 failed.
    """
    if (alone := one_file(Path(system))) is not None:
        if watch:
            raise Failed("--watch: a file alone has no new windows")
        site = configured(config_path)
        zone = zone_of(given["timezone"] or ("UTC" if site is None else site.timezone))
        _shown(_of_file(alone, site, zone, clock, given), site, zone, as_json=as_json)
        return
    config = configuration.load(config_path)
    zone = zone_of(given["timezone"] or config.timezone)
    reading = _Reading(config, system, zone, clock, given)
    if watch is None:
        watch = sys.stdout.isatty() and not as_json and given["since"] is None
    if not watch:
        _shown(reading.named(reading.now()), config, zone, as_json=as_json)
    elif as_json or not sys.stdout.isatty():
        _each_window(reading, lambda found: _shown(found, config, zone, as_json=as_json))
    else:
        _live(reading, config, zone)


def _of_file(alone: OneFile, config: Config | None, zone: dt.tzinfo, clock: Clock, given: dict[str, Any]) -> Top:
    """Return what jobs did in a file. Raises Failed, TokiodError, OSError."""
    now = int(clock.time())
    times = (("--since", given["since"], alone.start), ("--until", given["until"], alone.end))
    start, end = (own if time is None else moment(option, time, zone, now) for option, time, own in times)
    if not alone.of(start, end):
        raise Failed(
            f"{alone.path} has no window from {iso(start)} to {iso(end)}: its windows are from {iso(alone.start)} to {iso(alone.end)}"
        )
    options: Any = {"of": "user" if given["by_user"] else "job", "limit": given["limit"], "targets": given["target"]}
    found = top(alone, Span(start, end), given["by"], "names" if config is None else config.jobs.users, **options)
    return found if config is None else _Scheduler(config, zone).named(found)


class _Reading:
    """What the command line asks for, of the present job table."""

    def __init__(self, config: Config, system: str, zone: dt.tzinfo, clock: Clock, given: dict[str, Any]) -> None:
        self.system = system
        self._config, self._zone, self._clock, self._given = config, zone, clock, given
        self._sources = [one for one in config.source if one.system == system and JOB_TABLE in one.tables]
        self._days = Templates(config.templates).jobs(system)
        self._window = max((int(one.window) for one in self._sources), default=WINDOW_SECONDS)
        self._scheduler = _Scheduler(config, zone)
        if system not in config.systems:
            raise Failed(f"unknown system {system!r}{instead(system, config.systems)}")
        if given["by_user"] and config.jobs.users == "no":
            raise Failed('--user: the configuration has users = "no" in [jobs], so no user is stored or shown')
        if given["until"] is not None and given["since"] is None:
            raise Failed("--until: needs --since")

    def newest(self) -> int:
        """Return when the newest window ends. Raises Failed without one."""
        if (newest := self._days.newest()) is not None:
            return newest
        if not self._sources:
            system = self._days.system
            raise Failed(f"{system} has no job table: add a [[source]] of kind {kind_for(system)} with system = {system!r} (docs/jobs.md)")
        name = self._sources[0].name
        raise Failed(f"the job table of {self._days.system} is empty: source {name} has stored no window yet; see tokioctl status {name}")

    def now(self) -> Top:
        """Read it. Raises Failed, TokiodError, OSError."""
        newest, now, given = self.newest(), int(self._clock.time()), self._given
        span, note = self._span(newest, now), ""
        options: Any = {"of": "user" if given["by_user"] else "job", "limit": given["limit"], "targets": given["target"]}
        found = top(self._days, span, given["by"], self._config.jobs.users, **options)
        if given["since"] is None and newest < now - LATE_WINDOWS * self._window:
            source = f" {self._sources[0].name}" if self._sources else ""
            note = f"these are not of now: the newest window ended {iso(newest)}; see tokioctl status{source}"
        return replace(found, note="; ".join(filter(None, (note, found.note))))

    def named(self, found: Top) -> Top:
        """Add the scheduler's names."""
        return self._scheduler.named(found)

    def _span(self, newest: int, now: int) -> Span:
        since, until = self._given["since"], self._given["until"]
        if since is None:
            return Span(newest - LIVE_WINDOWS * self._window, newest)
        start = moment("--since", since, self._zone, now)
        end = now if until is None else moment("--until", until, self._zone, now)
        if start >= end:
            raise Failed(f"the span would start at {iso(start)} and end at {iso(end)}; see --since and --until")
        if not self._days.of(start, end) or start >= newest:
            first, *_, last = [*self._days.dates()] * 2
            raise Failed(
                f"the job table of {self._days.system} has no window from {iso(start)} to {iso(end)}: it has days of {first} to {last}, "
                f"and ends at {iso(newest)}"
            )
        return Span(start, min(end, newest))


class _Scheduler:
    """Names of jobs by sacct, which is asked once for each job, and those of users by this machine."""

    def __init__(self, config: Config, zone: dt.tzinfo) -> None:
        self._sacct, self._zone, self._are_shown = config.site.sacct, zone, config.jobs.users == "names"
        self._known: dict[str, tuple[str, str]] = {}
        self._note = ""

    def named(self, found: Top) -> Top:
        if not self._are_shown:
            return found
        self._ask({one.job for one in found.lines} - self._known.keys() - {""})
        lines = []
        for one in found.lines:
            name, account = self._known.get(one.job, ("", ""))
            lines.append(replace(one, name=name, account=account or _account(one.user)))
        return replace(found, lines=lines, note="; ".join(filter(None, (found.note, self._note))))

    def _ask(self, jobs: set[str]) -> None:
        if not jobs or self._note or which(self._sacct[0]) is None:
            return
        try:
            records = described(jobs, self._sacct, self._zone, SACCT_SECONDS)
        except TokiodError as error:
            self._note = f"no names of jobs: {error}"
            return
        self._known |= dict.fromkeys(jobs, ("", "")) | {job: (one.name, one.user) for job, one in records.items()}


# Once for each user: a directory service may take long.
@cache
def _account(user: str) -> str:
    """Return the name of a user's number, "" where this machine has none."""
    try:
        with held_interrupts():
            return pwd.getpwuid(int(user)).pw_name if user.isdecimal() else ""
    except (KeyError, OverflowError):
        return ""


def _shown(found: Top, config: Config | None, zone: dt.tzinfo, *, as_json: bool) -> None:
    if as_json:
        echo_json(found)
        return
    names = {} if config is None else config.site.names
    show(*parts(found, names.get(found.system, found.system), zone))


def _readings(reading: _Reading) -> Iterator[Top]:
    """Yield a reading for each new window, and again after a while."""
    newest, read_at = 0, float("-inf")
    while True:
        if reading.newest() != newest or time.monotonic() - read_at >= REFRESH_SECONDS:
            newest, read_at = reading.newest(), time.monotonic()
            yield reading.now()
        time.sleep(1)  # noqa: TID251 - a real second, also with a simulated clock


def _each_window(reading: _Reading, output: Callable[[Top], None]) -> NoReturn:
    try:
        for found in _readings(reading):
            output(reading.named(found))
    except KeyboardInterrupt:
        pass
    sys.exit(0)


def _live(reading: _Reading, config: Config, zone: dt.tzinfo) -> NoReturn:
    """Redraw a terminal until Ctrl-C: first without the scheduler's names, which take longer."""
    label = config.site.names.get(reading.system, reading.system)
    with Live(auto_refresh=False) as live:

        def draw(found: Top) -> None:
            live.update(live_display(parts(found, label, zone)), refresh=True)

        try:
            for found in _readings(reading):
                draw(found)
                draw(reading.named(found))
        except KeyboardInterrupt:
            pass
    sys.exit(0)
