"""The writer's loop over real sockets, files and a real ledger: what is acknowledged is synced and in the ledger, and nothing else is."""

import errno
import json
import os
import sqlite3
import tempfile
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import archive_model as model
import numpy as np
import pytest
import zmq
from archive_model import COUNTER, DAYS, GAUGE, NAMES, filled, held
from bare_writer import NoAdmission, NoUpkeep
from faulty_files import FaultyFiles
from structlog.testing import capture_logs
from window_messages import messages

from collectors import lmt
from sinks.tts.seams import Seams
from sinks.tts.sink import TtsSink
from tokiod.batch import Batch
from tokiod.bus import protocol
from tokiod.bus.feed import Feed
from tokiod.bus.protocol import Ack, Beat, Hello, Reject, Welcome
from tokiod.bus.receiver import Receiver
from tokiod.errors import Refusal
from tokiod.ledger.database import LedgerError
from tokiod.ledger.ledger import Ledger
from tokiod.ranges import Ranges
from tokiod.sink import FileChange
from tokiod.subscribe.subscriber import Gap, Reader, Update
from tokiod.testing.clock import FakeClock
from tokiod.units import Duration
from tokiod.window import Calendar, Window
from tokiod.window_data import Collected, WindowMeta
from tokiod.writer.admission import Admission
from tokiod.writer.loop import Heartbeat, Writer, _is_in

EPOCH = "this-run"
SAMPLES = {name: {row: 100 * row + i + 1 for row in range(DAYS * model.ROWS)} for i, name in enumerate(NAMES)}
HOUR = model.STEP


class Patient(Receiver):
    """A receiver whose next poll waits until so many windows have arrived, as they do behind a long commit; `witness` sees each Ack go."""

    waits = 0
    witness = staticmethod(lambda _arrived: None)

    def ack(self, arrived, cells, dropped):
        self.witness(arrived)
        super().ack(arrived, cells, dropped)

    def poll(self, timeout_ms):
        arrived, wanted = super().poll(timeout_ms), self.waits
        self.waits = 0
        while len(arrived) < wanted:
            arrived += super().poll(1000)
        return arrived


class Site:
    """A writer over an archive in a directory, a collector's connection and a subscriber's."""

    def __init__(self, directory, sockets, stack):
        self.tts = directory / "tts"
        self.tts.mkdir()
        self.files = FaultyFiles(self.tts)
        self.clock = FakeClock(model.EPOCH)
        self.now = 0.0
        self.reader = Reader()
        self.ledger = stack.enter_context(Ledger.open(directory / "ledger.sqlite3"))
        self.receiver = stack.enter_context(Patient(f"ipc://{sockets}/bus", EPOCH))
        self.feed = stack.enter_context(Feed(f"ipc://{sockets}/feed", EPOCH))
        self.sink = model.sink_in(self.tts, self.files)
        stack.callback(self.sink.close)
        heartbeat = Heartbeat(self.receiver, self.feed, lambda: self.now)
        self.writer = Writer(self.receiver, self.sink, self.ledger, self.feed, self.clock, heartbeat, NoUpkeep(), NoAdmission())
        context = stack.enter_context(zmq.Context())
        self.dealer = stack.enter_context(context.socket(zmq.DEALER))
        self.subscriber = stack.enter_context(context.socket(zmq.SUB))
        for socket in (self.dealer, self.subscriber):
            socket.linger, socket.rcvtimeo = 0, 5000
        self.dealer.connect(f"ipc://{sockets}/bus")
        self.dealer.send(protocol.encode(Hello("me", 1)))
        self.subscriber.subscribe(b"")
        self.subscriber.connect(f"ipc://{sockets}/feed")
        while not (self.dealer.poll(0) and self.feed.subscriptions):
            self.writer.turn(10)
            self.feed.poll()
        assert self.answers(1) == [Welcome(EPOCH)]

    def send(self, collected, attempt=1):
        for frames in messages(collected, attempt):
            self.dealer.send_multipart(frames)

    def store(self, *collected, attempt=1):
        """Send windows that wait together, and return what is said until each of them is answered."""
        for one in collected:
            self.send(one, attempt)
        self.receiver.waits = len(collected)
        self.writer.turn(1000)
        sent, answered, found = Counter(one.meta.window for one in collected), Counter(), []
        while sent - answered:
            found += self.answers(1)
            answered = Counter(Window(one.start, one.end) for one in found if isinstance(one, Ack | Reject) and one.start < one.end)
        return found

    def answers(self, count):
        found = []
        while len(found) < count or self.dealer.poll(0):
            found.append(protocol.decode_from_writer(self.dealer.recv()))
        return found

    def stored(self, source="fs-lmt"):
        return list(self.ledger.stored(source))

    def published(self):
        """Return all events of the feed up to the next beat, of both topics."""
        self.feed.beat()
        events, beats = [], 0
        while beats < 2:
            frames = self.subscriber.recv_multipart()
            beats += len(frames) == 2
            events += self.reader.read(frames)
        return events


