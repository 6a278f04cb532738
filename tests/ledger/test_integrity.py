"""That a writer notices what others do to the ledger that it has open."""

import shutil
import sqlite3
from pathlib import Path

import pytest

from tokiod.ledger.integrity import EVERY, LedgerLost, Watch, blame
from tokiod.ledger.ledger import Ledger, StoredEntry
from tokiod.window import Window


class Tick:
    now = 1e6

    def __call__(self):
        return self.now


@pytest.fixture
def tick():
    return Tick()


@pytest.fixture
def ledger(tmp_path):
    with Ledger.open(tmp_path / "archive" / "ledger.sqlite3") as ledger:
        ledger.store([StoredEntry("l", "lmt", "fs", Window(0, 60), 1)], 0.0)
        yield ledger


def test_a_ledger_that_nobody_touches_is_not_lost_whatever_is_written_to_it(ledger, tick):
    watch = Watch(ledger, tick)
    for minute in range(3):
        ledger.store([StoredEntry("l", "lmt", "fs", Window(60 * minute, 60 * minute + 60), 1)], 0.0)
        ledger.sql.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        Ledger.open(ledger.path).close()
        tick.now += EVERY
        watch()


def test_a_ledger_that_was_opened_just_now_is_not_lost_new_or_not(tmp_path, tick):
    for _ in range(2):
        with Ledger.open(tmp_path / "ledger") as ledger:
            Watch(ledger, tick)()


@pytest.mark.parametrize("part", ["", "-wal"])
def test_a_ledger_that_is_taken_away_is_lost(ledger, tick, part):
    watch = Watch(ledger, tick)
    Path(f"{ledger.path}{part}").unlink()
    with pytest.raises(LedgerLost, match=rf"ledger.sqlite3{part} was taken away"):
        watch()


def test_a_ledger_in_whose_place_another_is_put_is_lost(ledger, tick):
    watch = Watch(ledger, tick)
    shutil.copy(ledger.path, ledger.path.with_name("copy"))
    ledger.path.with_name("copy").replace(ledger.path)
    with pytest.raises(LedgerLost, match="was replaced by another"):
        watch()


def test_a_ledger_whose_archive_is_not_mounted_is_not_lost(ledger, tick):
    watch = Watch(ledger, tick)
    ledger.path.parent.rename(ledger.path.parent.with_name("elsewhere"))
    watch()


def test_garbage_in_a_page_that_nobody_reads_is_found_after_a_while(ledger, tick):
    watch = Watch(ledger, tick)
    ledger.sql.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    pages = ledger.path.stat().st_size // 4096
    with ledger.path.open("r+b") as file:
        file.seek((pages - 1) * 4096)
        file.write(b"\xff" * 4096)
    watch()
    tick.now += EVERY
    with pytest.raises(LedgerLost, match="corrupt"):
        watch()


def test_an_error_of_sqlite_is_to_blame_only_where_the_file_is_no_ledger_any_more(tmp_path):
    path = tmp_path / "ledger"
    path.write_bytes(b"no database" * 1000)
    connection = sqlite3.connect(path)
    with pytest.raises(sqlite3.DatabaseError) as corrupt:
        connection.execute("SELECT * FROM stored")
    with pytest.raises(LedgerLost, match="file is not a database"):
        blame(corrupt.value)
    connection.close()
    with pytest.raises(sqlite3.Error) as closed:
        connection.execute("SELECT 1")
    blame(closed.value)
