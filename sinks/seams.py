"""Where two days meet: what one file must know of its neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokiod.tts.schema import ABSENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from sinks.layout import Place
    from sinks.volume import Volume


def join(volume: Volume, datasets: Iterable[str], beside: Callable[[Place, int], Volume | None]) -> None:
    """Fill both guard rows of datasets from the neighbouring days."""
    before, after = beside(volume.place, -1), beside(volume.place, +1)
    for dataset in datasets:
        if not volume.file.spec.matrices[dataset].counter:
            continue
        counter = volume.counter(dataset)
        if before is not None and dataset in before.file.raw:
            _carry(before, before.counter(dataset).last_samples(), volume, dataset, 0)
        if after is not None and dataset in after.file.raw:
            _carry(after, after.file.raw[dataset].read(1, 2)[0], volume, dataset, counter.last_row)
    volume.joined = True


def _carry(source: Volume, value: NDArray[np.int64], target: Volume, dataset: str, row: int) -> None:
    """Copy one value per column name from one file into a guard row of another."""
    index = {name: i for i, name in enumerate(target.file.spec.matrices[dataset].columns)}
    names = source.file.spec.matrices[dataset].columns
    here = np.fromiter((index.get(name, -1) for name in names), np.intp, len(names))
    known = (here >= 0) & (value != ABSENT)
    target.counter(dataset).store(np.full(int(known.sum()), row), here[known], value[known])
