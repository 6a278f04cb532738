"""What a Darshan log holds that jobs are compared by: its header, the transfers of each file, the OSTs of each file.

The logs are users' files. A process of its own reads each (tokiod.analysis.darshan_worker), with limits on memory and time, without network
and without other files where the kernel permits it; what it prints is decoded as data. Its death is an error of that log.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import stat
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from tokiod.errors import TokiodError
from tokiod.reader.errors import NotInstalled
from tokiod.runtime.interruption import run_until_interrupted
from tokiod.runtime.process_setup import python_command
from tokiod.toolkit.commands import Commands

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tokiod.reader.span import Span

MAX_DAYS = 31
"""In which the logs of one job are looked for."""
LOG_SECONDS = 120
"""Real seconds for one log."""
KEPT_ENVIRONMENT = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "TMPDIR", "COVERAGE_PROCESS_START")


class NotDarshan(TokiodError):  # noqa: N818 - a state, not a fault
    """A file is no Darshan log, or is damaged; the text names the file and the reason."""


class FileTransfers(msgspec.Struct, frozen=True, array_like=True):
    """The bytes of a file by one interface, of all ranks. records: how many records (one for each rank, or one for all) have such bytes.

    seconds: the longest that a record's reads, writes and metadata took.
    """

    api: str
    name: str
    read_bytes: int
    written_bytes: int
    read_records: int
    write_records: int
    seconds: float


class Statistics(msgspec.Struct, frozen=True, array_like=True):
    """A POSIX counter over all records."""

    total: float
    count: int
    least: float
    most: float


class Performance(msgspec.Struct, frozen=True, array_like=True):
    """What darshan-parser --perf estimates by the slowest rank: bytes of POSIX, MiB/s, seconds."""

    total_bytes: int
    mib_per_second: float
    seconds: float


class DarshanLog(msgspec.Struct, frozen=True):
    """A log. start, end: UTC epoch seconds, of the first and the last second; mounts: of the nodes, longest first; apis: in their order.

    osts: of each file, by its name; counters: of POSIX, without their prefix. partial: modules that ran out of memory for records; unread:
    modules that are not known here, so what they moved is in no figure.
    """

    jobid: int
    nprocs: int
    start: int
    end: int
    seconds: int
    command: str
    mounts: list[str]
    apis: list[str]
    files: list[FileTransfers]
    osts: dict[str, list[int]]
    counters: dict[str, Statistics]
    performance: Performance | None
    partial: list[str] = []
    unread: list[str] = []

    @property
    def note(self) -> str:
        """A sentence on what the figures lack, empty for a log that is whole."""
        partial = f"only a part of what {', '.join(self.partial)} did is in the log: Darshan's memory was too small (DARSHAN_MODMEM)"
        unread = f"what {', '.join(self.unread)} moved is in no figure: tokiod does not read such modules"
        return "; ".join([partial] * bool(self.partial) + [unread] * bool(self.unread))

    def mount_of(self, name: str) -> str | None:
        """Return the mount point that a file is below, None for a stream such as <STDOUT>."""
        return next((mount for mount in self.mounts if name.startswith(mount)), None)


class Unreadable(msgspec.Struct, frozen=True, tag=True):
    """What the worker prints instead of a log."""

    reason: str


class Read(msgspec.Struct, frozen=True, tag=True):
    """What the worker prints."""

    log: DarshanLog


def logs_of(number: str, template: str, span: Span, zone: dt.tzinfo) -> list[Path]:
    """Return the logs of a job by their names, USER_PROGRAM_idNUMBER..., in the directories of the days of a span (at most MAX_DAYS).

    template: of the directory of a day, with fields of strftime; zone: of the days.
    """
    first, last = (dt.datetime.fromtimestamp(time, zone).date() for time in (span.start, span.end - 1))
    days = [first + dt.timedelta(number) for number in range(min((last - first).days + 1, MAX_DAYS))]
    directories = dict.fromkeys(Path(day.strftime(template)) for day in days)
    return sorted(path for directory in directories for one in ("_", "-") for path in directory.glob(f"*_id{number}{one}*.darshan"))


def read_logs(paths: Iterable[Path]) -> list[DarshanLog | NotDarshan]:
    """Read logs, as many at a time as there are processors; in their order, of each that can't be read the error.

    Raises NotInstalled without pydarshan.
    """
    if find_spec("darshan") is None:
        raise NotInstalled("a Darshan log", "darshan", "give the job's times", "pip install '.[darshan]' in a checkout of tokiod")
    return run_until_interrupted(_all(list(paths)))


async def _all(paths: list[Path]) -> list[DarshanLog | NotDarshan]:
    commands, places = Commands(), asyncio.Semaphore(os.cpu_count() or 1)

    async def one(number: int, path: Path) -> DarshanLog | NotDarshan:
        async with places:
            try:
                return await _read(commands, number, path)
            except NotDarshan as error:
                return error
            except TokiodError as error:
                return NotDarshan(f"{path}: the process that reads it: {error}")

    return await asyncio.gather(*(one(number, path) for number, path in enumerate(paths)))


def _checked(path: Path) -> str:
    """Return the absolute path of a file that can be read. Raises NotDarshan; a pipe among the logs is not waited for."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise NotDarshan(f"{path}: not a regular file")
            os.read(fd, 1)
        finally:
            os.close(fd)
    except OSError as error:
        raise NotDarshan(f"{path}: {error.strerror or error}") from error
    return str(path.resolve())


async def _read(commands: Commands, number: int, path: Path) -> DarshanLog:
    command = python_command("tokiod.analysis.darshan_worker", str(os.getpid()), _checked(path))
    kept = {name: os.environ[name] for name in KEPT_ENVIRONMENT if name in os.environ}
    output = await commands.run(command, key=str(number), seconds=LOG_SECONDS, environment={**kept, "OPENBLAS_NUM_THREADS": "1"})
    if output.code:
        ended = f"was ended by signal {-output.code}" if output.code < 0 else f"ended with status {output.code}: {output.complaint}"
        raise NotDarshan(f"{path} is no Darshan log, or is damaged: the process that read it {ended}")
    try:
        found = msgspec.msgpack.decode(output.stdout, type=Read | Unreadable)
    except msgspec.DecodeError as error:
        raise NotDarshan(f"{path} is no Darshan log, or is damaged: the process that read it printed {error}") from error
    if isinstance(found, Unreadable):
        raise NotDarshan(f"{path} is no Darshan log, or is damaged: {found.reason}")
    return found.log
