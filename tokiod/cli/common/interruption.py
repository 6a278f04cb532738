"""Ctrl-C for a command that runs until it is interrupted."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING, NoReturn, Self

if TYPE_CHECKING:
    from types import FrameType


# Python discards a KeyboardInterrupt that is raised in a destructor or a callback of native code, and such a command would run on.
class Interruption:
    """Remembers a SIGINT, so that one whose KeyboardInterrupt was discarded still ends the command. A context manager."""

    def __init__(self) -> None:
        self._is_requested = False

    def __enter__(self) -> Self:
        self._previous = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._previous)

    def check(self) -> None:
        """Raise KeyboardInterrupt if a SIGINT has come."""
        if self._is_requested:
            raise KeyboardInterrupt

    def _interrupt(self, _signal: int, _frame: FrameType | None) -> NoReturn:
        self._is_requested = True
        raise KeyboardInterrupt
