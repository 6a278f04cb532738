import asyncio
import datetime as dt
import os
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path

import pytest

from tokiod.clock import SimulatedClock
from tokiod.errors import TokiodError
from tokiod.simulator.lmt.database import DATA, SCHEMA, Arrivals, Database, simulate
from tokiod.simulator.site import OPERATIONS, STEP, Site
from tokiod.testing.clock import FakeClock

SHARED = Path(os.environ.get("TOKIOD_SHARED", Path(__file__).parents[4] / "shared"))
MIDNIGHT = 1_517_126_400


def read_only(path):
    return closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=1))


def filled(path, site, steps):
    database = Database(path, site)
    database.fill(steps)
    database.close()
    return path


@pytest.fixture
def whole(tmp_path, site, dump):
    """Return what a database holds that was filled in one go."""
    return lambda steps: dump(filled(tmp_path / f"whole-{steps}.sqlite3", site, steps))


def test_a_database_that_was_stopped_anywhere_and_continued_equals_one_that_never_was(tmp_path, site, dump, whole):
    path = tmp_path / "lmt.sqlite3"
    for turn, step in enumerate((1, 2, 50, 51, 52, 53, 200, 201, 400)):
        database = Database(path, site)
        database.fill(step)
        list(islice(database.pieces(step), turn % 4))
        database.close()
    filled(path, site, 401)
    assert dump(path) == whole(401)


def test_pieces_one_after_the_other_equal_a_fill(tmp_path, site, dump, whole):
    database = Database(tmp_path / "lmt.sqlite3", site)
    for step in range(300):
        for _ in database.pieces(step):
            pass
    database.close()
    assert dump(tmp_path / "lmt.sqlite3") == whole(300)


def test_a_database_grows_with_the_clock_and_only_the_newest_rows_are_incomplete(tmp_path, site, dump, whole):
    path, clock, want = tmp_path / "lmt.sqlite3", FakeClock(site.epoch + 1000.0), whole(420)
    counts = {table: Counter(row[1] for row in want[table]) for table in DATA}

    async def watch():
        task, partial = asyncio.create_task(simulate(path, site, clock)), 0
        for _ in range(400):
            await clock.advance(0.7)
            with read_only(path) as db:
                newest, stamp = db.execute("SELECT TS_ID, TIMESTAMP FROM TIMESTAMP_INFO ORDER BY TS_ID DESC LIMIT 1").fetchone()
                assert stamp <= local(clock.time())
                for table in DATA:
                    query = f"SELECT TS_ID, count(*) FROM {table} WHERE TS_ID >= ? GROUP BY TS_ID"
                    found = Counter(dict(db.execute(query, (newest - 3,)).fetchall()))
                    assert all(found[ts_id] == counts[table][ts_id] for ts_id in range(newest - 3, newest))
                    partial += found[newest] < counts[table][newest]
        task.cancel()
        await asyncio.wait([task])
        return partial

    assert asyncio.run(watch()) > 100
    filled(path, site, 420)
    assert dump(path) == want


def local(seconds):
    return (dt.datetime.fromtimestamp(seconds, dt.UTC) - dt.timedelta(hours=8)).strftime("%Y-%m-%d %H:%M:%S")


def test_a_simulation_that_was_interrupted_catches_up(tmp_path, site, dump, whole):
    path, clock = tmp_path / "lmt.sqlite3", FakeClock(site.epoch + 100.0)

    async def run(seconds):
        task = asyncio.create_task(simulate(path, site, clock))
        await clock.advance(seconds)
        task.cancel()
        await asyncio.wait([task])

    for seconds in (0.1, 3.0, 17.0, 0.2, 60.0):
        asyncio.run(run(seconds))
        clock.jump(300.0)
    asyncio.run(run(0.0))
    filled(path, site, 400)
    assert dump(path) == whole(400)


def test_a_clock_that_jumps_forth_and_back_changes_nothing(tmp_path, site, dump, whole):
    path, clock = tmp_path / "lmt.sqlite3", FakeClock(site.epoch + 100.0)

    async def run():
        task = asyncio.create_task(simulate(path, site, clock))
        for jump in (0.0, 400.0, -450.0, 200.0, -1.0):
            clock.jump(jump)
            await clock.advance(20.0)
        task.cancel()
        await asyncio.wait([task])

    asyncio.run(run())
    filled(path, site, 200)
    assert dump(path) == whole(200)


def test_a_new_file_appears_with_all_of_its_past(tmp_path, site, whole):
    path, seen = tmp_path / "lmt.sqlite3", []

    class Watching(FakeClock):
        def time(self):
            seen.append(path.exists())
            return super().time()

        async def sleep(self, seconds):
            assert seconds > 0
            with read_only(path) as db:
                seen.append(db.execute("SELECT count(*) FROM OST_DATA").fetchone()[0] >= len(whole(360)["OST_DATA"]))
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(simulate(path, site, Watching(site.epoch + 1800.0)))
    assert seen[0] is False
    assert seen[-1] is True
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


