"""The files that processes count into: mapped into memory, shared by all processes, and older than any of them.

    DIRECTORY/{counter,histogram,gauge_livesum}_ROLE.db    prometheus_client's own, of its multiprocess mode
    DIRECTORY/ROLE.alive                                   locked for as long as the process in this role lives, with its number

Their names are those of roles, not of processes: one that comes back counts on where its predecessor was killed, and after ten thousand
deaths there are as many files as after none.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any

from tokiod.archive.lock import ArchiveLock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from tokiod.metrics.types import Metric, Role

PREFIXES = ("counter", "histogram", "gauge_livesum")
ROOM, ROOM_FOR_A_SOURCE = 32 << 10, 32 << 10
"""Bytes of each file, and more of them for each source. They are there before they are written: a write into a mapped file that finds the
disk full is no error, it is the end of the process."""
TRIES = 10
"""Tenths of a second that a predecessor, or somebody who looks whether there is one, may keep a role."""


def begin(directory: Path, role: Role, metrics: Iterable[Metric], sources: Sequence[str]) -> ArchiveLock:
    """Count in a role from now on, until the process ends. Keep what is returned: it says that the role is taken.

    Raises TokiodError where another process has the role, OSError where there is no room for the files.
    """
    directory.mkdir(mode=0o700, exist_ok=True)
    with ExitStack() as undoing:
        alive = undoing.enter_context(ArchiveLock(_alive(directory, role), TRIES))
        # prometheus_client chooses files over plain memory when it is imported, and their names when the first metric is made.
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(directory)
        from prometheus_client import values  # noqa: PLC0415 - only where somebody wants metrics

        # Its documented way to name files otherwise than by process.
        values.ValueClass = values.MultiProcessValue(lambda: role)  # type: ignore[no-untyped-call]
        for prefix in PREFIXES:
            _prepare(directory / f"{prefix}_{role}.db", ROOM + ROOM_FOR_A_SOURCE * len(sources), keep=prefix != "gauge_livesum")
        for metric in metrics:
            metric.open(sources)
        undoing.pop_all()
    return alive


def clear(directory: Path, roles: Iterable[Role]) -> None:
    """Make the directory where it is missing, and empty it of what nobody counts into any more: all begins at zero."""
    directory.mkdir(mode=0o700, exist_ok=True)
    for role in roles:
        _drop(directory, role, PREFIXES)


def collect(directory: Path, roles: Iterable[Role]) -> Iterator[Any]:
    """Yield what all processes have counted as prometheus_client's metrics. The gauges of the dead are removed."""
    from prometheus_client.multiprocess import MultiProcessCollector  # noqa: PLC0415 - as above

    for role in roles:
        with suppress(OSError):
            _drop(directory, role, ("gauge_livesum",))
    files = [str(path) for path in sorted(directory.glob("*.db")) if _size(path)]
    yield from MultiProcessCollector.merge(files)  # type: ignore[no-untyped-call]


def process(directory: Path, role: Role) -> int | None:
    """Return the process that counts in a role, None where none does."""
    try:
        with _vacant(directory, role) as owner:
            return owner
    except OSError:
        return None


def _drop(directory: Path, role: Role, prefixes: Iterable[str]) -> None:
    with _vacant(directory, role) as owner:
        for prefix in prefixes if owner is None else ():
            (directory / f"{prefix}_{role}.db").unlink(missing_ok=True)


@contextmanager
def _vacant(directory: Path, role: Role) -> Iterator[int | None]:
    """Keep a vacant role from being taken; yields None then, else the process that has it (0 while it has not yet said its number)."""
    fd = os.open(_alive(directory, role), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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
    """Give a file its room; what can't be read of it, after a power loss, is not kept."""
    from prometheus_client.multiprocess import MultiProcessCollector  # noqa: PLC0415 - as above

    try:
        if keep and path.exists():
            MultiProcessCollector.merge([str(path)])  # type: ignore[no-untyped-call]
        else:
            path.unlink(missing_ok=True)
    except Exception:  # noqa: BLE001 - it says in many ways that a file is none of its own
        path.unlink()
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(fd, 0, size)
    finally:
        os.close(fd)


def _alive(directory: Path, role: Role) -> Path:
    return directory / f"{role}.alive"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
