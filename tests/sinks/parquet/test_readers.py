"""Days that `tokiod sink` stores as Parquet files: pyarrow, DuckDB and polars read what tokiod.open reads, null exactly where missing."""

import asyncio

import numpy as np
import pytest
from written_archive import MIDNIGHT, SYSTEM, WrittenArchive

import tokiod
from sinks import parquet
from tokiod.change_sink import SinkSite
from tokiod.config import load as configuration
from tokiod.forwarding.day_follower import DayFollower
from tokiod.forwarding.shown_state import ShownState
from tokiod.testing import FakeClock

READ = "datatargets/readbytes"


@pytest.fixture(params=["UTC", "America/Los_Angeles"])
def archive(request, tmp_path):
    made = WrittenArchive(tmp_path, FakeClock(MIDNIGHT + 3 * 86400), request.param)
    numbers = np.random.default_rng(1)
    for n in range(2):
        for start in range(0, 8 * 3600, 1800):
            made.store(MIDNIGHT + n * 86400 + 12 * 3600 + start, 20, 5, numbers)
        made.seal(MIDNIGHT + n * 86400 + 12 * 3600)
    made.publish()
    path = made.configure(f'[[sink]]\nname = "p"\nkind = "parquet"\npath = "{tmp_path}/out"\n')
    store(made, configuration.load(path))
    yield made
    made.close()


def store(archive, config):
    """Do what the process does."""
    (section,) = config.sink
    directory = archive.directory / "state"
    directory.mkdir()
    follower = DayFollower(config, section, directory, archive.clock, ShownState(directory, "p", "parquet", archive.clock, archive.clock))

    async def steps():
        sink = parquet.sink(section, SinkSite(config.secret, directory))
        await sink.open()
        while await follower.step(sink):
            pass
        await sink.close()

    asyncio.run(steps())


def by_pyarrow(place):
    import pyarrow.dataset  # noqa: PLC0415 - of this reader alone

    table = pyarrow.dataset.dataset(str(place), format="parquet").to_table().sort_by("time")
    return [int(one.timestamp()) for one in table["time"].to_pylist()], {name: table[name].to_pylist() for name in table.column_names}


def by_duckdb(place):
    duckdb = pytest.importorskip("duckdb")
    found = duckdb.sql(f"SELECT epoch(time)::BIGINT AS at, * FROM read_parquet('{place}/*/part.parquet') ORDER BY time")
    rows = found.fetchall()
    return [row[0] for row in rows], {name: [row[i] for row in rows] for i, name in enumerate(found.columns)}


def by_polars(place):
    polars = pytest.importorskip("polars")
    frame = polars.read_parquet(f"{place}/*/part.parquet").sort("time")
    return [int(one.timestamp()) for one in frame["time"].to_list()], {name: frame[name].to_list() for name in frame.columns}


@pytest.mark.parametrize("read", [by_pyarrow, by_duckdb, by_polars])
def test_a_reader_finds_the_cells_of_the_archive_and_null_where_they_are_missing(archive, read):
    place = archive.directory / "out" / f"system={SYSTEM}" / "group=datatargets" / "dataset=readbytes"
    times, columns = read(place)
    days = [archive.zone.day(MIDNIGHT + n * 86400 + 12 * 3600) for n in range(2)]
    with tokiod.open(SYSTEM, days[0].start, days[1].end, config=archive.directory / "tokiod.toml") as opened:
        matrix = opened.array(READ)
        assert times == matrix.times.tolist()
        for i, name in enumerate(matrix.columns):
            expected = [None if np.isnan(value) else value for value in matrix[:, i].tolist()]
            assert columns[name] == expected
            assert None in expected