@pytest.fixture
def site(tmp_path):
    with tempfile.TemporaryDirectory(prefix="writer") as sockets, ExitStack() as stack:
        yield Site(tmp_path, sockets, stack)


def rows(first, last, samples=SAMPLES):
    return model.window(samples, first, last)


def span(first, last):
    return (model.EPOCH + first * HOUR, model.EPOCH + last * HOUR)


def ack(first, last, attempt=1, dropped=None):
    return Ack(EPOCH, "fs-lmt", *span(first, last), attempt, 2 * (last - first) * len(NAMES), dropped or {})


def rejected(collected, message, *, retry, attempt=1):
    return Reject(EPOCH, collected.meta.source, collected.meta.window.start, collected.meta.window.end, attempt, message, retry)


def cells_of(samples, first, last):
    """What the archive holds of `samples` once rows [first, last) are stored."""
    only = {name: {row: value for row, value in column.items() if first <= row < last} for name, column in samples.items()}
    return filled(model.expected(only, DAYS))


# ---- the order: sync, ledger, acknowledgement


def test_when_a_window_is_acknowledged_its_file_is_synced_and_anybody_finds_it_in_the_ledger(site):
    seen = []

    def witness(arrived):
        with Ledger.open_readonly(site.ledger.path) as ledger:
            synced = Counter(site.files.operations)["fdatasync"]
            seen.append((arrived.collected.meta.window.start, synced, list(ledger.stored("fs-lmt"))))

    site.store(rows(0, 8))
    before = Counter(site.files.operations)["fdatasync"]
    site.receiver.witness = witness
    assert site.store(rows(8, 16)) == [ack(8, 16)]
    assert seen == [(span(8, 16)[0], before + 1, [span(0, 16)])]


@pytest.mark.parametrize("seed", range(5))
def test_what_was_acknowledged_is_there_after_a_power_loss(site, seed):
    site.store(rows(0, 8), rows(8, 16))
    site.store(rows(16, 20))
    site.sink.apply(rows(20, 24))
    site.files.power_loss(seed)
    left = held(site.tts)
    for key, column in cells_of(SAMPLES, 0, 20).items():
        assert left[key].items() >= column.items()


def test_windows_that_wait_together_share_one_sync_and_are_all_acknowledged(site):
    site.store(rows(0, 1))
    before = len(site.files.operations)
    assert site.store(*(rows(row, row + 1) for row in range(1, 9))) == [ack(row, row + 1) for row in range(1, 9)]
    assert Counter(site.files.operations[before:])["fdatasync"] == 1
    assert site.stored() == [span(0, 9)]
    assert filled(held(site.tts)) == cells_of(SAMPLES, 0, 9)


def test_a_window_that_comes_again_is_acknowledged_again_and_changes_nothing(site):
    site.store(rows(0, 8))
    before = held(site.tts)
    assert site.store(rows(0, 8), attempt=2) == [ack(0, 8, attempt=2)]
    assert held(site.tts) == before
    assert [one.windows for one in site.ledger.sources()] == [1]


def test_a_window_without_data_is_stored_too(site):
    empty = Collected(WindowMeta("fs-lmt", "lmt", "fs", Window(*span(3, 4))), [])
    assert site.store(empty) == [Ack(EPOCH, "fs-lmt", *span(3, 4), 1, 0, {})]
    assert site.stored() == [span(3, 4)]
    assert list(site.tts.iterdir()) == []


# ---- what fails on the way


