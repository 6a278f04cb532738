"""A heat map of values, without a file."""

from zoneinfo import ZoneInfo

import numpy as np

from tokiod.reader.stitched import Block, Stitched, Stretch
from tokiod.reports.heat_map import heat_map

EPOCH = 1_517_212_800
"""2018-01-29T00:00 in Los Angeles."""


class Held(Stitched):
    """A matrix whose cells are in memory, in the place of the path of its only file."""

    def blocks(self):
        """Yield all cells at once."""
        (stretch,) = self.stretches
        yield Block(0, stretch.positions, stretch.path)


def mapped(values, units="bytes/sec", *, how="mean", step=3600, start=EPOCH, dataset="datatargets/readbytes"):
    """Return the heat map of values f8[rows, columns], NaN where missing."""
    values = np.array(values, float)
    columns = tuple(f"OST{i:04x}" for i in range(values.shape[1]))
    stretch = Stretch(0, len(values), start, values, np.arange(len(columns)))
    return heat_map(Held(dataset, units, step, columns, (stretch,)), how, f"fs {dataset}", ZoneInfo("America/Los_Angeles"))
