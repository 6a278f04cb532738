"""Keep the rows of topics in a table of PostgreSQL: a row per cell that is not missing.

topics_to_postgresql.py SERVER TOPIC CONNECTION [--once]    e.g. topics_to_postgresql.py broker1:9092 tokiod.cscratch dbname=telemetry

After a kill it goes on where the table ends. --once ends after what the topic holds.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np
import psycopg

from tokiod.consume import Consumer, Update

if TYPE_CHECKING:
    from collections.abc import Sequence

TABLES = """
CREATE TABLE IF NOT EXISTS cells
    (system text, dataset text, time bigint, name text, value double precision, PRIMARY KEY (system, dataset, time, name));
CREATE TABLE IF NOT EXISTS windows
    (system text, dataset text, start bigint, epoch bigint, revision bigint, PRIMARY KEY (system, dataset, start));
"""
NOTE = """
INSERT INTO windows VALUES (%s, %s, %s, %s, %s) ON CONFLICT (system, dataset, start)
DO UPDATE SET epoch = excluded.epoch, revision = excluded.revision
WHERE (windows.epoch, windows.revision) <= (excluded.epoch, excluded.revision)
"""
UPDATES_AT_ONCE = 500
GROUP = "postgresql"


def store(database: psycopg.Connection, updates: Sequence[Update]) -> None:
    """Replace the rows of some updates in one transaction, except where the table has newer ones."""
    with database.transaction(), database.cursor() as cursor:
        for update in updates:
            window = (update.system, update.dataset, update.start)
            if cursor.execute(NOTE, (*window, update.epoch, update.revision)).rowcount:
                cursor.execute("DELETE FROM cells WHERE system = %s AND dataset = %s AND time >= %s AND time < %s", (*window, update.end))
                batch, held = update.batch, np.flatnonzero(~np.isnan(update.batch.value))
                with cursor.copy("COPY cells FROM STDIN") as copy:
                    cells = zip(batch.time[held].tolist(), batch.column[held].tolist(), batch.value[held].tolist(), strict=True)
                    for time, column, value in cells:
                        copy.write_row((*window[:2], time, batch.columns[column], value))


def main(server: str, topic: str, connection: str, *, follow: bool) -> None:
    """Fill the table. Kafka keeps how far it was filled, for GROUP."""
    with (
        psycopg.connect(connection, autocommit=True) as database,
        Consumer(server, [topic], follow=follow, silence=1, group=GROUP) as consumer,
    ):
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
