"""What follows from a failed attempt at a window: the one retry policy, decided by the error's class.

    Transient    the source may be down: all of it waits, exponentially longer with each failure in a row, with full jitter
    NotYet       expected: the window is queried again soon, nothing else waits, nothing counts as failed
    Fatal        an administrator must act: the source waits long and is then queried again
    Refusal      the writer can't store this window. never: the window waits very long, nothing else does. busy: the writer is creating
                 what the window needs; the window waits briefly, then longer, nothing else does, nothing counts as failed.
                 retry: as Transient

A TimeoutError is Transient, counted separately. Any other TokiodError (a missing secret) is Fatal. Any other exception of a collector, and
a malformed batch, is a fault in it: Transient, so that one bad answer stops no other window, and logged with its traceback.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from tokiod.errors import Refusal
from tokiod.runtime.backoff import FATAL_RETRY_SECONDS, MAX_SOURCE_WAIT_SECONDS, backoff, outcome_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

    from tokiod.errors import When
    from tokiod.ledger.ledger import Unstored
    from tokiod.window import Window
    from tokiod.window_result import Outcome

LEDGER_RETRY_SECONDS = 5.0
"""Until a ledger that can't be opened or read is tried again. Nothing is collected meanwhile: it may be stored already."""
MAX_WINDOW_WAIT_SECONDS = 3600.0
REJECTED_RETRY_SECONDS = 6 * 3600.0
WINDOW_WAIT_ATTEMPTS = 3
"""Attempts after which a window waits too, so that one that always fails (too large for the time limit) delays no other."""
FIRST_BUSY_SECONDS = 0.1
MAX_BUSY_SECONDS = 2.0
"""The writer creates a small file in less time; during one of gigabytes the source should not be queried again and again."""


class Verdict(msgspec.Struct, frozen=True):
    """What follows: seconds before the source is queried again, and before this window is."""

    outcome: Outcome
    source_wait: float
    window_wait: float


_REFUSED: dict[When, Outcome] = {"busy": "busy", "retry": "transient", "never": "rejected"}


class SourceBackoff:
    """The failures of one source in a row, the attempts at its windows, and the waits that follow.

    not_before: monotonic time until which the source is not queried.
    """

    def __init__(self, settle: float, rng: Random) -> None:
        self.not_before = 0.0
        self._not_yet_seconds = float(min(max(settle, 1), 60))
        self._rng = rng
        self._attempts: Counter[Window] = Counter()
        self._queries = 0
        self._failed_query = 0
        self._failures = 0
        self._busy = 0
        self._busy_until = -math.inf

    def begin(self) -> int:
        """Count a query; return its number."""
        self._queries += 1
        return self._queries

    def attempts(self, window: Window) -> int:
        """Return how many attempts at a window failed."""
        return self._attempts[window]

    def restore(self, unstored: Iterable[Unstored]) -> None:
        """Take the attempts that the ledger records, for windows without any here."""
        self._attempts.update({one.window: one.attempts for one in unstored if one.window not in self._attempts})

    def forget(self, span: Window) -> None:
        """Forget the attempts at the windows of a span."""
        self._attempts = Counter({w: n for w, n in self._attempts.items() if not span.start <= w.start < span.end})

    def stored(self, window: Window, query: int) -> bool:
        """Record that a window is stored; return whether the source is up: this query began after the last failure."""
        self._attempts.pop(window, None)
        self._busy = 0
        is_up = query > self._failed_query
        if is_up:
            self._failures = 0
        return is_up

    def failed(self, window: Window, error: Exception, tick: float) -> Verdict:
        """Record a failure of a window and return what follows. tick: monotonic time."""
        is_busy = classify(error) == "busy"
        # Windows that reach a busy writer together count as one.
        in_a_row = max(0, self._busy - (tick < self._busy_until)) if is_busy else self._failures
        verdict = decide(error, in_a_row + 1, self._attempts[window] + 1, self._not_yet_seconds, self._rng)
        self.not_before = max(self.not_before, tick + verdict.source_wait)
        if is_busy:
            self._busy = in_a_row + 1
            self._busy_until = max(self._busy_until, tick + verdict.window_wait)
        elif verdict.outcome == "not_yet":
            self._failures = 0
        else:
            self._attempts[window] += 1
            if verdict.outcome != "rejected":
                self._failures += 1
                self._failed_query = self._queries
        return verdict


def refused_by_writer(refusal: Refusal, what: object = "it") -> Refusal:
    """Return a refusal whose message names the writer and what it refused, where that is a failure."""
    return refusal if refusal.when == "busy" else Refusal(f"the writer refused {what}: {refusal}", refusal.when)


def classify(error: Exception) -> Outcome:
    """Return what kind of failure an exception is: a refusal's own, or that of its class."""
    if isinstance(error, Refusal):
        return _REFUSED[error.when]
    return outcome_of(error)


def decide(error: Exception, failures: int, attempts: int, not_yet_seconds: float, rng: Random) -> Verdict:
    """Return what follows from a failure.

    failures: of the source in a row, or its windows in a row that reached a busy writer, with this one; attempts: at this window, with
    this one; not_yet_seconds: wait for a window that the source has not reached.
    """
    outcome = classify(error)
    match outcome:
        case "not_yet":
            return Verdict(outcome, 0.0, not_yet_seconds)
        case "fatal":
            return Verdict(outcome, FATAL_RETRY_SECONDS, 0.0)
        case "rejected":
            return Verdict(outcome, 0.0, REJECTED_RETRY_SECONDS)
        case "busy":
            return Verdict(outcome, 0.0, busy_wait(failures))
        case _:
            window_wait = backoff(attempts, MAX_WINDOW_WAIT_SECONDS, rng) if attempts >= WINDOW_WAIT_ATTEMPTS else 0.0
            return Verdict(outcome, backoff(failures, MAX_SOURCE_WAIT_SECONDS, rng), window_wait)


def busy_wait(times: int) -> float:
    """Return seconds to wait for a writer that was busy so many times in a row."""
    return min(MAX_BUSY_SECONDS, FIRST_BUSY_SECONDS * 2.0 ** min(times - 1, 64))
