"""A backfill that the running daemon does: the job is given to it, and one may watch."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import click

from tokiod.archive.lock import lock_owner
from tokiod.cli.commands.backfill_view import REFRESH, Bar, opened_ledger, report
from tokiod.cli.common.base import INTERRUPTED, Failed
from tokiod.ledger.jobs import Jobs, Wanted

if TYPE_CHECKING:
    from tokiod.clock import Clock
    from tokiod.config.load import Config

LOOKS, GONE_LOOKS = 4, 25
"""Looks, a fifth of a second apart, that find no writer before there is no daemon; a writer that died is back sooner."""


def is_down(config: Config, looks: int = LOOKS) -> bool:
    """Whether no daemon runs on the archive, as so many looks in a row find."""
    for look in range(looks):
        if look:
            time.sleep(0.2)  # noqa: TID251 - a process's time
        if lock_owner(config.archive.lock) is not None:
            return False
    return True


def follow(config: Config, clock: Clock, wanted: Wanted, *, detach: bool, as_json: bool) -> None:
    """Give the job to the daemon and show how it does it."""
    with opened_ledger(config) as ledger:
        jobs = Jobs(ledger)
        job = jobs.add(wanted, clock.time())
        click.echo(f"job {job.id}: the daemon collects {job.source} {job.span}", err=True)
        if detach:
            report(job, jobs, 0.0, as_json=as_json)
            return
        began = time.monotonic()
        try:
            with Bar(job, jobs) as bar:
                while not job.finished:
                    time.sleep(REFRESH)  # noqa: TID251 - a person's time
                    if is_down(config, GONE_LOOKS):
                        raise Failed(f"the daemon is gone; job {job.id} is kept: it goes on when the daemon runs again")
                    job = bar.show()
        except KeyboardInterrupt:
            click.echo(f"\njob {job.id} goes on in the daemon: --list shows it, --cancel {job.id} ends it", err=True)
            sys.exit(INTERRUPTED)
        report(job, jobs, time.monotonic() - began, as_json=as_json)
