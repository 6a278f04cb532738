"""Answers that are kept for the next viewer, the last ones up to a number of bytes. Those of sealed days never change."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class KeptAnswers:
    """Answers by ETags, for several threads. An answer of which two threads need the same one is made twice: they seldom do."""

    def __init__(self, max_bytes: int) -> None:
        self._max, self._size, self._lock = max_bytes, 0, threading.Lock()
        self._answers: OrderedDict[str, bytes] = OrderedDict()

    def get(self, tag: str, make: Callable[[], bytes]) -> bytes:
        """Return the answer of a tag; make it if it is not kept."""
        with self._lock:
            if (found := self._answers.get(tag)) is not None:
                self._answers.move_to_end(tag)
                return found
        made = make()
        with self._lock:
            self._size += len(made) - len(self._answers.pop(tag, b""))
            self._answers[tag] = made
            while self._size > self._max:
                self._size -= len(self._answers.popitem(last=False)[1])
        return made
