"""Windows in flight: submitted to the writer and not yet answered."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tokiod.crossing.codec import Frame
    from tokiod.errors import Refusal
    from tokiod.window_data import WindowMeta
    from tokiod.window_result import Answer, Stored


class InFlight(msgspec.Struct, frozen=True, eq=False):
    """A window. parts: the frames of each; nbytes: of its samples and rows."""

    meta: WindowMeta
    parts: Sequence[Sequence[Frame]]
    nbytes: int
    answer: Answer


class InFlightWindows:
    """Up to `max_windows` windows and `max_bytes` bytes, over all sources: they bound the bus's memory, and a slow writer slows polling.

    A window of more than `max_bytes` is in flight alone. Windows are taken in the order in which they are submitted, or small ones would
    starve a large one. Attempts are numbered through for the life of the process: the last one sent is the highest one for any window, also
    when the same window is collected and submitted again.
    """

    def __init__(self, max_windows: int, max_bytes: int) -> None:
        self.max_windows = max_windows
        self.max_bytes = max_bytes
        self.nbytes = 0
        self.resent = 0
        self._attempts = count(1)
        self._windows: dict[int, InFlight] = {}
        self._unsent: asyncio.Queue[int] = asyncio.Queue()
        self._adding = asyncio.Lock()
        self._room = asyncio.Event()

    def __len__(self) -> int:
        return len(self._windows)

    async def add(self, meta: WindowMeta, parts: Sequence[Sequence[Frame]], nbytes: int) -> Answer:
        """Wait for room, then take a window; return the future of its answer."""
        async with self._adding:
            while not self._has_room(nbytes):
                self._room.clear()
                await self._room.wait()
            window = InFlight(meta, parts, nbytes, asyncio.get_running_loop().create_future())
            self.nbytes += nbytes
            self._enqueue(window)
        return window.answer

    async def next(self) -> tuple[int, InFlight]:
        """Wait for a window to send, and return the number of the attempt that this will be."""
        while True:
            attempt = await self._unsent.get()
            if attempt in self._windows:
                return attempt, self._windows[attempt]

    def is_current(self, attempt: int) -> bool:
        """Return whether an attempt still waits for its answer."""
        return attempt in self._windows

    def resolve(self, attempt: int, outcome: Stored | Refusal) -> None:
        """Pass on the answer to an attempt, if it is current."""
        window = self._windows.pop(attempt, None)
        if window is None:
            return
        self.nbytes -= window.nbytes
        self._room.set()
        if not window.answer.done():
            window.answer.set_result(outcome)

    def renew(self) -> None:
        """Begin a new attempt at every window, in their order: the writer that received the others may be gone."""
        unsent = {self._unsent.get_nowait() for _ in range(self._unsent.qsize())}
        windows, self._windows = self._windows, {}
        self.resent += len(windows.keys() - unsent)
        for window in windows.values():
            self._enqueue(window)

    def cancel(self) -> None:
        """Cancel the futures of all windows: no answer will come."""
        for window in self._windows.values():
            window.answer.cancel()

    def _has_room(self, nbytes: int) -> bool:
        return not self._windows or (len(self._windows) < self.max_windows and self.nbytes + nbytes <= self.max_bytes)

    def _enqueue(self, window: InFlight) -> None:
        attempt = next(self._attempts)
        self._windows[attempt] = window
        self._unsent.put_nowait(attempt)
