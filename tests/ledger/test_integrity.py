"""A writer notices an older copy of its ledger, and what other processes do to the file that it has open."""

import os
import resource
import shutil
import sqlite3
from contextlib import suppress
from pathlib import Path

import pytest
from rebuilt_site import Past

from tokiod.ledger.database import Sqlite
from tokiod.ledger.integrity import GENERATION_SECONDS, PAGE_CHECK_SECONDS, IntegrityCheck, LedgerLost, raise_if_corrupt
from tokiod.ledger.ledger import Ledger, StoredEntry
from tokiod.window import Window
from tokiod.window_data import WindowMeta

FIRST = Window(0, 60)


def store(ledger, now, window=FIRST):
    ledger.store([StoredEntry(WindowMeta("l", "lmt", "fs", window), 1)], now)


@pytest.fixture
def empty(tmp_path):
    with Ledger.open(tmp_path / "empty" / "ledger.sqlite3") as ledger:
        yield ledger


@pytest.fixture
def ledger(tmp_path):
    with Ledger.open(tmp_path / "archive" / ".tokiod" / "ledger.sqlite3") as ledger:
        store(ledger, 0.0)
        yield ledger


# ---- generations


def test_a_ledger_without_a_source_was_lost_or_is_new(empty):
    assert empty.generation.doubt() == "lost"
    empty.generation.advance(0.0)
    assert empty.generation.doubt() == "lost"
    store(empty, 0.0)
    assert empty.generation.doubt() == ""


def test_copies_from_before_the_last_generation_are_found_whatever_was_stored_since(empty, tmp_path):
    empty.generation.advance(0.0)
    copies = {}
    for number in range(6):
        store(empty, number * GENERATION_SECONDS)
        copies[number] = tmp_path / f"copy-{number}"
        empty._database.sql.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        shutil.copy(empty.path, copies[number])
    in_file = empty.generation.path.read_text()
    for number, copy in copies.items():
        place = tmp_path / str(number) / empty.path.name
        place.parent.mkdir()
        shutil.copy(copy, place)
        place.with_suffix(".stamp").write_text(in_file)
        with Ledger.open(place) as old:
            assert old.generation.doubt() == ("older than the files" if number < 5 else "")


def _copy(ledger, place):
    ledger._database.sql.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    place.parent.mkdir()
    shutil.copy(ledger.path, place)
    return place


@pytest.mark.parametrize("act", ["the writer starts", "windows are forgotten"])
def test_a_copy_from_just_before_is_found(empty, tmp_path, act):
    """Found by the simulation, seed 310024801: while the writer was down, a copy was made and a file was lost that was created again."""
    store(empty, 0.0)
    empty.generation.advance(0.0)
    copy = _copy(empty, tmp_path / "copy" / empty.path.name)
    if act == "the writer starts":
        empty.generation.advance(1.0)
    else:
        assert empty.forget("fs", FIRST, 1.0) == {"l": [FIRST]}
    shutil.copy(empty.generation.path, copy.with_suffix(".stamp"))
    with Ledger.open(copy) as old:
        assert old.generation.doubt() == "older than the files"
    assert empty.generation.doubt() == ""


