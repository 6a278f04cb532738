"""The writer's end, with raw sockets that send anything."""

import json

import numpy as np
import pytest
import zmq

from tokiod.bus import protocol, wire
from tokiod.bus.header import Piece
from tokiod.bus.protocol import VERSION, Ack, Beat, Hello, Reject, Welcome
from tokiod.bus.receiver import MAX_MESSAGES_PER_POLL, SILENCE_SECONDS, Receiver
from tokiod.errors import Refusal, TokiodError

EPOCH = "this-run"


@pytest.fixture
def now():
    return [1000.0]


@pytest.fixture
def receiver(endpoint, now):
    with Receiver(endpoint, EPOCH, max_incomplete_bytes=100_000, monotonic=lambda: now[0]) as receiver:
        yield receiver


@pytest.fixture
def collector(raw, endpoint, receiver):
    """Make connections that are welcomed."""

    def make(sender="me", connection=1):
        dealer = raw(zmq.DEALER, endpoint)
        dealer.send(protocol.encode(Hello(sender, connection)))
        assert poll_until(receiver, dealer) == ([], [Welcome(EPOCH, version=VERSION)])
        return dealer

    return make


def answers(dealer, count=0):
    """Wait for so many answers, and return them with any more that have come."""
    found = []
    while len(found) < count or dealer.poll(0):
        found.append(protocol.decode_from_writer(dealer.recv()))
    return found


def poll_until(receiver, dealer, count=1):
    """Poll the receiver until a connection has so many answers."""
    arrived, found = [], []
    for _ in range(500):
        arrived += receiver.poll(10)
        found += answers(dealer)
        if len(found) >= count:
            return arrived, found
    raise AssertionError(f"{found} after 5 s")


def drained(receiver, dealer):
    """Let the receiver read all that a connection has sent: up to a Hello, which it answers with a Beat."""
    dealer.send(protocol.encode(Hello("me", 1)))
    arrived, found = [], []
    for _ in range(500):
        arrived += receiver.poll(10)
        found += answers(dealer)
        if any(isinstance(one, Beat | Welcome) for one in found):
            return arrived, [one for one in found if not isinstance(one, Beat | Welcome)]
    raise AssertionError("the receiver answers nothing after 5 s")


def pieces(collected, attempt=1):
    batches = collected.batches or [None]
    meta = collected.meta
    return [wire.encode(meta.system, batch, Piece.of(meta, attempt, part, len(batches))) for part, batch in enumerate(batches)]


def content(collected):
    arrays = [(b.dataset, b.columns, b.time.tolist(), b.column.tolist(), b.value.tolist()) for b in collected.batches]
    return collected.meta.system, collected.meta.source, collected.meta.kind, collected.meta.window, arrays


def test_a_window_comes_out_as_it_was_sent(receiver, collector, window):
    dealer = collector()
    sent = window(1, parts=3, cells=1000)
    for frames in pieces(sent, attempt=4):
        dealer.send_multipart(frames)
    ((arrived,), _) = drained(receiver, dealer)
    assert content(arrived.collected) == content(sent)
    assert arrived.piece.attempt == 4
    assert (receiver.peers, receiver.incomplete_bytes, dict(receiver.dropped)) == (1, 0, {})


def test_arrays_are_views_of_the_message_where_they_are_aligned(receiver, collector, window):
    dealer = collector()
    dealer.send_multipart(pieces(window(1, cells=5000))[0])
    ((arrived,), _) = drained(receiver, dealer)
    (batch,) = arrived.collected.batches
    assert [a.base is not None and a.flags.aligned for a in (batch.time, batch.column, batch.value)] == [True] * 3


def test_a_window_without_data_arrives_too(receiver, collector, window):
    dealer = collector()
    empty = window(1, parts=0)
    dealer.send_multipart(pieces(empty)[0])
    ((arrived,), _) = drained(receiver, dealer)
    assert content(arrived.collected) == content(empty)


def test_the_answer_names_epoch_window_and_attempt(receiver, collector, window):
    dealer = collector()
    for number in (1, 2):
        dealer.send_multipart(pieces(window(number), attempt=number + 6)[0])
    ((first, second), _) = drained(receiver, dealer)
    receiver.ack(first, 12, {"outside": 3})
    receiver.refuse(second, Refusal("disk full", "retry"))
    assert answers(dealer, 2) == [
        Ack(EPOCH, "cscratch-lmt", first.collected.meta.window.start, first.collected.meta.window.end, 7, 12, {"outside": 3}),
        Reject(EPOCH, "cscratch-lmt", second.collected.meta.window.start, second.collected.meta.window.end, 8, "disk full", retry=True),
    ]


