"""How full the targets of a file system were at a time, and which servers had more of them than usual: pytokio's lfsstatus, with its keys.

All figures are of the last sample at or before the time, at most LOOKBACK_SECONDS older. Files are read one by one, the newest first, so
the rows of two days may be differently far apart.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from statistics import mode
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from tokiod.errors import TokiodError
from tokiod.reader.errors import NoData, NoSuchDataset
from tokiod.reader.span import Span
from tokiod.reader.stitched import stitch
from tokiod.times import iso
from tokiod.tts.schema import natural_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from tokiod.reader.part import OpenParts
    from tokiod.reader.stitched import Stitched

USED, TOTAL = "fullness/bytes", "fullness/bytestotal"
INODES_USED, INODES_TOTAL = "fullness/inodes", "fullness/inodestotal"
OST_AWAY, MDT_AWAY, SERVED = "failover/datatargets", "failover/mdtargets", "failover/dataservers"
LOOKBACK_SECONDS, LOOKAHEAD_SECONDS = 86400, 3600
"""pytokio's: an older sample is no state of that time, and a later one is looked for where the next sample belongs."""
ROWS_AT_ONCE = 720
_KIB_OF_UNITS = {"KiB": 1.0, "bytes": 1024.0}
_OST = re.compile(r"(?i:ost)([0-9a-fA-F]+)")
_TARGET = re.compile(r"(.+)-(?:OST|MDT)[0-9a-f]{4}")


class NoFullness(TokiodError):  # noqa: N818 - a state, not a fault
    """No sample of how full the targets were, in the time before the one that was asked for."""


class SeveralFileSystems(NoFullness):
    """The targets are those of several file systems, which have no common mean, and several targets of one short name. names: theirs."""

    def __init__(self, system: str, names: Sequence[str]) -> None:
        super().__init__(f"{system}: has targets of several file systems: {', '.join(names)}; choose one with --filesystem")
        self.names = names


class Target(msgspec.Struct, frozen=True):
    """A target as `lfs df` lists it. Sizes are in KiB; numbers that are missing or not stored are null.

    away: whether another server than its home served it.
    """

    name: str
    used_kib: int | None
    total_kib: int | None
    used_inodes: int | None = None
    total_inodes: int | None = None
    away: bool | None = None

    @property
    def ost(self) -> tuple[str, int] | None:
        """The short name and the index of an OST: ("OST00a1", 161) of cscratch-OST00a1. None for any other target."""
        short = self.name.rpartition("-")[2]
        found = _OST.fullmatch(short)
        return (short, int(found[1], 16)) if found else None


class Health(msgspec.Struct, frozen=True):
    """The targets of a system at a time. Keys that begin with fshealth_ are those of pytokio; numbers that nothing is stored for are null.

    Times are UTC epoch seconds: of the sample, as requested, and of the next sample. full: used space of OSTs. overloaded: OSSs with
    more OSTs than most have, and all OSTs of them. lead_secs: how old the samples are. targets_away: how many targets another server than
    their home served. filesystem: the one whose targets these are, of
    several; how many OSTs of it alone a server has is unknown.
    """

    _file_system: str
    fshealth_ost_requested_timestamp: int
    fshealth_ost_actual_timestamp: int
    fshealth_ost_next_timestamp: int | None
    fshealth_ost_fullness_lead_secs: float
    fshealth_ost_count: int
    fshealth_ost_avg_full_kib: int | None
    fshealth_ost_avg_full_pct: float | None
    fshealth_ost_least_full_kib: int | None
    fshealth_ost_least_full_pct: float | None
    fshealth_ost_least_full_name: str | None
    fshealth_ost_least_full_id: int | None
    fshealth_ost_most_full_kib: int | None
    fshealth_ost_most_full_pct: float | None
    fshealth_ost_most_full_name: str | None
    fshealth_ost_most_full_id: int | None
    fshealth_ost_overloaded_oss_count: int | None
    fshealth_ost_overloaded_ost_count: int | None
    fshealth_ost_avg_overloaded_ost_per_oss: float | None
    fshealth_ost_avg_overloaded_overload_factor: float | None
    fshealth_ost_overloaded_pct: float | None
    fshealth_ost_failures_lead_secs: float | None
    targets_away: int | None
    targets: list[Target]
    filesystem: str | None = None


KEYS = tuple(field for field in Health.__struct_fields__ if field.startswith("fshealth_"))


@dataclass(frozen=True, slots=True)
class Sample:
    """The values of a row by column, without missing ones. time: its left edge in UTC epoch seconds."""

    time: int
    units: str
    values: Mapping[str, float]

    def kib(self, column: str) -> int | None:
        """Return a size in whole KiB."""
        return int(self.values[column] / _KIB_OF_UNITS.get(self.units, 1.0)) if column in self.values else None

    def number(self, column: str) -> int | None:
        """Return a number of inodes."""
        return int(self.values[column]) if column in self.values else None


