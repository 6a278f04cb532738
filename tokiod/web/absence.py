"""Why cells are missing: what the ledger records of the time that is not stored, as flags of rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from tokiod.ledger.known_sources import known_sources
from tokiod.ledger.ledger import Ledger
from tokiod.reports.gaps import clipped, gaps
from tokiod.web.matrix import LOST, MISSING, NOT_DUE, Reason
from tokiod.window import Calendar

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from tokiod.collector import SourceConfig
    from tokiod.config.load import Config
    from tokiod.reader.span import Span


@dataclass(frozen=True, slots=True)
class Absence:
    """The time of a source in a span that is not stored, and the time from which on it is not due.

    stored: of a span that is not over, how many windows of the source are stored, and when the last one was.
    """

    why: tuple[Reason, ...]
    due: int
    stored: tuple[int, float | None] = (0, None)

    @classmethod
    def read(cls, config: Config, ledger: Path | None, source: SourceConfig | None, span: Span, now: float) -> Self:
        """Read it from a ledger, if there is one. The windows that a watched folder should hold are unknown."""
        if source is None or ledger is None or not source.polled:
            return cls((), min(int(now), span.end))
        with Ledger.open_readonly(ledger, checked=False) as opened:
            found = clipped(gaps(config, opened, now, (source.name,)), span.start, span.end)
            row = known_sources(config, opened).get(source.name)
        settled = Calendar(config.timezone).window(int(now - source.settle), source.window).start
        due = settled if row is None or row.last is None else max(settled, row.last.end)
        why = tuple(Reason(gap.start, gap.end, gap.state, gap.reason) for gap in found)
        # Clipped, so that the answer for a span of the past is the same tomorrow.
        stored = (0, None) if row is None or due >= span.end else (row.windows, row.stored_at)
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