def test_after_a_failed_sync_nothing_of_it_is_acknowledged_and_the_same_windows_are_stored_by_the_next_attempt(site):
    site.store(rows(0, 8))
    site.files.fail("fdatasync", 1, errno.EIO)
    lost = [rows(8, 12), rows(12, 16)]
    assert site.store(*lost) == [Beat(EPOCH, 1), *(rejected(one, "its file was quarantined", retry=True) for one in lost)]
    assert site.stored() == [span(0, 8)]
    assert [path.name for path in site.tts.rglob("*.aside-*")] == ["fs.hdf5.aside-20180129T000000Z"]
    assert site.store(*lost, attempt=2) == [ack(8, 12, attempt=2), ack(12, 16, attempt=2)]
    assert site.stored() == [span(0, 16)]
    assert filled(held(site.tts)) == cells_of(SAMPLES, 0, 16)


def test_a_day_that_failed_takes_no_other_day_with_it(site):
    site.store(rows(0, 8), rows(30, 34))
    site.files.fail("fdatasync", 1, errno.EIO)
    first, other = rows(8, 12), rows(34, 38)
    assert site.store(first, other) == [Beat(EPOCH, 1), ack(34, 38), rejected(first, "its file was quarantined", retry=True)]
    assert site.stored() == [span(0, 8), span(30, 38)]


@pytest.mark.parametrize(
    ("system", "first", "last", "is_lost"),
    [("fs", 0, 8, False), ("fs", 0, 9, True), ("fs", 9, 10, True), ("fs", 11, 30, True), ("fs", 12, 30, False), ("other", 0, 30, False)],
)
def test_a_window_is_lost_with_a_file_of_its_system_that_overlaps_it(system, first, last, is_lost):
    file = SimpleNamespace(system=system, window=Window(*span(first, last)))
    window = SimpleNamespace(collected=rows(8, 12))
    assert _is_in([file], window) == is_lost
    assert not _is_in([], window)


def test_a_file_that_vanished_is_forgotten_by_the_ledger_and_its_windows_are_collected_again(site):
    site.store(rows(0, 8), rows(30, 34))
    next(site.tts.rglob("2018-01-29/fs.hdf5")).unlink()
    late = rows(8, 12)
    assert site.store(late) == [Beat(EPOCH, 1), rejected(late, "its file was quarantined", retry=True)]
    assert site.stored() == [span(30, 34)]
    assert site.store(rows(0, 8), late, attempt=2) == [ack(0, 8, attempt=2), ack(8, 12, attempt=2)]
    expected = cells_of(SAMPLES, 0, 12)
    assert {key: column for key, column in filled(held(site.tts)).items() if key[0] == 0} == expected


def test_while_the_ledger_fails_nothing_is_acknowledged_and_once_it_is_well_everything_is(site):
    site.store(rows(0, 8))
    site.ledger._database.sql.execute("PRAGMA query_only = 1")
    refused = rows(8, 12)
    assert site.store(refused) == [rejected(refused, "ledger: attempt to write a readonly database", retry=True)]
    site.ledger._database.sql.execute("PRAGMA query_only = 0")
    assert site.stored() == [span(0, 8)]
    assert site.store(refused, attempt=2) == [ack(8, 12, attempt=2)]
    assert site.stored() == [span(0, 12)]
    assert filled(held(site.tts)) == cells_of(SAMPLES, 0, 12)


def test_the_change_log_has_each_cell_that_changed_around_a_window_also_if_it_was_refused_or_comes_again(site):
    def logged_after(seq):
        spans = Ranges((one.window.start, one.window.end) for one in site.ledger.changes.after(seq, 100))
        return {row for row in range(DAYS * model.ROWS) if spans.covers(Window(*span(row, row + 1)))}

    def head():
        return site.ledger.changes.state().head

    site.ledger.changes.begin_epoch(model.EPOCH)
    site.store(rows(0, 8), rows(9, 12))
    before, seq = held(site.tts), head()
    assert logged_after(0) == set(range(12))
    site.ledger._database.sql.execute("PRAGMA query_only = 1")
    late = rows(8, 9)
    assert site.store(late) == [rejected(late, "ledger: attempt to write a readonly database", retry=True)]
    site.ledger._database.sql.execute("PRAGMA query_only = 0")
    changed = {row for key, column in held(site.tts).items() for row, value in column.items() if before[key].get(row) != value}
    assert (changed, logged_after(seq)) == ({7, 8}, set())
    site.store(rows(20, 21))
    assert logged_after(seq) >= {7, 8, 20}
    seq = head()
    assert site.store(late, attempt=2) == [ack(8, 9, attempt=2)]
    assert {7, 8} <= logged_after(seq) <= {6, 7, 8, 9, 10, 11}


