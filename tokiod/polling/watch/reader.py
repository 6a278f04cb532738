"""Read a watched file in a process of its own, with limits: what a file does to its reader, no other source notices.

    parent              reader
    Task, pickled   ->
    Find, Collect   ->
                    <-  Found, Data with the whole window, Failed

A message is the length of its JSON, the JSON, the length of a window's bytes, and these (tokiod.crossing): none but with Data. The parent
decodes no pickle from the reader, because a file may have taken it over. The reader has no secrets, and its environment only
what it needs. Where the kernel permits it, it has no network and no files but the copy and its programs (docs/decisions/0018). Its death,
and the end of its time, are errors of the file.
"""

from __future__ import annotations

import asyncio
import errno
import os
import pickle
import resource
import struct
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, ClassVar

import msgspec

from tokiod.clock import SystemClock
from tokiod.collector import SavedOptions, Site
from tokiod.config import plugins
from tokiod.crossing.codec import decode, encode
from tokiod.crossing.dialogue import MAX_TEXT, Collect, Data, Failed
from tokiod.errors import Fatal, Malformed, Refusal, TokiodError, Transient
from tokiod.runtime.landlock import restrict_files
from tokiod.runtime.process_setup import die_with_parent, leave_network, python_command
from tokiod.window import Calendar, Window

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokiod.collector import SavedCollector
    from tokiod.crossing.codec import Frame
    from tokiod.window_data import WindowData

