"""The memory-mapped files in which processes count. They outlive the processes.

    DIRECTORY/{counter,histogram,gauge_livesum}_ROLE.db    prometheus_client's own, of its multiprocess mode
    DIRECTORY/ROLE.alive                                   locked while the process in this role lives; holds its pid

Files are named after roles instead of pids: a restarted process continues the counts of its predecessor, and ten thousand deaths leave as
many files as one. prometheus_client's own naming by pid was measured and is not used: docs/decisions/0016.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from tokiod.archive.lock import METRICS, ProcessLock
from tokiod.archive.rights import make_private

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from tokiod.metrics.types import Metric, Role

PREFIXES = ("counter", "histogram", "gauge_livesum")
FILE_BYTES, BYTES_PER_SOURCE = 32 << 10, 40 << 10
"""Bytes of each file, and additional bytes for each source. They are allocated in advance: a write into a mapped page for which the disk
has no space ends the process with SIGBUS."""
LOCK_SECONDS = 1.0
"""How long a predecessor, or a scrape that checks for one, may hold the lock of a role."""


def begin(directory: Path, role: Role, metrics: Iterable[Metric], sources: Sequence[str]) -> ProcessLock:
    """Count in a role until the process ends. Keep the returned lock: it marks the role as taken.

    Raises TokiodError where another process has the role, OSError where the disk has no space for the files.
    """
    _make(directory)
    with ExitStack() as cleanup:
        alive = cleanup.enter_context(ProcessLock(_lock_path(directory, role), LOCK_SECONDS, locked=METRICS))
        # prometheus_client chooses between files and memory when it is imported, and the names of files when it creates the first metric.
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(directory)
        from prometheus_client import values  # noqa: PLC0415 - only with metrics in the configuration

        # Its documented way to name files by something other than the pid.
        values.ValueClass = values.MultiProcessValue(lambda: role)  # type: ignore[no-untyped-call]
        for prefix in PREFIXES:
            _prepare(directory / f"{prefix}_{role}.db", FILE_BYTES + BYTES_PER_SOURCE * len(sources), keep=prefix != "gauge_livesum")
        for metric in metrics:
            metric.open(sources)
        cleanup.pop_all()
    return alive


def clear(directory: Path, roles: Iterable[Role]) -> None:
    """Create the directory if it is missing, and delete the files of roles without a process, so that their counts begin at zero.

    Raises OSError, and TokiodError for a directory of another user.
    """
    _make(directory)
    for role in roles:
        _delete(directory, role, PREFIXES)


def collect(directory: Path, roles: Iterable[Role]) -> Iterator[Any]:
    """Yield the counts of all processes as prometheus_client's metrics. The gauges of processes that have ended are deleted."""
    for role in roles:
        with suppress(OSError):
            _delete(directory, role, ("gauge_livesum",))
    yield from _merged(path for path in sorted(directory.glob("*.db")) if _size(path))


def process(directory: Path, role: Role) -> int | None:
    """Return the pid of the process that counts in a role; None where the role is vacant."""
    try:
        with _vacant(directory, role) as owner:
            return owner
    except OSError:
        return None


def _make(directory: Path) -> None:
    make_private(directory.parent)
    make_private(directory)


def _delete(directory: Path, role: Role, prefixes: Iterable[str]) -> None:
    with _vacant(directory, role) as owner:
        for prefix in prefixes if owner is None else ():
            (directory / f"{prefix}_{role}.db").unlink(missing_ok=True)


@contextmanager
def _vacant(directory: Path, role: Role) -> Iterator[int | None]:
    """Hold a vacant role and yield None; for a taken role, yield its pid, 0 while the pid is not written yet."""
    fd = os.open(_lock_path(directory, role), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner: int | None = int(os.pread(fd, 32, 0) or 0)
        else:
            owner = None
        yield owner
    finally:
        os.close(fd)


def _prepare(path: Path, size: int, *, keep: bool) -> None:
    """Allocate a file; delete it first if it is damaged, as after a power loss."""
    try:
        if keep and path.exists():
            _merged([path])
        else:
            path.unlink(missing_ok=True)
    except Exception:  # noqa: BLE001 - a damaged file raises many types
        path.unlink()
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, size)
    finally:
        os.close(fd)


def _merged(paths: Iterable[Path]) -> Iterable[Any]:
    from prometheus_client.multiprocess import MultiProcessCollector  # noqa: PLC0415 - as above

    return MultiProcessCollector.merge([str(path) for path in paths])  # type: ignore[no-untyped-call, no-any-return]


def _lock_path(directory: Path, role: Role) -> Path:
    return directory / f"{role}.alive"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
