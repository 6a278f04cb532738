"""Shrinking: fewer events, and a shorter time, with which a seed still fails."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tests.simulation.site import Outcome, play

if TYPE_CHECKING:
    from tests.simulation.plan import Plan

MAX_PLAYS = 80


def shrunk(outcome: Outcome, plays: int = MAX_PLAYS) -> Outcome:
    """Return the outcome of the smallest plan that was found to fail, however it fails."""
    best = outcome
    left = [plays]

    def fails(plan: Plan) -> bool:
        nonlocal best
        if left[0] <= 0:
            return False
        left[0] -= 1
        tried = play(plan)
        if tried.wrong:
            best = tried
        return bool(tried.wrong)

    size = max(1, len(best.plan.events) // 2)
    while size and left[0] > 0:
        at = 0
        while at < len(best.plan.events):
            events = best.plan.events
            if not fails(best.plan.only([*events[:at], *events[at + size :]])):
                at += size
        size = size // 2 if size > 1 else 0
    for change in ({"systems": 1}, {"columns": 1}, {"faults": 0.0}, {"max_step": 0.0}):
        fails(replace(best.plan, **change))
    while best.plan.hours > 1 and fails(replace(best.plan, hours=best.plan.hours * 0.7)):
        pass
    return best


__all__ = ["shrunk"]