@pytest.mark.system
def test_readers_get_whole_transactions_at_every_instant_through_kills_of_the_writer(tmp_path, dump):
    path, rate = tmp_path / "lmt.sqlite3", 200.0
    clock = SimulatedClock(MIDNIGHT, time.time(), rate)
    site = Site(MIDNIGHT - 600, osts=9, osss=4, mdts=3)
    site.save(tmp_path / "site.json")
    command = [sys.executable, "-m", "tokiod.simulator", "lmt", "--database", path, "--clock", str(clock), "--site", tmp_path / "site.json"]
    newest = []
    for seen in (10, 20, 30):
        with subprocess.Popen(command) as writer:
            try:
                while len(set(newest)) < seen:
                    if path.exists():
                        newest.append(read_everything(path))
            finally:
                writer.kill()
        newest.append(read_everything(path))
    assert newest == sorted(newest)
    last = Arrivals(site).step(newest[-1])
    filled(path, site, last + 1)
    assert dump(path) == dump(filled(tmp_path / "whole.sqlite3", site, last + 1))


def read_everything(path):
    with read_only(path) as db:
        db.execute("BEGIN")
        (newest,) = db.execute("SELECT max(TS_ID) FROM TIMESTAMP_INFO").fetchone()
        for table in DATA:
            assert db.execute(f"SELECT max(TS_ID) <= ? FROM {table}", (newest,)).fetchone() == (1,)
        assert db.execute("PRAGMA integrity_check(1)").fetchone() == ("ok",)
    return newest


def test_a_closed_database_is_one_file_that_is_complete_without_its_wal(tmp_path, site):
    path = filled(tmp_path / "lmt.sqlite3", site, 100)
    assert [p.name for p in tmp_path.iterdir()] == ["lmt.sqlite3"]
    with closing(sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)) as db:
        assert db.execute("SELECT count(*) FROM TIMESTAMP_INFO").fetchone()[0] > 80


def test_a_file_of_another_site_is_refused_and_left_alone(tmp_path, site):
    path = filled(tmp_path / "lmt.sqlite3", site, 10)
    before = path.read_bytes()
    with pytest.raises(TokiodError, match="not this site's"):
        Database(path, replace(site, seed=2))
    assert path.read_bytes() == before


def test_a_database_that_is_not_ours_is_refused(tmp_path, site):
    with closing(sqlite3.connect(tmp_path / "other.sqlite3")) as db:
        db.execute("CREATE TABLE TIMESTAMP_INFO (TS_ID, TIMESTAMP)")
    with pytest.raises(TokiodError, match="not this site's"):
        Database(tmp_path / "other.sqlite3", site)


def test_the_tables_are_those_of_a_sites_own_copy(tmp_path, site):
    copies = sorted((SHARED / "data" / "lmt").glob("*.sqlite3")) if SHARED.is_dir() else []
    if not copies:
        pytest.skip("no copy of a real LMT database beside the repository")
    with (
        read_only(filled(tmp_path / "lmt.sqlite3", site, 3)) as ours,
        closing(sqlite3.connect(f"file:{copies[0]}?immutable=1", uri=True)) as theirs,
    ):
        for table in SCHEMA:
            assert described(ours, table) == described(theirs, table)
        known = dict(theirs.execute("SELECT OPERATION_NAME, OPERATION_ID FROM OPERATION_INFO").fetchall())
        written = {name for (name,) in theirs.execute("SELECT DISTINCT OPERATION_NAME FROM MDS_OPS_DATA NATURAL JOIN OPERATION_INFO")}
        assert {name: known[name] for name in written} == OPERATIONS


def described(db, table):
    return [row[1:] for row in db.execute(f"PRAGMA table_info({table})").fetchall()]


@pytest.mark.parametrize(("zone", "epoch"), [("America/Los_Angeles", 1_541_318_400), ("Europe/Berlin", 1_521_937_800), ("UTC", MIDNIGHT)])
def test_timestamps_are_local_and_told_apart_by_ts_id_in_the_repeated_hour(tmp_path, zone, epoch):
    site = Site(epoch, timezone=zone, osts=1, osss=1, mdts=1, trouble=False)
    with read_only(filled(tmp_path / "lmt.sqlite3", site, 1800)) as db:
        stamps = [stamp for (stamp,) in db.execute("SELECT TIMESTAMP FROM TIMESTAMP_INFO ORDER BY TS_ID")]
    local = [dt.datetime.fromisoformat(stamp) for stamp in stamps]
    steps = Counter((later - earlier).total_seconds() for earlier, later in pairwise(local))
    jump = {"America/Los_Angeles": STEP - 3600, "Europe/Berlin": STEP + 3600}.get(zone)
    assert steps == {STEP: 1799} if jump is None else steps == {STEP: 1798, jump: 1}
    assert len(set(stamps)) == (1080 if zone.startswith("America") else 1800)


def test_a_new_ost_joins_the_inventory_with_its_first_rows(tmp_path):
    site = Site(MIDNIGHT, osts=3, osss=3, growth=600, trouble=False)
    for step, osts in ((120, 2), (121, 3)):
        with read_only(filled(tmp_path / "lmt.sqlite3", site, step)) as db:
            assert db.execute("SELECT count(*) FROM OST_INFO").fetchone() == (osts,)
            assert db.execute("SELECT count(DISTINCT OST_ID) FROM OST_DATA").fetchone() == (osts,)
    with read_only(tmp_path / "lmt.sqlite3") as db:
        assert db.execute("SELECT * FROM OST_INFO ORDER BY OST_ID DESC").fetchone() == (3, 3, "snx1-OST0002", "snx1n102", 0, "/dev/md0")