def needed(time: int) -> Span:
    """Return the span of all rows that the state of a time may need."""
    return Span(max(0, time - LOOKBACK_SECONDS), time + LOOKAHEAD_SECONDS)


def health(system: str, paths: Sequence[Path], time: int, parts: OpenParts, filesystem: str | None = None) -> Health:
    """Return the state of a system at a time in UTC epoch seconds.

    paths: of all days that may have rows in needed(time), oldest first, existing or not; filesystem: whose targets, if the system has
    several. Raises SeveralFileSystems without one, NoFullness with what there is instead, NotTts for a file that is damaged.
    """
    names = _file_systems(paths, time, parts)
    if filesystem is None and len(names) > 1:
        raise SeveralFileSystems(system, names)
    if filesystem is not None and filesystem not in names:
        raise NoFullness(f"{system}: no value of {USED} of a target of {filesystem}; known file systems: {', '.join(names) or 'none'}")
    only = filesystem if len(names) > 1 else None
    used = last_sample(paths, USED, time, parts, only)
    if used is None:
        raise _nothing(system, paths, time, parts)
    total = last_sample(paths, TOTAL, used.time, parts, only) or Sample(used.time, "KiB", {})
    moved = [last_sample(paths, name, time, parts, only) for name in (OST_AWAY, MDT_AWAY)]
    targets = _targets(used, total, [last_sample(paths, name, used.time, parts, only) for name in (INODES_USED, INODES_TOTAL)], moved)
    away = [one.away for one in targets if one.away is not None]
    served = None if only else last_sample(paths, SERVED, time, parts)
    figures: dict[str, object] = {
        "fshealth_ost_requested_timestamp": time,
        "fshealth_ost_actual_timestamp": used.time,
        "fshealth_ost_next_timestamp": next_time(paths, USED, used.time, time + LOOKAHEAD_SECONDS, parts, only),
        "fshealth_ost_fullness_lead_secs": time - used.time,
        **(full := _fullness(targets)),
        **_overload(served, time, [one for one in moved if one is not None], full["fshealth_ost_count"]),
    }
    of_targets = {"targets_away": sum(away) if away else None, "targets": targets, "filesystem": only}
    return msgspec.convert({"_file_system": system, **figures, **of_targets}, Health)


def _file_systems(paths: Sequence[Path], time: int, parts: OpenParts) -> list[str]:
    """Return the file systems whose targets had values in the time that counts; of one alone, also without values."""
    columns = {name for matrix in _matrices(paths, USED, _lookback(time), parts) for name in matrix.columns}
    names = sorted({name for column in columns if (name := _file_system(column)) is not None})
    return names if len(names) < 2 else [name for name in names if last_sample(paths, USED, time, parts, name) is not None]  # noqa: PLR2004


def health_keys(found: Health) -> dict[str, int | float | str | None]:
    """Return pytokio's keys: those that begin with fshealth_."""
    return {key: getattr(found, key) for key in KEYS}


def last_sample(paths: Sequence[Path], dataset: str, time: int, parts: OpenParts, filesystem: str | None = None) -> Sample | None:
    """Return the last row with a value that begins at or before a time, of a file system's targets or all; None without one."""
    for matrix in _matrices(reversed(paths), dataset, _lookback(time), parts):
        chosen = _chosen(matrix, filesystem)
        for last in range(matrix.rows, 0, -ROWS_AT_ONCE):
            first = max(0, last - ROWS_AT_ONCE)
            cells = matrix.read(first, last)[:, chosen]
            if (rows := _filled(cells)).size:
                row = cells[rows[-1]]
                values = {matrix.columns[chosen[i]]: float(row[i]) for i in np.flatnonzero(~np.isnan(row))}
                return Sample(int(matrix.times[first + rows[-1]]), matrix.units, values)
    return None


def next_time(  # noqa: PLR0913, PLR0917 - a span, and what of it is wanted
    paths: Sequence[Path], dataset: str, after: int, end: int, parts: OpenParts, filesystem: str | None = None
) -> int | None:
    """Return the time of the first row with a value after one, and before `end`, of a file system's targets or all."""
    for matrix in _matrices(paths, dataset, Span(after + 1, end), parts):
        for first in range(0, matrix.rows, ROWS_AT_ONCE):
            if (rows := _filled(matrix.read(first, min(first + ROWS_AT_ONCE, matrix.rows))[:, _chosen(matrix, filesystem)])).size:
                return int(matrix.times[first + rows[0]])
    return None


