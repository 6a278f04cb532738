"""What the writer counts, over real sockets, files and a real ledger."""

import errno
import tempfile
from contextlib import ExitStack
from types import SimpleNamespace

import archive_model as model
import pytest
import zmq
from bare_writer import NoAdmission, NoUpkeep
from counted import configured, counting_here, values
from faulty_files import FaultyFiles
from msgspec import structs
from window_messages import messages

from tokiod.bus import protocol
from tokiod.bus.feed import Feed
from tokiod.bus.protocol import Ack, Hello, Reject
from tokiod.bus.receiver import Receiver
from tokiod.ledger.ledger import Ledger
from tokiod.metrics import catalogue
from tokiod.sink import FileChange
from tokiod.testing.clock import FakeClock
from tokiod.writer.loop import Heartbeat, Writer

NAMES = ("OST0000", "OST0001")
SAMPLES = {name: {row: 100 * row + i + 1 for row in range(model.ROWS)} for i, name in enumerate(NAMES)}


class Site:
    """A writer over an archive in a directory, and a collector's connection."""

    def __init__(self, directory, sockets, stack):
        (directory / "tts").mkdir()
        self.endpoint = f"ipc://{sockets}/feed"
        self.files = FaultyFiles(directory / "tts")
        ledger = stack.enter_context(Ledger.open(directory / "ledger.sqlite3"))
        receiver = stack.enter_context(Receiver(f"ipc://{sockets}/bus", "epoch"))
        self.feed = stack.enter_context(Feed(self.endpoint, "epoch"))
        sink = model.sink_in(directory / "tts", self.files)
        stack.callback(sink.close)
        self.now = 0.0
        heartbeat = Heartbeat(receiver, self.feed, lambda: self.now)
        self.writer = Writer(receiver, sink, ledger, self.feed, FakeClock(model.EPOCH), heartbeat, NoUpkeep(), NoAdmission())
        self.context = stack.enter_context(zmq.Context())
        self.dealer = self.socket(stack, zmq.DEALER)
        self.dealer.connect(f"ipc://{sockets}/bus")
        self.dealer.send(protocol.encode(Hello("me", 1)))
        self.until(lambda: self.dealer.poll(0))

    def socket(self, stack, kind):
        socket = stack.enter_context(self.context.socket(kind))
        socket.linger, socket.rcvtimeo = 0, 5000
        return socket

    def until(self, condition):
        for _ in range(500):
            self.writer.turn(10)
            if condition():
                return
        raise TimeoutError

    def store(self, first, last, attempt=1):
        """Send a window and return the writer's answer."""
        collected = model.window(SAMPLES, first, last)
        for frames in messages(collected, attempt, parts=2):
            self.dealer.send_multipart(frames)
        answers = []

        def is_answered():
            while self.dealer.poll(0):
                answers.append(protocol.decode_from_writer(self.dealer.recv()))
            return any(isinstance(answer, Ack | Reject) for answer in answers)

        self.until(is_answered)
        return next(answer for answer in answers if isinstance(answer, Ack | Reject))


@pytest.fixture
def site(tmp_path):
    with tempfile.TemporaryDirectory(prefix="writer") as sockets, ExitStack() as stack:
        stack.enter_context(counting_here(configured(tmp_path, "a"), "writer"))
        (tmp_path / "tts" / ".tokiod").rmdir()
        (tmp_path / "tts").rmdir()
        yield Site(tmp_path, sockets, stack)


def test_a_window_is_applied_synced_and_recorded_and_its_cells_are_counted(site, tmp_path):
    for first in (0, 1, 2):
        assert isinstance(site.store(first, first + 1), Ack)
    found = values(tmp_path)
    stages = ("apply", "sync", "ledger", "feed")
    assert {stage: found["tokiod_writer_seconds_count", stage] for stage in stages} == dict.fromkeys(stages, 3)
    assert all(0 < found["tokiod_writer_seconds_sum", stage] < 5 for stage in stages)
    assert found["tokiod_writer_cells_total",] == 3 * 2 * len(NAMES)
    assert found["tokiod_file_changes_total", "made", "done"] == 1
    assert ("tokiod_writer_waiting_windows",) not in found


def test_windows_that_wait_for_a_disk_are_reported_while_they_do(site, tmp_path):
    seen = []
    sink = site.writer.sink

    def commit():
        seen.append(values(tmp_path).get(("tokiod_writer_waiting_windows",)))
        return sink.commit()

    site.writer.sink = SimpleNamespace(apply=sink.apply, commit=commit, run_maintenance=sink.run_maintenance)
    site.store(0, 1)
    assert (seen.count(1), set(seen)) == (1, {1, None}), "also once in each turn without a window"


def test_a_file_that_is_set_aside_is_counted(site, tmp_path):
    site.store(0, 1)
    assert ("tokiod_files_quarantined_total",) not in values(tmp_path)
    site.files.fail("fdatasync", 1, errno.EIO)
    assert isinstance(site.store(1, 2), Reject)
    assert values(tmp_path)["tokiod_files_quarantined_total",] == 1


def test_what_was_done_to_files_and_what_was_not_is_counted_apart(site, tmp_path):
    done = [FileChange(what, tmp_path) for what in catalogue.CHANGES]
    site.writer.sink = SimpleNamespace(
        commit=list, run_maintenance=lambda: [*done, structs.replace(done[0], error=OSError(errno.ENOSPC, "full")), done[3]]
    )
    site.writer.turn(0)
    found = {key[1:]: value for key, value in values(tmp_path).items() if key[0] == "tokiod_file_changes_total"}
    assert found == {
        ("made", "done"): 1,
        ("made", "failed"): 1,
        ("grown", "done"): 1,
        ("opened", "done"): 1,
        ("sealed", "done"): 2,
    }


def test_messages_that_are_of_no_use_are_counted(site, tmp_path):
    for _ in range(5):
        site.dealer.send_multipart([b"no", b"message", b"at all"])
    site.until(lambda: site.writer.receiver.dropped.total() == 5)
    site.now += 1
    site.writer.turn(0)
    assert values(tmp_path)["tokiod_bus_dropped_messages_total",] == 5
