"""A day of a dataset as a Parquet file: the one encoder of exports and sinks.

system=S/group=G/dataset=D/date=YYYY-MM-DD/part.parquet: a column `time`, timestamp[ms, UTC], the left edge of each row, and an f8 column
for each component; null where missing. Row groups of three hours of 5 s; zstd over byte streams split by significance, no dictionaries:
0.97 of the size of a sealed file, where the defaults of Parquet take 1.2.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from tokiod.tts.live.files import replacing

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

ROWS_OF_GROUP = 2160
TIME = "time"


def part_path(directory: Path, system: str, dataset: str, date: dt.date) -> Path:
    """Return the path of a site day of a dataset below a directory."""
    group, _, name = dataset.partition("/")
    return directory / f"system={system}" / f"group={group}" / f"dataset={name}" / f"date={date}" / "part.parquet"


def write_part(
    path: Path, times: NDArray[np.int64], columns: Sequence[str], values: NDArray[np.float64], attributes: dict[str, str]
) -> None:
    """Write a file and put it in place of an older one, synced; missing directories are created.

    times: i8[rows], UTC epoch seconds; values: f8[rows, columns], NaN where missing; attributes: of the file, such as units. Raises
    ModuleNotFoundError without pyarrow, OSError.
    """
    import pyarrow.parquet as pq  # noqa: PLC0415 - optional

    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        pq.write_table(
            _table(times, columns, values, attributes), temporary, row_group_size=ROWS_OF_GROUP, compression="zstd",
            use_dictionary=False, use_byte_stream_split=list(columns),
        )  # fmt: skip
        with temporary.open("rb") as written:
            os.fsync(written.fileno())


def _table(times: NDArray[np.int64], columns: Sequence[str], values: NDArray[np.float64], attributes: dict[str, str]) -> Any:
    import pyarrow as pa  # noqa: PLC0415 - optional

    if TIME in columns:
        raise ValueError(f"a component is named {TIME!r}, which is the name of the rows' times")
    stamps = pa.array(times * 1000, pa.timestamp("ms", tz="UTC"))
    arrays = [pa.array(values[:, i], from_pandas=True) for i in range(len(columns))]
    fields = [pa.field(TIME, stamps.type, nullable=False), *(pa.field(name, pa.float64()) for name in columns)]
    return pa.Table.from_arrays([stamps, *arrays], schema=pa.schema(fields, metadata=attributes))
