"""Rows of all interfaces, both directions, to batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from collectors.esnet_snmp.names import DATASETS
from collectors.esnet_snmp.rows import latest, rows, told
from tokiod.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from collectors.esnet_snmp.points import Points
    from collectors.esnet_snmp.rows import Rates, Times
    from tokiod.window import Window

Series = tuple[str, str]
"""An interface and a direction."""


def batches(points: Mapping[Series, Points], columns: Sequence[str], interval: int, step: int, window: Window) -> Iterator[Batch]:
    """Yield both directions; interval: of points whose answer doesn't say."""
    for direction, dataset in DATASETS.items():
        found = [_rows(points.get((name, direction)), interval, step, window) for name in columns]
        column = np.repeat(np.arange(len(found), dtype=np.uint32), [len(time) for time, _ in found])
        time = np.concatenate([np.empty(0, np.int64), *(time for time, _ in found)])
        rate = np.concatenate([np.empty(0, np.float64), *(rate for _, rate in found)])
        order = np.lexsort((column, time))
        yield Batch(dataset, "gauge", step, tuple(columns), time[order], column[order], rate[order])


def _rows(points: Points | None, interval: int, step: int, window: Window) -> tuple[Times, Rates]:
    if points is None:
        return np.empty(0, np.int64), np.empty(0, np.float64)
    return rows(*latest(points.time, points.rate), points.interval or interval, step, window)


def count(points: Mapping[Series, Points], interval: int, step: int, window: Window) -> int:
    """Return of how many rows of a window known points say anything; interval and step as of batches()."""
    return sum(told(np.unique(one.time), one.interval or interval, step, window) for one in points.values())
