"""Read a watched file in a process of its own, with limits: what a file does to its reader, no other source notices.

    parent                          reader
    Task, pickled               ->
    None or a Window, pickled   ->
                                <-  Spans, Data or Failure, as MessagePack

The parent decodes no pickle from the reader, because a file may have taken it over. The reader has no secrets, and its environment only
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
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar

import msgspec
import numpy as np

from tokiod.batch import Batch, Form
from tokiod.clock import SystemClock
from tokiod.collector import SavedOptions, Site
from tokiod.config import plugins
from tokiod.dropped import Why  # noqa: TC001 - msgspec reads annotations
from tokiod.errors import Fatal, TokiodError, Transient
from tokiod.runtime.landlock import restrict_files
from tokiod.runtime.process_setup import die_with_parent, leave_network, python_command
from tokiod.window import Calendar, Window
from tokiod.window_data import TableRows, WindowData

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokiod.collector import SavedCollector

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


class EncodedBatch(msgspec.Struct, frozen=True):
    """A batch with its arrays as bytes."""

    dataset: str
    form: Form
    step: int
    columns: tuple[str, ...]
    time: bytes
    column: bytes
    value: bytes

    @classmethod
    def of(cls, batch: Batch) -> EncodedBatch:
        """Encode a batch."""
        time, column = np.asarray(batch.time, np.int64), np.asarray(batch.column, np.uint32)
        value = np.asarray(batch.value, _value_type(batch.form))
        return cls(batch.dataset, batch.form, batch.step, tuple(batch.columns), time.tobytes(), column.tobytes(), value.tobytes())

    def decoded(self) -> Batch:
        """Return the batch. Raises ValueError for arrays that don't fit to each other."""
        value: NDArray[np.float64] | NDArray[np.int64] = np.frombuffer(self.value, _value_type(self.form))
        time, column = np.frombuffer(self.time, np.int64), np.frombuffer(self.column, np.uint32)
        if not len(time) == len(column) == len(value):
            raise ValueError(f"{self.dataset}: arrays of different lengths")
        return Batch(self.dataset, self.form, self.step, self.columns, time, column, value)


def _value_type(form: Form) -> Any:
    return np.float64 if form == "gauge" else np.int64


class EncodedRows(msgspec.Struct, frozen=True):
    """Rows of a table with their arrays as bytes. widths: of each column's text, 0 for numbers."""

    table: str
    columns: tuple[str, ...]
    widths: tuple[int, ...]
    values: tuple[bytes, ...]
    polled: tuple[bytes, ...] = ()

    @classmethod
    def of(cls, rows: TableRows) -> EncodedRows:
        """Encode rows."""
        widths = tuple(array.dtype.itemsize if array.dtype.kind == "S" else 0 for array in rows.values)
        return cls(rows.table, rows.columns, widths, tuple(array.tobytes() for array in rows.values), rows.polled)

    def decoded(self) -> TableRows:
        """Return the rows. Raises ValueError for arrays that don't fit to each other, and for text that is not ASCII."""
        types = [f"S{width}" if width > 0 else "<i8" for width in self.widths]
        values = tuple(np.frombuffer(data, one) for data, one in zip(self.values, types, strict=True))
        if not all(data.isascii() for data, width in zip(self.values, self.widths, strict=True) if width):
            raise ValueError(f"{self.table}: text that is not ASCII")
        return TableRows(self.table, self.columns, values, self.polled)


class Spans(msgspec.Struct, tag=True, frozen=True):
    """Where a file has samples. exposure: what its reader has access to that it need not, and why; empty if there is nothing."""

    spans: list[Window]
    exposure: str


class Data(msgspec.Struct, tag=True, frozen=True):
    """The data of a window."""

    batches: list[EncodedBatch]
    records: int | None
    dropped: dict[str, int]
    tables: list[EncodedRows] = []
    why: dict[str, Why] = {}


class Failure(msgspec.Struct, tag=True, frozen=True):
    """Why a request failed; transient: another attempt may succeed."""

    message: str
    transient: bool


