"""An open live file in its place, and what batches need of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tokiod.errors import Refusal
from tokiod.tts.counters.counter import Counter
from tokiod.tts.spec import FileSpec, GroupSpec, MatrixSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from sinks.tts.select import Cells
    from tokiod.archive.layout import Place
    from tokiod.batch import Batch
    from tokiod.tts.live.live_file import LiveFile


@dataclass(slots=True, eq=False)
class Volume:
    """An open live file in its place, with what is worth remembering about it: column maps and counters.

    joined: its guard rows hold what the neighbours know. A kill may have come between making a file and that.
    """

    place: Place
    file: LiveFile
    joined: bool = False
    _counters: dict[str, Counter] = field(default_factory=dict)
    _batches: dict[str, _Known] = field(default_factory=dict)

    def counter(self, dataset: str) -> Counter:
        """Return the counter dataset's samples with its cells."""
        if dataset not in self._counters:
            file = self.file
            self._counters[dataset] = Counter(file.cells[dataset], file.raw[dataset], file.span[dataset], keep=file.sealed_raw)
        return self._counters[dataset]

    def names(self, dataset: str) -> tuple[str, ...]:
        """Return the columns of a counter, none where there is no such one."""
        return self.file.raw[dataset].columns if dataset in self.file.raw else ()

    def last_samples(self, dataset: str) -> NDArray[np.int64]:
        """Return each column's last sample of the day, i8[columns], ABSENT where there is none."""
        return self.counter(dataset).last_samples()

    def first_samples(self, dataset: str) -> NDArray[np.int64]:
        """Return each column's sample in the day's first row, i8[columns], ABSENT where there is none."""
        samples: NDArray[np.int64] = self.file.raw[dataset].read(1, 2)[0]
        return samples

    def fits(self, batch: Batch) -> bool:
        """Whether the file has the batch's dataset, in its form and step, with all of its columns."""
        return self._known(batch).fits

    def is_whole(self, batch: Batch) -> bool:
        """Whether the batch's columns are the file's, all of them, in the same order."""
        return self._known(batch).whole

    def columns(self, batch: Batch) -> NDArray[np.intp]:
        """Return, for each of the batch's columns, the file's column; -1 where the file has none of that name."""
        return self._known(batch).columns

    def _known(self, batch: Batch) -> _Known:
        """Work out once what holds for every batch that has the same names, form and step."""
        known = self._batches.get(batch.dataset)
        if known is None or known.of != (batch.form, batch.step) or (known.names is not batch.columns and known.names != batch.columns):
            known = self._batches[batch.dataset] = _Known.of_batch(self.file.spec, batch)
        return known


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """How batches of one dataset, form, step and one list of names stand to the file."""

    names: tuple[str, ...]
    of: tuple[str, int]
    columns: NDArray[np.intp]
    fits: bool
    whole: bool

    @classmethod
    def of_batch(cls, spec: FileSpec, batch: Batch) -> _Known:
        matrix, group = spec.matrices.get(batch.dataset), spec.groups.get(batch.dataset.partition("/")[0])
        index = {} if matrix is None else {name: i for i, name in enumerate(matrix.columns)}
        columns = np.fromiter((index.get(name, -1) for name in batch.columns), np.intp, len(batch.columns))
        same = matrix is not None and group is not None and (matrix.counter, group.step) == (batch.form == "counter", batch.step)
        whole = matrix is not None and matrix.columns == batch.columns
        return cls(batch.columns, (batch.form, batch.step), columns, not batch.columns or (same and bool((columns >= 0).all())), whole)


def spec_of(place: Place, kind: str, chosen: Sequence[Cells]) -> FileSpec:
    """Return what a file must have for batches. Raises Refusal where they contradict each other."""
    groups: dict[str, GroupSpec] = {}
    matrices: dict[str, MatrixSpec] = {}
    for batch in (cells.batch for cells in chosen if cells.batch.columns):
        group = GroupSpec(batch.step, kind)
        if groups.setdefault(batch.dataset.partition("/")[0], group) != group:
            raise Refusal(f"{batch.dataset}: step {batch.step}, the rest of its group has another", "never")
        known = matrices.setdefault(batch.dataset, MatrixSpec((), batch.form == "counter"))
        if known.counter != (batch.form == "counter"):
            raise Refusal(f"{batch.dataset}: a gauge and a counter in one window", "never")
        matrices[batch.dataset] = MatrixSpec(tuple(dict.fromkeys(known.columns + batch.columns)), known.counter)
    try:
        return FileSpec(place.start, place.end, groups, matrices)
    except ValueError as error:
        raise Refusal(f"{place.path}: {error}", "never") from error
