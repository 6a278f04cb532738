"""Where two days meet: what one file must know of its neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from tokiod.tts.schema import ABSENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from sinks.tts.open_day_file import Volume
    from tokiod.archive.layout import Place


class Beside(Protocol):
    """A day beside another, live or sealed. Samples are i8[columns], ABSENT where there is none."""

    def names(self, dataset: str) -> tuple[str, ...]:
        """Return the columns of a counter, none where there is no such one."""
        ...

    def last_samples(self, dataset: str) -> NDArray[np.int64]:
        """Return each column's last sample of the day."""
        ...

    def first_samples(self, dataset: str) -> NDArray[np.int64]:
        """Return each column's sample in the day's first row."""
        ...


def join(volume: Volume, datasets: Iterable[str], beside: Callable[[Place, int], Beside | None]) -> None:
    """Fill both guard rows of datasets from the neighbouring days."""
    before, after = beside(volume.place, -1), beside(volume.place, +1)
    for dataset in datasets:
        if not volume.file.spec.matrices[dataset].counter:
            continue
        if before is not None and (names := before.names(dataset)):
            _carry(names, before.last_samples(dataset), volume, dataset, 0)
        if after is not None and (names := after.names(dataset)):
            _carry(names, after.first_samples(dataset), volume, dataset, volume.counter(dataset).last_row)
    volume.joined = True


def _carry(names: tuple[str, ...], value: NDArray[np.int64], target: Volume, dataset: str, row: int) -> None:
    """Copy one value per column name into a guard row of another file."""
    index = {name: i for i, name in enumerate(target.file.spec.matrices[dataset].columns)}
    here = np.fromiter((index.get(name, -1) for name in names), np.intp, len(names))
    known = (here >= 0) & (value != ABSENT)
    target.counter(dataset).store(np.full(int(known.sum()), row), here[known], value[known])
