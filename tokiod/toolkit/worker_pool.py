"""Processes that work for one of ours: they end with us, and leave it to us to end them."""

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


# Ctrl-C reaches all processes of a terminal: it is ours to end the others, and they inherit from the thread that starts them that they
# don't hear it. And they need nothing of the program we are: its command line's modules are half of the time it takes to start.
class _Process(SpawnProcess):
    def start(self) -> None:
        ensure_running()  # the tracker's start would let the thread hear again
        heard, program = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}), sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            super().start()
        finally:
            sys.modules["__main__"] = program
            signal.pthread_sigmask(signal.SIG_SETMASK, heard)


class _Processes(SpawnContext):
    Process = _Process


def _nothing() -> None:
    pass


@contextmanager
def workers(count: int, begin: Callable[..., None] = _nothing, *arguments: object) -> Iterator[ProcessPoolExecutor]:
    """Yield an executor of so many processes; what is not done at the end of the block is not begun.

    begin: called in each with arguments, all of which can be pickled, before anything else.
    """
    pool = ProcessPoolExecutor(count, _Processes(), _begin, (os.getpid(), begin, arguments))
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _begin(parent: int, begin: Callable[..., None], arguments: tuple[object, ...]) -> None:
    try:
        die_with_parent(parent)
    except SystemExit:  # the pool would print it
        os._exit(0)
    begin(*arguments)
