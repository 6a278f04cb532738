"""Why cells are missing: what the ledger records of the time that is not stored, as flags of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from tokiod.ledger.known_sources import known_sources
from tokiod.ledger.ledger import Ledger
from tokiod.reports.gaps import clipped, gaps
from tokiod.web.matrix import LOST, MISSING, NOT_DUE, Reason

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from tokiod.collector import SourceConfig
    from tokiod.ledger.sources import SourceRow
    from tokiod.reader.span import Span
    from tokiod.window import Calendar


@dataclass(frozen=True, slots=True)
class Absence:
    """The time of a dataset's sources in a span that is not stored, and the time from which on it is not due.

    stored: of a span that is not over, how many windows of the sources are stored, and when the last one was.
    """

    why: tuple[Reason, ...]
    due: int
    stored: tuple[int, float | None] = (0, None)

    @classmethod
    def read(cls, ledger: Path | None, sources: Sequence[SourceConfig], calendar: Calendar, span: Span, now: float) -> Self:
        """Read it from a ledger, if there is one. The windows that a watched folder should hold are unknown.

        sources: a cell that is computed needs a value of each.
        """
        polled = [source for source in sources if source.polled]
        if not polled or ledger is None:
            return cls((), min(int(now), span.end))
        with Ledger.open_readonly(ledger, checked=False) as opened:
            found = clipped(gaps(polled, opened, calendar, now), span.start, span.end)
            known = known_sources(polled, opened)
        rows = [row for source in polled if (row := known.get(source.name)) is not None]
        due = min(_due(source, known.get(source.name), calendar, now) for source in polled)
        why = tuple(Reason(gap.start, gap.end, gap.state, gap.reason) for gap in sorted(found, key=lambda gap: gap.start))
        # Clipped, so that the answer for a span of the past is the same tomorrow.
        stored = (0, None) if not rows or due >= span.end else (sum(row.windows for row in rows), _latest(rows))
        return cls(why, min(due, span.end), stored)

    def flags(self, times: NDArray[np.int64], step: int, *, is_counter: bool) -> NDArray[np.uint8]:
        """Return the flag u8[rows] of cells that are missing in rows with these left edges, `step` seconds apart.

        The cell of a counter is missing without the sample at either of its edges.
        """
        edges = (times, times + step) if is_counter else (times,)
        flags = np.full(len(times), MISSING, np.uint8)
        for one in self.why:
            if one.state == "lost":
                for edge in edges:
                    flags[(edge >= one.start) & (edge < one.end)] = LOST
        flags[edges[-1] >= self.due] = NOT_DUE
        return flags


def _due(source: SourceConfig, row: SourceRow | None, calendar: Calendar, now: float) -> int:
    settled = calendar.window(int(now - source.settle), source.window).start
    return settled if row is None or row.last is None else max(settled, row.last.end)


def _latest(rows: Sequence[SourceRow]) -> float | None:
    return max((row.stored_at for row in rows if row.stored_at is not None), default=None)