@pytest.mark.parametrize("fault", ["ledger", "writer"])
def test_the_change_log_has_the_cells_of_a_window_that_was_refused_and_never_comes_again(site, monkeypatch, fault):
    """Its source may have no past. A gauge has no neighbours that it computes."""

    def gauge(first, last):
        one = rows(first, last)
        return replace(one, batches=[batch for batch in one.batches if batch.dataset == GAUGE])

    site.ledger.changes.begin_epoch(model.EPOCH)
    site.store(gauge(0, 4))
    if fault == "ledger":
        site.ledger._database.sql.execute("PRAGMA query_only = 1")
    else:
        apply = TtsSink.apply

        def failing(sink, collected):
            apply(sink, collected)
            raise ValueError("a fault")

        monkeypatch.setattr(TtsSink, "apply", failing)
    (answer,) = site.store(gauge(4, 5))
    assert answer.retry
    site.ledger._database.sql.execute("PRAGMA query_only = 0")
    monkeypatch.undo()
    site.store(gauge(6, 7))
    spans = Ranges((one.window.start, one.window.end) for one in site.ledger.changes.after(0, 100))
    in_file = {row for key, column in held(site.tts).items() if key[1] == GAUGE for row in column}
    assert in_file == {row for row in range(DAYS * model.ROWS) if spans.covers(Window(*span(row, row + 1)))} == {0, 1, 2, 3, 4, 6}


def test_a_file_that_is_lost_while_the_ledger_fails_is_forgotten_as_soon_as_the_ledger_is_well(site):
    site.store(rows(0, 8), rows(30, 34))
    next(site.tts.rglob("2018-01-29/fs.hdf5")).unlink()
    site.ledger._database.sql.execute("PRAGMA query_only = 1")
    late = rows(8, 12)
    assert site.store(late) == [rejected(late, "ledger: attempt to write a readonly database", retry=True)]
    site.ledger._database.sql.execute("PRAGMA query_only = 0")
    assert site.store(late, attempt=2) == [Beat(EPOCH, 1), ack(8, 12, attempt=2)]
    assert site.stored() == [span(8, 12), span(30, 34)]


def test_while_the_name_of_its_file_can_not_be_synced_a_window_is_refused_for_now_and_the_file_stays(site):
    one = rows(0, 8)
    for nth in range(3, 7):
        site.files.fail("fsync_directory", nth, errno.EIO)
    (answer,) = site.store(one)
    reason = f"[Errno 5] the directory can't be synced: Input/output error: '{site.tts / '2018-01-29'}'"
    assert answer == rejected(one, f"not synced yet: {reason}", retry=True)
    assert site.stored() == []
    with capture_logs() as logs:
        site.writer.turn(0)
        site.writer.turn(0)
    assert [(log["event"], log["path"], log["error"]) for log in logs] == []
    assert site.store(one, attempt=2) == [ack(0, 8, attempt=2)]
    assert list(site.tts.rglob("*.aside-*")) == []
    assert filled(held(site.tts)) == cells_of(SAMPLES, 0, 8)


def test_a_full_disk_refuses_for_now_and_stores_once_there_is_room(site):
    site.files.fail("allocate", 1, errno.ENOSPC)
    one = rows(0, 8)
    (answer,) = site.store(one)
    assert (type(answer), answer.retry, "No space left on device" in answer.message) == (Reject, True, True)
    assert site.stored() == []
    assert site.store(one, attempt=2) == [ack(0, 8, attempt=2)]
    assert filled(held(site.tts)) == cells_of(SAMPLES, 0, 8)


def test_a_fault_of_our_own_refuses_its_window_and_disturbs_no_other(site, monkeypatch):
    bad = rows(0, 8)

    class Faulty:
        commit, close, run_maintenance = site.sink.commit, site.sink.close, site.sink.run_maintenance

        @staticmethod
        def apply(collected):
            if collected.meta.window == bad.meta.window:
                raise ZeroDivisionError("a bug")
            return site.sink.apply(collected)

    monkeypatch.setattr(site.writer, "sink", Faulty)
    with capture_logs() as logs:
        answers = site.store(bad, rows(8, 12))
        site.store(bad, attempt=2)
    assert answers == [rejected(bad, "a fault in the writer, see its log: ZeroDivisionError: a bug", retry=True), ack(8, 12)]
    assert [log["times"] for log in logs if log["event"] == "window.failed"] == [1]
    assert site.stored() == [span(8, 12)]


