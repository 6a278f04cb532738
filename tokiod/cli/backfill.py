"""`tokioctl backfill`: the past of a source into the archive, by the running daemon or without one."""

from __future__ import annotations

import asyncio
import difflib
import os
import signal
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

import click
import msgspec
from rich.table import Table

from tokiod import config as configuration
from tokiod import log, plugins
from tokiod.cli.completion import dataset_names, source_names
from tokiod.cli.plain import Failed, clock_option, config_option
from tokiod.cli.status_tables import console, span
from tokiod.cli.times import epoch
from tokiod.collector import Site
from tokiod.jobs import Job, Jobs, Wanted
from tokiod.ledger import Ledger, LedgerUnmade
from tokiod.process import lock_owner
from tokiod.window import Calendar, Window, iso

if TYPE_CHECKING:
    from pathlib import Path

    from tokiod.clock import Clock
    from tokiod.collector import SourceConfig
    from tokiod.config import Config

REFRESH = 0.5
INTERRUPTED = 130
LEDGER_SECONDS = 10.0
LOOKS, GONE_LOOKS = 4, 25
"""Looks, a fifth of a second apart, that find no writer before there is no daemon; a writer that died is back sooner."""


@click.command("backfill")
@click.argument("source", required=False, shell_complete=source_names)
@click.argument("start", required=False)
@click.argument("end", required=False)
@click.option(
    "--dataset",
    "datasets",
    multiple=True,
    shell_complete=dataset_names,
    help="Only this dataset, e.g. dataservers/cpuload; may be repeated.",
)
@click.option("--force", is_flag=True, help="Collect also what is stored already.")
@click.option("--parallel", type=click.IntRange(1, 16), default=1, show_default=True, help="Windows collected side by side.")
@click.option("--detach", is_flag=True, help="Leave it to the daemon and don't wait.")
@click.option("--list", "listed", is_flag=True, help="Show all jobs.")
@click.option("--cancel", type=int, metavar="ID", help="End a job; what it has stored stays.")
@click.option("--json", "as_json", is_flag=True, help="Print jobs as JSON.")
@config_option
@clock_option
def backfill_command(
    config_path: Path, clock: Clock, source: str | None, start: str | None, end: str | None, datasets: tuple[str, ...], parallel: int,
    cancel: int | None, *, force: bool, detach: bool, listed: bool, as_json: bool,
) -> None:  # fmt: skip
    """Collect SOURCE from START to END (ISO 8601, local to the site or with an offset) where it is not stored yet.

    The daemon does it, behind live polling; without a daemon this command does. Either way it is resumed where it stopped: by the
    daemon, or by the same command again. Exit 0 done, 1 failed or cancelled, 2 can't be done.
    """
    config = configuration.load(config_path)
    if listed or cancel is not None:
        _tell_jobs(config, clock, cancel, as_json=as_json)
        return
    if source is None or start is None or end is None:
        raise Failed("backfill needs SOURCE START END, or --list, or --cancel ID")
    stanza = _stanza(config, source)
    wanted = Wanted(source, _span(config, stanza, clock, start, end), _datasets(stanza, datasets), force, parallel)
    _check_replayable(config, stanza, clock)
    if _is_down(config, LOOKS):
        if detach:
            raise Failed("--detach: no daemon runs on this archive that it could be left to; start it, or leave --detach out")
        _run_alone(config, config_path, clock, stanza, wanted, as_json=as_json)
    else:
        _follow(config, clock, wanted, detach=detach, as_json=as_json)


def _is_down(config: Config, looks: int) -> bool:
    for look in range(looks):
        if look:
            time.sleep(0.2)  # noqa: TID251 - a process's time
        if lock_owner(config.archive.lock) is not None:
            return False
    return True


