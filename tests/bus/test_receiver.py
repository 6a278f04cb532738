"""The writer's end, with raw sockets that send anything."""

import json
from dataclasses import replace

import numpy as np
import pytest
import zmq
from window_messages import messages

from tokiod.bus import protocol
from tokiod.bus.protocol import Ack, Beat, Hello, Refused, Reject, Welcome
from tokiod.bus.receiver import MAX_MESSAGES_PER_POLL, SILENCE_SECONDS, Receiver
from tokiod.crossing.dialogue import VERSION
from tokiod.errors import Refusal, TokiodError
from tokiod.window_data import Collected, TableRows

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
        assert poll_until(receiver, dealer) == ([], [Welcome(EPOCH)])
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


def drained(receiver, dealer, sender="me"):
    """Let the receiver read all that a connection has sent: up to a Hello, which it answers with a Beat."""
    dealer.send(protocol.encode(Hello(sender, 1)))
    arrived, found = [], []
    for _ in range(500):
        arrived += receiver.poll(10)
        found += answers(dealer)
        if any(isinstance(one, Beat | Welcome) for one in found):
            return arrived, [one for one in found if not isinstance(one, Beat | Welcome)]
    raise AssertionError("the receiver answers nothing after 5 s")


def content(collected):
    arrays = [(b.dataset, b.columns, b.time.tolist(), b.column.tolist(), b.value.tolist()) for b in collected.batches]
    rows = [(one.table, one.columns, [values.tolist() for values in one.values], one.polled) for one in collected.tables]
    return collected.meta, arrays, rows


def test_a_window_comes_out_as_it_was_sent(receiver, collector, window):
    dealer = collector()
    sent = window(1, parts=3, cells=1000)
    table = TableRows("jobs/operations", ("time", "job"), (sent.batches[0].time, np.array([b"7"] * 1000)), (b"fs-OST0000",))
    sent = Collected(replace(sent.meta, records=12, dropped={"null": 2}, extent="some"), sent.batches, [table])
    for frames in messages(sent, attempt=4, parts=5):
        dealer.send_multipart(frames)
    ((arrived,), _) = drained(receiver, dealer)
    assert content(arrived.collected) == content(sent)
    assert arrived.head.attempt == 4
    assert (receiver.peers, receiver.incomplete_bytes, dict(receiver.dropped)) == (1, 0, {})


def test_arrays_are_views_of_the_message_where_they_are_aligned(receiver, collector, window):
    dealer = collector()
    dealer.send_multipart(messages(window(1, cells=5000))[0])
    ((arrived,), _) = drained(receiver, dealer)
    (batch,) = arrived.collected.batches
    assert [a.base is not None and a.flags.aligned for a in (batch.time, batch.column, batch.value)] == [True] * 3


def test_a_window_without_data_arrives_too(receiver, collector, window):
    dealer = collector()
    empty = window(1, parts=0)
    dealer.send_multipart(messages(empty)[0])
    ((arrived,), _) = drained(receiver, dealer)
    assert content(arrived.collected) == content(empty)


def test_the_answer_names_epoch_window_and_attempt(receiver, collector, window):
    dealer = collector()
    for number in (1, 2):
        dealer.send_multipart(messages(window(number), attempt=number + 6)[0])
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
    dealer.send_multipart(messages(window(1))[0])
    assert drained(receiver, dealer) == ([], [])
    assert dict(receiver.dropped) == {"hello": 1}


def test_a_new_connection_of_a_sender_ends_the_old_one(receiver, collector, window):
    old, another = collector("me", 1), collector("another", 1)
    first, second = messages(window(1, parts=2), parts=2)
    another.send_multipart(messages(window(2), parts=2)[0])
    assert drained(receiver, old) == ([], [])
    others = receiver.incomplete_bytes
    old.send_multipart(first)
    assert receiver.poll(1000) == []
    assert receiver.incomplete_bytes > others > 0
    new = collector("me", 2)
    assert (receiver.peers, receiver.incomplete_bytes) == (2, others)
    another.send_multipart(messages(window(2), parts=2)[1])
    old.send_multipart(second)
    old.send_multipart(messages(window(9))[0])
    old.send(protocol.encode(Hello("me", 1)))
    for frames in messages(window(1, parts=2), 2, parts=2):
        new.send_multipart(frames)
    arrived = []
    for _ in range(500):
        arrived += receiver.poll(10)
        if len(arrived) == 2 and receiver.dropped["hello"] == 3:
            break
    found = {one.head.attempt: content(one.collected) for one in arrived}
    assert found == {1: content(window(2)), 2: content(window(1, parts=2))}
    assert answers(old) == []
    assert dict(receiver.dropped) == {"hello": 3}


