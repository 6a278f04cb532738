"""The change log: what is read after any number is all that changed after it, however rows are merged, trimmed, lost or migrated."""

import os
import shutil
import signal
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ledger_entries import NOW, entry

from tokiod.ledger.changes import KEEP_SECONDS, LOST_NUMBERS, Change, merged
from tokiod.ledger.database import SCHEMA
from tokiod.ledger.ledger import Ledger, StoredEntry
from tokiod.ranges import Ranges
from tokiod.window import Window


@pytest.fixture
def path(tmp_path):
    return tmp_path / "archive" / ".tokiod" / "ledger.sqlite3"


@pytest.fixture
def ledger(path):
    with Ledger.open(path) as opened:
        opened.changes.begin_epoch(NOW)
        yield opened


def logged(ledger, seq=0, limit=1000):
    return [(one.source, one.window.start, one.window.end, one.kind) for one in ledger.changes.after(seq, limit)]


def test_a_stored_window_is_a_change_and_so_is_what_was_computed_around_it(ledger):
    one = entry(60, 120)
    ledger.store([StoredEntry(one.meta, 10, computed=((55, 115), (300, 310))), entry(120, 180, source="other")], NOW)
    assert logged(ledger) == [("lmt", 55, 120, "rows"), ("lmt", 300, 310, "rows"), ("other", 120, 180, "rows")]
    numbers = [one.seq for one in ledger.changes.after(0, 10)]
    first = int(NOW) * 1_000_000 + 1
    assert (numbers, ledger.changes.state().head) == ([first, first + 1, first + 2], first + 2)
    assert ledger.changes.after(0, 1)[0] == Change(first, "cscratch", "lmt", Window(55, 120), "rows", NOW)


def test_what_is_set_aside_or_sealed_is_a_change(ledger):
    ledger.store([entry(0, 60)], NOW)
    ledger.forget("cscratch", Window(0, 86400), NOW)
    ledger.forget("cscratch", Window(0, 60), NOW, source="lmt")
    ledger.changes.note("cscratch", [(0, 86400)], "sealed", NOW)
    assert logged(ledger) == [("lmt", 0, 60, "rows"), ("", 0, 86400, "set_aside"), ("lmt", 0, 60, "set_aside"), ("", 0, 86400, "sealed")]


def test_a_window_whose_transaction_fails_is_no_change(ledger):
    broken = StoredEntry(entry(0, 60).meta, 10, computed=((0, "x"),))
    with pytest.raises((sqlite3.Error, TypeError)):
        ledger.store([entry(60, 120), broken], NOW)
    assert (logged(ledger), list(ledger.stored("lmt"))) == ([], [])


SPAN = st.tuples(st.integers(0, 40), st.integers(1, 9)).map(lambda pair: Window(pair[0], pair[0] + pair[1]))
CHANGES = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["rows", "set_aside"]), SPAN), min_size=1, max_size=40)


@given(CHANGES, st.integers(0, 40))
def test_merged_changes_cover_after_any_number_what_the_changes_did(changes, cursor):
    rows = [Change(number, "s", source, window, kind, float(number)) for number, (source, kind, window) in enumerate(changes, 1)]
    found = list(merged(rows))
    assert len({one.seq for one in found}) == len(found)
    assert max(one.seq for one in found) == len(rows)
    for key in {(one.source, one.kind) for one in rows}:
        before, after = ([one for one in some if (one.source, one.kind) == key] for some in (rows, found))
        assert Ranges((one.window.start, one.window.end) for one in before) == Ranges((one.window.start, one.window.end) for one in after)
        remaining = Ranges((one.window.start, one.window.end) for one in after if one.seq > cursor)
        assert all(remaining.covers(one.window) for one in before if one.seq > cursor)


def test_the_log_stays_small_however_many_windows_are_stored(ledger):
    for minute in range(0, 20_000, 50):
        entries = [entry(60 * i, 60 * i + 60, source) for i in range(minute, minute + 50) for source in ("lmt", "other")]
        ledger.store(entries, NOW + 60 * minute)
    count = ledger.changes.windows_after(0)
    assert count <= 2300
    changes = ledger.changes.after(0, 10_000)
    assert len(changes) == count
    assert changes[-1].seq == ledger.changes.state().head == ledger.changes.state().trimmed + 40_000
    for source in ("lmt", "other"):
        covered = Ranges((one.window.start, one.window.end) for one in changes if one.source == source)
        assert list(covered) == [(0, 1_200_000)]


def test_rows_that_were_recorded_before_any_were_counted_are_counted_with_the_others(ledger):
    ledger.changes.note_recorded(5)
    ledger.store([entry(0, 60)], NOW)
    assert logged(ledger) == [("lmt", 0, 60, "rows")]


def test_changes_are_trimmed_by_age_and_the_log_shows_how_far(ledger):
    ledger.store([entry(0, 60)], NOW)
    ledger.store([entry(60, 120)], NOW + 10)
    first = ledger.changes.state().trimmed
    ledger.changes.tidy(NOW + KEEP_SECONDS + 5)
    assert (ledger.changes.state().trimmed, logged(ledger)) == (first + 1, [("lmt", 60, 120, "rows")])
    ledger.changes.tidy(NOW + KEEP_SECONDS + 50)
    assert (ledger.changes.state().trimmed, ledger.changes.state().head, logged(ledger)) == (first + 2, first + 2, [])
    ledger.store([entry(120, 180)], NOW + KEEP_SECONDS)
    assert [one.seq for one in ledger.changes.after(0, 10)] == [first + 3]


