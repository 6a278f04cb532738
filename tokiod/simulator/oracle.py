"""The rule of differences, one sample at a time, for one column: tests compare tokiod.tts.counters.difference_rule with it.

Rows may be counted from any origin. A sample in row r closes the cell in row r - 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

REACH_SECONDS = 23 * 3600
"""The shortest day of any time zone. Older samples count as absent."""


class State(NamedTuple):
    """base, candidate: (row, value) or None. zero: the row of the last sample if that sample was 0."""

    base: tuple[int, int] | None = None
    candidate: tuple[int, int] | None = None
    zero: int | None = None


class Closed(NamedTuple):
    """The cell that a sample closes, None where it is missing; implausible: it is missing because its difference is implausible."""

    cell: int | None
    implausible: bool = False


EMPTY = State()


def step(state: State, row: int, value: int, max_step: float, reach: float) -> tuple[Closed, State]:
    """Return what a sample closes, and the state after it. max_step: largest plausible difference per row; reach: rows."""
    base, candidate, zero = _within_reach(state, row, reach)
    if value == 0:
        return Closed(None if zero is None else 0), State(base, candidate, row)
    if base is None:
        found = None if zero is None else (value, zero)
        after = State((row, value))
    elif value >= base[1]:
        found, after = (value - base[1], base[0]), State((row, value))
    elif candidate and value >= candidate[1]:
        found, after = (value - candidate[1], candidate[0]), State((row, value))
    elif zero is not None and value <= max_step * (row - zero):
        found, after = (value, zero), State((row, value))
    else:
        found, after = None, State(base, (row, value))
    if found is None:
        return Closed(None), after
    difference, since = found
    return (Closed(difference) if difference <= max_step * (row - since) else Closed(None, implausible=True)), after


def _within_reach(state: State, row: int, reach: float) -> State:
    base, candidate, zero = state
    if base and row - base[0] > reach:
        base, candidate = candidate, None
    if base and row - base[0] > reach:
        base = None
    if zero is not None and row - zero > reach:
        zero = None
    return State(base, candidate, zero)


def run(
    samples: Iterable[tuple[int, int]], state: State = EMPTY, max_step: float = float("inf"), reach: float = float("inf")
) -> tuple[dict[int, int], set[int], State]:
    """Apply the rule to (row, value) in order: {row of a sample: its cell}, the rows of implausible samples, and the last state."""
    found, implausible = {}, set()
    for row, value in samples:
        closed, state = step(state, row, value, max_step, reach)
        if closed.cell is not None:
            found[row] = closed.cell
        if closed.implausible:
            implausible.add(row)
    return found, implausible, state


def cells(samples: Mapping[int, int], max_step: float = float("inf"), reach: float = float("inf")) -> dict[int, float]:
    """Return the cells that are not missing, by their row, of samples by their row: of all days, from the first sample on."""
    found, _, _ = run(sorted(samples.items()), EMPTY, max_step, reach)
    return {row - 1: float(cell) for row, cell in found.items()}