Response = Spans | Data | Failure


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
        response = await self._request(None)
        if not isinstance(response, Spans):
            raise self._malformed()
        self.exposure = response.exposure
        return response.spans

    async def collect(self, window: Window) -> WindowData:
        """Return the data of a window. Raises as spans()."""
        response = await self._request(window)
        if not isinstance(response, Data):
            raise self._malformed()
        batches, tables = [one.decoded() for one in response.batches], [one.decoded() for one in response.tables]
        return WindowData(batches, response.records, response.dropped, tables, why=response.why)

    async def count(self, window: Window) -> int | None:  # noqa: ARG002 - the contract's
        """Return None: a file is collected once."""
        return None

    async def close(self) -> None:
        """End the reader."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    async def _request(self, request: Window | None) -> Spans | Data:
        """Send a request and return the response. Only the reader's time counts, not the writer's."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        try:
            async with asyncio.timeout(max(0.0, self._seconds_left)):
                response = await self._respond(request)
        except TimeoutError:
            raise Fatal(f"reading it took longer than the {self._task.seconds} s of max_time") from None
        except (EOFError, ConnectionError):
            raise Fatal(f"the process that read it {await self._ending()}") from None
        except msgspec.DecodeError:
            raise self._malformed() from None
        finally:
            self._seconds_left -= loop.time() - begun
        if isinstance(response, Failure):
            raise Transient(response.message) if response.transient else Fatal(response.message)
        return response

    async def _respond(self, request: Window | None) -> Response:
        if self._process is None:
            self._process = await _start()
            self._process.stdin.write(pickle.dumps(self._task))  # type: ignore[union-attr] # a pipe
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None  # noqa: S101 - pipes
        assert stdout is not None  # noqa: S101
        stdin.write(pickle.dumps(request))
        await stdin.drain()
        (length,) = _LENGTH.unpack(await stdout.readexactly(_LENGTH.size))
        if length > MAX_RESPONSE_BYTES:
            raise Fatal(f"a window of it has more than {MAX_RESPONSE_BYTES >> 20} MiB")
        response: Response = msgspec.msgpack.decode(await stdout.readexactly(length), type=Response)
        return response

    async def _ending(self) -> str:
        assert self._process is not None  # noqa: S101 - it has died
        code = await self._process.wait()
        return f"was ended by signal {-code}" if code < 0 else f"ended with status {code}"

    def _malformed(self) -> Fatal:
        return Fatal("the process that read it gave a malformed response")


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
    """Respond to the requests on standard input until it ends."""
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


async def _serve(task: Task, requests: BinaryIO, responses: BinaryIO, exposure: str) -> None:
    collector: SavedCollector | None = None
    while True:
        try:
            request: Window | None = pickle.load(requests)  # noqa: S301 - from the parent
        except EOFError:
            return
        response: Response
        try:
            if collector is None:
                collector = plugins.load(task.kind).saved([task.path], task.options, Site(Calendar(task.timezone), SystemClock()))
            response = await _respond(collector, request, exposure)
        except Exception as error:  # noqa: BLE001 - the parent decides what follows
            response = _failure(task, error)
        encoded = msgspec.msgpack.encode(response)
        responses.write(_LENGTH.pack(len(encoded)) + encoded)
        responses.flush()


async def _respond(collector: SavedCollector, request: Window | None, exposure: str) -> Spans | Data:
    if request is None:
        return Spans(await collector.spans(), exposure)
    data = await collector.collect(request)
    records = None if data.records is None else int(data.records)
    dropped = {reason: int(n) for reason, n in data.dropped.items()}
    batches, tables = [EncodedBatch.of(batch) for batch in data.batches], [EncodedRows.of(rows) for rows in data.tables]
    return Data(batches, records, dropped, tables, dict(data.why))


def _failure(task: Task, error: Exception) -> Failure:
    if isinstance(error, MemoryError):
        return Failure(f"reading it needs more than {MAX_DATA_BYTES >> 20} MiB of memory", transient=False)
    if isinstance(error, TokiodError):
        return Failure(str(error), transient=isinstance(error, Transient))
    is_full = isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT}
    return Failure(f"a fault in the collector of {task.kind}: {type(error).__name__}: {error}", transient=is_full)


if __name__ == "__main__":
    main()
