"""A workshop whose work is done when the test says so, in the test's own thread."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING

from sinks.tts.background import AtOnce

if TYPE_CHECKING:
    from sinks.tts.background import Work


class Later:
    """Takes work, and does it in do(): what is no Exception passes through there."""

    def __init__(self) -> None:
        self.waiting: list[_Job] = []
        self.waited: list[float] = []
        """Seconds that were waited for a job to be over."""

    def begin(self, work: Work, *, urgent: bool) -> _Job:  # noqa: ARG002 - the contract's
        job = _Job(work, self.waited)
        self.waiting.append(job)
        return job

    def do(self) -> None:
        while self.waiting:
            self.waiting.pop(0).do()

    def close(self) -> None:
        """Nobody works on what is left."""
        self.waiting.clear()


class _Job:
    def __init__(self, work: Work, waited: list[float]) -> None:
        self._work, self._waited = work, waited
        self._future, self._stopped = Future[None](), False

    def do(self) -> None:
        if self._stopped:
            return
        done = AtOnce(lambda: None).begin(self._work, urgent=True)
        if (error := done.error()) is None:
            self._future.set_result(None)
        else:
            self._future.set_exception(error)

    def is_done(self, seconds: float = 0.0) -> bool:
        if seconds and not self._future.done():
            self._waited.append(seconds)
        return self._future.done()

    def error(self) -> BaseException | None:
        return self._future.exception()

    def result(self) -> None:
        self._future.result()

    def stop(self) -> None:
        self._stopped = True
