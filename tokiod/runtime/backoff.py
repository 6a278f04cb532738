"""How long to wait after a failure: what sources and sinks share. tokiod.polling.retry decides what follows for windows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokiod.errors import Malformed, NotYet, TokiodError, Transient

if TYPE_CHECKING:
    from random import Random

    from tokiod.window_result import Outcome

FIRST_RETRY_SECONDS = 1.0
MAX_SOURCE_WAIT_SECONDS = 300.0
"""Of a source, or of a sink, whose server does not answer."""
FATAL_RETRY_SECONDS = 600.0

_OUTCOMES: tuple[tuple[type[Exception], Outcome], ...] = (
    (NotYet, "not_yet"),
    (TimeoutError, "timeout"),
    (Transient, "transient"),
    (Malformed, "bug"),
    (TokiodError, "fatal"),
    (Exception, "bug"),
)


def outcome_of(error: Exception) -> Outcome:
    """Return what kind of failure an exception is: the first class in the table that it is an instance of."""
    return next(outcome for cls, outcome in _OUTCOMES if isinstance(error, cls))


def backoff(failures: int, limit: float, rng: Random) -> float:
    """Return seconds to wait: exponential with full jitter, so that what failed together does not try again together."""
    return rng.uniform(0.0, min(limit, FIRST_RETRY_SECONDS * 2.0 ** min(failures - 1, 64)))
