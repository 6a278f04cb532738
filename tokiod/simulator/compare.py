"""Compare a TTS file with the expected cells, bit by bit. Means, whose order of summation is free, are compared to 1e-12 of their size."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import h5py
import numpy as np

from tokiod.window import Window, iso

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from numpy.typing import NDArray

    from tokiod.simulator.expected import Answer, Expected

Kind = Literal["lost", "extra", "different"]

_SUMS = 1e-12
"""Relative difference of two sums of doubles that were added in different orders."""

SHOWN = 20
"""Number of differences that are kept per dataset; all are counted."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A wrong cell. lost: missing in the file; extra: should be missing; different: another number. NaN means missing."""

    kind: Kind
    dataset: str
    column: str
    time: int
    want: float
    got: float

    def __str__(self) -> str:
        return f"{self.kind}: {self.dataset} {self.column} {iso(self.time)} want {self.want!r} got {self.got!r}"


@dataclass(slots=True)
class Comparison:
    """Numbers of cells compared, filled and different, and the first differences.

    untold: those of `filled` that are missing since the source was dead then.
    """

    cells: int = 0
    filled: int = 0
    untold: int = 0
    counts: Counter[Kind] = field(default_factory=Counter)
    differences: list[Difference] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        """Return whether no cell differs."""
        return not self.counts.total()

    def __add__(self, other: Comparison) -> Comparison:
        return Comparison(
            self.cells + other.cells,
            self.filled + other.filled,
            self.untold + other.untold,
            self.counts + other.counts,
            self.differences + other.differences,
        )


@dataclass(frozen=True, slots=True)
class _Allowed:
    """Cells that may differ because they are not determined yet, and cells that may be missing because the source was down."""

    undetermined: bool
    dead: tuple[Window, ...]


def compare(path: Path, answers: Expected, *, determined: bool = False, dead: Iterable[Window] = ()) -> Comparison:
    """Compare every cell of a TTS file, live or sealed, with the cells expected after the windows of `answers` are stored.

    determined: leave out the cells that other windows, stored meanwhile, may change: the way to look at a daemon that is running.
    dead: when a source without a past was down. Its cells of these rows may be missing and are counted as unreported.
    Raises OSError where the file can't be opened, ValueError where it isn't a TTS file over steps of this site.
    """
    result, allowed = Comparison(), _Allowed(determined, tuple(dead))
    with h5py.File(path, "r") as file:
        found = {name: node for name, node in _datasets(file).items() if not name.startswith("_")}
        wanted = answers.of(Window(int(file.attrs["start"]), int(file.attrs["end"])))
        for name in sorted({*found, *wanted}):
            if name not in wanted:
                raise ValueError(f"{path} holds {name}, which this site does not have")
            _compare_dataset(name, wanted[name], found.get(name), result, allowed)
    return result


def _compare_dataset(name: str, want: Answer, node: h5py.Dataset | None, result: Comparison, allowed: _Allowed) -> None:
    columns = want.columns if node is None else tuple(dict.fromkeys(want.columns + _columns(node)))
    got = np.full((len(want.timestamps), len(columns)), np.nan)
    wanted, certain = got.copy(), np.full(got.shape, not allowed.undetermined)
    wanted[:, : len(want.columns)] = want.values
    if allowed.undetermined:
        certain[:, : len(want.columns)] = want.determined
    if node is not None:
        got[:, [columns.index(column) for column in _columns(node)]] = _cells(node, want.timestamps)
    result.cells += int(certain.sum())
    result.filled += int((certain & ~np.isnan(wanted)).sum())
    same = (got == wanted) | (np.isnan(got) & np.isnan(wanted))
    if not want.exact:
        same |= np.abs(got - wanted) <= _SUMS * np.abs(wanted)
    untold = certain & ~same & np.isnan(got) & _overlapping(want.timestamps, allowed.dead)[:, np.newaxis]
    result.untold += int(untold.sum())
    wrong = certain & ~same & ~untold
    _tell(name, columns, want.timestamps, (wrong, wanted, got), result)


def _overlapping(times: NDArray[np.int64], windows: Iterable[Window]) -> NDArray[np.bool_]:
    """Return which rows overlap one of the windows. A row lasts until the next one."""
    step, found = int(times[1] - times[0]), np.zeros(len(times), bool)
    for window in windows:
        found |= (times < window.end) & (window.start < times + step)
    return found


def _tell(
    name: str,
    columns: tuple[str, ...],
    times: NDArray[np.int64],
    cells: tuple[NDArray[np.bool_], NDArray[np.float64], NDArray[np.float64]],
    result: Comparison,
) -> None:
    wrong, wanted, got = cells
    result.counts["lost"] += int((wrong & np.isnan(got)).sum())
    result.counts["extra"] += int((wrong & np.isnan(wanted)).sum())
    result.counts["different"] += int((wrong & ~np.isnan(got) & ~np.isnan(wanted)).sum())
    for row, column in np.argwhere(wrong)[:SHOWN].tolist():
        want, have = float(wanted[row, column]), float(got[row, column])
        kind: Kind = "lost" if math.isnan(have) else "extra" if math.isnan(want) else "different"
        result.differences.append(Difference(kind, name, columns[column], int(times[row]), want, have))


def _datasets(file: h5py.File) -> dict[str, h5py.Dataset]:
    found: dict[str, h5py.Dataset] = {}

    def visit(name: str, node: h5py.HLObject) -> None:
        if isinstance(node, h5py.Dataset) and "columns" in node.attrs:
            found[name] = node

    file.visititems(visit)
    return found


def _columns(node: h5py.Dataset) -> tuple[str, ...]:
    return tuple(name.decode() for name in node.attrs["columns"])


def _cells(node: h5py.Dataset, times: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return a dataset's cells with NaN for missing cells, which TTS stores as -0.0."""
    if not np.array_equal(node.parent["timestamps"][...], times):
        raise ValueError(f"{node.file.filename}: the timestamps of {node.name} are not steps of {times[1] - times[0]} s over the file")
    values: NDArray[np.float64] = node[...]
    values[(values == 0) & np.signbit(values)] = np.nan
    return values
