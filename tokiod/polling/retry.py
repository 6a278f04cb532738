"""What follows from a failed attempt at a window: the one retry policy, decided by the error's class.

    Transient    the source may be gone: it waits as a whole, exponentially longer with each failure in a row, with full jitter
    NotYet       the normal course of things: the window is asked for again soon, nothing else waits, nothing counts as failed
    Fatal        a person must look: the source waits long, and is tried again then in case one has
    Rejected     the writer can't store this window, ever: the window waits very long, nothing else does
    Busy         the writer is just making what the window needs: the window waits a moment, then a longer one, nothing else does, nothing
                 counts as failed

A TimeoutError is Transient, counted apart. A TokiodError that says nothing else (a missing secret) is Fatal. Whatever else a
collector raises, a malformed batch too, is a fault in it: Transient, so that one bad answer stops nobody, and told with its traceback.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokiod.errors import CollectError, Malformed, NotYet, TokiodError, Transient

if TYPE_CHECKING:
    from random import Random

    from tokiod.window_result import Outcome, Rejected

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


class Unstorable(CollectError):  # noqa: N818 - says what the window is
    """The writer refused a window for good."""


class Busy(CollectError):  # noqa: N818 - says what the writer is
    """The writer is just making the file that a window needs."""


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
    (Unstorable, "rejected"),
    (Busy, "busy"),
    (Malformed, "bug"),
    (TokiodError, "fatal"),
    (Exception, "bug"),
)


def refusal(refused: Rejected, what: object = "it") -> CollectError:
    """Return the writer's refusal of a window as an error of its class."""
    if refused.later:
        return Busy(refused.message)
    return (Transient if refused.retry else Unstorable)(f"the writer refused {what}: {refused.message}")


def classify(error: Exception) -> Outcome:
    """Return what kind of failure an exception is: the first class in the table that it is an instance of."""
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