def test_every_collector_receives_a_beat_and_a_reload(receiver, collector):
    dealers = [collector(sender) for sender in ("a", "b")]
    receiver.beat()
    receiver.reload()
    assert [answers(dealer, 2) for dealer in dealers] == [[Beat(EPOCH), Beat(EPOCH, 1)]] * 2


def test_only_the_first_hello_of_a_connection_is_welcomed(receiver, collector):
    dealer = collector("me")
    dealer.send(protocol.encode(Hello("me", 1)))
    assert poll_until(receiver, dealer) == ([], [Beat(EPOCH)])


def test_no_window_is_accepted_without_a_hello(receiver, raw, endpoint, window):
    dealer = raw(zmq.DEALER, endpoint)
    dealer.send_multipart(pieces(window(1))[0])
    assert drained(receiver, dealer) == ([], [])
    assert dict(receiver.dropped) == {"hello": 1}


def test_a_new_connection_of_a_sender_ends_the_old_one(receiver, collector, window):
    old = collector("me", 1)
    first, second = pieces(window(1, parts=2), attempt=1)
    old.send_multipart(first)
    assert receiver.poll(1000) == []
    assert receiver.incomplete_bytes > 0
    new = collector("me", 2)
    assert (receiver.peers, receiver.incomplete_bytes) == (1, 0)
    old.send_multipart(second)
    old.send_multipart(pieces(window(9))[0])
    old.send(protocol.encode(Hello("me", 1)))
    for frames in pieces(window(1, parts=2), attempt=2):
        new.send_multipart(frames)
    arrived = []
    while len(arrived) < 1 or receiver.dropped["hello"] < 3:
        arrived += receiver.poll(1000)
    assert [(one.piece.attempt, content(one.collected)) for one in arrived] == [(2, content(window(1, parts=2)))]
    assert answers(old) == []
    assert dict(receiver.dropped) == {"hello": 3}


def test_two_senders_do_not_disturb_each_other(receiver, collector, window):
    one, other = collector("one"), collector("other")
    for frames, others in zip(pieces(window(1, parts=2)), pieces(window(1, parts=2, source="cscratch-es")), strict=True):
        one.send_multipart(frames)
        other.send_multipart(others)
    arrived = []
    while len(arrived) < 2:
        arrived += receiver.poll(1000)
    assert {content(a.collected)[1] for a in arrived} == {"cscratch-lmt", "cscratch-es"}
    assert len({a.peer for a in arrived}) == 2


def test_a_silent_collector_is_forgotten_and_welcomed_again(receiver, collector, window, now):
    dealer = collector("me")
    dealer.send_multipart(pieces(window(1, parts=2))[0])
    assert receiver.poll(1000) == []
    now[0] += SILENCE_SECONDS + 1
    receiver.poll(0)
    assert (receiver.peers, receiver.incomplete_bytes) == (0, 0)
    dealer.send(protocol.encode(Hello("me", 1)))
    assert poll_until(receiver, dealer) == ([], [Welcome(EPOCH, version=VERSION)])


def test_a_piece_is_a_sign_of_life(receiver, collector, window, now):
    dealer = collector()
    for number in range(3):
        now[0] += SILENCE_SECONDS * 0.9
        dealer.send_multipart(pieces(window(number))[0])
        assert len(receiver.poll(1000)) == 1
    assert receiver.peers == 1


def test_incomplete_windows_beyond_the_limit_are_refused_for_now_oldest_first(receiver, collector, window):
    dealer = collector()
    for number in range(6):
        dealer.send_multipart(pieces(window(number, parts=2, cells=1000), attempt=number + 1)[0])
    arrived, found = drained(receiver, dealer)
    assert arrived == []
    assert [(type(one), one.attempt, one.retry) for one in found] == [(Reject, 1, True), (Reject, 2, True)]
    assert receiver.incomplete_bytes <= 100_000
    dealer.send_multipart(pieces(window(3, parts=2, cells=1000), attempt=4)[1])
    ((arrived,), _) = drained(receiver, dealer)
    assert content(arrived.collected) == content(window(3, parts=2, cells=1000))


def changed(frames, **changes):
    header = json.loads(frames[1])
    piece = header["piece"] | changes.pop("piece", {})
    return [frames[0], json.dumps(header | {"piece": piece} | changes).encode(), *frames[2:]]


