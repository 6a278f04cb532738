"""`tokioctl seal`: seal the files of a past day now, in the running daemon or without one."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

import click
import msgspec
from rich.console import Console

from tokiod.archive.lock import ProcessLock, lock_owner
from tokiod.archive.seal_marker import is_marked, mark, unmark
from tokiod.cli.commands.completion import system_names
from tokiod.cli.common.base import INTERRUPTED, Failed, clock_option, config_option
from tokiod.cli.common.examples import examples
from tokiod.cli.common.lookup import check_system
from tokiod.cli.common.output import echo, echo_json
from tokiod.cli.common.times import date_of
from tokiod.config import load as configuration
from tokiod.tts.layout import NotLive, form_of, open_for_reading

if TYPE_CHECKING:
    from pathlib import Path

    from tokiod.clock import Clock
    from tokiod.config.schema import Config
    from tokiod.window import Day

REFRESH_SECONDS = 0.2
PAST_DATES = "2018-01-28, or yesterday"
MAX_CHECKS_WITHOUT_WRITER = 25
"""Checks in a row that find no writer before the daemon counts as stopped. A writer that died restarts sooner."""


class Sealed(msgspec.Struct, frozen=True):
    """A file: its size in bytes before and after, after is None with --detach; was_sealed: it was sealed already."""

    path: str
    system: str
    date: str
    was_sealed: bool
    before: int
    after: int | None


@click.command("seal", epilog=examples("tokioctl seal 2026-11-20"))
@click.argument("date")
@click.argument("systems", nargs=-1, metavar="[SYSTEM]...", shell_complete=system_names)
@click.option("--detach", is_flag=True, help="Start the work in the daemon and do not wait.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON: the files, sizes in bytes.")
@config_option
@clock_option
def seal_command(date: str, systems: tuple[str, ...], config_path: Path, clock: Clock, *, detach: bool, as_json: bool) -> None:
    """Seal the files of a day, of all systems or of the named ones.

    DATE: YYYY-MM-DD or yesterday, a past day of the site. The daemon seals a day when it is complete; this command seals it now, with its
    gaps. Later data reopens the file. Exit 0 sealed, 2 a file was not.
    """
    config = configuration.load(config_path)
    day = _day(config, date, clock)
    paths, refused = _sealable(_paths(config, day, systems))
    before = {path: path.stat().st_size for path in paths.values()}
    todo = [path for path in paths.values() if not _is_sealed(path)]
    _seal(config, [(system, path) for system, path in paths.items() if path in todo], day, clock, detach=detach)
    after = {path: None if detach and path in todo else path.stat().st_size for path in paths.values()}
    done = [Sealed(str(path), system, day.date.isoformat(), path not in todo, before[path], after[path]) for system, path in paths.items()]
    if as_json:
        echo_json(done)
    else:
        for one in done:
            echo(f"{one.path}: {_result(one)}")
    if refused:
        raise Failed("\n".join(refused))


def _seal(config: Config, files: list[tuple[str, Path]], day: Day, clock: Clock, *, detach: bool) -> None:
    daemon = lock_owner(config.archive.lock, config.archive.owner)
    if daemon is None and detach:
        raise Failed("--detach: no daemon runs on this archive; start it, or omit --detach")
    if daemon is None:
        _seal_here(config, files, day, clock)
        return
    for _, path in files:
        _order(path)
    if not detach:
        _wait(config, [path for _, path in files])


def _result(one: Sealed) -> str:
    if one.was_sealed:
        return "already sealed"
    if one.after is None:
        return "the daemon will seal it"
    return f"sealed, {one.before / 2**20:.1f} MiB to {one.after / 2**20:.1f} MiB"


def _day(config: Config, date: str, clock: Clock) -> Day:
    calendar = config.calendar
    day = calendar.day_of_date(date_of(date, calendar.zone, clock.time(), PAST_DATES))
    if day.end > clock.time():
        raise Failed(f"{day.date} is not over: its next window would reopen the files")
    return day


def _paths(config: Config, day: Day, names: tuple[str, ...]) -> dict[str, Path]:
    for name in names:
        check_system(config, name)
    known = sorted({source.system for source in config.source})
    paths = {system: config.archive.file(day, system) for system in names or known}
    there = {system: path for system, path in paths.items() if path.exists()}
    if lacking := [str(path) for system, path in paths.items() if system not in there and (names or not there)]:
        raise Failed("\n".join(f"{path} does not exist" for path in lacking))
    return there


def _sealable(paths: dict[str, Path]) -> tuple[dict[str, Path], list[str]]:
    """Return the files that can be sealed, or are, and why each of the others can't. Raises Failed without any."""
    refused: dict[str, str] = {}
    for system, path in paths.items():
        try:
            _is_sealed(path)
        except Failed as error:
            refused[system] = error.message
    if len(refused) == len(paths):
        raise Failed("\n".join(refused.values()))
    return {system: path for system, path in paths.items() if system not in refused}, list(refused.values())


def _order(path: Path) -> None:
    """Create the mark that asks the daemon to seal the file."""
    try:
        mark(path)
    except OSError as error:
        reason = f"{error.strerror}: {path.parent}; run the command as the daemon's user"
        raise Failed(f"cannot ask the daemon to seal {path}: {reason}") from error


def _is_sealed(path: Path) -> bool:
    try:
        with open_for_reading(path) as file:
            form = form_of(file)
    except NotLive as error:
        raise Failed(str(error)) from None
    except OSError as error:
        raise Failed(f"{path}: {os.strerror(error.errno) if error.errno else error}") from None
    if form == "foreign":
        raise Failed(f"{path}: another program made it, and tokiod seals only its own files")
    return form == "sealed"


def _seal_here(config: Config, files: list[tuple[str, Path]], day: Day, clock: Clock) -> None:
    from tokiod.writer.offline_sealing import seal_days  # noqa: PLC0415 - the other commands do without the writer

    with ProcessLock(config.archive.lock, owner=config.archive.owner):
        for system, path in files:
            with Console(stderr=True).status(f"sealing {path}"):
                try:
                    seal_days(config, clock, [(system, day.start)])
                except OSError as error:
                    raise Failed(f"{path}: {error.strerror or error}") from error
            unmark(path)


def _wait(config: Config, paths: list[Path]) -> None:
    """Wait until the daemon has sealed the files. After Ctrl-C the daemon continues."""
    looks = 0
    try:
        with Console(stderr=True).status(f"the daemon seals {len(paths)} files"):
            while any(is_marked(path) or not _is_sealed(path) for path in paths):
                looks = 0 if lock_owner(config.archive.lock) is not None else looks + 1
                if looks > MAX_CHECKS_WITHOUT_WRITER:
                    raise Failed("the daemon stopped; it seals the files when it runs again")
                time.sleep(REFRESH_SECONDS)  # noqa: TID251 - real time
    except KeyboardInterrupt:
        echo("\nthe daemon continues to seal the files", err=True)
        sys.exit(INTERRUPTED)