def test_a_file_that_was_sealed_is_noted_and_one_that_was_not_is_not(site, monkeypatch):
    noted = []
    monkeypatch.setattr(NoUpkeep, "note_sealed", lambda _self, path: noted.append(path))
    done = [FileChange("sealed", Path("a")), FileChange("made", Path("b")), FileChange("sealed", Path("c"), OSError("full"))]
    monkeypatch.setattr(type(site.sink), "run_maintenance", lambda _self: done)
    site.writer.turn(0)
    assert noted == [Path("a")]


def test_a_stopping_writer_stores_what_has_arrived(site):
    site.send(rows(0, 8))
    site.receiver.waits = 1
    site.writer.run(lambda: True)
    assert site.answers(1) == [ack(0, 8)]
    assert site.stored() == [span(0, 8)]


def test_a_beat_comes_every_few_seconds_and_no_more_often(site):
    for moment in (10.1, 10.2, 19.0, 20.2):
        site.now = moment
        site.writer.turn(0)
    assert site.answers(2) == [Beat(EPOCH), Beat(EPOCH)]


# ---- the feed


DIPPING = {"OST0000": {0: 10, 1: 50, 2: 30, 3: 60}, "OST0001": {0: 1, 2: 5}}


def test_the_feed_tells_exactly_the_cells_that_changed_as_the_file_has_them_also_those_that_became_missing_again(site):
    late = {"OST0000": {1: 50}, "OST0001": {}}
    first = {name: {row: value for row, value in column.items() if row != 1} for name, column in DIPPING.items()}
    site.store(rows(0, 4, first))
    assert held(site.tts)[0, COUNTER, "OST0000"] == {1: 20.0, 2: 30.0}
    assert [(type(one), one.watermark) for one in site.published()] == [(Update, span(0, 4)[1])] * 2
    site.store(rows(1, 2, late))
    told = {}
    for event in site.published():
        times, columns, values = event.batch.time.tolist(), event.batch.column.tolist(), event.batch.value.tolist()
        told |= {
            ((t - model.EPOCH) // HOUR, event.dataset, event.batch.columns[c]): v for t, c, v in zip(times, columns, values, strict=True)
        }
    now = held(site.tts)[0, COUNTER, "OST0000"]
    assert now == {0: 40.0, 2: 10.0}
    assert {key: value for key, value in told.items() if not np.isnan(value)} == {
        (0, COUNTER, "OST0000"): 40.0, (2, COUNTER, "OST0000"): 10.0, (1, GAUGE, "OST0000"): 50.0,
    }  # fmt: skip
    assert [key for key, value in told.items() if np.isnan(value)] == [(1, COUNTER, "OST0000")]


def test_the_feed_is_silent_about_what_was_not_stored(site):
    site.store(rows(0, 8))
    site.published()
    site.files.fail("fdatasync", 1, errno.EIO)
    site.store(rows(8, 12))
    assert site.published() == []


def test_a_window_that_was_refused_after_it_was_applied_makes_subscribers_notice_what_they_missed_once_it_is_stored(site):
    site.store(rows(0, 8))
    site.published()
    site.ledger._database.sql.execute("PRAGMA query_only = 1")
    site.store(rows(8, 12))
    site.ledger._database.sql.execute("PRAGMA query_only = 0")
    assert site.published() == []
    site.store(rows(8, 12), attempt=2)
    assert site.published() == [Gap("fs", dataset, 1, span(0, 8)[1], span(0, 8)[1]) for dataset in (COUNTER, GAUGE)]


def test_a_window_that_was_refused_for_a_damaged_day_after_it_makes_subscribers_notice_what_they_missed_once_it_is_stored(site):
    site.store(rows(0, 22))
    site.store(rows(24, 30))
    site.published()
    damaged = next(site.tts.rglob("2018-01-30/fs.hdf5"))
    os.truncate(damaged, damaged.stat().st_size // 2)
    last = rows(22, 24)
    assert any(isinstance(answer, Reject) for answer in site.store(last))
    assert site.stored() == [span(0, 22)]
    site.published()
    assert site.store(last, attempt=2)[-1] == ack(22, 24, attempt=2)
    assert {event.dataset for event in site.published() if isinstance(event, Gap | Update)} == {COUNTER, GAUGE}


def test_changes_of_another_source_have_no_later_watermark_than_that_one(site, monkeypatch):
    def counters(first, last):
        collected = rows(first, last)
        return replace(collected, batches=collected.batches[:1])

    def gauges(first, last):
        collected = rows(first, last)
        return replace(collected, meta=replace(collected.meta, source="fs-fullness"), batches=collected.batches[1:])

    def busy(*_):
        raise Refusal("the day after it is being reopened", "busy")

    site.store(counters(0, 8), gauges(0, 8))
    site.published()
    with monkeypatch.context() as patched:
        patched.setattr(Seams, "update", busy)
        assert any(isinstance(answer, Reject) for answer in site.store(counters(8, 12)))
    # The cells of the refused window are in the file, and are told with those of the next one, whosever it is.
    site.store(gauges(8, 12))
    found = {one.dataset: one.watermark for one in site.published() if isinstance(one, Update)}
    assert found == {COUNTER: span(0, 8)[1], GAUGE: span(0, 12)[1]}


def test_while_the_watermark_can_not_be_read_windows_are_acknowledged_and_subscribers_notice_what_they_missed(site, monkeypatch):
    site.store(rows(0, 8))
    site.published()
    with monkeypatch.context() as patched, capture_logs() as logs:
        patched.setattr(site.ledger, "watermark", unreadable)
        assert site.store(rows(8, 12)) == [ack(8, 12)]
    assert [(log["event"], log["error"]) for log in logs if log["log_level"] == "error"] == [("ledger.failed", "disk I/O error")]
    assert site.published() == []
    site.store(rows(12, 13))
    found = site.published()
    assert [(type(one), one.dataset) for one in found] == [(Gap, COUNTER), (Update, COUNTER), (Gap, GAUGE), (Update, GAUGE)]


def test_a_source_that_a_clock_in_the_future_registered_has_no_watermark_until_it_is_registered_again(site):
    source = lmt.Config(name="fs-lmt", kind="lmt", system="fs", url="sqlite:///x", interval=Duration(HOUR), window=Duration(HOUR))
    site.ledger.register(source, span(0, 30 * 24)[1])
    site.store(rows(0, 8))
    assert {one.watermark for one in site.published()} == {0}
    site.ledger.register(source, span(0, 8)[0])
    site.store(rows(8, 9))
    assert {one.watermark for one in site.published()} == {span(0, 9)[1]}


def unreadable(_source):
    raise sqlite3.OperationalError("disk I/O error")


def test_a_subscriber_that_comes_late_is_told_how_far_the_archive_has_got(site):
    site.store(rows(0, 8))
    site.published()
    site.reader = Reader()
    site.subscriber.unsubscribe(b"")
    site.subscriber.subscribe(b"fs/")
    while not site.feed.poll():
        pass
    events = site.published()
    assert events == [Gap("fs", dataset, 1, None, span(0, 8)[1]) for dataset in (COUNTER, GAUGE)]


# ---- what may not come in


def changed(frames, **changes):
    return [json.dumps(json.loads(frames[0]) | changes).encode(), *frames[1:]]


def replaced(frames, old, new):
    head, content = frames
    assert content.count(old) == 1
    return [head, content.replace(old, new)]


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        pytest.param(lambda f: [f[0], f[1][:-8]], "shape", id="fewer values than cells"),
        pytest.param(lambda f: [*f, b"\0" * 8], "shape", id="more values than cells"),
        pytest.param(lambda f: replaced(f, b"counter", b"nothing"), "header", id="a form that is none"),
        pytest.param(lambda f: changed(f, system="../x"), "header", id="a system that climbs"),
        pytest.param(lambda f: replaced(f, b"OST0001", b"OST\n001"), "shape", id="more columns than the rows have"),
        pytest.param(lambda f: replaced(f, b"OST0001", b"OST000\n"), "columns", id="a column without a name"),
        pytest.param(lambda f: replaced(f, b"OST0001", b"OST0000"), "columns", id="a column twice"),
        pytest.param(lambda f: replaced(f, b"OST0001", b"OST000\xff"), "columns", id="a name that is no text"),
        pytest.param(lambda f: changed(f, start=2**50, end=2**51), "control", id="a window beyond any calendar"),
        pytest.param(lambda f: changed(f, end=0), "window", id="a window that ends before it starts"),
    ],
)
def test_a_malformed_message_is_counted_stores_nothing_and_the_next_window_goes_through(site, damage, reason):
    whole = model.window(SAMPLES, 0, 8)
    bad = Collected(whole.meta, whole.batches[:1])
    site.dealer.send_multipart(damage(messages(bad)[0]))
    good = site.store(rows(8, 16))
    assert good[-1] == ack(8, 16)
    assert [(one.retry, one.message.split(": ")[1]) for one in good[:-1]] in ([], [(False, reason)])
    assert dict(site.receiver.dropped) == {reason: 1}
    assert site.stored() == [span(8, 16)]
    assert filled(held(site.tts)) == cells_of(SAMPLES, 8, 16)