def test_each_run_begins_with_numbers_that_a_lost_tail_can_not_have_had(path, ledger):
    ledger.store([entry(0, 60)], NOW)
    ledger._database.sql.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    older = path.read_bytes()
    ledger.store([entry(60, 120), entry(120, 180)], NOW)
    read = ledger.changes.state().head
    ledger.close()
    path.write_bytes(older)
    with Ledger.open(path) as again:
        epoch = again.changes.state().epoch
        assert again.changes.state().head == read - 2
        again.changes.begin_run()
        again.store([entry(60, 120)], NOW)
        assert again.changes.state().epoch == epoch
        assert [(one.window, one.seq) for one in again.changes.after(read, 10)] == [(Window(60, 120), read - 2 + LOST_NUMBERS + 1)]


def test_a_run_whose_changes_were_all_lost_gives_no_number_again(path, ledger):
    ledger.store([entry(0, 60)], NOW)
    ledger.changes.begin_run()
    ledger._database.sql.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    older = path.read_bytes()
    ledger.store([entry(60 * minute, 60 * minute + 60) for minute in range(1, 6)], NOW)
    read = ledger.changes.state().head
    ledger.close()
    path.write_bytes(older)
    with Ledger.open(path) as again:
        again.changes.begin_run()
        again.store([entry(60 * minute, 60 * minute + 60) for minute in range(9, 0, -1)], NOW)
        assert len(again.changes.after(read, 10)) == 9


def test_an_epoch_is_higher_than_that_of_a_ledger_that_was_lost(ledger):
    former = ledger.changes.state().epoch + 5000
    ledger.changes.begin_epoch(NOW, former)
    assert ledger.changes.state().epoch == former + 1


def test_an_epoch_begins_after_all_numbers_of_earlier_ones(ledger):
    ledger.store([entry(0, 60)], NOW)
    before = ledger.changes.state()
    for now in (NOW + 100, NOW - 1000):
        ledger.changes.begin_epoch(now)
        state = ledger.changes.state()
        assert state.epoch > before.epoch
        assert state.head == state.trimmed >= before.head
        assert logged(ledger) == []
        before = state


def test_a_ledger_without_an_epoch_keeps_its_changes_until_the_writer_starts(path):
    with Ledger.open(path) as ledger:
        ledger.store([entry(0, 60)], NOW)
        ledger.changes.tidy(NOW + 2 * KEEP_SECONDS)
        ledger.changes.begin_run()
        assert (ledger.changes.state(), logged(ledger)) == (None, [("lmt", 0, 60, "rows")])


# ---- an older ledger


def older_ledger(path):
    """Make the ledger of format 8, without a change log, with a stored window."""
    path.parent.mkdir(parents=True)
    with sqlite3.connect(path, isolation_level=None) as sql:
        sql.execute("PRAGMA journal_mode = WAL")
        tables = [part for part in SCHEMA.split(";") if "change" not in part and "user_version" not in part]
        sql.executescript(";".join(tables) + "; PRAGMA user_version = 8;")
        sql.execute("INSERT INTO stored VALUES ('lmt', 0, 60)")
    sql.close()


def test_an_older_ledger_gets_a_change_log_whose_epoch_begins_with_the_writer(path):
    older_ledger(path)
    with Ledger.open(path) as ledger:
        assert (ledger.changes.state(), list(ledger.stored("lmt"))) == (None, [(0, 60)])
        ledger.changes.begin_epoch(NOW)
        ledger.store([entry(60, 120)], NOW)
        assert (list(ledger.stored("lmt")), logged(ledger)) == ([(0, 120)], [("lmt", 60, 120, "rows")])
    with sqlite3.connect(path) as sql:
        assert sql.execute("PRAGMA user_version").fetchone() == (10,)
    sql.close()


def test_a_kill_at_any_statement_of_the_migration_leaves_a_ledger_that_opens_with_all_that_it_had(tmp_path):
    original = tmp_path / "original" / ".tokiod" / "ledger.sqlite3"
    older_ledger(original)
    killed = 0
    for statement in range(1, 40):
        path = tmp_path / str(statement) / ".tokiod" / "ledger.sqlite3"
        shutil.copytree(original.parent, path.parent)
        child = os.fork()
        if not child:
            migrate_and_die(path, statement)
        _, status = os.waitpid(child, 0)
        killed += os.WIFSIGNALED(status)
        with Ledger.open(path) as ledger:
            assert list(ledger.stored("lmt")) == [(0, 60)]
            if ledger.changes.state() is None:
                ledger.changes.begin_epoch(NOW)
            ledger.store([entry(60, 120)], NOW)
            assert logged(ledger) == [("lmt", 60, 120, "rows")]
    assert killed > 20


def migrate_and_die(path: Path, statement: int) -> None:
    connect = sqlite3.connect

    def connect_and_die(*args, **options):
        connection = connect(*args, **options)
        left = iter(range(statement))
        connection.set_trace_callback(lambda _: next(left, None) is None and os.kill(os.getpid(), signal.SIGKILL))
        return connection

    sqlite3.connect = connect_and_die
    try:
        with Ledger.open(path) as ledger:
            ledger.changes.begin_epoch(NOW)
    finally:
        os._exit(0)
