"""The disk of a simulated machine: the archive's files, the ledger's SQLite files, and long work on files.

The files are real ones in memory (/dev/shm); FaultyFiles knows what of them is durable. The ledger is a real SQLite database with a real
write-ahead log: a power loss cuts the log after some transaction that no sync has followed, and SQLite itself recovers from that. An apsw
VFS would put the faults below SQLite, but the ledger uses the sqlite3 of the standard library, which can't load it; and what a power
loss can do to a log is exactly this: its frames have checksums, so a torn frame ends it.
"""

from __future__ import annotations

import errno
import os
import sqlite3
import struct
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.support.faulty_files import FaultyFiles, SimulatedKill
from tests.support.manual_executor import Job
from tokiod.ledger.database import BUSY_SECONDS, Sqlite

if TYPE_CHECKING:
    import random
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from sinks.tts.rewrite_worker import Work
    from tests.simulation.clock import MachineClock
    from tests.simulation.loop import SimulatedLoop

PRIVATE = frozenset({".tokiod", ".tokiod-readers"})
"""Directories of the archive whose files are not the sink's."""
FREE_BYTES = 1 << 40
INJECTED = "injected by the simulation"
"""The note of each error that the simulation raises."""


def is_injected(error: BaseException | None) -> bool:
    """Return whether an error, or one from which it followed, is the simulation's: a process may end because of it, and of no other."""
    if error is None:
        return False
    return INJECTED in getattr(error, "__notes__", ()) or is_injected(error.__cause__) or is_injected(error.__context__)


@dataclass
class DiskSickness:
    """A time in which operations on files fail, as on a server that comes and goes. chance: of each operation; until: of the loop."""

    loop: SimulatedLoop
    rng: random.Random
    until: float = 0.0
    chance: float = 0.0
    code: int = errno.EIO

    def fails(self) -> bool:
        """Return whether the operation that begins now fails."""
        return self.loop.now < self.until and self.rng.random() < self.chance


class MachineFiles(FaultyFiles):
    """The archive's files. Their times are the machine's, because what real time passes between two writes is left to chance.

    syncing: the directory whose sync the process ended in. kills_undurable: the process is to end before the next new name is durable.
    """

    clock: MachineClock
    free = FREE_BYTES
    syncing: Path | None = None
    kills_undurable = False

    def setup(
        self,
        clock: MachineClock,
        sickness: DiskSickness,
        died: Callable[[], None],
        failed: Callable[[str], None],
        set_aside: Callable[[Path], None],
    ) -> MachineFiles:
        """Set the clock; died: called when the process ends at one of its operations; failed: with the name of one that fails; set_aside:
        with a file that is about to get the name of one that is not trusted, whether that succeeds or not.
        """
        self.clock = clock
        self._died, self._failed, self._set_aside = died, failed, set_aside
        self._sickness = sickness
        self._ticks = 0
        self._open: set[int] = set()
        return self

    @property
    def is_dead(self) -> bool:
        """Whether the process has ended."""
        return self._dead

    def die(self) -> None:
        """End the process: none of its operations has an effect from now on, and the kernel closes its files."""
        self._dead = True
        for fd in self._open:
            with suppress(OSError):
                os.close(fd)
        self._open.clear()

    def open(self, path: Path, flags: int = os.O_RDWR) -> int:
        self._step("open")
        return self._opened(os.open(path, flags | os.O_CLOEXEC))

    def create(self, path: Path) -> int:
        self._step("create")
        return self._opened(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666))

    def close(self, fd: int) -> None:
        if fd in self._open:
            self._open.remove(fd)
            super().close(fd)

    def pwrite(self, fd: int, data: NDArray[Any], offset: int) -> None:
        super().pwrite(fd, data, offset)
        self._touch(fd)

    def fdatasync(self, fd: int) -> None:
        super().fdatasync(fd)
        self._touch(fd)

    def fsync(self, fd: int) -> None:
        super().fsync(fd)
        self._touch(fd)

    def rename(self, source: Path, target: Path) -> None:
        self._note_aside(source, target)
        super().rename(source, target)
        if self.kills_undurable:
            self.kills_undurable = False
            self.kill("fsync_directory", 1)

    def link(self, path: Path, other: Path) -> None:
        self._note_aside(path, other)
        super().link(path, other)

    def fsync_directory(self, path: Path) -> None:
        self.syncing = path
        super().fsync_directory(path)
        self.syncing = None

    def free_space(self, _path: Path) -> int:
        self._step("free_space")
        return self.free

    def touch_all(self) -> None:
        """Give all files the times of the machine, in their order."""
        for path in self._disk.hold_present():
            self._ticks += 1
            os.utime(path, ns=(self._now(), self._now()))

    def clear_faults(self) -> None:
        """Let nothing fail from now on."""
        self._kill_at, self._kill_call, self.kills_undurable = 0, ("", 0), False
        self.fail_no_more()
        self._sickness.until = 0.0

    def _note_aside(self, path: Path, new: Path) -> None:
        if ".aside-" in new.name:
            self._set_aside(path)

    def _opened(self, fd: int) -> int:
        self._open.add(fd)
        return fd

    def _touch(self, fd: int) -> None:
        self._ticks += 1
        os.utime(fd, ns=(self._now(), self._now()))

    def _now(self) -> int:
        return int(self.clock.true_time()) * 1_000_000_000 + self._ticks

    def _step(self, operation: str) -> None:
        was_dead = self._dead
        try:
            super()._step(operation)
            self._fail_if_sick(operation)
        except SimulatedKill:
            if not was_dead:
                self._died()
            raise
        except OSError as error:
            self._failed(operation)
            error.add_note(INJECTED)
            raise

    def _fail_if_sick(self, operation: str) -> None:
        if self._sickness.fails():
            self.failures.append(operation)
            raise OSError(self._sickness.code, os.strerror(self._sickness.code))


