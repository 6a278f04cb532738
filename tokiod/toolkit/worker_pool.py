"""Worker processes that end with their parent, and that only their parent ends."""

from __future__ import annotations

import os
import signal
import sys
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.resource_tracker import ensure_running
from types import ModuleType
from typing import TYPE_CHECKING

from tokiod.runtime.process_setup import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


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


def _begin(parent: int, begin: Callable[..., None], arguments: tuple[object, ...]) -> None:
    try:
        die_with_parent(parent)
    except SystemExit:  # the pool would print a traceback
        os._exit(0)
    begin(*arguments)