def test_windows_of_the_same_times_do_not_mix_of_two_sources_or_of_two_connections(receiver, collector, window):
    one, other = collector("one"), collector("other")
    # Of as many bytes, so that a part of another window would fit.
    windows = [
        (one, window(1)),
        (one, changed_values(window(1, source="cscratch-es"), 1)),
        (other, changed_values(window(1), 2)),
    ]
    for part in range(2):
        for dealer, collected in windows:
            dealer.send_multipart(messages(collected, parts=2)[part])
    arrived = [each for dealer, sender in ((one, "one"), (other, "other")) for each in drained(receiver, dealer, sender)[0]]
    found = sorted((content(each.collected) for each in arrived), key=str)
    assert found == sorted((content(collected) for _, collected in windows), key=str)
    assert len({each.peer for each in arrived}) == 2


def changed_values(collected, by):
    return replace(collected, batches=[replace(one, value=one.value + by) for one in collected.batches])


def test_a_silent_collector_is_forgotten_and_welcomed_again(receiver, collector, window, now):
    dealer = collector("me")
    dealer.send_multipart(messages(window(1), parts=2)[0])
    assert receiver.poll(1000) == []
    now[0] += SILENCE_SECONDS + 1
    receiver.poll(0)
    assert (receiver.peers, receiver.incomplete_bytes) == (0, 0)
    dealer.send(protocol.encode(Hello("me", 1)))
    assert poll_until(receiver, dealer) == ([], [Welcome(EPOCH)])


def test_a_part_is_a_sign_of_life(receiver, collector, window, now):
    dealer = collector()
    for number in range(3):
        now[0] += SILENCE_SECONDS * 0.9
        dealer.send_multipart(messages(window(number))[0])
        assert len(receiver.poll(1000)) == 1
    assert receiver.peers == 1


def test_incomplete_windows_beyond_the_limit_are_refused_for_now_oldest_first(receiver, collector, window):
    dealer = collector()
    for number in range(6):
        dealer.send_multipart(messages(window(number, parts=2, cells=1000), number + 1, parts=2)[0])
    arrived, found = drained(receiver, dealer)
    assert arrived == []
    assert [(type(one), one.attempt, one.retry) for one in found] == [(Reject, 1, True), (Reject, 2, True)]
    assert receiver.incomplete_bytes <= 100_000
    dealer.send_multipart(messages(window(3, parts=2, cells=1000), 4, parts=2)[1])
    ((arrived,), _) = drained(receiver, dealer)
    assert content(arrived.collected) == content(window(3, parts=2, cells=1000))


def changed(frames, **changes):
    return [json.dumps(json.loads(frames[0]) | changes).encode(), *frames[1:]]