# ---- long work


class LateExecutor:
    """Does work some time after it was submitted, between other tasks of the loop, or at once where the writer waits for it."""

    def __init__(self, loop: SimulatedLoop, rng: random.Random, seconds: float, died: Callable[[], None]) -> None:
        self._loop, self._rng, self._seconds, self._died = loop, rng, seconds, died
        self._jobs: list[_LateJob] = []

    def submit(self, work: Work, *, urgent: bool) -> _LateJob:
        """Begin some work."""
        job = _LateJob(work, self._rng, self._died)
        self._jobs.append(job)
        seconds = self._seconds * self._rng.random() * (1 if urgent else 10)
        self._loop.call_later(seconds, job.run_late)
        return job

    def close(self) -> None:
        """Drop the work that is left."""
        for job in self._jobs:
            job.cancel()


class _LateJob(Job):
    def __init__(self, work: Work, rng: random.Random, died: Callable[[], None]) -> None:
        super().__init__(work)
        self._rng, self._died = rng, died

    def run_late(self) -> None:
        """Do the work between other tasks; a kill there ends the process."""
        try:
            self.run()
        except SimulatedKill:
            self._died()

    def is_done(self, seconds: float = 0.0) -> bool:
        if seconds >= 0.1 or (seconds and self._rng.random() < 0.5):
            self.run()
        return super().is_done()


# ---- the ledger


