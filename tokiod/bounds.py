"""What cannot be true, by unit: one table for all kinds.

collect_window() drops cells outside of it, whatever kind returned them, one of another distribution too: it is the one way from a collector
into the archive. A kind calls `outside` itself where one sample would hide in a cell, as in a mean over cores.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tokiod.dropped import Dropped
from tokiod.tts.schema import UNITS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tokiod.batch import Batch
    from tokiod.window_data import WindowData

IMPLAUSIBLE = "implausible"
LARGEST = 2.0**62
"""Counters are full, or were corrupted, above it: 2^63 - 1, 2^64 - 1. int64 has no room for two of them."""
ROUNDING = 0.1
"""Percent: shares are rounded one by one, so their sum may be above 100."""

_COUNT = (0.0, LARGEST)
BOUNDS = {
    **dict.fromkeys(("bytes", "B", "KiB", "inodes", "ops", "1", "J", "s", "sec"), _COUNT),
    "%": (-ROUNDING, 100.0 + ROUNDING),
    "bytes/sec": (0.0, 1e12),
    "ops/sec": (0.0, 1e10),
    "W": (0.0, 5e4),
    "degC": (-100.0, 250.0),
    "MHz": (0.0, 1e5),
    "1/min": (0.0, 1e6),
}
"""The smallest and the largest value of each unit; others have none. A kind with `max_rate` has narrower ones."""


def outside(values: NDArray[np.float64] | NDArray[np.int64], low: float, high: float) -> NDArray[np.bool_] | None:
    """Return where finite values are outside of bounds, None for nowhere: the usual case, which takes two passes."""
    if not len(values) or (values.min() >= low and values.max() <= high):
        return None
    found: NDArray[np.bool_] = ((values < low) | (values > high)) & np.isfinite(values)
    return found if found.any() else None


def plausible(data: WindowData, units: Mapping[str, str]) -> WindowData:
    """Return the data of a window without the cells that are outside of their unit's bounds, which are counted as dropped.

    units: of the kind's datasets that it measures in other units than tokiod.tts.schema.UNITS.
    """
    dropped = Dropped()
    batches = [_plausible(batch, units.get(batch.dataset, UNITS.get(batch.dataset, "")), dropped) for batch in data.batches]
    if not dropped.counts:
        return data
    return replace(data, batches=batches, dropped=dropped.counts + Counter(data.dropped), why={**dropped.why, **data.why})


# A negative sample of a counter is left to the rule of differences, which counts it.
def _plausible(batch: Batch, unit: str, dropped: Dropped) -> Batch:
    low, high = BOUNDS.get(unit, (-np.inf, np.inf))
    found = outside(batch.value, -np.inf if batch.form == "counter" else low, high)
    if found is None:
        return batch
    first = int(np.argmax(found))
    dropped.add(IMPLAUSIBLE, int(np.count_nonzero(found)), example(batch.value[first], batch.dataset, batch.columns[batch.column[first]]))
    kept = ~found
    return replace(batch, time=batch.time[kept], column=batch.column[kept], value=batch.value[kept], rows=None)


def example(value: float, dataset: str, column: str) -> str:
    """Return a value that was dropped, with its place, as an example."""
    return f"{value:.15g} {UNITS.get(dataset, '')} of {column} in {dataset}"
