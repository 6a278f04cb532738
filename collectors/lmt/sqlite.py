"""A SQLite file with LMT's tables: a saved copy, or a live one that grows or is replaced."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import apsw

from collectors.lmt.copy import Copy
from tokiod.errors import CollectError, Fatal, Transient

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from collectors.lmt.database import Ask, Schema

T = TypeVar("T")

FAILURES: tuple[type[Exception], ...] = (apsw.Error, OSError, ValueError)

IMPATIENCE = 0.05
"""Seconds after which a cancelled query that did not stop is interrupted again: it may not have begun the first time."""


class Sqlite:
    """The file at `path`, opened when it is first asked, and anew when another one stands there."""

    local: ClassVar[str] = "datetime(TIMESTAMP)"

    def __init__(self, path: Path, *, finished: bool) -> None:
        self.finished = finished
        self._path = path
        self._copy: Copy | None = None
        self._inode: tuple[int, int] | None = None
        self._lock = asyncio.Lock()

    def __str__(self) -> str:
        return str(self._path)

    async def schema(self) -> Schema:
        """Return which tables and columns there are."""
        return await self._run(lambda copy: copy.schema)

    async def zone(self) -> dt.tzinfo | None:
        """Return None: a file doesn't tell."""
        return None

    async def select(self, sql: str) -> list[tuple[Any, ...]]:
        """Return the rows of a small result."""
        return await self._run(lambda copy: copy.db.execute(sql).fetchall())

    async def numbers(self, ask: Ask) -> list[NDArray[Any]]:
        """Return what ask.named says, an array each."""
        return await self._run(lambda copy: copy.numbers(ask))

    async def count(self, ask: Ask) -> int:
        """Return how many rows there are."""
        return await self._run(lambda copy: copy.count(ask))

    async def close(self) -> None:
        """Close the file."""
        async with self._lock:
            self._drop()

    async def _run(self, work: Callable[[Copy], T]) -> T:
        async with self._lock:
            thread = asyncio.ensure_future(asyncio.to_thread(self._work, work))
            try:
                return await asyncio.shield(thread)
            except asyncio.CancelledError:
                await self._interrupt(thread)
                raise

    async def _interrupt(self, thread: asyncio.Future[Any]) -> None:
        while not thread.done():
            with suppress(asyncio.CancelledError, apsw.Error):
                if self._copy is not None:
                    self._copy.db.interrupt()
                await asyncio.wait({thread}, timeout=IMPATIENCE)
        thread.cancelled() or thread.exception()

    def _work(self, work: Callable[[Copy], T]) -> T:
        try:
            return work(self._opened())
        except FAILURES as error:
            self._drop()
            raise self._classified(error) from None

    def _opened(self) -> Copy:
        found = self._path.stat()
        if self._inode != (found.st_dev, found.st_ino):
            self._drop()
        if not found.st_size:
            raise ValueError("it is empty")
        if self._copy is None:
            self._copy = Copy(self._path, finished=self.finished)
            self._inode = found.st_dev, found.st_ino
        return self._copy

    def _drop(self) -> None:
        copy, self._copy, self._inode = self._copy, None, None
        if copy is not None:
            copy.db.close()

    def _classified(self, error: Exception) -> CollectError:
        if isinstance(error, PermissionError):
            return Fatal(f"{self._path} can't be read: {error.strerror}; let tokiod's user read it and search its directories")
        reason = error.strerror if isinstance(error, OSError) else str(error)
        if self.finished:
            return Fatal(f"{self._path} is no SQLite copy of an LMT database, or a damaged one: {reason}")
        return Transient(f"{self._path} can't be read now: {reason}; it may just be being replaced")
