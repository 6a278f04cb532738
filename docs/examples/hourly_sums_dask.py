"""Sums of each hour and OST, by dask over the archive: a row per hour, a column per OST.

hourly_sums_dask.py PATH SYSTEM START END [SCHEDULER]
    e.g. hourly_sums_dask.py '/tts/%Y-%m-%d/{system}.hdf5' cscratch 2026-10-01 2026-11-01 tcp://head:8786

Prints CSV; an hour without a value is empty. Without SCHEDULER, workers are processes of this machine. Those of other hosts open the files
by the same paths.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np
from dask.distributed import Client

import tokiod

if TYPE_CHECKING:
    from numpy.typing import NDArray

DATASET = "datatargets/readbytes"
HOUR = 3600


def hourly_sums(
    client: Client, path: str, system: str, start: str, end: str
) -> tuple[tuple[str, ...], NDArray[np.int64], NDArray[np.float64]]:
    """Return names, epoch seconds i8[hours], and sums f8[hours, names], NaN for an hour without a value. start: at a full hour."""
    archive = tokiod.open(system, start, end, path=path)
    matrix = archive.array(DATASET)
    rows_of_hour = HOUR // matrix.step
    # A block per hour: a worker returns 248 numbers of its 178,560.
    hours = archive.dask(DATASET).rechunk((rows_of_hour, -1))
    sums = hours.map_blocks(_sum, chunks=((1,) * hours.numblocks[0], hours.chunks[1]), dtype=float)
    return matrix.columns, matrix.times[::rows_of_hour], client.compute(sums, sync=True)


def _sum(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    known = ~np.isnan(rows)
    sums = np.where(known.any(axis=0), np.where(known, rows, 0.0).sum(axis=0), np.nan)
    return sums[np.newaxis]


def main() -> None:
    """Print the sums."""
    path, system, start, end, *scheduler = sys.argv[1:]
    with Client(*scheduler) if scheduler else Client(processes=True, dashboard_address=None) as client:
        names, times, sums = hourly_sums(client, path, system, start, end)
    sys.stdout.write(",".join(["hour", *names]) + "\n")
    for time, row in zip(times.tolist(), sums.tolist(), strict=True):
        sys.stdout.write(",".join([str(time), *("" if np.isnan(value) else f"{value:.0f}" for value in row)]) + "\n")


if __name__ == "__main__":
    main()
