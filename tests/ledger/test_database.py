"""A ledger's file: opened, refused, quarantined, read by other processes, killed while it is created."""

import errno
import os
import shutil
import signal
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from ledger_entries import NOW, entry, failure

from tokiod.errors import TokiodError
from tokiod.ledger.database import LedgerNotReady, LedgerUnreadable
from tokiod.ledger.ledger import Ledger, LedgerCorrupt
from tokiod.window import Window


@pytest.fixture
def path(tmp_path):
    return tmp_path / "archive" / ".tokiod" / "ledger.sqlite3"


@pytest.fixture
def ledger(path):
    with Ledger.open(path) as opened:
        yield opened


def test_what_was_recorded_is_there_after_opening_again(path):
    with Ledger.open(path) as first:
        first.store([entry(0, 60)], NOW)
        first.failed("lmt", Window(60, 120), "Transient", "gone", 1, NOW + 5, NOW)
    with Ledger.open(path) as second:
        assert (list(second.stored("lmt")), second.unstored("lmt")) == ([(0, 60)], [failure(60, 120)])


def test_a_ledger_that_must_not_lose_its_tail_syncs_every_transaction(path):
    for full, level in ((False, 1), (True, 2)):
        with Ledger.open(path, full=full) as ledger:
            assert ledger._database.sql.execute("PRAGMA synchronous").fetchone() == (level,)
            assert ledger._database.sql.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def damaged(path, how):
    with Ledger.open(path) as ledger:
        ledger.store([entry(i * 120, i * 120 + 60) for i in range(3000)], NOW)
    data = bytearray(path.read_bytes())
    if how == "no database":
        data[:] = b"this was never SQLite" * 500
    elif how == "a page of junk":
        data[8192:12288] = os.urandom(4096)
    elif how == "cut in half":
        del data[len(data) // 2 :]
    path.write_bytes(data)


@pytest.mark.parametrize("how", ["no database", "a page of junk", "cut in half"])
def test_a_corrupt_ledger_is_reported_with_the_way_out_and_quarantined_by_the_writer(path, how):
    damaged(path, how)
    for opening in (Ledger.open, Ledger.open_readonly):
        with pytest.raises(LedgerCorrupt, match=rf"the ledger {path} is corrupt \(.+\): the writer quarantines it at its next start"):
            opening(path)
    with Ledger.open_or_quarantine(path, NOW) as fresh:
        assert fresh.quarantined == path.with_name("ledger.sqlite3.corrupt-20180128T080000Z")
        assert fresh.quarantined.exists()
        assert list(fresh.stored("lmt")) == []
    damaged(path, how)
    with Ledger.open_or_quarantine(path, NOW) as fresher:
        assert fresher.quarantined == path.with_name("ledger.sqlite3.corrupt-20180128T080000Z-1")


def test_a_sound_ledger_is_not_quarantined(path):
    with Ledger.open(path) as ledger:
        ledger.store([entry(0, 60)], NOW)
    with Ledger.open_or_quarantine(path, NOW) as again:
        assert (again.quarantined, list(again.stored("lmt"))) == (None, [(0, 60)])


def test_a_corrupt_ledger_is_renamed_with_its_journal_while_another_process_has_it_open_which_may_reopen(path):
    damaged(path, "nothing yet")
    with Ledger.open(path) as collectors:
        collectors.failed("lmt", Window(0, 60), "Transient", "gone", 1, NOW + 5, NOW)
        size = path.stat().st_size
        with path.open("r+b") as file:
            file.seek(5 * 4096)
            file.write(os.urandom(size - 5 * 4096))
        with Ledger.open_or_quarantine(path, NOW) as writer:
            assert writer.quarantined.with_name(writer.quarantined.name + "-wal").stat().st_size > 0
            writer.store([entry(0, 60)], NOW)
            collectors.reopen()
            assert (list(collectors.stored("lmt")), collectors.unstored("lmt")) == ([(0, 60)], [])


def test_a_ledger_of_a_newer_tokiod_is_refused_and_left_alone(path):
    Ledger.open(path).close()
    with sqlite3.connect(path) as sql:
        sql.execute("PRAGMA user_version = 99")
    sql.close()
    with pytest.raises(TokiodError, match=r"written by a newer tokiod \(format 99, this version reads up to 10\)"):
        Ledger.open_or_quarantine(path, NOW)
    assert sorted(p.name for p in path.parent.iterdir()) == ["ledger.sqlite3"]


def test_a_ledger_that_cannot_be_opened_is_one_sentence(path):
    with pytest.raises(TokiodError, match="no ledger at"):
        Ledger.open_readonly(path)
    path.mkdir(parents=True)
    with pytest.raises(TokiodError, match="can't be opened: unable to open database file"):
        Ledger.open(path)


def test_a_ledger_that_is_still_being_created_is_not_read(path):
    path.parent.mkdir(parents=True)
    path.touch()
    with pytest.raises(TokiodError, match="is still being created: try again"):
        Ledger.open_readonly(path)


def test_a_ledger_that_the_writer_has_not_created_is_not_created_by_others(path):
    with pytest.raises(LedgerNotReady, match="no ledger at"):
        Ledger.open_existing(path)
    assert not path.parent.exists()
    path.parent.mkdir(parents=True)
    path.touch()
    with pytest.raises(LedgerNotReady, match="is still being created: try again"):
        Ledger.open_existing(path)
    assert path.stat().st_size == 0


@pytest.mark.usefixtures("ledger")
def test_a_ledger_whose_directory_was_deleted_is_not_created_by_those_who_reopen_it(path):
    with Ledger.open_existing(path) as collectors:
        shutil.rmtree(path.parent)
        with pytest.raises(LedgerNotReady, match="no ledger at"):
            collectors.reopen()
        assert (list(collectors.stored("lmt")), path.parent.exists()) == ([], False)
        with Ledger.open(path) as writer:
            writer.store([entry(0, 60)], NOW)
            collectors.reopen()
            assert list(collectors.stored("lmt")) == [(0, 60)]


def test_a_file_system_that_can_not_sync_a_directory_has_a_ledger_all_the_same(tmp_path, monkeypatch):
    real, failed = os.fsync, []

    def fsync(fd):
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            failed.append(fd)
            raise OSError(errno.EINVAL, "Invalid argument")
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    with Ledger.open(tmp_path / "new" / "ledger.sqlite3") as ledger:
        ledger.forget("fs", Window(0, 60), 0.0)
        assert len(failed) == 2


def test_what_must_be_durable_at_once_fails_where_the_log_can_not_be_synced(path, ledger, monkeypatch):
    ledger.store([entry(0, 60)], NOW)

    def fsync(_fd):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(sqlite3.Error, match="the ledger can't be synced"):
        ledger.forget("cscratch", Window(0, 60), NOW)
    monkeypatch.undo()
    Path(f"{path}-wal").rename(path.with_name("elsewhere"))
    assert ledger.forget("cscratch", Window(0, 60), NOW) is not None


def test_a_reader_sees_what_the_writer_records_while_it_runs_and_writes_nothing(path, ledger):
    ledger.store([entry(0, 60)], NOW)
    with Ledger.open_readonly(path) as reader:
        assert list(reader.stored("lmt")) == [(0, 60)]
        ledger.store([entry(60, 120)], NOW)
        assert list(reader.stored("lmt")) == [(0, 120)]
        with pytest.raises(sqlite3.OperationalError, match="readonly database"):
            reader.store([entry(120, 180)], NOW)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become a user who may not write")
def test_a_user_who_may_only_read_sees_the_ledger_whether_it_is_open_was_closed_or_its_writer_was_killed(path):
    def as_nobody():
        """Return what a process of another user reads."""
        inside, outside = os.pipe()
        if child := os.fork():
            os.close(outside)
            with os.fdopen(inside, "rb") as pipe:
                answer = pipe.read()
            assert os.waitpid(child, 0)[1] == 0
            return msgspec.json.decode(answer)
        try:
            os.seteuid(65534)
            with Ledger.open_readonly(path) as reader:
                os.write(outside, msgspec.json.encode(list(reader.stored("lmt"))))
        finally:
            os._exit(0)

    for directory in list(path.parents)[:-2]:
        if directory.exists():
            directory.chmod(directory.stat().st_mode | 0o055)
    with Ledger.open(path) as ledger:
        path.parent.chmod(0o755)
        path.parent.parent.chmod(0o755)
        ledger.store([entry(0, 60)], NOW)
        assert as_nobody() == [[0, 60]]
    assert as_nobody() == [[0, 60]]
    if not (child := os.fork()):
        Ledger.open(path).store([entry(60, 120)], NOW)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    assert path.with_name(path.name + "-wal").stat().st_size > 0
    assert as_nobody() == [[0, 120]]


def test_a_kill_while_the_file_is_created_leaves_one_that_opens(path):
    for statement in range(1, 12):
        child = os.fork()
        if not child:
            connect = sqlite3.connect

            def connect_and_die(*args, statement=statement, connect=connect, **options):
                connection = connect(*args, **options)
                left = iter(range(statement))
                connection.set_trace_callback(lambda _: next(left, None) is None and os.kill(os.getpid(), signal.SIGKILL))
                return connection

            sqlite3.connect = connect_and_die
            try:
                Ledger.open(path)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        with Ledger.open(path) as ledger:
            ledger.store([entry(0, 60)], NOW)
            assert list(ledger.stored("lmt")) == [(0, 60)]
        for file in path.parent.iterdir():
            file.unlink()


def test_a_ledger_that_another_process_locks_is_unreadable_not_corrupt(path, monkeypatch):
    monkeypatch.setattr("tokiod.ledger.database.BUSY_SECONDS", 0.1)
    Ledger.open(path).close()
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("PRAGMA locking_mode = EXCLUSIVE")
        holder.execute("BEGIN EXCLUSIVE")
        with pytest.raises(LedgerUnreadable, match=rf"the ledger {path} can't be opened: database is locked"):
            Ledger.open(path)
        holder.execute("ROLLBACK")
    Ledger.open(path).close()


def test_a_ledger_of_before_the_first_release_is_refused_with_the_remedy(tmp_path):
    path = tmp_path / "ledger.sqlite3"
    Ledger.open(path).close()
    with closing(sqlite3.connect(path)) as old:
        old.execute("PRAGMA user_version = 7")
    for opened in (Ledger.open, Ledger.open_readonly):
        with pytest.raises(TokiodError, match="has format 7, of before the first release: move it away, the writer makes another"):
            opened(path)
