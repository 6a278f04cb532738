"""A command that runs beside the samples: it has a period and a deadline, and no sample waits for it."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import tempfile
from typing import IO

MAX_OUTPUT_BYTES = 256 << 20
"""The job_stats of 10,000 jobs have 21 MB per target. The kernel ends a command that prints more."""


class CommandFailed(Exception):  # noqa: N818 - a counted outcome, not a fault of the program
    """A run of the command gave no output. `reason` is what is counted."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class Command:
    """A command that is started every `period` seconds at the most, and killed with its children after `deadline` seconds.

    Its output goes to a file without a name, so that it never waits for a reader. While a killed one still hangs in the kernel no other
    one is started.
    """

    def __init__(self, words: list[str], period: float, deadline: float) -> None:
        self.words = words
        self._period, self._deadline = period, deadline
        self._process: subprocess.Popen[bytes] | None = None  # noqa: TID251 - as below
        self._output: IO[bytes] | None = None
        self._started = float("-inf")
        self._is_killed = False

    @property
    def is_running(self) -> bool:
        """Return whether a run has not ended yet."""
        return self._process is not None

    def has_work(self, now: float) -> bool:
        """Return whether take() would do anything."""
        return self._process is not None or now - self._started >= self._period

    def take(self, now: float) -> bytes | None:
        """Start, watch or finish a run; return its output when it has ended. Raise CommandFailed."""
        if self._process is None:
            if now - self._started >= self._period:
                self._start(now)
            return None
        if (status := self._process.poll()) is None:
            self._watch(now)
            return None
        return self._finish(status)

    def close(self) -> None:
        """Kill what runs."""
        if self._process is not None:
            self._kill()

    def _start(self, now: float) -> None:
        self._started, self._is_killed = now, False
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the run
        try:
            self._process = subprocess.Popen(  # noqa: TID251, S603 - the agent has no event loop; the administrator's command
                self.words, stdin=subprocess.DEVNULL, stdout=self._output, stderr=subprocess.DEVNULL, start_new_session=True,
                env={**os.environ, "LC_ALL": "C"},
            )  # fmt: skip
        except OSError as error:
            self._output.close()
            raise CommandFailed("command not started", f"{self.words[0]}: {error.strerror}") from None

        with contextlib.suppress(OSError):  # it has ended already
            resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE, (MAX_OUTPUT_BYTES, MAX_OUTPUT_BYTES))

    def _watch(self, now: float) -> None:
        if now - self._started >= self._deadline and not self._is_killed:
            self._kill()
            raise CommandFailed("no answer in time", f"{self.words[0]}: killed after {self._deadline:g} s")

    def _kill(self) -> None:
        self._is_killed = True
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _finish(self, status: int) -> bytes | None:
        output, self._process = self._output, None
        if output is None:
            return None
        with output:
            if self._is_killed:
                return None
            if os.fstat(output.fileno()).st_size >= MAX_OUTPUT_BYTES:
                raise CommandFailed("output too long", f"{self.words[0]}: at most {MAX_OUTPUT_BYTES} bytes are read")
            output.seek(0)
            text = output.read()
        if status:
            raise CommandFailed("command failed", f"{self.words[0]}: exit status {status}")
        return text
