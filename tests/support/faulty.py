"""Faults planted in the cells of a TTS file, each in a window of its own: holes, shifts and swapped columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import h5py
import numpy as np

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from tokiod.window import Window

Cell = tuple[str, str, int]
"""Dataset, column, epoch second of the row."""

Planted = dict[int, set[Cell]]
"""Every cell that is now another, by the start of its window."""


def plant(path: Path, windows: list[Window], chance: random.Random, kinds: tuple[str, ...] | None = None) -> Planted:
    """Plant one fault of a random kind in a random dataset of each window, of a live or a sealed file that no process has open."""
    planted: Planted = {}
    with h5py.File(path, "r+", locking=False) as file:
        names: list[str] = []
        file.visititems(lambda name, node: names.append(name) if "columns" in node.attrs and not name.startswith("_") else None)
        for window in windows:
            while not planted.get(window.start):
                dataset, kind = chance.choice(names), chance.choice(kinds or tuple(KINDS))
                planted[window.start] = _planted(file, dataset, window, chance, KINDS[kind])
    return planted


def _planted(file, dataset, window, chance, spoil):
    node = file[dataset]
    stamps = node.parent["timestamps"][...]
    first, last = np.searchsorted(stamps, [window.start, window.end])
    before = node[first:last]
    after = before.copy()
    spoil(after, chance)
    rows, columns = np.nonzero(before.view(np.int64) != after.view(np.int64))
    node[first:last] = after
    return {
        (dataset, node.attrs["columns"][c].decode(), int(stamps[first + r])) for r, c in zip(rows.tolist(), columns.tolist(), strict=True)
    }


def _hole(cells, chance):
    rows, columns = cells.shape
    top, left = chance.randrange(rows), chance.randrange(columns)
    cells[top : chance.randint(top + 1, rows), left : chance.randint(left + 1, columns)] = -0.0


def _shifted_rows(cells, chance):
    cells[:] = np.roll(cells, chance.choice([-1, 1, 2]), axis=0)


def _shifted_columns(cells, chance):
    cells[:] = np.roll(cells, chance.choice([-1, 1]), axis=1)


def _swapped(cells, chance):
    if cells.shape[1] > 1:
        one, two = chance.sample(range(cells.shape[1]), 2)
        cells[:, [one, two]] = cells[:, [two, one]]


KINDS = {"hole": _hole, "rows": _shifted_rows, "columns": _shifted_columns, "swap": _swapped}
