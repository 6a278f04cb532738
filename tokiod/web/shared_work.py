"""Work of threads that requests share: those that ask for the same thing before a thread begins with it get one answer.

A request that comes after the beginning starts work of its own: it may know of data that the earlier work has not seen.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

T = TypeVar("T")


class SharedWork:
    """Some threads, and the work that waits for one. len(): how much of it waits or runs."""

    def __init__(self, threads: int) -> None:
        self._threads = ThreadPoolExecutor(threads, "views")
        self._waiting: dict[Hashable, asyncio.Task[Any]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def waits(self, key: Hashable) -> bool:
        """Return whether work of this key waits for a thread."""
        return key in self._waiting

    async def result(self, key: Hashable, work: Callable[[], T]) -> T:
        """Return what a function returns in a thread, or the same function of the key that waits already."""
        if (found := self._waiting.get(key)) is None:
            # A task starts after it is in the dictionary, from which the thread takes it.
            found = self._waiting[key] = asyncio.create_task(self._threaded(key, work))
            self._count += 1
            found.add_done_callback(self._ended)
        # A client that goes away does not end the work of others.
        result: T = await asyncio.shield(found)
        return result

    def close(self) -> None:
        """Drop what waits."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _threaded(self, key: Hashable, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._begun, key, work)

    def _begun(self, key: Hashable, work: Callable[[], T]) -> T:
        del self._waiting[key]
        return work()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._count -= 1
        if not task.cancelled():
            task.exception()  # also where no client waits for it any more