def _matrices(paths: Sequence[Path] | Iterator[Path], dataset: str, span: Span, parts: OpenParts) -> Iterator[Stitched]:
    for path in paths:
        try:
            yield stitch([path], dataset, span, parts)
        except (NoData, NoSuchDataset):
            continue


def _lookback(time: int) -> Span:
    return Span(max(0, time - LOOKBACK_SECONDS), time + 1)


def _chosen(matrix: Stitched, filesystem: str | None) -> list[int]:
    """Return the columns of a file system's targets; all without one."""
    return [i for i, name in enumerate(matrix.columns) if filesystem in {None, _file_system(name)}]


def _file_system(target: str) -> str | None:
    found = _TARGET.fullmatch(target)
    return found and found[1]


def _filled(cells: NDArray[np.float64]) -> NDArray[np.intp]:
    return np.flatnonzero(~np.isnan(cells).all(axis=1))


def _targets(used: Sample, total: Sample, inodes: list[Sample | None], moved: list[Sample | None]) -> list[Target]:
    away = {name: bool(value) for sample in moved if sample is not None for name, value in sample.values.items()}
    names = sorted({*used.values, *total.values, *away}, key=natural_key)
    used_inodes, total_inodes = ({} if sample is None else {name: sample.number(name) for name in names} for sample in inodes)
    return [Target(name, used.kib(name), total.kib(name), used_inodes.get(name), total_inodes.get(name), away.get(name)) for name in names]


def _fullness(targets: list[Target]) -> dict[str, Any]:
    """Return the figures of the OSTs. As in pytokio the mean is in whole KiB, and its percentage follows from it."""
    osts = [(*one.ost, one.used_kib, one.total_kib) for one in targets if one.ost is not None and one.used_kib is not None]
    found: dict[str, Any] = {"fshealth_ost_count": len(osts)}
    mean = int(sum(used for *_, used, _ in osts) / len(osts)) if osts else None
    whole = [total for *_, total in osts if total]
    found["fshealth_ost_avg_full_kib"] = mean
    found["fshealth_ost_avg_full_pct"] = 100.0 * mean / sum(whole) * len(osts) if mean is not None and len(whole) == len(osts) else None
    for how, choose in (("least", min), ("most", max)):
        name, index, used, total = choose(osts, key=lambda one: one[2]) if osts else (None, None, None, None)
        found[f"fshealth_ost_{how}_full_kib"] = used
        found[f"fshealth_ost_{how}_full_pct"] = 100.0 * used / total if used is not None and total else None
        found[f"fshealth_ost_{how}_full_name"] = name
        found[f"fshealth_ost_{how}_full_id"] = index
    return found


def _overload(served: Sample | None, time: int, moved: list[Sample], osts: int) -> dict[str, Any]:
    """Return the figures of the OSSs with more OSTs than most have. moved: samples of failovers, for the age of theirs; osts: how many.

    The age is that of the oldest sample, because the figures are no newer.
    """
    ages = [time - sample.time for sample in ([served] if served is not None else moved)]
    found: dict[str, Any] = {"fshealth_ost_failures_lead_secs": max(ages, default=None)}
    counts = [] if served is None else [int(value) for value in served.values.values() if value > 0]
    usual = mode(sorted(counts)) if counts else None
    more = [] if usual is None else [count for count in counts if count > usual]
    mean = sum(more) / len(more) if more else 0.0
    figures = {
        "overloaded_oss_count": len(more),
        "overloaded_ost_count": sum(more),
        "avg_overloaded_ost_per_oss": mean,
        "avg_overloaded_overload_factor": mean / usual if more and usual else 1.0,
        "overloaded_pct": 100.0 * sum(more) / osts if osts else None,
    }
    return found | {f"fshealth_ost_{key}": None if usual is None else value for key, value in figures.items()}


def _nothing(system: str, paths: Sequence[Path], time: int, parts: OpenParts) -> NoFullness:
    """Return the reason: no file, no such dataset in the files, or no value in it."""
    known, there = set[str](), 0
    for path in paths:
        try:
            known |= set(parts.part(path).names)
            there += 1
        except FileNotFoundError:
            continue
    if not there:
        return NoFullness(f"{system}: no file has rows of the day before {iso(time)}; first missing file: {paths[-1]}")
    if USED not in known:
        names = ", ".join(sorted(known)) or "no datasets"
        return NoFullness(
            f"{system}: no {USED} is stored in the day before {iso(time)}, only {names}; sources of kind lustre and lmt fill it"
        )
    return NoFullness(
        f"{system}: no value of {USED} in the day before {iso(time)}; `tokioctl gaps` lists why, --time asks for another time"
    )
