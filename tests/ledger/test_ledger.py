"""What a ledger holds after any sequence of operations and kills."""

import dataclasses
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from ledger_entries import NOW, config, entry
from msgspec import structs
from polled_site import WithoutPast

from tokiod.ledger import spans
from tokiod.ledger.database import SCHEMA, LedgerError
from tokiod.ledger.ledger import Ledger, SourceRow, StoredEntry, Unstored
from tokiod.ledger.sources import ESTABLISHED_SECONDS
from tokiod.ranges import Ranges
from tokiod.units import Duration
from tokiod.window import Window

MINUTE = 60


@pytest.fixture
def path(tmp_path):
    return tmp_path / "archive" / ".tokiod" / "ledger.sqlite3"


@pytest.fixture
def ledger(path):
    with Ledger.open(path) as opened:
        yield opened


# ---- what is stored

EDGE = st.integers(0, 30)
SPAN = st.tuples(EDGE, EDGE).filter(lambda s: s[0] < s[1])
OPERATION = st.tuples(st.sampled_from(["store", "forget", "failed", "lost"]), st.sampled_from("ab"), st.lists(SPAN, min_size=1, max_size=3))


def runs(integers):
    """Return the maximal runs of a set of integers, oldest first."""
    return [(i, next(j for j in range(i, 99) if j not in integers)) for i in sorted(integers) if i - 1 not in integers]


@given(st.lists(OPERATION, max_size=15))
@example([("store", "a", [(0, 2)]), ("lost", "a", [(0, 1)])])
def test_any_sequence_of_operations_equals_sets_of_integers_in_maximal_ranges(operations):
    ledger = Ledger.open(Path(f"/dev/shm/tokiod-test-{os.getpid()}.sqlite3"))
    stored, unstored, lost = ({"a": set(), "b": set()} for _ in range(3))
    try:
        for operation, source, spans in operations:
            touched = {i for span in spans for i in range(*span)}
            if operation == "store":
                ledger.store([entry(*span, source=source) for span in spans], NOW)
                stored[source] |= touched
                unstored[source] -= touched
                lost[source] -= touched
            elif operation == "forget":
                gone = [ledger.forget("cscratch", Window(*span), NOW, source=source).get(source, []) for span in spans]
                assert {i for windows in gone for w in windows for i in range(w.start, w.end)} == touched & stored[source]
                stored[source] -= touched
            elif operation == "failed":
                for span in spans:
                    ledger.failed(source, Window(*span), "Transient", "gone", 1, NOW, NOW)
                unstored[source] |= touched
                lost[source] -= touched
            else:
                for span in spans:
                    ledger.lost(source, Window(*span), "Retention", "too old", NOW)
                unstored[source] |= touched
                lost[source] |= touched
        for source in "ab":
            assert list(ledger.stored(source)) == runs(stored[source])
            rows = ledger.unstored(source)
            assert [i for row in rows for i in range(row.window.start, row.window.end)] == sorted(unstored[source])
            assert Ranges((r.window.start, r.window.end) for r in rows if r.state == "lost") == Ranges(runs(lost[source]))
            assert len([r for r in rows if r.state == "lost"]) == len(runs(lost[source]))
            first = next(i for i in range(99) if i not in stored[source] | lost[source])
            assert ledger.watermark(source, 0) == first
    finally:
        ledger.close()
        for suffix in ("", "-wal", "-shm"):
            ledger.path.with_name(ledger.path.name + suffix).unlink(missing_ok=True)


@given(st.lists(st.tuples(st.sampled_from(["stored", "lost", "empty", "failed"]), SPAN), max_size=9), st.integers(0, 12))
@example([("stored", (0, 2)), ("lost", (2, 3)), ("stored", (3, 9))], 0)
@example([("lost", (3, 20)), ("stored", (0, 6)), ("stored", (10, 12))], 1)
@example([("stored", (0, 4)), ("lost", (2, 9)), ("stored", (11, 12))], 0)
def test_answered_spans_are_maximal_also_where_both_tables_overlap(rows, since):
    expected, empty = Ranges(), []
    with sqlite3.connect(":memory:") as sql:
        sql.executescript(SCHEMA)
        for state, (start, end) in rows:
            table = "stored" if state == "stored" else "unstored"
            if spans.overlapping(sql, table, "a", start, end):
                continue  # no two rows of a table overlap; those of both may
            values = ("a", start, end) if state == "stored" else ("a", start, end, state, 1, "", "", 0.0, None)
            sql.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values))})", values)
            if end > since and state == "empty":
                empty.append((start, end, True))
            elif end > since and state != "failed":
                expected.add(start, end)
        assert spans.answered(sql, "a", since) == sorted([(start, end, False) for start, end in expected] + empty)