def batch(dataset=GAUGE, form="gauge", step=HOUR, columns=("OST0000",), time=0, value=1.0):
    values = np.atleast_1d(np.array(value, np.float64 if form == "gauge" else np.int64))
    return Batch(dataset, form, step, columns, np.full(len(values), model.EPOCH + time), np.zeros(len(values), np.uint32), values)


def window_of(*batches, first=0, last=1):
    return Collected(WindowMeta("fs-lmt", "lmt", "fs", Window(*span(first, last))), batches)


UNTHINKABLE = {
    "a dataset that TTS does not know": (window_of(batch("datatargets/nonsense")), "nonsense"),
    "a group that TTS does not know": (window_of(batch("moon/phase")), "moon"),
    "another step than the file's": (window_of(batch(step=HOUR // 2)), "rows are"),
    "steps that differ within the window": (window_of(batch(), batch("dataservers/memused", step=60)), "step"),
    "a counter where the file has a gauge": (window_of(batch(form="counter", value=1)), "cpuload"),
    "a gauge where the file has a counter": (window_of(batch(COUNTER)), "readbytes"),
    "one dataset in two forms": (window_of(batch("fullness/bytes"), batch("fullness/bytes", form="counter", value=1)), "fullness/bytes"),
    "a window across midnight": (window_of(batch(), first=23, last=25), "crosses the end of"),
}


@pytest.mark.parametrize("name", UNTHINKABLE)
def test_a_window_that_can_never_be_stored_is_refused_by_name_for_good_and_the_next_one_goes_through(site, name):
    bad, sentence = UNTHINKABLE[name]
    site.store(rows(0, 8))
    refused, *rest = site.store(bad, rows(8, 16), attempt=2)
    assert (type(refused), refused.retry, rest) == (Reject, False, [ack(8, 16, attempt=2)])
    assert sentence in refused.message
    assert site.stored() == [span(0, 16)]
    assert filled(held(site.tts)) == cells_of(SAMPLES, 0, 16)


def test_a_window_that_the_configuration_does_not_cover_is_refused_and_counted_and_makes_no_file(site):
    source = lmt.Config(name="fs-lmt", kind="lmt", system="fs", url="sqlite:///x", interval=Duration(HOUR), window=Duration(HOUR))
    site.writer.admission = Admission([source], Calendar("UTC"), site.ledger.jobs, site.clock)
    meta = replace(rows(0, 8).meta, source="nobody", system="forged")
    forged = [Collected(meta, rows(0, 8).batches), rows(48, 49), rows(0, 8)]
    refused, future, stored = site.store(*forged)
    assert (refused.message, refused.retry) == ("not covered by the configuration: there is no source 'nobody'", True)
    assert (future.message.partition(": ")[0], future.retry) == ("not covered by the configuration", True)
    assert stored == ack(0, 8)
    assert site.stored("nobody") == []
    assert sorted(path.stem for path in site.tts.rglob("*.hdf5")) == ["fs"]
    assert site.writer.heartbeat.status == (
        "1 windows stored, the last fs-lmt [2018-01-29T00:00:00Z, 2018-01-29T08:00:00Z); "
        "refused, because the configuration does not cover them: future day 1, unknown source 1"
    )


IMPOSSIBLE = {
    "not a number": batch(value=np.nan),
    "infinity": batch(value=np.inf),
    "minus infinity": batch(value=-np.inf),
    "a counter below zero": batch(COUNTER, form="counter", value=-5),
    "a time before the window": batch(time=-1),
    "a time behind the window": batch(time=HOUR),
    "a time before time": batch(time=-(2**62)),
    "a time beyond any calendar": batch(time=2**62),
}
REASONS = {
    "not a number": "not a number",
    "infinity": "not a number",
    "minus infinity": "not a number",
    "a counter below zero": "negative counter",
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_a_cell_that_can_not_be_right_is_dropped_counted_in_acknowledgement_and_ledger_and_the_others_are_stored(site, name):
    reason = REASONS.get(name, "outside the window")
    bad, good = IMPOSSIBLE[name], batch("dataservers/memused", value=7.0)
    assert site.store(window_of(bad, good)) == [Ack(EPOCH, "fs-lmt", *span(0, 1), 1, 1, {reason: 1})]
    assert [one.dropped for one in site.ledger.sources()] == [{reason: 1}]
    assert filled(held(site.tts, (COUNTER, GAUGE, "dataservers/memused"))) == {(0, "dataservers/memused", "OST0000"): {0: 7.0}}


def test_what_the_collector_and_the_sink_dropped_is_told_as_one_sum(site):
    said = Collected(
        WindowMeta("fs-lmt", "lmt", "fs", Window(*span(0, 1)), records=5, dropped={"null": 2, "not a number": 1}),
        [batch(value=[np.nan, 1.0])],
    )
    assert site.store(said) == [Ack(EPOCH, "fs-lmt", *span(0, 1), 1, 1, {"null": 2, "not a number": 2})]
    assert [one.dropped for one in site.ledger.sources()] == [{"null": 2, "not a number": 2}]


def test_two_parts_of_a_dataset_with_columns_of_their_own_are_both_stored(site):
    one, other = batch(columns=("OST0000",), value=1.0), batch(columns=("OST0001",), value=2.0)
    (answer,) = site.store(window_of(one, other))
    assert answer == Ack(EPOCH, "fs-lmt", *span(0, 1), 1, 2, {})
    assert filled(held(site.tts, (GAUGE,))) == {(0, GAUGE, "OST0000"): {0: 1.0}, (0, GAUGE, "OST0001"): {0: 2.0}}


def test_what_maintenance_quarantines_while_the_ledger_fails_is_forgotten_once_it_is_well(site):
    site.store(model.window(SAMPLES, 0, 4))
    path = site.tts / "2018-01-29" / "fs.hdf5"
    path.unlink()
    site.sink.miss(path)
    site.ledger._database.sql.execute("PRAGMA query_only = 1")
    site.writer.turn(0)
    site.ledger._database.sql.execute("PRAGMA query_only = 0")
    assert site.stored() == [span(0, 4)]
    site.writer.turn(0)
    assert site.stored() == []


def test_what_maintenance_quarantines_is_forgotten_without_another_window(site):
    site.store(model.window(SAMPLES, 0, 4))
    path = site.tts / "2018-01-29" / "fs.hdf5"
    path.unlink()
    site.sink.miss(path)
    site.writer.turn(0)
    assert site.stored() == []
    assert site.answers(1) == [Beat(EPOCH, 1)]


class _UnreadableAdmission:
    """An admission whose ledger can't be read; a source that a recount asks is looked up there."""

    def check(self, _collected):
        raise LedgerError("disk I/O error")


def test_a_window_whose_admission_the_ledger_can_not_answer_is_refused_for_now(site):
    site.writer.admission, admission = _UnreadableAdmission(), site.writer.admission
    refused = rows(0, 4)
    assert site.store(refused) == [rejected(refused, "ledger: disk I/O error", retry=True)]
    site.writer.admission = admission
    assert site.store(refused, attempt=2) == [ack(0, 4, attempt=2)]


class _EverLosing:
    """A maintenance whose every run records that files are missing."""

    def run(self):
        return True


def test_windows_that_come_one_by_one_do_not_each_wait_for_the_files_to_be_looked_at(site, monkeypatch):
    runs = []
    monkeypatch.setattr(NoUpkeep, "run", lambda _self: runs.append(site.now))
    for seconds in (10.0, 10.0625, 10.125, 10.1875, 10.25):
        site.now = seconds
        site.store(rows(0, 4), attempt=int(seconds * 16))
    assert runs == [10.0, 10.125, 10.25]
    site.writer.turn(0)
    assert runs == [10.0, 10.125, 10.25, 10.25]


def test_collectors_read_the_ledger_again_after_maintenance_recorded_missing_files(site):
    site.writer.upkeep, site.now = _EverLosing(), site.now + 60
    site.writer.turn(0)
    assert Beat(EPOCH, 1) in site.answers(1)
