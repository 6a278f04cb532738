"""The captured database against the file that pytokio made of it."""

import asyncio
import os
from pathlib import Path

import h5py
import numpy as np
import pytest

from collectors import lmt
from tokiod.collector import Site
from tokiod.testing.clock import FakeClock
from tokiod.window import Calendar, Window

START, END, STEP = 1_517_126_400, 1_517_126_700, 5


@pytest.fixture
def shared():
    default = Path(__file__).parents[3].parent / "shared"
    place = Path(os.environ.get("TOKIOD_SHARED", default)) / "data"
    if not place.is_dir():
        pytest.skip(f"the captures are not here: {place}")
    return place


def test_the_capture_gives_every_cell_of_the_golden_file_and_no_other(shared):
    site = Site(Calendar("America/Los_Angeles"), FakeClock())
    collector = lmt.saved([shared / "lmt" / "snx11025_2018-01-28.sqlite3"], lmt.Saved(mdt_names="host"), site)
    with h5py.File(shared / "golden" / "lmtdb_snx11025.hdf5") as golden:
        wanted = {f"{group}/{name}" for group in golden for name in golden[group] if name != "timestamps"}
        found = {batch.dataset: batch for batch in asyncio.run(everything(collector, Window(START, END + STEP)))}
        assert set(found) == wanted
        for dataset in wanted:
            columns = tuple(name.decode() for name in golden[dataset].attrs["columns"])
            assert found[dataset].columns == columns
            np.testing.assert_array_equal(cells(found[dataset]), golden[dataset][...], dataset)


async def everything(collector, window):
    return (await collector.collect(window)).batches


def cells(batch):
    """What the archive makes of a batch: of counters the differences, and no row of the sample at the end."""
    grid = np.full(((END - START) // STEP + 1, len(batch.columns)), np.nan)
    if batch.form == "counter":
        grid = np.full(grid.shape, -1)
    grid[(batch.time - START) // STEP, batch.column] = batch.value
    return np.diff(grid, axis=0) if batch.form == "counter" else grid[:-1]
