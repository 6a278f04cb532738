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

from sinks.shelf import marked
from tokiod import config as configuration
from tokiod.cli.completion import system_names
from tokiod.cli.plain import Failed, clock_option, config_option
from tokiod.process import ArchiveLock, lock_owner
from tokiod.tts.layout import NotLive, form_of, open_for_reading
from tokiod.tts.seal import seal
from tokiod.window import Calendar

if TYPE_CHECKING:
    from pathlib import Path

    from tokiod.clock import Clock
    from tokiod.config import Config
    from tokiod.window import Day

REFRESH = 0.2
GONE = 25
"""Looks that find no writer before the daemon is gone; one that died is back sooner."""


class Sealed(msgspec.Struct, frozen=True):
    """A file: its size in bytes before and after; was_sealed: it had been before."""

    path: str
    system: str
    date: str
    was_sealed: bool
    before: int
    after: int


@click.command("seal")
@click.argument("date")
@click.argument("systems", nargs=-1, metavar="[SYSTEM]...", shell_complete=system_names)
@config_option
@click.option("--detach", is_flag=True, help="Leave it to the daemon and don't wait.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: a list of files.")
@clock_option
def seal_command(date: str, systems: tuple[str, ...], config_path: Path, clock: Clock, *, detach: bool, as_json: bool) -> None:
    """Seal the files of a day, YYYY-MM-DD at the site, of all systems or of the named ones.

    The daemon does so by itself once a day is over and complete; this does it now, whatever is missing. What comes later opens a file
    up again. Exit 0 sealed, 2 trouble.
    """
    config = configuration.load(config_path)
    day = _day(config, date, clock)
    paths = _paths(config, day, systems)
    before = {path: (path.stat().st_size, _is_sealed(path)) for path in paths.values()}
    todo = [path for path, (_, is_sealed) in before.items() if not is_sealed]
    if lock_owner(config.archive.lock) is None:
        _seal_here(config, todo, clock)
    else:
        for path in todo:
            _order(path)
        if detach:
            click.echo(f"the daemon seals {len(todo)} files of {date}", err=True)
            return
        _wait(config, todo)
    done = [Sealed(str(path), system, date, before[path][1], before[path][0], path.stat().st_size) for system, path in paths.items()]
    if as_json:
        click.echo(msgspec.json.encode(done).decode())
        return
    for one in done:
        said = "was sealed before" if one.was_sealed else f"sealed, {one.before / 2**20:.1f} MiB to {one.after / 2**20:.1f} MiB"
        click.echo(f"{one.path}: {said}")


def _day(config: Config, date: str, clock: Clock) -> Day:
    try:
        day = Calendar(config.timezone).day_of_date(dt.date.fromisoformat(date))
    except ValueError:
        raise Failed(f"{date!r} is no date; write it like 2018-01-28") from None
    if day.end > clock.time():
        raise Failed(f"{date} is not over: its next window would open the files up again")
    return day


def _paths(config: Config, day: Day, names: tuple[str, ...]) -> dict[str, Path]:
    known = sorted({source.system for source in config.source})
    for name in names:
        if name not in known:
            raise Failed(f"no source has the system {name}: there is {', '.join(known) or 'none'}")
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
        sys.exit(130)
