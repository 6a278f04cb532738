"""What a Darshan log holds of its job, with the keys of pytokio's summarize_job: how much it moved, how fast, by which interface, where."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tokiod.analysis.darshan_log import DarshanLog, FileTransfers

    Value = float | int | str | None

GIB = 2**30
UNKNOWN_MOUNT = "_unknown"
"""pytokio's: of files that are below no mount point, such as <STDOUT>."""


def summarize_darshan(log: DarshanLog) -> dict[str, Value]:
    """Return the keys darshan_*. Those of POSIX are absent in a log without it, those of what is not known in one that is whole."""
    found: dict[str, Value] = {
        "walltime": log.seconds,
        "end_time": log.end,
        "start_time": log.start,
        "jobid": log.jobid,
        "nprocs": log.nprocs,
        "app": log.command.split(maxsplit=1)[0] if log.command.split() else None,
    }
    lacks = {"partial_modules": ",".join(log.partial), "unread_modules": ",".join(log.unread), "note": log.note}
    found |= {key: text for key, text in lacks.items() if text}
    return {f"darshan_{key}": value for key, value in (found | _posix(log) | _biggest(log)).items()}


def span_of(log: DarshanLog) -> tuple[int, int]:
    """Return [start, end) in UTC epoch seconds: Darshan's end is the last second."""
    return log.start, max(log.end, log.start) + 1


def moved(log: DarshanLog) -> list[FileTransfers]:
    """Return the files with bytes, the one with the most first. Each file counts once: an interface calls another one, as MPI-IO POSIX."""
    largest: dict[str, FileTransfers] = {}
    for one in log.files:
        if _bytes(one) > (_bytes(largest[one.name]) if one.name in largest else 0):
            largest[one.name] = one
    return sorted(largest.values(), key=_bytes, reverse=True)


def _bytes(one: FileTransfers) -> int:
    return one.read_bytes + one.written_bytes


def _posix(log: DarshanLog) -> dict[str, Value]:
    found: dict[str, Value] = {}
    if log.performance is not None and log.performance.total_bytes:
        found["total_gibs_posix"] = log.performance.total_bytes / GIB
        found["agg_perf_by_slowest_posix"] = log.performance.mib_per_second
        found["io_time"] = log.performance.seconds
    for name, one in log.counters.items():
        key = f"{name.lower()}_posix"
        found |= {f"tot_{key}": one.total, f"ave_{key}": one.total / one.count, f"num_{key}": one.count}
        found |= {f"min_{key}": one.least, f"max_{key}": one.most}
    return found


def _biggest(log: DarshanLog) -> dict[str, Value]:
    """Return the interface and the mount point that most bytes were read from, and written to; the first ones in the log of equal ones."""
    if not log.apis:
        return {}
    found: dict[str, Value] = {}
    apis = {
        how: max(log.apis, key=lambda api, how=how: _amount(log.files, how, api))  # type: ignore[misc]  # mypy types no default of a lambda
        for how in ("read", "write")
    }
    for how, api in apis.items():
        of_api = [one for one in log.files if one.api == api]
        found[f"biggest_{how}_api"] = api
        found[f"biggest_{how}_api_bytes"] = _amount(of_api, how)
        found[f"biggest_{how}_api_files"] = sum(one.read_records if how == "read" else one.write_records for one in of_api)
    mounts: dict[str, list[FileTransfers]] = defaultdict(list)
    for one in log.files:
        if one.api in apis.values():
            mounts[log.mount_of(one.name) or UNKNOWN_MOUNT].append(one)
    for how in apis:
        mount = max(mounts, key=lambda name, how=how: _amount(mounts[name], how), default=None)  # type: ignore[misc]  # as above
        if mount is not None:
            found |= {f"biggest_{how}_fs": mount, f"biggest_{how}_fs_bytes": _amount(mounts[mount], how)}
    return found


def _amount(files: Iterable[FileTransfers], how: str, api: str | None = None) -> int:
    chosen = [one for one in files if api is None or one.api == api]
    return sum(one.read_bytes if how == "read" else one.written_bytes for one in chosen)