def _stanza(config: Config, name: str) -> SourceConfig:
    names = {source.name: source for source in config.source}
    if name in names and not names[name].polled:
        raise Failed(f"{name} is a watched folder: put the files of that time into it")
    if name in names:
        return names[name]
    near = difflib.get_close_matches(name, names, 1)
    raise Failed(f"no source is called {name!r}" + (f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(sorted(names))}"))


def _datasets(stanza: SourceConfig, datasets: tuple[str, ...]) -> tuple[str, ...]:
    for dataset in datasets:
        if dataset not in stanza.datasets():
            raise Failed(f"--dataset: {stanza.name} does not fill {dataset!r}; it fills {', '.join(sorted(stanza.datasets()))}")
    return tuple(sorted(set(datasets)))


def _span(config: Config, stanza: SourceConfig, clock: Clock, start: str, end: str) -> Window:
    """Return the span, widened to the edges of the source's windows."""
    calendar = Calendar(config.timezone)
    first, last = epoch("START", start, calendar.zone), epoch("END", end, calendar.zone)
    if first >= last:
        raise Failed(f"START {start} must be before END {end}")
    closed = calendar.window(int(clock.time() - stanza.settle), stanza.window).start
    first, last = calendar.window(first, stanza.window).start, calendar.window(last - 1, stanza.window).end
    if last > closed:
        raise Failed(f"END must not be after {iso(closed)}: what is younger is polled as soon as it is there")
    return Window(first, last)


def _check_replayable(config: Config, stanza: SourceConfig, clock: Clock) -> None:
    collector = plugins.load(stanza.kind).live(stanza, Site(Calendar(config.timezone), clock, config.secret))
    if not collector.replayable:
        raise Failed(f"{stanza.name} can't be asked about the past")


def _tell_jobs(config: Config, clock: Clock, cancel: int | None, *, as_json: bool) -> None:
    with _ledger(config) as ledger:
        jobs = Jobs(ledger)
        if cancel is not None:
            job = jobs.get(cancel)
            if job is None:
                raise Failed(f"--cancel: there is no job {cancel}; --list shows those there are")
            if job.finished:
                raise Failed(f"--cancel: job {cancel} is {job.state} already")
            jobs.set_state(job, "cancelled", clock.time())
        shown = [job for job in jobs.all() if cancel in (None, job.id)]
        if as_json:
            click.echo(msgspec.json.encode([_as_dict(job, jobs) for job in shown]).decode())
        else:
            console().print(_table(shown, jobs))


def _table(shown: list[Job], jobs: Jobs) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("job", "source", "start", "end", "state", "done", "windows", "records", "error"):
        table.add_column(name, justify="right" if name in {"job", "done", "windows", "records"} else "left", no_wrap=name != "error")
    for job in shown:
        done = 100 * (1 - _left(job, jobs) / job.span.seconds)
        figures = (f"{done:.0f} %", str(job.windows), str(job.records))
        table.add_row(str(job.id), job.source, iso(job.start), iso(job.end), job.state, *figures, job.error)
    return table


def _as_dict(job: Job, jobs: Jobs) -> dict[str, object]:
    return {**msgspec.to_builtins(job), "seconds_left": _left(job, jobs)}


def _left(job: Job, jobs: Jobs) -> int:
    return sum(window.seconds for window in jobs.rest(job))


def _ledger(config: Config) -> Ledger:
    if not config.archive.ledger.exists():
        raise Failed(f"there is no ledger at {config.archive.ledger}: has tokiod ever run on this archive?")
    return Ledger.open(config.archive.ledger)


def _follow(config: Config, clock: Clock, wanted: Wanted, *, detach: bool, as_json: bool) -> None:
    """Give the job to the daemon and show how it does it."""
    with _ledger(config) as ledger:
        jobs = Jobs(ledger)
        job = jobs.add(wanted, clock.time())
        click.echo(f"job {job.id}: the daemon collects {job.source} {job.span}", err=True)
        if detach:
            _report(job, jobs, 0.0, as_json=as_json)
            return
        began = time.monotonic()
        try:
            with _Bar(job, jobs) as bar:
                while not job.finished:
                    time.sleep(REFRESH)  # noqa: TID251 - a person's time
                    if _is_down(config, GONE_LOOKS):
                        raise Failed(f"the daemon is gone; job {job.id} is kept: it goes on when the daemon runs again")
                    job = bar.show()
        except KeyboardInterrupt:
            click.echo(f"\njob {job.id} goes on in the daemon: --list shows it, --cancel {job.id} ends it", err=True)
            sys.exit(INTERRUPTED)
        _report(job, jobs, time.monotonic() - began, as_json=as_json)


def _run_alone(config: Config, config_path: Path, clock: Clock, stanza: SourceConfig, wanted: Wanted, *, as_json: bool) -> None:
    """Do the job here, with a writer of our own."""
    log.setup("warning", json=False)
    click.echo("no daemon runs on this archive: collecting here", err=True)
    began = time.monotonic()
    with suppress(asyncio.CancelledError, KeyboardInterrupt):
        job = asyncio.run(_alone(config, config_path, clock, stanza, wanted))
        with _ledger(config) as ledger:
            _report(job, Jobs(ledger), time.monotonic() - began, as_json=as_json)
        return
    click.echo("\nstopped; the job is kept: the daemon goes on with it, or the same command", err=True)
    sys.exit(INTERRUPTED)


async def _alone(config: Config, config_path: Path, clock: Clock, stanza: SourceConfig, wanted: Wanted) -> Job:
    from tokiod.child import Child  # noqa: PLC0415
    from tokiod.collecting import backfill  # noqa: PLC0415 - only where nobody else collects

    arguments = ["--config", str(config_path), "--log-level", "warning", "--parent", str(os.getpid())]
    arguments += ["--clock", str(clock)] if "Simulated" in type(clock).__name__ else []
    here = asyncio.current_task()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, here.cancel if here else sys.exit)
    writer = Child("writer", [sys.executable, "-m", "tokiod.cli.tokiod", "writer", *arguments])
    keeping = asyncio.create_task(writer.keep())
    try:
        with await _opened(config, keeping) as ledger:
            jobs = Jobs(ledger)
            job = jobs.add(wanted, clock.time())
            working = asyncio.create_task(backfill(config, clock, stanza, job))
            try:
                with _Bar(job, jobs) as bar:
                    while not (working.done() or keeping.done()):
                        await asyncio.wait({working, keeping}, timeout=REFRESH, return_when=asyncio.FIRST_COMPLETED)
                        bar.show()
            finally:
                working.cancel()
                await asyncio.wait({working})
            return jobs.get(job.id) or job
    finally:
        await writer.stop()
        await keeping


