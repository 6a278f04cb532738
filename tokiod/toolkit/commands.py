"""Run a command that a person configured: bounded in time and output, ended with all that it started, never two at once."""

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

MOST = 256 << 20
"""Bytes that a command may print."""
TOLD = 4096
"""Bytes of stderr that are kept, the last ones."""
GRACE = 1.0
"""Real seconds between SIGTERM and SIGKILL, and after that until a process counts as stuck in the kernel."""

F_ADD_SEALS, F_SEAL_GROW = 1033, 0x0004


@dataclass(frozen=True, slots=True)
class Output:
    """What a command that ended by itself left: its exit code (-N: ended by signal N), its stdout, the end of its stderr."""

    code: int
    stdout: bytes
    stderr: str

    @property
    def complaint(self) -> str:
        """The last line of stderr that says anything."""
        lines = [line.strip() for line in self.stderr.splitlines() if line.strip()]
        return lines[-1] if lines else ""


class TookTooLong(Transient, TimeoutError):  # noqa: N818 - what has happened
    """A command did not end in time."""


class Stuck(Transient):
    """A command of the same key could not be ended, and nothing else is begun until it is gone."""


# Output goes to files in memory, not through pipes: whoever waits for the end of a pipe waits for every grandchild that holds it, and a
# process that can't be killed would keep it open for ever. The file can't grow beyond its size, so nothing fills the memory either.
class Commands:
    """The commands of one source. kill: sends a signal to a process group, as os.killpg does.

    Of one key, a mount for example, one command runs at a time. One that is not even ended by SIGKILL, stuck in the kernel on a dead
    server, is left where it is and counted in `stuck`; nothing else of its key is begun until it is gone.
    """

    def __init__(self, most: int = MOST, kill: Callable[[int, int], None] = os.killpg) -> None:
        self._most = most
        self._kill = kill
        self._running: dict[str, Process | None] = {}
        self._ending: set[asyncio.Future[None]] = set()

    @property
    def stuck(self) -> int:
        """How many commands can't be ended."""
        return sum(process is not None and process.returncode is None for process in self._running.values())

    async def run(self, argv: Sequence[str], *, key: str, seconds: float, environment: Mapping[str, str] | None = None) -> Output:
        """Run a command, with no shell and no stdin, in the locale C and in UTC; PATH and HOME stay.

        Raises TookTooLong after so many real seconds, Stuck or Transient where one of the same key has not ended, Fatal where the
        program can't be run or prints too much.
        """
        self._claim(key, argv[0])
        process = None
        try:
            with _file(self._most) as stdout, _file(self._most) as stderr:
                process = await self._started(argv, environment or {}, stdout, stderr)
                try:
                    async with asyncio.timeout(seconds):
                        await process.wait()
                except TimeoutError:
                    await self._end(process)
                    raise TookTooLong(f"{argv[0]} has not ended within {seconds:g} s{_said(stderr)}") from None
                return Output(process.returncode or 0, self._printed(stdout, argv[0]), _tail(stderr))
        finally:
            await self._release(key, process)

    async def close(self) -> None:
        """Wait until what was cancelled has ended; what can't be ended is left."""
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _claim(self, key: str, program: str) -> None:
        if key in self._running:
            process = self._running[key]
            if process is None or process.returncode is None:
                meanwhile = "it is not started again meanwhile"
                if process is None:
                    raise Transient(f"{program} for {key} is still running: {meanwhile}")
                raise Stuck(f"{program} for {key} (process {process.pid}) can't be ended and is waited for: {meanwhile}")
        self._running[key] = None

    async def _started(self, argv: Sequence[str], environment: Mapping[str, str], stdout: int, stderr: int) -> Process:
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        whole = {**kept, "LC_ALL": "C", "TZ": "UTC", **environment}
        try:
            return await asyncio.create_subprocess_exec(
                *argv, stdin=asyncio.subprocess.DEVNULL, stdout=stdout, stderr=stderr, env=whole, cwd="/", start_new_session=True
            )
        except OSError as error:
            if error.errno in {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.ETXTBSY}:
                raise Transient(f"{argv[0]} can't be started now: {error.strerror}") from None
            raise Fatal(f"{argv[0]} can't be run: {error.strerror}; give its whole path, and let tokiod's user run it") from None

    async def _release(self, key: str, process: Process | None) -> None:
        """Let the next one run, once this one has ended with all that it started; also when cancelled, and cancelled again."""
        if process is None:
            del self._running[key]
            return
        ending = asyncio.ensure_future(self._ended(key, process))
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)
        await asyncio.shield(ending)

    async def _ended(self, key: str, process: Process) -> None:
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
                async with asyncio.timeout(GRACE):
                    await process.wait()
                return

    def _signal(self, process: Process, number: int) -> None:
        """Signal the whole group, of which the command may not be a member any more, but others are."""
        with suppress(ProcessLookupError, PermissionError):
            self._kill(process.pid, number)

    def _printed(self, stdout: int, program: str) -> bytes:
        size = os.lseek(stdout, 0, os.SEEK_CUR)
        if size >= self._most:
            raise Fatal(f"{program} printed more than {self._most >> 20} MiB: ask it for less")
        return os.pread(stdout, size, 0)


@contextmanager
def _file(size: int) -> Iterator[int]:
    """Make a file in memory with room for so many bytes and no more; where its descriptor stands, there it has been written to."""
    fd = os.memfd_create("output", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(fd, size)
        fcntl.fcntl(fd, F_ADD_SEALS, F_SEAL_GROW)
        yield fd
    finally:
        os.close(fd)


def _tail(stderr: int) -> str:
    end = os.lseek(stderr, 0, os.SEEK_CUR)
    start = max(0, end - TOLD)
    return os.pread(stderr, end - start, start).decode(errors="replace")


def _said(stderr: int) -> str:
    complaint = Output(0, b"", _tail(stderr)).complaint
    return f"; it said: {complaint}" if complaint else ""
