"""The same question to several engines, each a program of its own: sums of each hour and OST."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import tokiod
from sinks import parquet
from tests.bench import reading
from tokiod.change_sink import SinkSite
from tokiod.forwarding.day_follower import FileDay
from tokiod.reader.part import Part
from tokiod.window import Day

ENGINES = ("tokiod", "dask", "DuckDB", "Spark")
EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
SYSTEM = "fs"

Sums = dict[int, dict[str, int | None]]
"""{hour, epoch seconds: {OST: sum, None without a value}}."""


@dataclass(frozen=True)
class Answer:
    """What an engine answered. seconds: of its whole program."""

    sums: Sums
    seconds: float


def made(place: Path, days: int) -> None:
    """Make an archive of sealed days, and the Parquet files that the sink makes of it."""
    (place / "tts").mkdir()
    reading.archive(place / "tts", days)
    sink = parquet.sink(parquet.Config(name="p", kind="parquet", path=str(place / "parquet")), SinkSite(str, place))

    async def stored() -> None:
        await sink.open()
        for number in range(days):
            start = reading.START + number * reading.DAY
            date = dt.datetime.fromtimestamp(start, dt.UTC).date()
            part = Part(place / "tts" / f"{date}.hdf5")
            await sink.store(FileDay(part, SYSTEM, Day(start, start + reading.DAY, date), 1, 1))

    asyncio.run(stored())


def answers(place: Path, days: int, spark: Path | None) -> dict[str, Answer]:
    """Ask all engines, one after the other. spark: a Python with pyspark; without, Spark is left out."""
    start, end = (dt.datetime.fromtimestamp(reading.START + day * reading.DAY, dt.UTC) for day in (0, days))
    dates = f"{start:%Y-%m-%d}", f"{end:%Y-%m-%d}"
    template, files = f"{place}/tts/%Y-%m-%d.hdf5", str(place / "parquet")
    found = {
        "tokiod": _own(template, int(start.timestamp()), int(end.timestamp())),
        "dask": _program(sys.executable, "dask", template, SYSTEM, f"{start.isoformat()}", f"{end.isoformat()}"),
        "DuckDB": _program(sys.executable, "duckdb", files, SYSTEM, *dates),
    }
    if spark is not None:
        found["Spark"] = _program(str(spark), "spark", files, SYSTEM, *dates, "local[2]")
    return found


def _own(template: str, start: int, end: int) -> Answer:
    begun = time.monotonic()
    found = tokiod.open(SYSTEM, start, end, path=template).reduce("datatargets/readbytes", "1h", "sum")
    sums = {
        int(hour): {name: None if np.isnan(value) else int(value) for name, value in zip(found.columns, row, strict=True)}
        for hour, row in zip(found.times.tolist(), found.values.tolist(), strict=True)
    }
    return Answer(sums, time.monotonic() - begun)


def _program(python: str, name: str, *arguments: str) -> Answer:
    begun = time.monotonic()
    command = [python, str(EXAMPLES / f"hourly_sums_{name}.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "TZ": "UTC"})
    if done.returncode:
        raise RuntimeError(f"{name}: {done.stderr[-2000:]}")
    head, *lines = done.stdout.splitlines()
    names = head.split(",")[1:]
    sums = {}
    for line in lines:
        hour, *values = line.split(",")
        sums[int(hour)] = {name: int(value) if value else None for name, value in zip(names, values, strict=True)}
    return Answer(sums, time.monotonic() - begun)
