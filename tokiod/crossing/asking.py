"""What another process is asked, and its answers."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING

import msgspec

from tokiod.crossing.codec import decode
from tokiod.crossing.dialogue import Answer, Asked, Cancel, Collect, Count, Counted, Data, Failed
from tokiod.crossing.parts import Joining
from tokiod.errors import Fatal, Malformed, NotYet, Refusal, Transient

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tokiod.crossing.codec import Frame
    from tokiod.window_data import WindowData

KEPT_ENDED = 1024
"""Requests whose late answers are known as such."""

_ANSWERS: dict[type[Collect | Count], type[Answer]] = {Collect: Data, Count: Counted}


class _Request(msgspec.Struct, eq=False):
    message: Collect | Count
    answer: asyncio.Future[WindowData | int | None]


class RemoteFault(Exception):  # noqa: N818 - a fault in a collector, whose class is not known here
    """A collector failed in another process by a fault in tokiod; the log there has its traceback."""


class Unasked(Exception):  # noqa: N818 - an event
    """An answer that was not asked for."""


class Asking:
    """The requests to one process, and what has come of their answers.

    peer: names the process in errors, "host zone-b"; send: sends a message, and raises Transient where the process can't be reached.
    where: what is added to its own errors.
    """

    def __init__(self, peer: str, send: Callable[[Asked], None], where: str = "") -> None:
        self._peer, self._send, self._where = peer, send, where
        self._numbers = count(1)
        self._requests: dict[int, _Request] = {}
        self._ended: deque[int] = deque(maxlen=KEPT_ENDED)
        self._joining: Joining[int, Data] = Joining()

    async def ask(self, make: Callable[[int], Collect | Count]) -> WindowData | int | None:
        """Ask for a window or a count, and return it. make: makes the message from its number. Where this is cancelled, so is the request.

        Raises Transient where the process can't be reached, what its collector raised, and RemoteFault.
        """
        number = next(self._numbers)
        request = _Request(make(number), asyncio.get_running_loop().create_future())
        self._send(request.message)
        self._requests[number] = request
        try:
            return await request.answer
        finally:
            del self._requests[number]
            self._ended.append(number)
            self._joining.settle(number, Data.attempt)
            if request.answer.cancelled():
                with suppress(Transient):
                    self._send(Cancel(number))

    def answered(self, answer: Answer, frames: Sequence[Frame] = ()) -> None:
        """Take an answer, and the frames of Data.

        Raises Unasked for what was not asked for, and Malformed for a window that can't be decoded. A request with this number fails.
        """
        request = self._requests.get(answer.id)
        if request is None:
            if answer.id not in self._ended:
                raise Unasked(f"an answer to request {answer.id}")
            return
        if not isinstance(answer, (Failed, _ANSWERS[type(request.message)])):
            self._fail(request, f"{self._peer} sent {type(answer).__name__} for a request of {type(request.message).__name__}")
            raise Unasked(f"an answer to another question than request {answer.id}")
        if request.answer.done():
            return
        match answer:
            case Counted():
                request.answer.set_result(answer.records)
            case Failed():
                request.answer.set_exception(self._error(answer))
            case Data():
                self._take(request, answer, frames)

    def _take(self, request: _Request, answer: Data, frames: Sequence[Frame]) -> None:
        try:
            whole = self._joining.add(answer.id, answer, frames)
            data = None if whole is None else decode(whole[1])
        except (Malformed, Refusal) as error:
            self._joining.settle(answer.id, answer.attempt)
            self._fail(request, f"{self._peer} sent a malformed window: {error}")
            raise error if isinstance(error, Malformed) else Malformed("size", str(error)) from None
        self.limit(self._joining.max_bytes)
        if data is not None:
            request.answer.set_result(data)

    @property
    def nbytes(self) -> int:
        """What has come of windows that are not whole yet."""
        return self._joining.nbytes

    def limit(self, max_bytes: int) -> None:
        """Fail the requests whose windows have waited longest, until the parts of all fit into `max_bytes`."""
        for excess in self._joining.pop_excess(max_bytes):
            self._fail(self._requests[excess.key], f"{self._peer} sent windows of over {max_bytes} bytes at the same time")

    def fail_all(self, reason: str) -> None:
        """Fail all requests: their answers will not come."""
        for request in self._requests.values():
            self._fail(request, reason)

    def _fail(self, request: _Request, reason: str) -> None:
        if not request.answer.done():
            request.answer.set_exception(Transient(reason))

    def _error(self, failed: Failed) -> Exception:
        text = failed.message + self._where
        match failed.outcome:
            case "not_yet":
                return NotYet(text, failed.ended_at)
            case "timeout":
                return TimeoutError(text)
            case "fatal":
                return Fatal(text)
            case "bug":
                return RemoteFault(text)
            case "rejected":
                return Refusal(text, "never")
            case _:
                return Transient(text, failed.ended_at)
