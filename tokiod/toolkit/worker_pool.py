"""Worker processes that end with their parent, and that only their parent ends."""

from __future__ import annotations

import os
import pickle
import signal
import sys
from concurrent.futures import Executor, Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from mmap import mmap
from multiprocessing import Pipe
from multiprocessing.context import ForkProcess, SpawnProcess
from multiprocessing.resource_tracker import ensure_running
from queue import SimpleQueue
from threading import Lock, Thread
from traceback import format_exc
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from tokiod.runtime.process_setup import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.connection import Connection

R = TypeVar("R")
_STARTING = Lock()
"""One process at a time is started: __main__ is another module meanwhile."""


# Workers do not need the parent's __main__: importing the modules of a command line is half of a worker's start. forkserver
# imports them too, and costs 13 MiB for the life of the parent: docs/decisions/0016.
class _WithoutMain(SpawnProcess):
    def start(self) -> None:
        program = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            super().start()
        finally:
            sys.modules["__main__"] = program


def _nothing() -> None:
    pass


@contextmanager
def workers(count: int, begin: Callable[..., None] = _nothing, *arguments: object, fork: bool = False) -> Iterator[Workers]:
    """Yield an executor of `count` processes. Calls that have not started at the end of the block are cancelled.

    begin: called first in each process, with arguments; they are pickled unless `fork`. fork: copies of this process, without other
    threads that hold a lock.
    """
    if not fork:
        ensure_running()  # when a process starts it later, it unblocks SIGINT
    pool = Workers(count, ForkProcess if fork else _WithoutMain, (begin, arguments))
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


# Each process has a pipe of its own, whose other end only it holds. The pipe of a ProcessPoolExecutor is shared: where a process is killed
# with half of a result in it, the pool waits for the other half for ever (docs/decisions/0016).
class Workers(Executor):
    """Calls functions in processes. When one is killed, the others are too: all calls that have not ended raise BrokenProcessPool."""

    def __init__(self, count: int, kind: type[ForkProcess | SpawnProcess], begin: tuple[Callable[..., None], tuple[object, ...]]) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], tuple[object, ...]] | None] = SimpleQueue()
        self._lock = Lock()
        self._is_broken = self._has_ended = False
        self._kind, self._begin = kind, begin
        self._processes: list[ForkProcess | SpawnProcess] = []
        # The signal at a parent's death comes at the end of the thread that started the process: it is the one that hands calls out.
        started = [self._start() if kind is ForkProcess else None for _ in range(count)]
        self._threads = [Thread(target=self._hand_out, args=(one,)) for one in started]
        for thread in self._threads:
            thread.start()

    def _start(self) -> tuple[Connection, ForkProcess | SpawnProcess]:
        # Ctrl-C reaches all processes of a terminal. Workers leave it to their parent: they inherit a blocked SIGINT.
        previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            ours, theirs = Pipe()
            with theirs, _STARTING:
                process = self._kind(target=_work, args=(theirs, os.getpid(), *self._begin))
                process.start()
                self._processes.append(process)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)
        return ours, process

    def submit(self, call: Callable[..., R], /, *arguments: object, **named: object) -> Future[R]:
        """Call a function in a process. Raises BrokenProcessPool when one was killed, RuntimeError after shutdown."""
        future: Future[R] = Future()
        with self._lock:
            if self._is_broken:
                raise BrokenProcessPool
            if self._has_ended:
                raise RuntimeError("no call after shutdown")
            self._calls.put((future, (call, arguments, named)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002 - as an Executor has it
        """End the processes after the calls that were submitted, or after those that have begun."""
        with self._lock:
            self._has_ended = True
            if cancel_futures:
                for future in self._waiting():
                    future.cancel()
            for _ in self._threads:
                self._calls.put(None)
        if wait:
            for thread in self._threads:
                thread.join()

    def _hand_out(self, started: tuple[Connection, ForkProcess | SpawnProcess] | None) -> None:
        try:
            connection, process = started or self._start()
        except OSError:
            self._break()
            return
        with connection:
            while (taken := self._calls.get()) is not None:
                future, call = taken
                if not future.set_running_or_notify_cancel():
                    continue
                try:
                    connection.send(call)
                    result, error = connection.recv()
                except (EOFError, OSError):
                    future.set_exception(BrokenProcessPool())
                    self._break()
                    break
                except Exception as unpicklable:  # noqa: BLE001 - the caller's
                    result, error = None, unpicklable
                if error is None:
                    future.set_result(result)
                else:
                    future.set_exception(error)
            with suppress(OSError):  # it was killed
                connection.send_bytes(b"")
        process.join()

    def _break(self) -> None:
        with self._lock:
            self._is_broken = True
            for future in self._waiting():
                if future.set_running_or_notify_cancel():
                    future.set_exception(BrokenProcessPool())
            for process in self._processes:
                process.kill()
            for _ in self._threads:
                self._calls.put(None)

    def _waiting(self) -> Iterator[Future[Any]]:
        while not self._calls.empty():
            if (taken := self._calls.get()) is not None:
                yield taken[0]


def _work(connection: Connection, parent: int, begin: Callable[..., None], arguments: tuple[object, ...]) -> None:
    die_with_parent(parent)
    begin(*arguments)
    with suppress(EOFError):  # the parent has ended
        while data := connection.recv_bytes():
            connection.send_bytes(_answer(data))


def _answer(data: bytes) -> bytes:
    try:
        call, positional, named = pickle.loads(data)  # noqa: S301 - of the parent
        return pickle.dumps((call(*positional, **named), None))
    except Exception as error:  # noqa: BLE001 - the caller's
        error.add_note(format_exc())
        return pickle.dumps((None, error))


# A pipe takes 64 KiB at a time, and for each of them a thread of the parent would wait for the worker. A file in memory is written at once,
# and is used again, as fresh memory takes as long as a copy. It disappears with this process.
class FilesInMemory:
    """Files in memory that hand bytes to workers. close() deletes them."""

    def __init__(self) -> None:
        self._all: list[_FileInMemory] = []
        self._free: list[_FileInMemory] = []

    def submit(self, pool: Executor, call: Callable[..., R], data: bytes, *arguments: object) -> Future[R]:
        """Submit a call whose first argument is the path of a file that begins with some bytes, until the call has ended."""
        file = self._free.pop() if self._free else self._new()
        file.write(data)
        future = pool.submit(call, file.path, *arguments)
        future.add_done_callback(lambda _: self._free.append(file))
        return future

    def close(self) -> None:
        """Delete the files, after the workers have ended."""
        for file in self._all:
            file.close()

    def _new(self) -> _FileInMemory:
        self._all.append(_FileInMemory())
        return self._all[-1]


class _FileInMemory:
    def __init__(self) -> None:
        self._descriptor = os.memfd_create("tokiod-work")
        self._memory: mmap | None = None
        self.path = f"/proc/{os.getpid()}/fd/{self._descriptor}"

    def write(self, data: bytes) -> None:
        if self._memory is None or len(self._memory) < len(data):
            size = 1 + len(data) + len(data) // 4
            os.ftruncate(self._descriptor, size)
            self._memory = mmap(self._descriptor, size)
        self._memory[: len(data)] = data

    def close(self) -> None:
        if self._memory is not None:
            self._memory.close()
        os.close(self._descriptor)