class LedgerDisk:
    """What of a ledger's log is durable. path: the database."""

    HEADER, FRAME_HEADER = 32, 24
    BACKFILLED = 96
    """Offset of the count of frames in -shm that are in the database."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._log = path.with_name(f"{path.name}-wal")
        self._synced = b"", 0

    def sync(self) -> None:
        """Note that the whole log is durable."""
        log = self._read(self._log)
        self._synced = log[16:24], (self._frames(log) or [0])[-1]

    def hold(self) -> dict[str, bytes]:
        """Return the files as they are now, before connections are closed."""
        return {suffix: self._read(self.path.with_name(self.path.name + suffix)) for suffix in ("", "-wal", "-shm")}

    def lose_power(self, held: dict[str, bytes], rng: random.Random) -> int:
        """Leave what the disk could hold after a power loss; return how many transactions are lost."""
        database, log, shared = held[""], held["-wal"], held["-shm"]
        for suffix in ("", "-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        if not database:
            return 0
        commits = self._frames(log)
        backfilled = struct.unpack_from("=I", shared, self.BACKFILLED)[0] if len(shared) >= self.BACKFILLED + 4 else 0
        durable = max(backfilled, self._synced[1] if self._synced[0] == log[16:24] else 0)
        choices = [0, *(number for number in range(1, len(commits) + 1) if commits[number - 1] >= durable)]
        if durable and len(choices) > 1:
            choices = choices[1:]
        kept = rng.choice(choices)
        size = struct.unpack_from(">I", log, 8)[0] + self.FRAME_HEADER if log else 0
        end = self.HEADER + (commits[kept - 1] if kept else 0) * size
        torn = rng.randrange(size + 1) if log else 0
        self.path.write_bytes(database)
        if log:
            self._log.write_bytes(log[: min(end + torn, len(log))])
        return len(commits) - kept

    def _frames(self, log: bytes) -> list[int]:
        """Return the number of frames up to each commit of a log."""
        if len(log) < self.HEADER:
            return []
        size = struct.unpack_from(">I", log, 8)[0] + self.FRAME_HEADER
        commits = []
        for number, at in enumerate(range(self.HEADER, len(log) - size + 1, size), start=1):
            _, pages, salt = struct.unpack_from(">II8s", log, at)
            if salt != log[16:24]:
                break
            if pages:
                commits.append(number)
        return commits

    @staticmethod
    def _read(path: Path) -> bytes:
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return b""


class ProcessSqlite(Sqlite):
    """SQLite in one process. fail_at(n): the nth statement from now fails; kill_at(n): it is the last thing that the process does."""

    def __init__(self, disk: LedgerDisk, died: Callable[[], None]) -> None:
        self.statements = 0
        self.is_dead = False
        self._disk = disk
        self._died = died
        self._kill_at = 0
        self._fail_at: dict[int, int] = {}
        self._connections: list[_Connection] = []

    def connect(self, uri: str) -> sqlite3.Connection:
        """Open the database of a URI."""
        connection = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None, factory=_Connection)
        connection.sqlite = self
        self._connections.append(connection)
        return connection

    def sync(self, log: Path) -> None:
        """Make the log durable."""
        self.step()
        if not log.exists():
            raise FileNotFoundError(errno.ENOENT, "", str(log))
        self._disk.sync()

    def kill_at(self, n: int) -> None:
        """Make the nth statement the last."""
        self._kill_at = self.statements + n

    def fail_at(self, n: int, code: int) -> None:
        """Let the nth statement fail with a code of SQLite."""
        self._fail_at[self.statements + n] = code

    def clear_faults(self) -> None:
        """Let nothing fail from now on."""
        self._kill_at = 0
        self._fail_at.clear()

    def die(self) -> None:
        """End the process: no statement has an effect from now on."""
        self.is_dead = True

    def close(self) -> None:
        """Close the connections of a process that has ended, as the kernel does."""
        for connection in self._connections:
            with suppress(sqlite3.Error):
                sqlite3.Connection.close(connection)

    def step(self) -> None:
        """Count a statement. Raises SimulatedKill, sqlite3.OperationalError."""
        if self.is_dead:
            raise SimulatedKill("statement")
        self.statements += 1
        if self.statements == self._kill_at:
            self.is_dead = True
            self._died()
            raise SimulatedKill("statement")
        if (code := self._fail_at.pop(self.statements, 0)) != 0:
            error = sqlite3.OperationalError("disk I/O error" if code == sqlite3.SQLITE_IOERR else "database or disk is full")
            error.sqlite_errorcode = code
            error.add_note(INJECTED)
            raise error


class _Connection(sqlite3.Connection):
    sqlite: ProcessSqlite | None = None

    def execute(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
        if self.sqlite is not None and sql != "ROLLBACK":
            self.sqlite.step()
        return super().execute(sql, *arguments)

    def executemany(self, sql: str, *arguments: Any) -> sqlite3.Cursor:
        if self.sqlite is not None:
            self.sqlite.step()
        return super().executemany(sql, *arguments)
