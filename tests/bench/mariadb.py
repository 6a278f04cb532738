"""LMT's rows out of a real MariaDB, against a bare asyncmy cursor over the same rows."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import asyncmy
from asyncmy.cursors import SSCursor

from collectors import lmt
from tests.bench import lmt_copy
from tests.bench.lmt import CALENDAR, FETCHES, START
from tests.bench.measure import Row, paired_awaits, rated, skipped
from tests.support.mariadb_server import MariaDb, installed
from tokiod.clock import SystemClock
from tokiod.collector import Site
from tokiod.tts.schema import DATASETS
from tokiod.window import Window

if TYPE_CHECKING:
    from collections.abc import Iterator

DATABASE = "filesystem_bench"
SCHEMA = Path(__file__).parents[1] / "system" / "lmt_schema.sql"
TARGET = "at most 1.25"
OSTS = ", ".join(map(str, range(1, 249)))
MDTS = ", ".join(map(str, range(1, 6)))
KEYS = dict(
    zip(
        FETCHES,
        [
            *(f"FORCE INDEX (PRIMARY) WHERE {key} IN ({ids}) AND" for key, ids in (("OST_ID", OSTS), ("OSS_ID", OSTS), ("MDS_ID", MDTS))),
            "WHERE",
        ],
        strict=True,
    )
)
STORED = [i for i, name in enumerate(lmt_copy.OPERATIONS, 1) if f"mdtargets/{name}s" in DATASETS]
ASKED = {FETCHES[-1]: f" AND OPERATION_ID IN ({', '.join(map(str, STORED))})"}
"""The floor asks for the same rows by the same keys as the collector does: that is the faster plan."""


def rows(directory: Path, *, quick: bool) -> Iterator[Row]:
    if not installed():
        yield skipped("LMT MariaDB to batches", TARGET, "mariadbd is not installed: apt-get install mariadb-server")
        return
    server = MariaDb(directory)
    server.install()
    server.start()
    try:
        content = {name: list(part) for name, part in lmt_copy.tables(721, 248, 5, "time", lmt_copy.START)}
        server.load(DATABASE, SCHEMA.read_text(), content)
        # A server that was just filled is still writing its pages, for seconds; one that comes again has written them.
        server.stop()
        server.start()
        yield asyncio.run(_span(server, 60, 3 if quick else 7))
        if not quick:
            yield asyncio.run(_span(server, 5, 30))
    finally:
        server.stop()


async def _span(server: MariaDb, minutes: int, times: int) -> Row:
    first, steps = lmt_copy.FIRST_TS_ID, minutes * 12
    url = f"mysql://root@127.0.0.1:{server.port}/{DATABASE}"
    collector = lmt.saved([url], lmt.Saved(), Site(CALENDAR, SystemClock()))
    window = Window(START, START + minutes * 60)
    count = steps * (2 * 248 + 5 + 5 * len(STORED))
    connection = await asyncmy.connect(unix_socket=server.socket, user="root", database=DATABASE, autocommit=True)

    async def bare() -> None:
        async with connection.cursor(cursor=SSCursor) as cursor:
            for statement in FETCHES:
                await cursor.execute(
                    f"{statement} {KEYS.get(statement, '')} TS_ID BETWEEN {first} AND {first + steps - 1}{ASKED.get(statement, '')}"
                )
                while await cursor.fetchmany(10_000):
                    pass

    async def ours() -> None:
        assert sum(map(len, (await collector.collect(window)).batches)) > count

    pairs = await paired_awaits(bare, ours, times)
    await collector.close()
    await connection.ensure_closed()
    return rated(f"LMT MariaDB to batches, {minutes} min, {count:,} rows", "M rows/s", count / 1e6, pairs, TARGET, "floor: bare asyncmy")
