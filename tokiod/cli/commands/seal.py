"""`tokioctl seal`: a day that is over into its sealed form, now, by the running daemon or without one."""

from __future__ import annotations

import datetime as dt
import os
import sys
import time
from typing import TYPE_CHECKING

import click
import msgspec
from rich.console import Console

from sinks.tts.reopened import marked
from tokiod.archive.lock import ArchiveLock, lock_owner
from tokiod.cli.commands.completion import system_names
from tokiod.cli.common.base import INTERRUPTED, Failed, clock_option, config_option
from tokiod.cli.common.lookup import check_system
from tokiod.config import load as configuration
from tokiod.tts.layout import NotLive, form_of, open_for_reading
from tokiod.tts.sealed.seal import seal
from tokiod.window import Calendar

if TYPE_CHECKING:
    from pathlib import Path

    from tokiod.clock import Clock
    from tokiod.config.load import Config
    from tokiod.window import Day

REFRESH = 0.2
GONE = 25
"""Looks that find no writer before the daemon is gone; one that died is back sooner."""


class Sealed(msgspec.Struct, frozen=True):
    """A file: its size in bytes before and after, None where that was left to the daemon; was_sealed: it had been before."""

    path: str
    system: str
    date: str
    was_sealed: bool
    before: int
    after: int | None


@click.command("seal")
@click.argument("date")
@click.argument("systems", nargs=-1, metavar="[SYSTEM]...", shell_complete=system_names)
@click.option("--detach", is_flag=True, help="Leave it to the daemon and don't wait.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON: the files, sizes in bytes.")
@config_option
@clock_option
def seal_command(date: str, systems: tuple[str, ...], config_path: Path, clock: Clock, *, detach: bool, as_json: bool) -> None:
    """Seal the files of a day, of all systems or of the named ones.

    DATE: YYYY-MM-DD, a day of the site's that is over. The daemon does so by itself once all of a day is there; this does it now, whatever
    is missing. What comes later opens a file up again. Exit 0 sealed, 2 trouble.
    """
    config = configuration.load(config_path)
    day = _day(config, date, clock)
    paths = _paths(config, day, systems)
    before = {path: path.stat().st_size for path in paths.values()}
    todo = [path for path in paths.values() if not _is_sealed(path)]
    _seal(config, todo, clock, detach=detach)
    after = {path: None if detach and path in todo else path.stat().st_size for path in paths.values()}
    done = [Sealed(str(path), system, date, path not in todo, before[path], after[path]) for system, path in paths.items()]
    if as_json:
        click.echo(msgspec.json.encode(done).decode())
        return
    for one in done:
        click.echo(f"{one.path}: {_said(one)}")


def _seal(config: Config, paths: list[Path], clock: Clock, *, detach: bool) -> None:
    daemon = lock_owner(config.archive.lock)
    if daemon is None and detach:
        raise Failed("--detach: no daemon runs on this archive that it could be left to; start it, or leave --detach out")
    if daemon is None:
        _seal_here(config, paths, clock)
        return
    for path in paths:
        _order(path)
    if not detach:
        _wait(config, paths)


def _said(one: Sealed) -> str:
    if one.was_sealed:
        return "was sealed before"
    if one.after is None:
        return "left to the daemon"
    return f"sealed, {one.before / 2**20:.1f} MiB to {one.after / 2**20:.1f} MiB"


def _day(config: Config, date: str, clock: Clock) -> Day:
    try:
        day = Calendar(config.timezone).day_of_date(dt.date.fromisoformat(date))
    except ValueError:
        raise Failed(f"{date!r} is no date; write it like 2018-01-28") from None
    if day.end > clock.time():
        raise Failed(f"{date} is not over: its next window would open the files up again")
    return day


def _paths(config: Config, day: Day, names: tuple[str, ...]) -> dict[str, Path]:
    for name in names:
        check_system(config, name)
    known = sorted({source.system for source in config.source})
    paths = {system: config.archive.file(day, system) for system in names or known}
    there = {system: path for system, path in paths.items() if path.exists()}
    if lacking := [str(path) for system, path in paths.items() if system not in there and (names or not there)]:
        raise Failed("\n".join(f"there is no {path}" for path in lacking))
    return there


def _order(path: Path) -> None:
    """Leave the mark for the daemon."""
    try:
        marked(path).touch()
    except OSError as error:
        raise Failed(f"the daemon can't be told to seal {path}: {error.strerror}: {path.parent}; run it as the daemon's user") from error


def _is_sealed(path: Path) -> bool:
    try:
        with open_for_reading(path) as file:
            return form_of(file) == "sealed"
    except NotLive as error:
        raise Failed(str(error)) from None
    except OSError as error:
        raise Failed(f"{path}: {os.strerror(error.errno) if error.errno else error}") from None


def _seal_here(config: Config, paths: list[Path], clock: Clock) -> None:
    with ArchiveLock(config.archive.lock):
        for path in paths:
            with Console(stderr=True).status(f"sealing {path}"):
                try:
                    seal(path, path, updated=int(clock.time()))
                except OSError as error:
                    raise Failed(f"{path}: {error.strerror or error}") from error
            marked(path).unlink(missing_ok=True)


def _wait(config: Config, paths: list[Path]) -> None:
    """Wait until the daemon has done it; Ctrl-C leaves it to the daemon."""
    looks = 0
    try:
        with Console(stderr=True).status(f"the daemon seals {len(paths)} files"):
            while any(marked(path).exists() or not _is_sealed(path) for path in paths):
                looks = 0 if lock_owner(config.archive.lock) is not None else looks + 1
                if looks > GONE:
                    raise Failed("the daemon is gone; it seals them when it runs again")
                time.sleep(REFRESH)  # noqa: TID251 - a person's time
    except KeyboardInterrupt:
        click.echo("\nthe daemon goes on with it", err=True)
        sys.exit(INTERRUPTED)
