"""A backfill in the running daemon: the command adds the job and shows its progress."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from tokiod.archive.lock import lock_owner
from tokiod.cli.commands.backfill_view import REFRESH_SECONDS, Bar, opened_ledger, report
from tokiod.cli.common.base import INTERRUPTED, Failed
from tokiod.cli.common.output import echo
from tokiod.errors import TokiodError
from tokiod.supervisor.control_socket import MayNotAsk, Ping, ask

if TYPE_CHECKING:
    from tokiod.clock import Clock
    from tokiod.config.schema import Config
    from tokiod.ledger.jobs import JobRequest

START_CHECKS, RUN_CHECKS = 4, 25
"""Checks in a row, a fifth of a second apart, that find no writer before the daemon counts as down. A writer that died restarts sooner."""

ANSWER_SECONDS = 5.0
"""Time limit for the daemon's answer to a ping."""


def is_down(config: Config, checks: int = START_CHECKS) -> bool:
    """Return whether so many checks in a row find no writer of the archive."""
    for check in range(checks):
        if check:
            time.sleep(0.2)  # noqa: TID251 - a process's time
        if lock_owner(config.archive.lock, config.archive.owner) is not None:
            return False
    return True


# A user who may not read the lock can't know whether a daemon runs.
def check_may_ask(config: Config) -> None:
    """Raise MayNotAsk for a user who may not send requests to a daemon: it may not write the archive itself, either."""
    try:
        ask(config.control, Ping(), ANSWER_SECONDS)
    except MayNotAsk:
        raise
    except TokiodError:
        return


def follow(config: Config, clock: Clock, wanted: JobRequest, *, detach: bool, as_json: bool) -> None:
    """Add a job for the daemon and show its progress."""
    with opened_ledger(config) as ledger:
        jobs = ledger.jobs
        job = jobs.add(wanted, clock.time())
        echo(f"job {job.id}: the daemon collects {job.source} {job.span}", err=True)
        if detach:
            report(job, ledger, 0.0, as_json=as_json)
            return
        began = time.monotonic()
        try:
            with Bar(job, jobs) as bar:
                while not job.finished:
                    time.sleep(REFRESH_SECONDS)  # noqa: TID251 - real time
                    if is_down(config, RUN_CHECKS):
                        raise Failed(f"the daemon stopped; job {job.id} is kept and resumes when the daemon runs again")
                    job = bar.show()
        except KeyboardInterrupt:
            echo(f"\njob {job.id} continues in the daemon: --list shows it, --cancel {job.id} cancels it", err=True)
            sys.exit(INTERRUPTED)
        report(job, ledger, time.monotonic() - began, as_json=as_json)
