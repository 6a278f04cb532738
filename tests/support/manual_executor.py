"""An executor whose work is done when a test calls run_all(), in the test's own thread."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING

from sinks.tts.rewrite_worker import InlineExecutor

if TYPE_CHECKING:
    from sinks.tts.rewrite_worker import Work


class ManualExecutor:
    """Queues work, and does it in run_all(): exceptions that are no Exception pass through there."""

    def __init__(self) -> None:
        self.waiting: list[_Job] = []
        self.waited: list[float] = []
        """Seconds that were waited for a job to be done."""

    def submit(self, work: Work, *, urgent: bool) -> _Job:  # noqa: ARG002 - the contract's
        job = _Job(work, self.waited)
        self.waiting.append(job)
        return job

    def run_all(self) -> None:
        while self.waiting:
            self.waiting.pop(0).run()

    def close(self) -> None:
        """Drop the work that is left."""
        self.waiting.clear()


class _Job:
    def __init__(self, work: Work, waited: list[float]) -> None:
        self._work, self._waited = work, waited
        self._future, self._cancelled = Future[None](), False

    def run(self) -> None:
        if self._cancelled:
            return
        done = InlineExecutor(lambda: None).submit(self._work, urgent=True)
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

    def cancel(self) -> None:
        self._cancelled = True