MAX_DATA_BYTES = 512 << 20
"""Memory of a reader that is not a file's: RLIMIT_DATA."""
MAX_ADDRESS_BYTES = 4 << 30
MAX_FILE_BYTES = 4 << 30
"""Length of a spool."""
MAX_RESPONSE_BYTES = 256 << 20
CPU_GRACE_SECONDS = 5
NICENESS = 5
ENVIRONMENT = frozenset(
    {"PATH", "HOME", "TMPDIR", "TZ", "LANG", "LC_ALL", "PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "COVERAGE_PROCESS_START"}
)
SYSTEM_FILES = ("/usr", "/lib", "/lib64", "/proc", "/sys/devices/system", "/etc/ld.so.cache", "/etc/localtime", "/dev/urandom")
SHARED_FILES = ("/dev/null", "/dev/shm")  # noqa: S108 - the semaphores of worker processes
_LENGTH = struct.Struct("!Q")


class Task(msgspec.Struct, frozen=True):
    """What a reader reads, and the seconds that it has."""

    kind: str
    path: Path
    options: SavedOptions
    timezone: str
    seconds: int


class Find(msgspec.Struct, frozen=True, tag="find"):
    """Ask where a file has samples."""


class Found(msgspec.Struct, frozen=True, tag="found"):
    """Where a file has samples. exposure: what its reader has access to that it need not, and why; empty if there is nothing."""

    spans: list[Window]
    exposure: str


Asked = Find | Collect
Answer = Found | Data | Failed


class FileReader:
    """The collector of one file in a reader process, which the first request starts.

    exposure: what the reader has access to that it need not, and why; empty if there is nothing, and until spans() is called.
    """

    replayable: ClassVar[bool] = True
    needs_sample_at_end: ClassVar[bool] = False

    def __init__(self, task: Task) -> None:
        self.step = task.options.step
        self.exposure = ""
        self._task = task
        self._seconds_left = float(task.seconds)
        self._process: asyncio.subprocess.Process | None = None

    async def spans(self) -> list[Window]:
        """Return the spans with samples. Raises Transient, and Fatal, also if the reader dies."""
        try:
            answer, _ = await self._request(Find())
        except Refusal:
            raise self._malformed() from None
        if not isinstance(answer, Found):
            raise self._malformed()
        self.exposure = answer.exposure
        return answer.spans

    async def collect(self, window: Window) -> WindowData:
        """Return the data of a window. Raises as spans(), and Refusal for one that is too large: the next request starts another reader."""
        task, seconds = self._task, self._seconds_left
        answer, content = await self._request(Collect(0, task.kind, 0, window.start, window.end, seconds, task.kind, ""))
        if not isinstance(answer, Data):
            raise self._malformed()
        try:
            return decode([content])
        except Malformed:
            raise self._malformed() from None

    async def count(self, window: Window) -> int | None:  # noqa: ARG002 - the contract's
        """Return None: a file is collected once."""
        return None

    async def close(self) -> None:
        """End the reader."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    async def _request(self, request: Asked) -> tuple[Answer, bytes]:
        """Send a request and return the answer, with a window's bytes. Only the reader's time counts, not the writer's."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        try:
            async with asyncio.timeout(max(0.0, self._seconds_left)):
                answer, content = await self._answer(request)
        except TimeoutError:
            raise Fatal(f"reading it took longer than the {self._task.seconds} s of max_time") from None
        except (EOFError, ConnectionError):
            raise Fatal(f"the process that read it {await self._ending()}") from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise self._malformed() from None
        finally:
            self._seconds_left -= loop.time() - begun
        if isinstance(answer, Failed):
            raise Transient(answer.message) if answer.outcome == "transient" else Fatal(answer.message)
        return answer, content

    async def _answer(self, request: Asked) -> tuple[Answer, bytes]:
        if self._process is None:
            self._process = await _start()
            self._process.stdin.write(pickle.dumps(self._task))  # type: ignore[union-attr] # a pipe
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None  # noqa: S101 - pipes
        assert stdout is not None  # noqa: S101
        stdin.write(b"".join(_framed(msgspec.json.encode(request))))
        await stdin.drain()
        answer: Answer = msgspec.json.decode(await self._read(stdout), type=Answer)
        return answer, await self._read(stdout)

    async def _read(self, stdout: asyncio.StreamReader) -> bytes:
        (length,) = _LENGTH.unpack(await stdout.readexactly(_LENGTH.size))
        if length > MAX_RESPONSE_BYTES:
            await self.close()
            self._process = None
            raise Refusal(f"a window of it has more than {MAX_RESPONSE_BYTES >> 20} MiB", "never")
        return await stdout.readexactly(length)

    async def _ending(self) -> str:
        assert self._process is not None  # noqa: S101 - it has died
        code = await self._process.wait()
        return f"was ended by signal {-code}" if code < 0 else f"ended with status {code}"

    def _malformed(self) -> Fatal:
        return Fatal("the process that read it gave a malformed answer")


async def _start() -> asyncio.subprocess.Process:
    """Start a reader. Raises Transient if the machine can't."""
    environment = {key: value for key, value in os.environ.items() if key in ENVIRONMENT}
    command = python_command("tokiod.polling.watch.reader", str(os.getpid()))
    pipe = asyncio.subprocess.PIPE
    try:
        return await asyncio.create_subprocess_exec(
            *command, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL, env=environment | {"OPENBLAS_NUM_THREADS": "1"}
        )
    except OSError as error:
        raise Transient(f"the process that reads it can't be started: {error.strerror}") from None


def main() -> None:
    """Answer the requests on standard input until it ends."""
    kept_network = leave_network()
    die_with_parent(int(sys.argv[1]))
    # What a library prints must not get between the responses.
    with os.fdopen(os.dup(1), "wb") as responses:
        os.dup2(2, 1)
        task: Task = pickle.load(sys.stdin.buffer)  # noqa: S301 - from the parent
        _limit(task)
        kept_files = _leave_files(task.path.parent)
        kept = {"the network": kept_network, "all files of this user": kept_files}
        exposure = " and ".join(f"{what} ({why})" for what, why in kept.items() if why)
        asyncio.run(_serve(task, sys.stdin.buffer, responses, exposure))


def _leave_files(place: Path) -> str:
    """Restrict this process to Python, the system's libraries and the directory of the copy, which is also its TMPDIR from now on."""
    os.environ["TMPDIR"] = str(place)
    programs = {sys.prefix, sys.base_prefix, sys.exec_prefix, *filter(None, sys.path), *SYSTEM_FILES}
    return restrict_files(map(Path, programs), (place, *map(Path, SHARED_FILES)))


def _limit(task: Task) -> None:
    with suppress(PermissionError):  # a unit may deny it
        os.nice(NICENESS)
    limits = {
        resource.RLIMIT_DATA: MAX_DATA_BYTES,
        resource.RLIMIT_AS: MAX_ADDRESS_BYTES,
        resource.RLIMIT_CPU: task.seconds + CPU_GRACE_SECONDS,
        resource.RLIMIT_FSIZE: MAX_FILE_BYTES,
        resource.RLIMIT_CORE: 0,
    }
    for limit, value in limits.items():
        _, hard = resource.getrlimit(limit)
        allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(limit, (allowed, allowed))


async def _serve(task: Task, requests: BinaryIO, answers: BinaryIO, exposure: str) -> None:
    collector: SavedCollector | None = None
    while length := requests.read(_LENGTH.size):
        request: Asked = msgspec.json.decode(requests.read(*_LENGTH.unpack(length)), type=Asked)
        answer: Answer
        pieces: Sequence[Frame] = ()
        try:
            if collector is None:
                collector = plugins.load(task.kind).saved([task.path], task.options, Site(Calendar(task.timezone), SystemClock()))
            if isinstance(request, Find):
                answer = Found(await collector.spans(), exposure)
            else:
                pieces = encode(await collector.collect(Window(request.start, request.end)))
                answer = Data(request.id, 0, 1)
        except Exception as error:  # noqa: BLE001 - the parent decides what follows
            answer = _failure(task, error)
        answers.writelines([*_framed(msgspec.json.encode(answer)), *_framed(*pieces)])
        answers.flush()


def _framed(*pieces: Frame) -> list[Frame]:
    return [_LENGTH.pack(sum(map(len, pieces))), *pieces]


def _failure(task: Task, error: Exception) -> Failed:
    if isinstance(error, MemoryError):
        return Failed(0, "fatal", f"reading it needs more than {MAX_DATA_BYTES >> 20} MiB of memory")
    if isinstance(error, TokiodError):
        return Failed(0, "transient" if isinstance(error, Transient) else "fatal", str(error)[:MAX_TEXT])
    is_full = isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}
    text = f"a fault in the collector of {task.kind}: {type(error).__name__}: {error}"
    return Failed(0, "transient" if is_full else "fatal", text[:MAX_TEXT])


if __name__ == "__main__":
    main()