def test_windows_are_forgotten_and_the_generation_advances_in_one_transaction(empty, tmp_path):
    """A kill after it, before the file next to the ledger is written, leaves the copy to the next start."""
    store(empty, 0.0)
    empty.generation.advance(0.0)
    copy = _copy(empty, tmp_path / "copy" / empty.path.name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tokiod.ledger.integrity.replace_file", lambda *_: pytest.fail("killed"))
        with suppress(pytest.fail.Exception):
            empty.forget("fs", FIRST, 1.0)
    assert list(empty.stored("l")) == []
    empty.generation.advance(2.0)
    shutil.copy(empty.generation.path, copy.with_suffix(".stamp"))
    with Ledger.open(copy) as old:
        assert old.generation.doubt() == "older than the files"


def test_windows_that_are_forgotten_while_the_ledger_is_rebuilt_leave_it_in_doubt(empty):
    store(empty, 0.0)
    empty.generation.begin_rebuild()
    empty.forget("fs", FIRST, 1.0)
    assert empty.generation.doubt() == "lost"


class LeftByPowerLoss(Sqlite):
    """Keeps what a power loss leaves at least: what was last synced."""

    def sync(self, log):
        super().sync(log)
        self.left = {part.name: part.read_bytes() for part in log.parent.iterdir() if part.suffix != ".sqlite3-shm"}


def test_a_power_loss_leaves_a_ledger_that_records_all_but_what_came_last(tmp_path):
    """Found by the simulation, seed 310013292: one that was rebuilt from the files believed what the same power loss had torn."""
    sqlite = LeftByPowerLoss()
    (tmp_path / "left").mkdir()
    with Ledger.open(tmp_path / "ledger" / "ledger.sqlite3", sqlite=sqlite) as ledger:
        store(ledger, 0.0)
        ledger.generation.advance(0.0)
        for number in range(1, 40):
            store(ledger, number * GENERATION_SECONDS / 4, Window(60 * number, 60 * number + 60))
        ledger.generation.path.replace(tmp_path / "left" / ledger.generation.path.name)
    for name in ("ledger.sqlite3", "ledger.sqlite3-wal"):
        (tmp_path / "left" / name).write_bytes(sqlite.left[name])
    with Ledger.open(tmp_path / "left" / "ledger.sqlite3") as ledger:
        assert ledger.generation.doubt() == ""
        assert list(ledger.stored("l")) == [(0, 60 * 37)]


def test_the_generation_advances_while_windows_are_stored_and_not_with_each(empty):
    empty.generation.advance(0.0)
    for now in (0.0, 1.0, GENERATION_SECONDS - 1):
        store(empty, now)
    assert empty.generation.path.read_text() == "1"
    store(empty, GENERATION_SECONDS)
    assert empty.generation.path.read_text() == "2"
    store(empty, GENERATION_SECONDS - 3600)
    assert empty.generation.path.read_text() == "3"


def test_storing_before_the_ledger_is_trusted_leaves_its_generation(ledger):
    store(ledger, 10 * GENERATION_SECONDS)
    assert not ledger.generation.path.exists()


def test_a_generation_file_that_cannot_be_written_does_not_stop_storing(empty):
    empty.generation.path.mkdir()
    empty.generation.advance(0.0)
    store(empty, GENERATION_SECONDS)
    assert list(empty.stored("l")) == [(0, 60)]


@pytest.mark.parametrize("text", ["", "nonsense", "\0"])
def test_a_torn_generation_file_raises_no_doubt(ledger, text):
    ledger.generation.path.write_text(text)
    assert ledger.generation.doubt() == ""


def test_a_numbered_ledger_without_its_generation_file_may_be_any_copy(empty):
    store(empty, 0.0)
    assert empty.generation.doubt() == ""
    empty.generation.advance(0.0)
    empty.generation.path.unlink()
    assert empty.generation.doubt() == "without ledger.stamp"


def test_a_copy_from_before_the_ledger_was_rebuilt_from_an_older_one_is_found_by_its_epoch(empty, tmp_path):
    """The numbers of the rebuilt ledger begin again, so any copy may have a higher one."""
    empty.changes.begin_epoch(1000.0)
    empty.generation.advance(0.0)
    copies = []
    for number in range(3):
        store(empty, number * GENERATION_SECONDS)
        empty._database.sql.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        copies.append(shutil.copy(empty.path, tmp_path / f"copy-{number}"))
    place = tmp_path / "restored" / empty.path.name
    place.parent.mkdir()
    shutil.copy(copies[0], place)
    with Ledger.open(place) as ledger:
        assert ledger.generation.doubt() == "without ledger.stamp"
        ledger.changes.begin_epoch(900.0)  # the clock was set back
        ledger.generation.begin_rebuild()
        ledger.generation.advance(0.0)
        assert ledger.generation.doubt() == ""
    place.unlink()
    shutil.copy(copies[-1], place)
    with Ledger.open(place) as ledger:
        assert ledger.generation.doubt() == "older than the files"


def test_the_generation_file_of_an_earlier_version_has_no_epoch_and_raises_no_doubt(empty):
    store(empty, 0.0)
    empty.changes.begin_epoch(1000.0)
    empty.generation.advance(0.0)
    assert empty.generation.path.read_text() == "1 1000"
    empty.generation.path.write_text("0")  # it held the number before
    assert empty.generation.doubt() == ""


# ---- the open file


class Monotonic:
    now = 1e6

    def __call__(self):
        return self.now


@pytest.fixture
def monotonic():
    return Monotonic()


def test_a_ledger_that_only_its_processes_write_is_not_lost(ledger, monotonic):
    check = IntegrityCheck(ledger.path, monotonic)
    for minute in range(3):
        store(ledger, 0.0, Window(60 * minute, 60 * minute + 60))
        ledger._database.sql.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        Ledger.open(ledger.path).close()
        monotonic.now += PAGE_CHECK_SECONDS
        check()


def test_a_ledger_that_was_just_opened_is_not_lost_new_or_not(tmp_path, monotonic):
    for _ in range(2):
        with Ledger.open(tmp_path / "ledger") as ledger:
            IntegrityCheck(ledger.path, monotonic)()


@pytest.mark.parametrize("part", ["", "-wal"])
def test_a_deleted_ledger_is_lost(ledger, monotonic, part):
    check = IntegrityCheck(ledger.path, monotonic)
    Path(f"{ledger.path}{part}").unlink()
    with pytest.raises(LedgerLost, match=rf"ledger.sqlite3{part} was deleted"):
        check()


def test_a_replaced_ledger_is_lost(ledger, monotonic):
    check = IntegrityCheck(ledger.path, monotonic)
    shutil.copy(ledger.path, ledger.path.with_name("copy"))
    ledger.path.with_name("copy").replace(ledger.path)
    with pytest.raises(LedgerLost, match="was replaced by another file"):
        check()


def test_a_ledger_whose_archive_is_not_mounted_is_not_lost(ledger, monotonic):
    check = IntegrityCheck(ledger.path, monotonic)
    root = ledger.path.parent.parent
    root.rename(root.with_name("elsewhere"))
    check()
    root.mkdir()
    check()


def test_a_ledger_whose_directory_is_deleted_is_lost(ledger, monotonic):
    check = IntegrityCheck(ledger.path, monotonic)
    shutil.rmtree(ledger.path.parent)
    with pytest.raises(LedgerLost, match=r"ledger\.sqlite3 was deleted"):
        check()


def test_a_ledger_that_can_not_be_looked_at_is_not_lost(ledger, monotonic):
    check = IntegrityCheck(ledger.path, monotonic)
    beyond = ledger.path.parent
    beyond.rename(beyond.with_name("elsewhere"))
    beyond.symlink_to(beyond)  # each look fails with ELOOP
    check()


def test_an_empty_ledger_that_the_collectors_created_is_lost(empty):
    """Before collectors stopped to create it, they did when its directory was deleted; and any process may put an empty one there."""
    empty.register(Past(), 0)
    assert empty.generation.doubt() == "lost"


def test_a_ledger_whose_rebuilding_was_killed_is_lost_still(empty):
    empty.generation.begin_rebuild()
    store(empty, 0.0)
    assert empty.generation.doubt() == "lost"
    empty.generation.advance(0.0)
    assert empty.generation.doubt() == ""


def test_a_damaged_page_that_no_query_reads_is_found_after_a_while(ledger, monotonic):
    check = IntegrityCheck(ledger.path, monotonic)
    ledger._database.sql.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    pages = ledger.path.stat().st_size // 4096
    with ledger.path.open("r+b") as file:
        file.seek((pages - 1) * 4096)
        file.write(b"\xff" * 4096)
    check()
    monotonic.now += PAGE_CHECK_SECONDS
    with pytest.raises(LedgerLost, match="corrupt"):
        check()


def test_pages_that_can_not_be_read_for_want_of_descriptors_are_checked_later(ledger, monotonic):
    check = IntegrityCheck(ledger.path, monotonic)
    monotonic.now += PAGE_CHECK_SECONDS
    taken, (soft, hard) = [], resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 4, hard))  # noqa: PTH208 - numbers
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        check()
    finally:
        for fd in taken:
            os.close(fd)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert taken


def test_an_error_of_sqlite_means_a_lost_ledger_only_where_the_file_is_no_longer_a_database(tmp_path):
    path = tmp_path / "ledger"
    path.write_bytes(b"no database" * 1000)
    connection = sqlite3.connect(path)
    with pytest.raises(sqlite3.DatabaseError) as corrupt:
        connection.execute("SELECT * FROM stored")
    with pytest.raises(LedgerLost, match="file is not a database"):
        raise_if_corrupt(corrupt.value)
    connection.close()
    with pytest.raises(sqlite3.Error) as closed:
        connection.execute("SELECT 1")
    raise_if_corrupt(closed.value)
