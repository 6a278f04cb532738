"""What follows from a failed attempt at a window: the one retry policy, decided by the error's class.

    Transient    the source may be gone: it waits as a whole, exponentially longer with each failure in a row, with full jitter
    NotYet       the normal course of things: the window is asked for again soon, nothing else waits, nothing counts as failed
    Fatal        a person must look: the source waits long, and is tried again then in case one has
    Refusal      the writer can't store this window. never: the window waits very long, nothing else does. busy: the writer is creating
                 what the window needs; the window waits a moment, then a longer one, nothing else does, nothing counts as failed.
                 retry: as Transient

A TimeoutError is Transient, counted apart. A TokiodError that says nothing else (a missing secret) is Fatal. Whatever else a
collector raises, a malformed batch too, is a fault in it: Transient, so that one bad answer stops nobody, and told with its traceback.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokiod.errors import Malformed, NotYet, Refusal, TokiodError, Transient

if TYPE_CHECKING:
    from random import Random

    from tokiod.errors import When
    from tokiod.window_result import Outcome

BASE = 1.0
CAP = 300.0
FATAL = 600.0
REJECTED = 6 * 3600.0
PATIENCE = 3
"""Attempts after which a window waits by itself too, so that one that always fails (too big for the time limit) holds nobody up."""
CAP_WINDOW = 3600.0
BUSY = 0.25
CAP_BUSY = 2.0
"""A small file is made in a tenth of a second; for one of gigabytes nobody should ask a source again and again."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What happens next: seconds before anything else is asked of the source, and before this window is asked for again."""

    outcome: Outcome
    source_wait: float
    window_wait: float


_OUTCOMES: tuple[tuple[type[Exception], Outcome], ...] = (
    (NotYet, "not_yet"),
    (TimeoutError, "timeout"),
    (Transient, "transient"),
    (Malformed, "bug"),
    (TokiodError, "fatal"),
    (Exception, "bug"),
)


_REFUSED: dict[When, Outcome] = {"busy": "busy", "retry": "transient", "never": "rejected"}


def refused_by_writer(refusal: Refusal, what: object = "it") -> Refusal:
    """Return a refusal whose message names the writer and what it refused, where that is a failure."""
    return refusal if refusal.when == "busy" else Refusal(f"the writer refused {what}: {refusal}", refusal.when)


def classify(error: Exception) -> Outcome:
    """Return what kind of failure an exception is: a refusal's own, or the first class in the table that it is an instance of."""
    if isinstance(error, Refusal):
        return _REFUSED[error.when]
    return next(outcome for cls, outcome in _OUTCOMES if isinstance(error, cls))


def decide(error: Exception, failures: int, attempts: int, soon: float, rng: Random) -> Verdict:
    """Return what follows from a failure.

    failures: of the source in a row, or windows of it that came to a busy writer, this one included; attempts: at this window, this
    one included; soon: seconds until a window that is not there yet is asked for again.
    """
    outcome = classify(error)
    match outcome:
        case "not_yet":
            return Verdict(outcome, 0.0, soon)
        case "fatal":
            return Verdict(outcome, FATAL, 0.0)
        case "rejected":
            return Verdict(outcome, 0.0, REJECTED)
        case "busy":
            return Verdict(outcome, 0.0, moment(failures))
        case _:
            window_wait = backoff(attempts, CAP_WINDOW, rng) if attempts >= PATIENCE else 0.0
            return Verdict(outcome, backoff(failures, CAP, rng), window_wait)


def moment(times: int) -> float:
    """Return seconds to wait for a busy writer, after so many times in a row."""
    return min(CAP_BUSY, BUSY * 2.0 ** min(times - 1, 64))


def backoff(failures: int, cap: float, rng: Random) -> float:
    """Return seconds to wait: exponential with full jitter, so that sources that failed together don't come back together."""
    return rng.uniform(0.0, min(cap, BASE * 2.0 ** min(failures - 1, 64)))
