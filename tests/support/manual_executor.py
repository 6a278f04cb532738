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
        self.waiting: list[Job] = []
        self.waited: list[float] = []
        """Seconds that were waited for a job to be done."""

    def submit(self, work: Work, *, urgent: bool) -> Job:  # noqa: ARG002 - the contract's
        job = _WatchedJob(work, self.waited)
        self.waiting.append(job)
        return job

    def run_all(self) -> None:
        while self.waiting:
            self.waiting.pop(0).run()

    def close(self) -> None:
        """Drop the work that is left."""
        self.waiting.clear()


class Job:
    """Work that is done when run() is called. An exception that is no Exception passes through run(), and the work counts as not done."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._future, self._cancelled = Future[None](), False

    def run(self) -> None:
        """Do the work, unless it was done or cancelled."""
        if self._cancelled or self._future.done():
            return
        done = InlineExecutor(lambda: None).submit(self._work, urgent=True)
        if (error := done.error()) is None:
            self._future.set_result(None)
        else:
            self._future.set_exception(error)

    def is_done(self, seconds: float = 0.0) -> bool:  # noqa: ARG002 - the contract's
        return self._future.done()

    def error(self) -> BaseException | None:
        return self._future.exception()

    def result(self) -> None:
        self._future.result()

    def cancel(self) -> None:
        self._cancelled = True


class _WatchedJob(Job):
    def __init__(self, work: Work, waited: list[float]) -> None:
        super().__init__(work)
        self._waited = waited

    def is_done(self, seconds: float = 0.0) -> bool:
        if seconds and not self._future.done():
            self._waited.append(seconds)
        return super().is_done()
