"""A day of a dataset as a Parquet file: the one encoder of exports and sinks.

system=S/group=G/dataset=D/date=YYYY-MM-DD/part.parquet: a column `time`, timestamp[ms, UTC], the left edge of each row, and an f8 column
for each component; null where missing. Row groups of three hours of 5 s; zstd over byte streams split by significance, no dictionaries:
0.97 of the size of a sealed file, where the defaults of Parquet take 1.2.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from tokiod.tts.live.files import replacing

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Iterable, Sequence
    from pathlib import Path, PurePath

    import numpy as np
    from numpy.typing import NDArray

ROWS_OF_GROUP = 2160
TIME = "time"


P = TypeVar("P", bound="PurePath")
Rows: TypeAlias = "tuple[NDArray[np.int64], NDArray[np.float64]]"
"""Times i8[rows], UTC epoch seconds, and values f8[rows, columns], NaN where missing."""


def part_path(directory: P, system: str, dataset: str, date: dt.date) -> P:
    """Return the path of a site day of a dataset below a directory."""
    group, _, name = dataset.partition("/")
    return directory / f"system={system}" / f"group={group}" / f"dataset={name}" / f"date={date}" / "part.parquet"


def write_part(
    path: Path, times: NDArray[np.int64], columns: Sequence[str], values: NDArray[np.float64], attributes: dict[str, str]
) -> None:
    """Write a file and put it in place of an older one, synced; missing directories are created.

    times, values: as in Rows; attributes: of the file, such as units. Raises ModuleNotFoundError without pyarrow, OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as temporary:
        pieces = (
            (times[first : first + ROWS_OF_GROUP], values[first : first + ROWS_OF_GROUP]) for first in range(0, len(times), ROWS_OF_GROUP)
        )
        encode(temporary, columns, pieces, attributes)
        with temporary.open("rb") as written:
            os.fsync(written.fileno())


def encode(target: Any, columns: Sequence[str], pieces: Iterable[Rows], attributes: dict[str, str]) -> None:
    """Write rows, each piece of them as a row group, to a path or a binary file.

    Raises ModuleNotFoundError without pyarrow, ValueError for a column that has the name of the times, and what `target` raises.
    """
    import pyarrow as pa  # noqa: PLC0415 - optional
    import pyarrow.parquet as pq  # noqa: PLC0415 - optional

    if TIME in columns:
        raise ValueError(f"a component is named {TIME!r}, which is the name of the rows' times")
    stamp = pa.timestamp("ms", tz="UTC")
    fields = [pa.field(TIME, stamp, nullable=False), *(pa.field(name, pa.float64()) for name in columns)]
    schema = pa.schema(fields, metadata=attributes)
    with pq.ParquetWriter(target, schema, compression="zstd", use_dictionary=False, use_byte_stream_split=list(columns)) as writer:
        for times, values in pieces:
            arrays = [pa.array(values[:, i], from_pandas=True) for i in range(len(columns))]
            writer.write_table(pa.Table.from_arrays([pa.array(times * 1000, stamp), *arrays], schema=schema), row_group_size=ROWS_OF_GROUP)
