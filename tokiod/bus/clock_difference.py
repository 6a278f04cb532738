"""How far the clock at the other end of a connection is ahead, by messages that return the time of one that was sent."""

from __future__ import annotations

from collections import deque

SAMPLES = 8
"""The one with the shortest way there and back counts."""


class ClockDifference:
    """An estimate of the difference, which is never further from the truth than `bound`, if neither clock was set meanwhile."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, float]] = deque(maxlen=SAMPLES)

    def note(self, now: float, theirs: float, echo: float, held: float = 0.0) -> None:
        """Note a message that came `now` and was sent at `theirs`, `held` seconds after the other end received what was sent at `echo`.

        All in the seconds of the clock at the end that measures them.
        """
        way = now - echo - held
        if way < 0:
            # This clock was set back meanwhile.
            self._samples.clear()
            return
        ahead = theirs - (now - way / 2)
        if self._samples and abs(ahead - self.seconds) > way / 2 + self.bound:
            # One of the clocks was set: what came before describes no clock that there is.
            self._samples.clear()
        self._samples.append((way, ahead))

    @property
    def is_known(self) -> bool:
        """Whether there is an estimate."""
        return bool(self._samples)

    @property
    def seconds(self) -> float:
        """How far the other clock is ahead; 0.0 while it is unknown."""
        return min(self._samples)[1] if self._samples else 0.0

    @property
    def bound(self) -> float:
        """How far the estimate may be from the truth, seconds."""
        return min(self._samples)[0] / 2 if self._samples else 0.0

    def exceeds(self, limit: float) -> bool:
        """Return whether the clocks certainly differ by more than a limit."""
        return abs(self.seconds) - self.bound > limit
