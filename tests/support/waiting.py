"""Wait for what other processes do, for as long as a busy machine may need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokiod.simulator import scene

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE = 5
"""Times as long as an idle machine takes at most: two other processes per core, and the other tests."""


def wait_for(condition: Callable[[], bool], seconds: float, message: str) -> None:
    """Wait for a condition, in real time; seconds: the limit on an idle machine. Raises TokiodError with the message."""
    scene.wait_for(condition, PATIENCE * seconds, message)