@pytest.mark.parametrize(
    ("damage", "reason", "is_refused"),
    [
        pytest.param(lambda _: [b"junk"], "control", False, id="an invalid control frame"),
        pytest.param(lambda _: [b""], "control", False, id="an empty frame"),
        pytest.param(lambda _: [b'{"type":"welcome","epoch":"x"}'], "control", False, id="a Welcome from a collector"),
        pytest.param(lambda _: [b'{"x":' + b"[" * 100_000], "control", False, id="control nested without end"),
        pytest.param(lambda f: [f[0][:-5], *f[1:]], "control", False, id="a head cut short"),
        pytest.param(lambda f: f[1:], "control", False, id="bytes without a head"),
        pytest.param(lambda f: changed(f, start=-5), "control", False, id="a window before time began"),
        pytest.param(lambda f: changed(f, end=10**40), "control", False, id="a window beyond any integer"),
        pytest.param(lambda f: changed(f, extent="half"), "control", False, id="an unknown extent"),
        pytest.param(lambda f: changed(f, source="../x"), "header", False, id="a source that climbs"),
        pytest.param(lambda f: changed(f, system="a/b"), "header", False, id="a system with a slash"),
        pytest.param(lambda f: changed(f, kind=""), "header", False, id="no kind"),
        pytest.param(lambda f: changed(f, end=0), "window", True, id="a window that ends before it starts"),
        pytest.param(lambda f: changed(f, end=json.loads(f[0])["start"]), "window", True, id="a window without seconds"),
        pytest.param(lambda f: changed(f, part=1), "parts", True, id="a part beyond the parts"),
        pytest.param(lambda f: changed(f, parts=0), "parts", True, id="no parts"),
        pytest.param(lambda f: f[:1], "header", True, id="no bytes"),
        pytest.param(lambda f: [f[0], b"\xff" * 4], "header", True, id="bytes that are no window"),
        pytest.param(lambda f: [f[0], f[1][:-1]], "shape", True, id="an array cut short"),
        pytest.param(lambda f: [f[0], *f[1:] * 100], "shape", True, id="hundreds of frames"),
    ],
)
def test_malformed_messages_are_counted_refused_where_possible_and_stop_nothing(receiver, collector, window, damage, reason, is_refused):
    dealer = collector()
    dealer.send_multipart(damage(messages(window(1), attempt=5)[0]))
    dealer.send_multipart(messages(window(2))[0])
    arrived, found = drained(receiver, dealer)
    assert [content(one.collected) for one in arrived] == [content(window(2))]
    assert dict(receiver.dropped) == {reason: 1}
    assert [(one.attempt, one.retry) for one in found] == ([(5, False)] if is_refused else [])
    assert all(reason in one.message for one in found)


def test_a_window_that_is_too_large_is_refused_for_good_with_the_name_of_its_source(receiver, collector, window):
    dealer = collector()
    first, *_, last = messages(window(1, cells=8000), attempt=3, parts=3)
    dealer.send_multipart(first)
    dealer.send_multipart(last)
    arrived, (found,) = drained(receiver, dealer)
    assert (arrived, found.attempt, found.retry) == ([], 3, False)
    assert found.message.startswith("source cscratch-lmt: a window of ")
    assert (dict(receiver.dropped), receiver.incomplete_bytes) == ({"size": 1}, 0)


@pytest.mark.parametrize(
    ("other", "sentence"),
    [
        ({"parts": 7}, "7 parts, and 3 by another part of the same window"),
        ({"system": "t"}, "part 1 contradicts part 0 of the same window"),
        ({"kind": "esnet"}, "part 1 contradicts part 0 of the same window"),
        ({"extent": "seam"}, "part 1 contradicts part 0 of the same window"),
    ],
)
def test_a_malformed_part_refuses_its_whole_attempt_and_the_next_one_is_accepted(receiver, collector, window, other, sentence):
    dealer = collector()
    first, second, third = messages(window(1), attempt=1, parts=3)
    for frames in (first, changed(second, **other), third):
        dealer.send_multipart(frames)
    arrived, found = drained(receiver, dealer)
    assert (arrived, [(one.attempt, one.message) for one in found]) == ([], [(1, f"source cscratch-lmt: parts: {sentence}")])
    assert dict(receiver.dropped) == {"parts": 1, "stale": 1}
    assert receiver.incomplete_bytes == 0
    for frames in messages(window(1), attempt=2, parts=3):
        dealer.send_multipart(frames)
    ((again,), _) = drained(receiver, dealer)
    assert content(again.collected) == content(window(1))


@pytest.mark.parametrize("version", [VERSION - 1, VERSION + 1])
def test_a_collector_of_another_version_gets_a_sentence_and_no_welcome(receiver, raw, endpoint, window, version):
    dealer = raw(zmq.DEALER, endpoint)
    dealer.send(protocol.encode(Hello("me", 1, version)))
    versions = f"the collectors speak version {version} of the wire, the writer speaks {VERSION}"
    assert poll_until(receiver, dealer) == ([], [Refused(EPOCH, f"{versions}: restart the daemon")])
    dealer.send_multipart(messages(window(1))[0])
    assert drained(receiver, dealer) == ([], [])
    assert dict(receiver.dropped) == {"version": 1, "hello": 1}


def test_a_flood_does_not_keep_the_writer_in_one_poll(receiver, collector, window):
    dealer = collector()
    dealer.sndhwm = 0
    dealer.send_multipart(messages(window(1))[0])
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
