"""What of a span is stored: by the cells alone. tokiod.reader.ledger_completeness knows the reasons."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokiod.reader.span import Span
    from tokiod.reader.stitched import Stitched

State = Literal["stored", "missing", "gap", "lost", "not yet"]


@dataclass(frozen=True, slots=True)
class CoverageSpan:
    """A time range [start, end) of a source, or of a dataset where no ledger is known; UTC epoch seconds.

    state: stored; missing (the cells hold no value, the cause is unknown); gap (it is collected again); lost (it can't be); not yet (it
    is not due). reason: of the last attempt, or why the cells are missing.
    """

    source: str
    start: int
    end: int
    state: State
    reason: str = ""


def completeness(matrix: Stitched, span: Span) -> Iterator[CoverageSpan]:
    """Yield the stretches of a dataset by its cells: a row with a value is stored."""
    for one in matrix.stretches:
        end = one.start + one.rows * matrix.step
        if one.path is None:
            yield CoverageSpan(matrix.dataset, one.start, min(end, span.end), "missing", "no file has it")
            continue
        stored = np.empty(one.rows, np.bool_)
        for first in range(0, one.rows, 1440):
            last = min(first + 1440, one.rows)
            stored[first:last] = ~np.isnan(matrix.read(one.first + first, one.first + last)).all(axis=1)
        edges = [0, *np.flatnonzero(np.diff(stored)) + 1, one.rows]
        for first, last in pairwise(edges):
            state: State = "stored" if stored[first] else "missing"
            yield CoverageSpan(matrix.dataset, one.start + int(first) * matrix.step, one.start + int(last) * matrix.step, state)