def test_a_snapshot_is_of_one_time(ledger, path):
    ledger.store([entry(0, 60)], NOW)
    with Ledger.open_readonly(path) as reader:
        with reader.snapshot():
            before = list(reader.stored("lmt"))
            ledger.store([entry(60, 120)], NOW)
            assert list(reader.stored("lmt")) == before == [(0, 60)]
        assert list(reader.stored("lmt")) == [(0, 120)]


def test_the_error_that_ended_a_snapshot_is_reported(ledger):
    def fail():
        ledger._database.sql.execute("ROLLBACK")  # as SQLite does where the file can't be read
        raise LedgerError("disk I/O error")

    with pytest.raises(LedgerError, match=r"^disk I/O error$"), ledger.snapshot():
        fail()
    assert list(ledger.stored("lmt")) == []


def test_windows_without_a_hole_are_one_row_however_many_they_are(ledger):
    for first in range(0, 2000, 100):
        ledger.store([entry(i * MINUTE, (i + 1) * MINUTE) for i in range(first, first + 100)], NOW)
    assert ledger._database.sql.execute("SELECT * FROM stored").fetchall() == [("lmt", 0, 2000 * MINUTE)]


def test_what_is_missing_in_ninety_days_is_read_from_as_many_rows_as_there_are_holes(ledger):
    day, holes = 86_400, 1000
    ledger.store([entry(i * 90 * day // holes, (i + 1) * 90 * day // holes - MINUTE) for i in range(holes)], NOW)
    steps = []
    ledger._database.sql.set_progress_handler(lambda: steps.append(1), 1)
    missing = ledger.stored("lmt").holes(0, 90 * day)
    assert len(steps) < 10 * holes
    assert (len(missing), sum(w.seconds for w in missing)) == (holes, holes * MINUTE)


def test_storing_one_more_window_does_not_cost_more_when_a_source_has_many_holes(ledger):
    ledger.store([entry(i * 120, i * 120 + 60) for i in range(5000)], NOW)
    steps = []
    ledger._database.sql.set_progress_handler(lambda: steps.append(1), 1)
    ledger.store([entry(5000 * 120, 5000 * 120 + 60), entry(60, 120)], NOW)
    assert len(steps) < 2000  # virtual machine instructions; a scan of 5,000 rows is 20,000
    assert list(ledger.stored("lmt"))[0] == (0, 180)  # noqa: RUF015 - the first range


def test_the_watermark_is_the_end_of_the_newest_window_up_to_which_nothing_is_missing(ledger):
    assert ledger.watermark("lmt") == 0
    ledger.store([entry(600, 660), entry(720, 780)], NOW)
    assert ledger.watermark("lmt") == 660
    assert ledger.watermark("lmt", since=700) == 700
    assert ledger.register(config(), since=540) == 540
    assert ledger.watermark("lmt") == 540
    ledger.store([entry(540, 600)], NOW)
    assert ledger.watermark("lmt") == 660
    ledger.failed("lmt", Window(660, 720), "Transient", "gone", 1, NOW, NOW)
    assert ledger.watermark("lmt") == 660
    ledger.lost("lmt", Window(660, 720), "Retention", "too old", NOW)
    assert ledger.watermark("lmt") == 780


def test_there_is_no_watermark_while_nothing_is_stored_from_the_time_on_from_which_data_is_expected(ledger):
    ahead = 30 * 86400
    assert ledger.register(config(), since=ahead) == ahead
    assert ledger.watermark("lmt") == 0
    ledger.store([entry(600, 660), entry(720, 780)], NOW)
    assert ledger.watermark("lmt") == 0
    assert ledger.register(config(), since=600) == 600
    assert ledger.watermark("lmt") == 660


def test_windows_without_samples_make_no_watermark_because_their_time_may_not_have_come(ledger):
    ledger.register(config(), since=600)
    ledger.store([StoredEntry(entry(start, start + 60).meta, 0, is_empty=True) for start in (600, 900)], NOW)
    assert ledger.watermark("lmt") == 0
    ledger.store([entry(660, 720)], NOW)
    assert ledger.watermark("lmt") == 720


def test_what_is_lost_makes_a_watermark_before_the_first_sample(ledger):
    ledger.register(config(), since=600)
    ledger.lost("lmt", Window(600, 660), "Retention", "too old", NOW)
    assert ledger.watermark("lmt") == 660


def test_forgetting_a_system_forgets_its_sources_and_no_others(ledger):
    ledger.store([entry(0, 100, "a"), entry(0, 100, "b"), entry(0, 100, "c", system="other")], NOW)
    assert ledger.forget("cscratch", Window(50, 200), NOW) == {"a": [Window(50, 100)], "b": [Window(50, 100)]}
    assert [list(ledger.stored(s)) for s in "abc"] == [[(0, 50)], [(0, 50)], [(0, 100)]]
    assert ledger.forget("cscratch", Window(50, 200), NOW) == {}


# ---- what is not stored, and why


def test_a_window_that_is_stored_is_cut_out_of_what_was_not(ledger):
    ledger.failed("lmt", Window(0, 60), "Transient", "gone", 1, NOW + 5, NOW)
    ledger.lost("lmt", Window(100, 400), "Retention", "too old", NOW)
    ledger.store([entry(0, 60), entry(200, 300)], NOW)
    rest = [Unstored("lmt", Window(*span), "lost", 0, "Retention", "too old", NOW, None) for span in ((100, 200), (300, 400))]
    assert ledger.unstored("lmt") == rest


def test_a_later_failure_replaces_an_earlier_one_of_the_window(ledger):
    ledger.failed("lmt", Window(0, 60), "Transient", "gone", 1, NOW + 5, NOW)
    ledger.failed("lmt", Window(0, 60), "Refused", "a wrong step", 2, None, NOW + 9, state="rejected")
    assert ledger.unstored("lmt") == [Unstored("lmt", Window(0, 60), "rejected", 2, "Refused", "a wrong step", NOW + 9, None)]


def test_lost_spans_that_touch_are_one_row_only_where_the_reason_is_the_same(ledger):
    ledger.lost("lmt", Window(0, 60), "Retention", "too old", NOW)
    ledger.lost("lmt", Window(120, 180), "Retention", "too old", NOW)
    ledger.lost("lmt", Window(180, 240), "Transient", "gone", NOW)
    ledger.lost("lmt", Window(60, 120), "Retention", "too old", NOW)
    assert [(r.window, r.error) for r in ledger.unstored("lmt")] == [(Window(0, 180), "too old"), (Window(180, 240), "gone")]


# ---- what is known of a source


def test_a_source_has_its_registration_its_last_window_its_sums_and_its_state(ledger):
    assert ledger.sources() == []
    ledger.register(config(window=Duration(300)), since=1000)
    ledger.set_state("lmt", "running", "", NOW)
    ledger.store([entry(1200, 1500, cells=7, dropped={"nan": 2}), entry(1500, 1800, cells=5, dropped={"nan": 1, "late": 4})], NOW + 1)
    ledger.store([entry(900, 1200, cells=3)], NOW + 2)
    expected = SourceRow(
        name="lmt", kind="lmt", system="cscratch", step=5, length=300, retention=90 * 86400, since=1000, last=Window(1500, 1800),
        stored_at=NOW + 1, last_cells=5, windows=3, cells=15, dropped={"nan": 3, "late": 4}, state="running", state_reason="",
        state_since=NOW, data_end=1800,
    )  # fmt: skip
    assert ledger.sources() == [expected]


def test_a_window_that_is_stored_twice_counts_once(ledger):
    for now in (NOW, NOW + 1):
        ledger.store([entry(0, 60, cells=7, dropped={"nan": 2})], now)
    (status,) = ledger.sources()
    assert (status.windows, status.cells, status.dropped, status.stored_at) == (1, 7, {"nan": 2}, NOW + 1)


@pytest.mark.parametrize("extent", ["seam", "some"])
def test_what_a_backfill_stores_in_addition_is_no_window_of_the_source_unless_it_is_a_folder(ledger, extent):
    ledger.store([entry(0, 60, cells=7)], NOW)
    (before,) = ledger.sources()
    part = entry(60, 65, cells=3, dropped={"nan": 1})
    part = structs.replace(part, meta=dataclasses.replace(part.meta, extent=extent))
    ledger.store([part, part], NOW + 1)
    assert ledger.sources() == [before]
    ledger.watched = frozenset({"lmt"})
    ledger.store([part], NOW + 2)
    (after,) = ledger.sources()
    assert (after.windows, after.cells, after.last) == (2, 10, Window(60, 65))


def test_a_source_that_was_stored_before_it_was_registered_keeps_both(ledger):
    ledger.store([entry(0, 60)], NOW)
    before = ledger.sources()[0]
    assert (before.step, before.since, before.state) == (None, None, "unknown")
    ledger.register(config(), since=30)
    after = ledger.sources()[0]
    assert (after.step, after.since, after.windows) == (5, 30, 1)


def test_a_source_is_expected_from_the_earliest_time_it_was_registered_with_if_anything_was_stored_since(ledger):
    assert [ledger.register(config(), since) for since in (1000, 500, 700)] == [1000, 500, 700]
    ledger.store([entry(720, 780)], NOW)
    assert [ledger.register(config(), since) for since in (780, 2000, 720, 600, 660, 2000)] == [700, 700, 720, 600, 660, 660]
    assert ledger.sources()[0].since == 660


def test_a_source_that_is_not_replayable_is_expected_from_its_first_registration(ledger):
    source = WithoutPast(name="lfs", kind="lustre", system="cscratch")
    assert [ledger.register(source, since) for since in (1000, 2000, 700, 900)] == [1000, 1000, 700, 700]


def test_a_day_of_a_source_that_is_not_replayable_outweighs_a_clock_that_is_behind(ledger):
    """It started at 1970: 56 years were lost for good once the clock was right. With less, the clock may have been ahead at first."""
    source, first = WithoutPast(name="lfs", kind="lustre", system="cscratch"), 1_517_126_400
    ledger.register(source, first)
    ledger.store([entry(first, first + ESTABLISHED_SECONDS - 60, source="lfs")], NOW)
    assert [ledger.register(source, since) for since in (first - 60, first)] == [first - 60, first - 60]
    ledger.store([entry(first + ESTABLISHED_SECONDS - 60, first + ESTABLISHED_SECONDS, source="lfs")], NOW)
    assert [ledger.register(source, since) for since in (86400, first + 2 * ESTABLISHED_SECONDS)] == [first - 60, first - 60]


def test_failures_from_before_a_sources_first_stored_window_are_deleted(ledger):
    ledger.register(config(), 0)
    for start in (0, 60, 120):
        ledger.failed("lmt", Window(start, start + 60), "Transient", "gone", 1, NOW, NOW)
    assert ledger.register(config(), 120) == 120
    assert [row.window for row in ledger.unstored("lmt")] == [Window(120, 180)]


def test_a_state_lasts_since_it_changed(ledger):
    ledger.register(config(), since=0)
    for state, reason, now in (("running", "", NOW), ("waiting", "gone", NOW + 1), ("waiting", "still gone", NOW + 2)):
        ledger.set_state("lmt", state, reason, now)
    (status,) = ledger.sources()
    assert (status.state, status.state_reason, status.state_since) == ("waiting", "still gone", NOW + 1)


# ---- kills and concurrent processes


def act(ledger):
    """Every kind of transaction, one after the other; yields after each."""
    ledger.register(config(), since=0)
    yield
    ledger.failed("lmt", Window(0, 300), "Transient", "gone", 1, NOW + 5, NOW)
    yield
    ledger.store([entry(0, 60), entry(120, 180), entry(60, 120)], NOW)
    yield
    ledger.lost("lmt", Window(180, 240), "Retention", "too old", NOW)
    yield
    ledger.set_state("lmt", "fatal", "no permission", NOW)
    yield
    ledger.forget("cscratch", Window(30, 150), NOW)
    yield


def content(ledger):
    return ledger.stored("lmt"), ledger.unstored("lmt"), ledger.sources()


def killed_at(path, statement):
    """Run act() in a process that dies by SIGKILL right before its n-th statement; returns how many operations it had finished."""
    inside, outside = os.pipe()
    if child := os.fork():
        os.close(outside)
        with os.fdopen(inside, "rb") as pipe:
            finished = len(pipe.read())
        status = os.waitpid(child, 0)[1]
        return finished, os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    count = 0

    def trace(_):
        nonlocal count
        count += 1
        if count == statement:
            os.kill(os.getpid(), signal.SIGKILL)

    try:
        ledger = Ledger.open(path)
        ledger._database.sql.set_trace_callback(trace)
        for _ in act(ledger):
            os.write(outside, b".")
    finally:
        os._exit(0)


def test_a_kill_before_any_statement_leaves_a_sound_ledger_with_whole_transactions(tmp_path):
    with Ledger.open(tmp_path / "whole.sqlite3") as whole:
        states = [content(whole), *(content(whole) for _ in act(whole))]
    killed, statement = True, 0
    while killed:
        statement += 1
        path = tmp_path / f"{statement}.sqlite3"
        finished, killed = killed_at(path, statement)
        with Ledger.open(path) as ledger:
            assert ledger._database.sql.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            assert content(ledger) == states[finished]
    assert finished == len(states) - 1
    assert statement > 30


COLLECTORS = """
import sys
from pathlib import Path
from tokiod.ledger.ledger import Ledger
from tokiod.ledger.sources import ESTABLISHED_SECONDS
from tokiod.window import Window
with Ledger.open(Path(sys.argv[1])) as ledger:
    print("ready", flush=True)
    for i in range(300):
        ledger.failed("lmt", Window(i * 60, i * 60 + 60), "Transient", "gone", i, 5.0, 1.0)
        ledger.set_state("lmt", "waiting", str(i), float(i))
"""


def test_two_processes_write_one_ledger_at_the_same_time_and_no_transaction_fails_or_is_lost(path, ledger):
    ledger.store([entry(-60, 0)], NOW)
    with subprocess.Popen([sys.executable, "-c", COLLECTORS, str(path)], stdout=subprocess.PIPE, text=True) as collectors:
        assert collectors.stdout.readline() == "ready\n"
        for i in range(300):
            ledger.store([entry(100_000 + i * 60, 100_060 + i * 60)], NOW)
        assert collectors.wait() == 0
    assert list(ledger.stored("lmt")) == [(-60, 0), (100_000, 118_000)]
    assert [(r.window.start, r.attempts) for r in ledger.unstored("lmt")] == [(i * 60, i) for i in range(300)]
    assert (ledger.sources()[0].windows, ledger.sources()[0].state_reason) == (301, "299")


def test_a_source_that_is_given_another_system_keeps_nothing_of_the_one_before(ledger):
    ledger.register(config(), 0)
    ledger.register(config("other"), 0)
    for source in ("lmt", "other"):
        ledger.store([entry(0, 60, source=source)], NOW)
    ledger.lost("lmt", Window(60, 120), "Transient", "gone", NOW)
    since = ledger.register(config(system="escratch"), 30)
    assert (since, list(ledger.stored("lmt")), ledger.unstored("lmt")) == (30, [], [])
    assert ledger.watermark("lmt") == 0
    assert [(one.name, one.system, one.windows) for one in ledger.sources()] == [("lmt", "escratch", 0), ("other", "cscratch", 1)]
    assert list(ledger.stored("other")) == [(0, 60)]


def test_empty_spans_are_joined_and_are_no_failure_and_end_when_they_are_stored(ledger):
    ledger.register(config(), since=0)
    ledger.failed("lmt", Window(0, 60), "Transient", "gone", 1, NOW, NOW)
    for start in (60, 180, 120):
        ledger.empty("lmt", Window(start, start + 60), "none", NOW + start)
    assert [(one.state, one.window) for one in ledger.unstored("lmt")] == [("failed", Window(0, 60)), ("empty", Window(60, 240))]
    assert ledger.last_failure("lmt").window == Window(0, 60)
    assert ledger.silence("lmt", None, NOW) == Window(60, 240)
    assert ledger.silence("lmt", 120, NOW) == Window(120, 240)
    assert ledger.silence("lmt", 120, NOW, Window(300, 360)) == Window(300, 360)
    assert ledger.silence("lmt", 240, NOW) is None
    assert (ledger.silence("lmt", None, 200), ledger.silence("lmt", 120, 120)) == (Window(60, 200), None)
    ledger.store([entry(60, 120), entry(180, 240)], NOW)
    assert [(one.state, one.window) for one in ledger.unstored("lmt")] == [("failed", Window(0, 60)), ("empty", Window(120, 180))]
    assert list(ledger.answered("lmt", 0)) == [(60, 120, False), (120, 180, True), (180, 240, False)]
