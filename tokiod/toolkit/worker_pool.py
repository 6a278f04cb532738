"""Worker processes that end with their parent, and that only their parent ends."""

from __future__ import annotations

import os
import signal
import sys
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from mmap import mmap
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.resource_tracker import ensure_running
from types import ModuleType
from typing import TYPE_CHECKING, TypeVar

from tokiod.runtime.process_setup import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Executor, Future

R = TypeVar("R")


# Ctrl-C reaches all processes of a terminal. Workers leave it to their parent: they inherit a blocked SIGINT from the thread that starts
# them. And they do not need the parent's __main__: importing the modules of a command line is half of a worker's start. forkserver
# imports them too, and costs 13 MiB for the life of the parent: docs/decisions/0016.
class _Process(SpawnProcess):
    def start(self) -> None:
        ensure_running()  # it would unblock SIGINT when it starts later
        previous_mask, program = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}), sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            super().start()
        finally:
            sys.modules["__main__"] = program
            signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)


class _Processes(SpawnContext):
    Process = _Process


def _nothing() -> None:
    pass


@contextmanager
def workers(count: int, begin: Callable[..., None] = _nothing, *arguments: object) -> Iterator[ProcessPoolExecutor]:
    """Yield an executor of so many processes. Calls that have not started at the end of the block are cancelled.

    begin: called first in each process, with arguments that can be pickled.
    """
    pool = ProcessPoolExecutor(count, _Processes(), _begin, (os.getpid(), begin, arguments))
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


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


def _begin(parent: int, begin: Callable[..., None], arguments: tuple[object, ...]) -> None:
    try:
        die_with_parent(parent)
    except SystemExit:  # the pool would print a traceback
        os._exit(0)
    begin(*arguments)
