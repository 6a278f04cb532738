"""Keep the rows of topics in a table of DuckDB: a row per cell that is not missing.

topics_to_duckdb.py SERVER TOPIC FILE [--once]    e.g. topics_to_duckdb.py broker1:9092 tokiod.cscratch cscratch.duckdb

After a kill it goes on where the file ends. --once ends after what the topic holds.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import numpy as np
import pyarrow as pa

from tokiod.consume import Consumer, Update

if TYPE_CHECKING:
    from collections.abc import Sequence

TABLES = """
CREATE TABLE IF NOT EXISTS cells (system TEXT, dataset TEXT, time BIGINT, name TEXT, value DOUBLE);
CREATE TABLE IF NOT EXISTS windows
    (system TEXT, dataset TEXT, start BIGINT, epoch BIGINT, revision BIGINT, PRIMARY KEY (system, dataset, start));
"""
UPDATES_AT_ONCE = 500


def store(database: duckdb.DuckDBPyConnection, updates: Sequence[Update]) -> None:
    """Replace the rows of some updates in one transaction, except where the table has newer ones."""
    database.begin()
    for update in updates:
        window = [update.system, update.dataset, update.start]
        known = database.execute("SELECT epoch, revision FROM windows WHERE system = ? AND dataset = ? AND start = ?", window).fetchone()
        if known is None or known <= (update.epoch, update.revision):
            database.execute("INSERT OR REPLACE INTO windows VALUES (?, ?, ?, ?, ?)", [*window, update.epoch, update.revision])
            database.execute("DELETE FROM cells WHERE system = ? AND dataset = ? AND time >= ? AND time < ?", [*window, update.end])
            database.register("rows", rows_of(update))
            database.execute("INSERT INTO cells SELECT ?, ?, time, name, value FROM rows", window[:2])
    database.commit()


def rows_of(update: Update) -> pa.Table:
    """Return the cells that are not missing."""
    batch = update.batch
    held = ~np.isnan(batch.value)
    names = pa.array(batch.columns, pa.string()).take(pa.array(batch.column[held]))
    return pa.table({"time": batch.time[held], "name": names, "value": batch.value[held]})


def main(server: str, topic: str, path: str, *, follow: bool) -> None:
    """Fill the file. Kafka keeps how far it was filled, for a group that has the name of the file."""
    with duckdb.connect(path) as database, Consumer(server, [topic], follow=follow, silence=1, group=Path(path).stem) as consumer:
        database.execute(TABLES)
        waiting: list[Update] = []
        for event in consumer:
            if isinstance(event, Update):
                waiting.append(event)
            if waiting and (len(waiting) == UPDATES_AT_ONCE or not isinstance(event, Update)):
                store(database, waiting)
                waiting.clear()
                consumer.commit()
        store(database, waiting)


if __name__ == "__main__":
    main(*sys.argv[1:4], follow="--once" not in sys.argv)
