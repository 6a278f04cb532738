"""What a process can count, and the files it counts into: mapped into memory, shared by all processes, and older than any of them.

    DIRECTORY/{counter,histogram,gauge_livesum}_ROLE.db    prometheus_client's own, of its multiprocess mode
    DIRECTORY/ROLE.alive                                   locked for as long as the process in this role lives, with its number

Their names are those of roles, not of processes: one that comes back counts on where its predecessor was killed, and after ten thousand
deaths there are as many files as after none.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import ExitStack, contextmanager, suppress
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from tokiod.process import ArchiveLock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

Role = Literal["collectors", "writer"]

PREFIXES = ("counter", "histogram", "gauge_livesum")
ROOM, ROOM_FOR_A_SOURCE = 32 << 10, 32 << 10
"""Bytes of each file, and more of them for each source. They are there before they are written: a write into a mapped file that finds the
disk full is no error, it is the end of the process."""
TRIES = 10
"""Tenths of a second that a predecessor, or somebody who looks whether there is one, may keep a role."""


class Metric:
    """Something that is counted in all its label sets, which are fixed: what is not one of them is not counted, so no label is data.

    labels: the values that each may have; None: the names of the configured sources. Until begin(), counting costs a look into an empty
    dictionary, and prometheus_client is not imported.
    """

    type: ClassVar[str]

    def __init__(self, role: Role | None, name: str, text: str, **labels: tuple[str, ...] | None) -> None:
        self.role, self.name, self.text, self.labels = role, name, text, labels
        self._parent: Any = None
        self._cells: dict[tuple[str, ...], Any] = {}

    def open(self, sources: Iterable[str]) -> None:
        """Begin to count, from what the files hold already; again, for sources that are new."""
        values = [sources if given is None else given for given in self.labels.values()]
        self._parent = self._parent or self._made()
        for each in product(*values):
            if each not in self._cells:
                self._cells[each] = self._parent.labels(*each) if each else self._parent

    def _made(self) -> Any:
        raise NotImplementedError


class Counter(Metric):
    """It only goes up."""

    type = "counter"

    def inc(self, *labels: str, by: float = 1.0) -> None:
        """Count so many more."""
        if by and (cell := self._cells.get(labels)) is not None:
            cell.inc(by)

    def _made(self) -> Any:
        from prometheus_client import Counter as Real  # noqa: PLC0415 - only where somebody wants metrics

        return Real(self.name, self.text, list(self.labels), registry=None)


class Gauge(Metric):
    """It goes up and down, and is gone when its process is. Those of no role are not counted but looked at, see tokiod.metrics_now."""

    type = "gauge"

    def set(self, value: float, *labels: str) -> None:
        """Say how much it is now."""
        if (cell := self._cells.get(labels)) is not None:
            cell.set(value)

    def _made(self) -> Any:
        from prometheus_client import Gauge as Real  # noqa: PLC0415 - as above

        return Real(self.name, self.text, list(self.labels), registry=None, multiprocess_mode="livesum")


class Histogram(Metric):
    """How often something took how long."""

    type = "histogram"

    def __init__(self, role: Role, name: str, text: str, buckets: Sequence[float], **labels: tuple[str, ...] | None) -> None:
        super().__init__(role, name, text, **labels)
        self.buckets = buckets

    def observe(self, seconds: float, *labels: str) -> None:
        """Count something that took so long."""
        if (cell := self._cells.get(labels)) is not None:
            cell.observe(seconds)

    @contextmanager
    def timing(self, *labels: str) -> Iterator[None]:
        """Count how long the block takes, unless it raises."""
        begun = time.monotonic()
        yield
        self.observe(time.monotonic() - begun, *labels)

    def _made(self) -> Any:
        from prometheus_client import Histogram as Real  # noqa: PLC0415 - as above

        return Real(self.name, self.text, list(self.labels), registry=None, buckets=self.buckets)


def begin(directory: Path, role: Role, metrics: Iterable[Metric], sources: Sequence[str]) -> ArchiveLock:
    """Count in a role from now on, until the process ends. Keep what is returned: it says that the role is taken.

    Raises TokiodError where another process has the role, OSError where there is no room for the files.
    """
    directory.mkdir(mode=0o700, exist_ok=True)
    with ExitStack() as undoing:
        alive = undoing.enter_context(ArchiveLock(_alive(directory, role), TRIES))
        # prometheus_client chooses files over plain memory when it is imported, and their names when the first metric is made.
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(directory)
        from prometheus_client import values  # noqa: PLC0415 - as above

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
