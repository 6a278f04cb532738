"""An event loop whose time is simulated: where nothing is ready to run, it jumps to the next timer.

It has no sockets, no signals, no threads, and of the kernel only inotify, so the same coroutines run in the same order each time: what an
executor would do in a thread is done at once, and tasks and futures hash by the order in which they were made, because sets of them
(asyncio has many) would otherwise be iterated by their addresses.
"""

from __future__ import annotations

import asyncio
import itertools
import select
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class Idle(RuntimeError):  # noqa: N818 - a state
    """Nothing will ever run again: no timer is set."""


class _Numbered:
    number: int

    def __hash__(self) -> int:
        return self.number

    __eq__ = object.__eq__


class NumberedTask(_Numbered, asyncio.Task):  # type: ignore[type-arg]
    """A task with a hash that does not depend on its address."""


class NumberedFuture(_Numbered, asyncio.Future):  # type: ignore[type-arg]
    """The same for a future."""


class _Selector:
    """What the loop waits with: for time, and for inotify, which tells at once what this process did to files."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self._loop = loop

    def select(self, timeout: float | None) -> list[Any]:
        if readers := self._loop.readers:
            poller = select.poll()  # select() fails above 1,023 descriptors
            for descriptor in readers:
                poller.register(descriptor, select.POLLIN)
            if ready := sorted(descriptor for descriptor, _ in poller.poll(0)):
                return [readers[descriptor] for descriptor in ready]
        if timeout is None:
            raise Idle("no task of the simulation can run")
        self._loop.advance(timeout)
        return []

    def close(self) -> None:
        """Have nothing to close."""


class SimulatedLoop(asyncio.BaseEventLoop):
    """The loop. now: seconds since it was made; steps: turns of the loop so far; failure: what the oracle raised in a callback."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.steps = 0
        self.failure: AssertionError | None = None
        self.readers: dict[int, asyncio.Handle] = {}
        self._numbers = itertools.count()
        self._selector = _Selector(self)
        self._clock_resolution = 1e-6
        self.set_task_factory(self._task)

    def time(self) -> float:
        """Return the simulated time."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Advance the time by so many seconds, and exactly to the next timer if that is due by then.

        asyncio runs timers that are due within its clock's resolution. If the time were still before them then, code that waits until a
        moment would wait again and again for the rest of it, for ever, because the rest does not change.
        """
        due = self._scheduled[0].when() if self._scheduled else self.now  # type: ignore[attr-defined]
        is_due = due - self.now <= max(seconds, self._clock_resolution)
        self.now = max(self.now, due) if is_due else self.now + seconds

    def create_future(self) -> asyncio.Future[Any]:
        """Make a numbered future."""
        future = NumberedFuture(loop=self)
        future.number = next(self._numbers)
        return future

    def run_in_executor(self, _executor: object, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """Do the work at once."""
        future = self.create_future()
        try:
            future.set_result(function(*arguments))
        except Exception as error:  # noqa: BLE001 - the await raises it
            future.set_exception(error)
        return future

    def add_reader(self, descriptor: int, callback: Callable[..., Any], *arguments: Any) -> None:
        """Call back when a descriptor can be read."""
        self.readers[descriptor] = asyncio.Handle(callback, arguments, self)

    def remove_reader(self, descriptor: int) -> bool:
        """Call back no more."""
        return self.readers.pop(descriptor, None) is not None

    def keep_failure(self, _loop: object, context: dict[str, Any]) -> None:
        """Handle an exception that nothing awaits: the oracle's count, those of killed processes don't."""
        if isinstance(error := context.get("exception"), AssertionError):
            self.failure = error

    def _task(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
        # The number comes first: the constructor puts the task into a set.
        task = NumberedTask.__new__(NumberedTask, coroutine, loop=loop, **options)
        task.number = next(self._numbers)
        task.__init__(coroutine, loop=loop, **options)  # type: ignore[misc]
        return task

    def _run_once(self) -> None:
        self.steps += 1
        super()._run_once()  # type: ignore[misc]

    def _process_events(self, events: list[asyncio.Handle]) -> None:
        for handle in events:
            self._add_callback(handle)  # type: ignore[attr-defined]

    def _write_to_self(self) -> None:
        """Have no other threads to be woken by."""
