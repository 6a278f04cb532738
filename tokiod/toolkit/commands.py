"""Run a configured command with limits on time and output; end it with all processes that it started; never run two at once."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import signal
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokiod.errors import Fatal, Transient

if TYPE_CHECKING:
    from asyncio.subprocess import Process
    from collections.abc import Callable, Iterator, Mapping, Sequence

MAX_OUTPUT_BYTES = 256 << 20
STDERR_BYTES = 4096
"""Bytes of stderr that are kept, the last ones."""
GRACE_SECONDS = 1.0
"""Real seconds between SIGTERM and SIGKILL, and from SIGKILL until a process counts as stuck in the kernel."""

F_ADD_SEALS, F_SEAL_GROW = 1033, 0x0004


@dataclass(frozen=True, slots=True)
class Output:
    """The result of a command: its exit code (-N: ended by signal N), its stdout, the end of its stderr."""

    code: int
    stdout: bytes
    stderr: str

    @property
    def complaint(self) -> str:
        """The last line of stderr that is not blank."""
        lines = [line.strip() for line in self.stderr.splitlines() if line.strip()]
        return lines[-1] if lines else ""


class CommandTimeout(Transient, TimeoutError):  # noqa: N818 - what has happened
    """A command did not end in time."""


class Stuck(Transient):
    """A command of the same key could not be ended; no other is started until it has ended."""


# Output goes to files in memory instead of pipes: the end of a pipe comes only when every grandchild that holds it has ended, and a process
# that can't be killed keeps it open forever. The file can't grow beyond its size, so output can't fill the memory.
class Commands:
    """The commands of one source. kill: sends a signal to a process group, as os.killpg does.

    One command per key, such as a mount, runs at a time. A command that even SIGKILL does not end, because it is stuck in the kernel on a
    dead server, is left running and counted in `stuck`; no other command of its key is started until it has ended.
    """

    def __init__(self, max_output: int = MAX_OUTPUT_BYTES, kill: Callable[[int, int], None] = os.killpg) -> None:
        self._max_output = max_output
        self._kill = kill
        self._running: dict[str, Process | None] = {}
        self._ending: set[asyncio.Future[None]] = set()

    @property
    def stuck(self) -> int:
        """The number of commands that can't be ended."""
        return sum(process is not None and process.returncode is None for process in self._running.values())

    async def run(self, argv: Sequence[str], *, key: str, seconds: float, environment: Mapping[str, str] | None = None) -> Output:
        """Run a command without a shell and without stdin, in the locale C and in UTC; PATH and HOME are passed on.

        Raises CommandTimeout after so many real seconds, Stuck or Transient where one of the same key has not ended, Fatal where the
        program can't be run or prints too much.
        """
        self._claim(key, argv[0])
        process = None
        try:
            with _file(self._max_output) as stdout, _file(self._max_output) as stderr:
                process = await self._start(argv, environment or {}, stdout, stderr)
                try:
                    async with asyncio.timeout(seconds):
                        await process.wait()
                except TimeoutError:
                    await self._end(process)
                    raise CommandTimeout(f"{argv[0]} has not ended within {seconds:g} s{_last_message(stderr)}") from None
                return Output(process.returncode or 0, self._printed(stdout, argv[0]), _tail(stderr))
        finally:
            await self._release(key, process)

    async def close(self) -> None:
        """Wait until cancelled commands have ended, except those that can't be ended."""
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _claim(self, key: str, program: str) -> None:
        if key in self._running:
            process = self._running[key]
            if process is None or process.returncode is None:
                meanwhile = "it is not started a second time"
                if process is None:
                    raise Transient(f"{program} for {key} is still running: {meanwhile}")
                raise Stuck(f"{program} for {key} (process {process.pid}) can't be ended: {meanwhile} until it ends")
        self._running[key] = None

    async def _start(self, argv: Sequence[str], environment: Mapping[str, str], stdout: int, stderr: int) -> Process:
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        whole = {**kept, "LC_ALL": "C", "TZ": "UTC", **environment}
        try:
            return await asyncio.create_subprocess_exec(
                *argv, stdin=asyncio.subprocess.DEVNULL, stdout=stdout, stderr=stderr, env=whole, cwd="/", start_new_session=True
            )
        except OSError as error:
            if error.errno in {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ETXTBSY}:
                raise Transient(f"{argv[0]} can't be started now: {error.strerror}") from None
            raise Fatal(f"{argv[0]} can't be run: {error.strerror}; give its whole path, and permit tokiod's user to run it") from None

    async def _release(self, key: str, process: Process | None) -> None:
        """End a command with all that it started, then free its key; also when cancelled, and cancelled again."""
        if process is None:
            del self._running[key]
            return
        ending = asyncio.ensure_future(self._end_and_free(key, process))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)
        await asyncio.shield(ending)

    async def _end_and_free(self, key: str, process: Process) -> None:
        if process.returncode is None:
            await self._end(process)
        self._signal(process, signal.SIGKILL)
        if process.returncode is None:
            self._running[key] = process
        else:
            del self._running[key]

    async def _end(self, process: Process) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):
            self._signal(process, number)
            with suppress(TimeoutError):
                async with asyncio.timeout(GRACE_SECONDS):
                    await process.wait()
                return

    def _signal(self, process: Process, number: int) -> None:
        """Signal the whole process group, which may outlive the command."""
        with suppress(ProcessLookupError, PermissionError):
            self._kill(process.pid, number)

    def _printed(self, stdout: int, program: str) -> bytes:
        size = os.lseek(stdout, 0, os.SEEK_CUR)
        if size >= self._max_output:
            raise Fatal(f"{program} printed more than {self._max_output >> 20} MiB: reduce its output")
        return os.pread(stdout, size, 0)


@contextmanager
def _file(size: int) -> Iterator[int]:
    """Create a file in memory that holds at most so many bytes; the position of its descriptor is the end of the output."""
    fd = os.memfd_create("output", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, size)
        fcntl.fcntl(fd, F_ADD_SEALS, F_SEAL_GROW)
        yield fd
    finally:
        os.close(fd)


def _tail(stderr: int) -> str:
    end = os.lseek(stderr, 0, os.SEEK_CUR)
    start = max(0, end - STDERR_BYTES)
    return os.pread(stderr, end - start, start).decode(errors="replace")


def _last_message(stderr: int) -> str:
    complaint = Output(0, b"", _tail(stderr)).complaint
    return f"; its last message: {complaint}" if complaint else ""
