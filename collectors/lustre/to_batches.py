"""What was seen of targets at one moment, to batches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tokiod.batch import Batch
from tokiod.tts.schema import natural_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from collectors.lustre.datasets import Cells


@dataclass(slots=True)
class Columns:
    """All targets ever seen, by dataset: a target that a listing lacks is missing, not removed."""

    _places: dict[str, dict[str, int]] = field(default_factory=dict)

    def add(self, cells: Cells) -> None:
        """Add new targets."""
        for dataset, values in cells.items():
            known = self._places.get(dataset, {})
            if not values.keys() <= known.keys():
                names = sorted({*known, *values}, key=natural_key)
                self._places[dataset] = {name: place for place, name in enumerate(names)}

    def of(self, dataset: str) -> dict[str, int]:
        """Return a dataset's targets in natural order, with their columns."""
        return self._places.get(dataset, {})


def batches(moments: Sequence[tuple[int, Cells]], step: int, columns: Columns, datasets: Iterable[str]) -> Iterator[Batch]:
    """Yield a batch per dataset that has columns. moments: the time of each row and what was seen then, oldest first."""
    for dataset in datasets:
        places = columns.of(dataset)
        if places:
            rows = [cells.get(dataset, {}) for _, cells in moments]
            of_rows = [np.fromiter(map(places.__getitem__, row), np.uint32, len(row)) for row in rows]
            values = [np.fromiter(row.values(), np.float64, len(row)) for row in rows]
            orders = [np.argsort(row) for row in of_rows]
            yield Batch(
                dataset,
                "gauge",
                step,
                tuple(places),
                np.array([time for time, _ in moments], np.int64).repeat([len(row) for row in rows]),
                _joined(of_rows, orders, np.uint32),
                _joined(values, orders, np.float64),
            )


def _joined(rows: list[NDArray[Any]], orders: list[NDArray[np.intp]], dtype: type[np.generic]) -> NDArray[Any]:
    return np.concatenate([np.empty(0, dtype), *(row[order] for row, order in zip(rows, orders, strict=True))])
