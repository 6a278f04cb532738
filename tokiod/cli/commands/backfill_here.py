"""A backfill without a daemon: the command collects, with a writer of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from tokiod.archive.lock import lock_owner
from tokiod.cli.commands.backfill_view import REFRESH_SECONDS, Bar, opened_ledger, report
from tokiod.cli.common.base import INTERRUPTED, Failed
from tokiod.cli.common.output import echo
from tokiod.ledger.ledger import Ledger, LedgerNotReady
from tokiod.polling.process import backfill
from tokiod.runtime import log
from tokiod.runtime.process_setup import python_command
from tokiod.supervisor.child_process import ChildProcess

if TYPE_CHECKING:
    from pathlib import Path

    from tokiod.clock import Clock
    from tokiod.collector import SourceConfig
    from tokiod.config.schema import Config
    from tokiod.ledger.jobs import Job, JobRequest, Jobs

WRITER_START_SECONDS = 60.0
"""Time limit for the writer's start. A busy machine needs more than ten seconds for its imports alone."""


class DaemonStarted(Exception):  # noqa: N818 - says what is the case
    """A daemon has taken the archive's lock, before this command's writer or after that was killed."""


def run_alone(config: Config, config_path: Path, clock: Clock, section: SourceConfig, wanted: JobRequest, *, as_json: bool) -> None:
    """Collect a job in this process, with a writer as a child process. Raises DaemonStarted."""
    log.setup("warning")
    echo("no daemon runs on this archive: this command collects", err=True)
    began = time.monotonic()
    with suppress(asyncio.CancelledError, KeyboardInterrupt):
        job = asyncio.run(_alone(config, config_path, clock, section, wanted))
        with opened_ledger(config) as ledger:
            report(job, ledger, time.monotonic() - began, as_json=as_json)
        return
    echo("\nstopped; the job is kept: start the daemon or repeat the command to resume it", err=True)
    sys.exit(INTERRUPTED)


async def _alone(config: Config, config_path: Path, clock: Clock, section: SourceConfig, wanted: JobRequest) -> Job:
    here = asyncio.current_task()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, here.cancel if here else sys.exit)
    writer = _writer(config_path, clock)
    keeping = asyncio.create_task(writer.keep())
    try:
        with await _opened(config, writer, keeping) as ledger:
            jobs = ledger.jobs
            job = jobs.resumable(wanted) or jobs.add(wanted, clock.time())
            if wanted.force and job.windows:
                again = f"`tokioctl backfill --cancel {job.id}` before this command has them collected again"
                echo(f"job {job.id} goes on; it has collected {job.windows} windows: {again}", err=True)
            working = asyncio.create_task(backfill(config, clock, section, job))
            try:
                await _show(job, jobs, {working, keeping})
            finally:
                working.cancel()
                await asyncio.wait({working})
            done = jobs.get(job.id) or job
    finally:
        await writer.stop()
        await asyncio.wait({keeping})
    _raise_failure(config, keeping)
    return done


def _writer(config_path: Path, clock: Clock) -> ChildProcess:
    arguments = ["--config", str(config_path), "--log-level", "warning", "--parent", str(os.getpid())]
    arguments += ["--clock", str(clock)] if "Simulated" in type(clock).__name__ else []
    return ChildProcess("writer", python_command("tokiod.cli.tokiod", "writer", *arguments))


async def _show(job: Job, jobs: Jobs, until: set[asyncio.Task[None]]) -> None:
    """Show the progress of a job until one of the tasks ends."""
    with Bar(job, jobs) as bar:
        while not any(task.done() for task in until):
            await asyncio.wait(until, timeout=REFRESH_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            bar.show()


async def _opened(config: Config, writer: ChildProcess, keeping: asyncio.Task[None]) -> Ledger:
    """Open the ledger when the writer has created it. Raises DaemonStarted if another writer has the lock."""
    limit = time.monotonic() + WRITER_START_SECONDS
    while not keeping.done():
        if config.archive.ledger.exists() and lock_owner(config.archive.lock) == writer.pid:
            with suppress(LedgerNotReady):
                return Ledger.open_existing(config.archive.ledger)
        if time.monotonic() > limit:
            raise Failed(f"the writer did not start within {WRITER_START_SECONDS:.0f} s; try again when the machine is less busy")
        await asyncio.sleep(0.05)
    _raise_failure(config, keeping)
    raise Failed("the writer has stopped; start the daemon or repeat the command")


def _raise_failure(config: Config, keeping: asyncio.Task[None]) -> None:
    """Raise why a writer that has ended could not start, or start again: DaemonStarted if another writer has the lock."""
    if keeping.exception() is not None and lock_owner(config.archive.lock) is not None:
        raise DaemonStarted
    keeping.result()
