"""The hub's matrix of metrics, rows and nodes to batches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from collectors.nodes.config import GROUP
from tokiod.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray


def batches(values: NDArray[np.float64], metrics: Sequence[str], nodes: tuple[str, ...], start: int, step: int) -> Iterator[Batch]:
    """Yield a batch per metric with the cells that are there. values: f8[metric, row, node], NaN where a node has none."""
    if not nodes:
        return
    for name, rows in zip(metrics, values, strict=True):
        row, column = np.nonzero(~np.isnan(rows))
        yield Batch(
            f"{GROUP}/{name}", "gauge", step, nodes, start + step * row.astype(np.int64), column.astype(np.uint32), rows[row, column] + 0.0
        )
