"""For authors of collectors and sinks: a clock that a test moves, a contract suite to inherit."""

from tokiod.testing.clock import FakeClock

__all__ = ["FakeClock"]
