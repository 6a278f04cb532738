"""A sealed day of 17,280 rows x 248 columns x 3 datasets as Parquet files by sinks/parquet: the time, and the size by the sealed file's."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import TYPE_CHECKING

import numpy as np

from sinks import parquet
from tests.bench.measure import Row, paired
from tests.bench.reading import LOAD, OSTS, READ, ROWS, START, STEP, WRITE
from tokiod.change_sink import SinkSite
from tokiod.forwarding.day_follower import FileDay
from tokiod.reader.part import Part
from tokiod.tts.live.create import create
from tokiod.tts.live.live_file import LiveFile
from tokiod.tts.sealed.seal import seal
from tokiod.tts.spec import FileSpec, GroupSpec, MatrixSpec
from tokiod.window import Day

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DAY = 86400


def rows(directory: Path, *, quick: bool) -> Iterator[Row]:
    place = directory / "parquet"
    place.mkdir()
    sealed = sealed_day(place)
    target = place / "out"
    sink = parquet.sink(parquet.Config(name="p", kind="parquet", path=str(target)), SinkSite(str, place))
    day = Day(START, START + DAY, dt.date(2018, 1, 1))

    def read() -> None:
        part = Part(sealed)
        for name in part.names:
            part.read(name, 0, ROWS)

    def store() -> None:
        async def stored() -> None:
            await sink.open()
            await sink.store(FileDay(Part(sealed), "fs", day, 1, 1))

        asyncio.run(stored())

    floor, ours, ratio = paired(read, store, 1 if quick else 5)
    yield Row("a sealed day of 17,280 x 248 x 3 to Parquet", "s", floor, ours, ratio, "below 3 s", "floor: its cells are read")
    sizes = sealed.stat().st_size / 1e6, sum(path.stat().st_size for path in target.rglob("part.parquet")) / 1e6
    yield Row("its size", "MB", *sizes, sizes[1] / sizes[0], "at most 1.05", "floor: the sealed file")


def sealed_day(place: Path) -> Path:
    """Make a sealed file of values that look like bytes of OSTs, 1 % of them missing."""
    generator = np.random.default_rng(1)
    matrices = {name: MatrixSpec(OSTS, counter=False) for name in (READ, WRITE, LOAD)}
    path = place / "live.hdf5"
    create(
        path,
        FileSpec(START, START + DAY, {name: GroupSpec(STEP, "lmt") for name in ("datatargets", "dataservers")}, matrices),
        created=START,
    )
    file = LiveFile.open(path)
    for name in matrices:
        values = generator.gamma(0.3, 1e8, (ROWS, len(OSTS))).round()
        values[generator.random(values.shape) < 0.01] = -0.0
        file.cells[name].write_rows(0, values)
    file.commit()
    file.close()
    seal(path, place / "sealed.hdf5", updated=START)
    return place / "sealed.hdf5"
