"""What a command reads: FILE, SYSTEM:DATE, or SYSTEM with --start and --end."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tokiod.cli.common.base import Failed
from tokiod.cli.common.lookup import instead
from tokiod.cli.common.times import date_of, moment, zone_of
from tokiod.config import load as configuration
from tokiod.errors import ConfigError
from tokiod.jobs.one_file import one_file
from tokiod.reader.files import Templates
from tokiod.reader.part import Part
from tokiod.reader.span import Span
from tokiod.tts.layout import NotLive
from tokiod.window import iso

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Sequence

    from tokiod.clock import Clock
    from tokiod.config.schema import Config
    from tokiod.jobs.one_file import OneFile


@dataclass(frozen=True, slots=True)
class NamedFiles:
    """name: of the system or the file; paths: of all days that may have rows in the span, existing or not; zone: of texts.

    label: the name in pictures; table: the file, where it is one of the job table.
    """

    name: str
    paths: Sequence[Path]
    span: Span
    zone: dt.tzinfo
    label: str
    table: OneFile | None = None


@dataclass(frozen=True, slots=True)
class FilesAt:
    """The files that the state of a system at a time needs, as NamedFiles. time: UTC epoch seconds."""

    name: str
    paths: Sequence[Path]
    time: int
    zone: dt.tzinfo
    label: str


@dataclass(frozen=True, slots=True)
class Limits:
    """The options --start, --end and --timezone as they were given."""

    start: str | None
    end: str | None
    timezone: str | None


def named_files(what: str, limits: Limits, config_path: Path, clock: Clock) -> NamedFiles:
    """Return the named files. Nothing after now is in their span unless --end asks for it. Raises Failed, ConfigError."""
    now = int(clock.time())
    if _is_path(what):
        zone = zone_of(limits.timezone or _timezone(config_path))
        alone = one_file(Path(what))
        whole = _span_of_file(Path(what)) if alone is None else Span(alone.start, alone.end)
        span = _span(limits, zone, now, Span(whole.start, min(whole.end, max(now, whole.start + 1))))
        return NamedFiles(Path(what).name, [Path(what)], span, zone, Path(what).name, alone)
    config = configuration.load(config_path)
    zone, calendar = zone_of(limits.timezone or config.timezone), config.calendar
    system, _, date = what.partition(":")
    if system not in config.systems:
        raise Failed(f"{what} is not a file, and {system!r} is an unknown system{instead(system, config.systems)}")
    if date:
        day = calendar.day_of_date(date_of(date, calendar.zone, now))
        span = _span(limits, zone, now, Span(day.start, min(day.end, max(now, day.start + 1))))
    else:
        end = now if limits.end is None else moment("--end", limits.end, zone, now)
        span = _span(limits, zone, now, Span(min(calendar.day(end - 1).start, end - 1), end))
    return NamedFiles(system, Templates(config.templates).paths(system, span, calendar), span, zone, config.site.names.get(system, system))


def files_at(what: str, time: str | None, timezone: str | None, needed: Callable[[int], Span], config_path: Path, clock: Clock) -> FilesAt:
    """Return the files that the state of a time needs: of a file its last row, of a date its end, else now, unless `time` is given.

    needed: the span of the rows that the state of a time may need. Raises Failed, ConfigError.
    """
    now = int(clock.time())
    if _is_path(what):
        zone, whole = zone_of(timezone or _timezone(config_path)), _span_of_file(Path(what))
        at = max(min(now, whole.end - 1), whole.start) if time is None else moment("--time", time, zone, now)
        return FilesAt(Path(what).stem, [Path(what)], at, zone, Path(what).name)
    config = configuration.load(config_path)
    zone, calendar = zone_of(timezone or config.timezone), config.calendar
    system, _, date = what.partition(":")
    if system not in config.systems:
        raise Failed(f"{what} is not a file, and {system!r} is an unknown system{instead(system, config.systems)}")
    if date and time is not None:
        raise Failed(f"{what} and --time both name a time; write {system} --time {date}T12:00:00")
    at = now if time is None else moment("--time", time, zone, now)
    if date:
        at = min(now, calendar.day_of_date(date_of(date, calendar.zone, now)).end - 1)
    paths = Templates(config.templates).paths(system, needed(at), calendar)
    return FilesAt(system, paths, at, zone, config.site.names.get(system, system))


def _is_path(what: str) -> bool:
    return Path(what).is_file() or "/" in what or what.endswith((".hdf5", ".h5"))


def configured(config_path: Path) -> Config | None:
    """Return the configuration, None without one: a file alone can be read, too."""
    try:
        return configuration.load(config_path)
    except ConfigError:
        return None


def _timezone(config_path: Path) -> str:
    config = configured(config_path)
    return "UTC" if config is None else config.timezone


def _span_of_file(path: Path) -> Span:
    try:
        return Part(path).span()
    except FileNotFoundError:
        raise Failed(f"{path} does not exist") from None
    except NotLive as error:
        raise Failed(str(error)) from error
    except PermissionError:
        raise
    except OSError as error:
        raise Failed(f"{path}: {error.strerror or error}") from error


def _span(limits: Limits, zone: dt.tzinfo, now: int, default: Span) -> Span:
    """Return the given span. The default of an end that was not given is that of `default`."""
    start = default.start if limits.start is None else moment("--start", limits.start, zone, now)
    end = default.end if limits.end is None else moment("--end", limits.end, zone, now)
    if start >= end:
        raise Failed(f"the span would start at {iso(start)} and end at {iso(end)}; see --start and --end")
    return Span(start, end)
