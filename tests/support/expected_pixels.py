"""What a picture of the page must look like, from the files and the ledger alone: read by h5py, coloured by matplotlib's viridis."""

from __future__ import annotations

import h5py
import matplotlib as mpl
import numpy as np

LOST, MISSING, BLANK, ZERO = "lost", "missing", "not yet due", "zero"
LOOKS = {
    LOST: {(200, 16, 46), (255, 255, 255)},
    MISSING: {(110, 110, 110), (215, 215, 215)},
    BLANK: {(255, 255, 255)},
    ZERO: {(71, 1, 85), (200, 200, 200)},
}
"""The colours that a cell of a state may have in light mode, of which a small one need not have the second."""
LINES = (200, 200, 200)
"""Over a value of which some rows are missing."""
VIRIDIS = np.round(255 * np.array(mpl.colormaps["viridis"].colors)).astype(int)
TOLERANCE = 8
"""Of 255: the page has a polynomial for viridis."""
FIRST_LEVEL, LAST_LEVEL, FIRST_PLACE = 2, 255, 24


def read(paths, dataset, columns, first, rows):
    """Return f8[rows, columns] of the files of consecutive days from a row of the first one on, NaN where missing."""
    cells = []
    for path in paths:
        with h5py.File(path) as file:
            values = file[dataset][:]
            names = [name.decode() for name in file[dataset].attrs["columns"]]
        values[(values == 0) & np.signbit(values)] = np.nan
        found = np.full((len(values), len(columns)), np.nan)
        for place, name in enumerate(columns):
            if name in names:
                found[:, place] = values[:, names.index(name)]
        cells.append(found)
    return np.concatenate(cells)[first : first + rows]


def levels(values):
    """Return i8 levels: four each time a value doubles, from 2^-11 on; 1 for zero, 0 for none."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.clip(np.floor((np.log2(values) + 11) * 4) + FIRST_LEVEL, FIRST_LEVEL, LAST_LEVEL)
    return np.where(np.isnan(values), 0, np.where(values <= 0, 1, found)).astype(np.int64)


def colour_range(found):
    """Return the lowest and the highest level between which the colours are spread: of both ends, one in 500 values is left out."""
    ranked = np.sort(found[found >= FIRST_LEVEL])
    if not len(ranked):
        return LAST_LEVEL, FIRST_LEVEL
    few = len(ranked) // 500
    return int(ranked[few]), int(ranked[-1 - few])


def colour(found, low, high):
    """Return the colour of a level, RGB."""
    place = FIRST_PLACE + round((255 - FIRST_PLACE) * (found - low) / max(1, high - low))
    return VIRIDIS[min(255, max(0, place))]


def differences(cells, states, shown):
    """Yield (row, column, expected, shown) of each cell that looks otherwise than it should, one row to a pixel.

    cells: f8[rows, columns]; states: of missing ones, by row; shown: the set of colours of each cell.
    """
    all_levels = levels(cells)
    low, high = colour_range(all_levels)
    for row, found in enumerate(all_levels):
        for column, one in enumerate(found):
            colours = shown[row][column]
            if one >= FIRST_LEVEL:
                wanted = colour(one, low, high)
                if len(colours) != 1 or max(abs(wanted - next(iter(colours)))) > TOLERANCE:
                    yield row, column, tuple(wanted), colours
            else:
                state = ZERO if one else states[row]
                # All of what it may have, or of zero the first alone.
                if not colours <= LOOKS[state] or (state != ZERO and colours != LOOKS[state]):
                    yield row, column, state, colours
