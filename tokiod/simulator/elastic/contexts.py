"""What a search server keeps between two requests: scrolls and points in time, each for as long as it was asked to."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tokiod.simulator.elastic.query import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from tokiod.simulator.elastic.documents import Search

MOST = 500
"""Contexts that are open at a time: the default of search.max_open_scroll_context."""

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(slots=True)
class Context:
    """What was searched in the indices of which UTC days, how far a reader is, and until when (monotonic seconds) it is kept.

    total: the documents found, counted up to one more than `tracked`. A scroll's place moves with each request.
    """

    days: range
    search: Search
    size: int
    total: int
    tracked: int | None
    ordered: bool
    place: int = -1
    expires: float = 0.0


class Contexts:
    """The open contexts by id. Time is the machine's, as a client counts it, however fast the simulation's goes."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._open: dict[str, Context] = {}
        self._opened = 0

    def __len__(self) -> int:
        self._expire()
        return len(self._open)

    def open(self, context: Context, keep_alive: str) -> str:
        """Keep a context and return its id; raises Refused where there are too many."""
        if len(self) >= MOST:
            reason = f"Trying to create too many scroll contexts. Must be less than or equal to: [{MOST}]."
            raise Refused(429, "rejected_execution_exception", reason)
        self._opened += 1
        name = f"context-{self._opened}"
        context.expires = self._monotonic() + _seconds(keep_alive)
        self._open[name] = context
        return name

    def get(self, name: str, keep_alive: str) -> Context:
        """Return a context and keep it for longer; raises Refused for one that was closed or has expired."""
        self._expire()
        context = self._open.get(_key(name))
        if context is None:
            raise Refused(404, "search_context_missing_exception", f"No search context found for id [{name}]")
        context.expires = max(context.expires, self._monotonic() + _seconds(keep_alive))
        return context

    def close(self, names: list[str]) -> list[Context]:
        """Forget contexts and return those that there were."""
        self._expire()
        found = [self._open.pop(_key(name), None) for name in names]
        return [context for context in found if context is not None]

    def _expire(self) -> None:
        now = self._monotonic()
        for name in [name for name, context in self._open.items() if context.expires <= now]:
            del self._open[name]


def _key(name: str) -> str:
    """Return what stays of an id that is another one in every answer, as a point in time's may be."""
    return name.partition(".")[0]


def _seconds(keep_alive: str) -> float:
    match = re.fullmatch(r"(\d+)(ms|s|m|h|d)", keep_alive)
    if match is None:
        raise Refused(400, "illegal_argument_exception", f"failed to parse setting [keep_alive] with value [{keep_alive}]")
    return int(match[1]) * _UNITS[match[2]]