async def _opened(config: Config, keeping: asyncio.Task[None]) -> Ledger:
    """Open the ledger once the writer has made it."""
    async with asyncio.timeout(LEDGER_SECONDS):
        while not keeping.done():
            if config.archive.ledger.exists() and lock_owner(config.archive.lock) is not None:
                with suppress(LedgerUnmade):
                    return Ledger.open(config.archive.ledger)
            await asyncio.sleep(0.05)
    raise Failed("the writer can't run; its message is above")


class _Bar:
    """How far a job is, on a terminal: the share of its span, windows, records a second, the time that is left."""

    def __init__(self, job: Job, jobs: Jobs) -> None:
        self._job, self._jobs = job, jobs
        self._left = _left(job, jobs)
        self._began, self._records = time.monotonic(), job.records
        self._bar: Any = click.progressbar(
            length=self._left, label=f"job {job.id}", file=sys.stderr, hidden=not sys.stderr.isatty(), item_show_func=lambda _: self._said()
        )

    def __enter__(self) -> Self:
        self._bar.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.__exit__(*error)

    def show(self) -> Job:
        """Look at the job again and show it."""
        self._job = self._jobs.get(self._job.id) or self._job
        left = _left(self._job, self._jobs)
        self._bar.update(max(0, self._left - left), self._job)
        self._left = left
        return self._job

    def _said(self) -> str:
        rate = (self._job.records - self._records) / max(time.monotonic() - self._began, 0.001)
        return f"{self._job.windows} windows, {rate:,.0f} records/s" + (f"; {self._job.error}" if self._job.error else "")


def _report(job: Job, jobs: Jobs, seconds: float, *, as_json: bool) -> None:
    if as_json:
        click.echo(msgspec.json.encode(_as_dict(job, jobs)).decode())
    else:
        text = f"job {job.id}: {job.state}, {job.windows} windows, {job.records} records, {span(_left(job, jobs))} left"
        click.echo(text + (f" after {seconds:.1f} s" if seconds else ""))
    if job.error:
        click.echo(f"job {job.id}: {job.error}", err=True)
    if job.finished and job.state != "done":
        sys.exit(1)
