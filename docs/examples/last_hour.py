"""Keep the last hour of a dataset as a pandas frame: a row per step, a column per component, NaN where a cell is missing.

last_hour.py CONFIG SYSTEM/DATASET      e.g. last_hour.py /etc/tokiod/tokiod.toml cscratch/datatargets/readbytes
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from tokiod.clock import SystemClock
from tokiod.config import load as configuration
from tokiod.subscribe import Archive, Subscriber, Update

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokiod.batch import Batch
    from tokiod.clock import Clock
    from tokiod.config.schema import Config

HOUR = pd.Timedelta(hours=1)


def frames(config: Config, topic: str, clock: Clock) -> Iterator[pd.DataFrame]:
    """Yield the frame after each change, first with the last hour of the file."""
    archive = Archive.of(config, clock)
    frame = pd.DataFrame(index=pd.DatetimeIndex([], tz="UTC"))
    with Subscriber(config.feed.endpoint, [topic], archive=archive, since=int(clock.time()) - 3600) as subscriber:
        for event in subscriber:
            if isinstance(event, Update):
                frame = drawn(frame, event.batch)
                yield frame


def drawn(frame: pd.DataFrame, batch: Batch) -> pd.DataFrame:
    """Return the frame with the cells of a batch, new columns included, without rows older than an hour."""
    time = pd.DatetimeIndex(batch.time.astype("datetime64[s]").astype("datetime64[ns]"), tz="UTC")
    names = np.array(batch.columns, object)[batch.column]
    frame = frame.reindex(index=frame.index.union(time.unique()).sort_values(), columns=frame.columns.union(batch.columns, sort=False))
    values = frame.to_numpy(float, copy=True)
    values[frame.index.get_indexer(time), frame.columns.get_indexer(names)] = batch.value
    frame = pd.DataFrame(values, frame.index, frame.columns)
    return frame[frame.index > frame.index.max() - HOUR]


if __name__ == "__main__":
    for latest in frames(configuration.load(Path(sys.argv[1])), sys.argv[2], SystemClock()):
        print(latest.tail(3).to_string(), flush=True)  # noqa: T201 - an example that a person runs