@pytest.mark.parametrize(
    ("damage", "reason", "is_refused"),
    [
        pytest.param(lambda _: [b"junk"], "control", False, id="an invalid control frame"),
        pytest.param(lambda _: [b""], "control", False, id="an empty frame"),
        pytest.param(lambda _: [b'{"type":"welcome","epoch":"x"}'], "control", False, id="a Welcome from a collector"),
        pytest.param(lambda _: [b'{"x":' + b"[" * 100_000], "control", False, id="control nested without end"),
        pytest.param(lambda _: [b'{"type":"hello","sender":"me","connection":1,"version":9}'], "version", False, id="Hello of the future"),
        pytest.param(lambda f: f[:4], "frames", False, id="frames missing"),
        pytest.param(lambda f: f * 100, "frames", False, id="hundreds of frames"),
        pytest.param(lambda f: [f[0], f[1][:-5], *f[2:]], "header", False, id="a header cut short"),
        pytest.param(lambda f: changed(f, version=3), "version", False, id="another version"),
        pytest.param(lambda f: [b"other/x", *f[1:]], "topic", False, id="another topic"),
        pytest.param(lambda f: changed(f, piece={"start": -5}), "header", False, id="a window before time began"),
        pytest.param(lambda f: changed(f, piece={"end": 10**40}), "header", False, id="a window beyond any integer"),
        pytest.param(lambda f: changed(f, piece={"end": 0}), "window", True, id="a window that ends before it starts"),
        pytest.param(lambda f: changed(f, piece={"part": 1}), "parts", True, id="a part beyond the parts"),
        pytest.param(lambda f: changed(f, step=0), "step", True, id="no step"),
        pytest.param(lambda f: [*f[:5], f[5][:-1]], "shape", True, id="an array cut short"),
        pytest.param(lambda f: [*f[:3], *[b""] * 3], "shape", True, id="arrays emptied"),
        pytest.param(lambda f: [*f[:2], b"a\na", *f[3:]], "columns", True, id="a column name twice"),
        pytest.param(lambda f: [*f[:4], np.full(12, 77, "<u4").tobytes(), f[5]], "column", True, id="an unknown column"),
    ],
)
def test_malformed_messages_are_counted_refused_where_possible_and_stop_nothing(receiver, collector, window, damage, reason, is_refused):
    dealer = collector()
    sound = [bytes(frame) for frame in pieces(window(1), attempt=5)[0]]
    dealer.send_multipart(damage(sound))
    dealer.send_multipart(pieces(window(2))[0])
    arrived, found = drained(receiver, dealer)
    assert [content(one.collected) for one in arrived] == [content(window(2))]
    assert dict(receiver.dropped) == {reason: 1}
    assert [(one.attempt, one.retry) for one in found] == ([(5, False)] if is_refused else [])
    assert all(reason in one.message for one in found)


def test_a_message_without_a_piece_is_counted(receiver, collector, window):
    dealer = collector()
    dealer.send_multipart(wire.encode("cscratch", window(1).batches[0]))
    assert drained(receiver, dealer) == ([], [])
    assert dict(receiver.dropped) == {"piece": 1}


def test_a_malformed_piece_refuses_its_whole_attempt_and_the_next_one_is_accepted(receiver, collector, window):
    dealer = collector()
    first, second, third = ([bytes(frame) for frame in frames] for frames in pieces(window(1, parts=3), attempt=1))
    for frames in (first, [*second[:5], b"short"], third):
        dealer.send_multipart(frames)
    arrived, found = drained(receiver, dealer)
    assert (arrived, [one.attempt for one in found]) == ([], [1])
    assert dict(receiver.dropped) == {"shape": 1, "stale": 1}
    assert receiver.incomplete_bytes == 0
    for frames in pieces(window(1, parts=3), attempt=2):
        dealer.send_multipart(frames)
    ((again,), _) = drained(receiver, dealer)
    assert content(again.collected) == content(window(1, parts=3))


def test_a_flood_does_not_keep_the_writer_in_one_poll(receiver, collector, window):
    dealer = collector()
    dealer.sndhwm = 0
    dealer.send_multipart(pieces(window(1))[0])
    for _ in range(3 * MAX_MESSAGES_PER_POLL):
        dealer.send(b"junk")
    counts = []
    while sum(receiver.dropped.values()) < 3 * MAX_MESSAGES_PER_POLL:
        before = sum(receiver.dropped.values())
        receiver.poll(1000)
        counts.append(sum(receiver.dropped.values()) - before)
    assert max(counts) <= MAX_MESSAGES_PER_POLL


def test_answers_to_a_collector_that_never_reads_or_is_gone_do_not_block(receiver, collector):
    unread, gone, listening = collector("unread"), collector("gone"), collector("listening")
    gone.close(0)
    for _ in range(300):
        for _ in range(50):
            receiver.beat()
        receiver.poll(0)
        assert set(answers(listening, 1)) == {Beat(EPOCH)}
    assert unread.poll(0)


def test_an_endpoint_that_can_not_be_bound_is_reported(tmp_path):
    with pytest.raises(TokiodError, match=r"the bus can't be opened at ipc:///.*: No such file or directory"):
        Receiver(f"ipc://{tmp_path.parent.parent}/no/such/place", EPOCH)
