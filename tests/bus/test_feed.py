"""What the feed publishes, as raw subscribers receive it."""

import time

import numpy as np
import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from tokiod.batch import Batch
from tokiod.bus import feed as bus_feed
from tokiod.bus import feed_message
from tokiod.bus.feed import Feed
from tokiod.bus.header import Stored
from tokiod.bus.publisher import MAX_SUBSCRIPTIONS_PER_POLL
from tokiod.errors import TokiodError

EPOCH = "this-run"


@pytest.fixture
def feed(endpoint):
    with Feed(endpoint, EPOCH) as feed:
        yield feed


@pytest.fixture
def subscribed(raw, endpoint, feed):
    """Make subscribers that the feed knows."""

    def make(*topics, **options):
        socket = raw(zmq.SUB, endpoint, **options)
        for topic in topics:
            socket.subscribe(topic)
        subscriptions = []
        wait(lambda: subscriptions.append(feed.poll()) or sum(subscriptions) == len(topics))
        return socket

    return make


def wait(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def cells(mark, count=3, dataset="datatargets/readbytes"):
    return Batch(dataset, "gauge", 5, ("OST0000",), np.arange(count) * 5, np.zeros(count, np.uint32), np.full(count, float(mark)))


def received(socket, count):
    """Wait for so many messages, and return them with any more that come soon: (topic, stored, values or None for a heartbeat)."""
    found = []
    while len(found) < count or socket.poll(20):
        frames = socket.recv_multipart()
        header, batch = feed_message.decode(frames)
        found.append((frames[0].decode(), header.stored, None if batch is None else batch.value.tolist()))
    return found


READ, WRITE = "cscratch/datatargets/readbytes", "cscratch/datatargets/writebytes"


def test_a_subscriber_receives_what_is_stored_with_epoch_number_and_watermark(feed, subscribed):
    socket = subscribed("")
    feed.publish("cscratch", cells(1), 60)
    feed.publish("cscratch", cells(2), 120)
    assert received(socket, 2) == [(READ, Stored(EPOCH, 1, 60), [1.0] * 3), (READ, Stored(EPOCH, 2, 120), [2.0] * 3)]


def test_each_topic_is_numbered_by_itself_without_holes_with_and_without_subscribers(feed, subscribed):
    feed.publish("cscratch", cells(0), 60)
    socket = subscribed("")
    received(socket, 1)
    for mark in range(3):
        feed.publish("cscratch", cells(mark), 60)
        feed.publish("cscratch", cells(mark, dataset="datatargets/writebytes"), 60)
        feed.publish("edison", cells(mark), 60)
    numbers = [(topic, stored.sequence) for topic, stored, _ in received(socket, 9)]
    assert sorted(numbers) == sorted(
        [
            (READ, 2),
            (READ, 3),
            (READ, 4),
            *((f"edison/{d}", n) for d in ["datatargets/readbytes"] for n in (1, 2, 3)),
            *((WRITE, n) for n in (1, 2, 3)),
        ]
    )


def test_only_subscribed_topics_are_received(feed, subscribed):
    socket = subscribed("cscratch/datatargets/w", "edison/")
    for system in ("cscratch", "edison"):
        feed.publish(system, cells(1), 60)
        feed.publish(system, cells(1, dataset="datatargets/writebytes"), 60)
    assert [topic for topic, _, _ in received(socket, 3)] == [WRITE, "edison/datatargets/readbytes", "edison/datatargets/writebytes"]


def test_publishing_is_enough_to_notice_a_subscriber(feed, raw, endpoint):
    socket = raw(zmq.SUB, endpoint)
    socket.subscribe("")
    wait(lambda: feed.publish("cscratch", cells(1), 60) or socket.poll(0))
    feed.publish("cscratch", cells(2), 120)
    wait(lambda: received(socket, 1)[-1][2] == [2.0] * 3)


def test_a_cell_that_became_missing_is_a_nan(feed, subscribed):
    socket = subscribed("")
    feed.publish("cscratch", cells(np.nan), 60)
    ((_, _, values),) = received(socket, 1)
    assert np.isnan(values).all()


def test_a_new_subscriber_receives_the_last_of_its_topics_at_once(feed, subscribed):
    for watermark in (60, 120, 180):
        feed.publish("cscratch", cells(1), watermark)
    feed.publish("cscratch", cells(1, dataset="datatargets/writebytes"), 240)
    assert received(subscribed("cscratch/datatargets/r"), 1) == [(READ, Stored(EPOCH, 3, 180), None)]
    assert received(subscribed("cscratch/datatargets/r"), 1) == [(READ, Stored(EPOCH, 3, 180), None)], (
        "a second subscriber to the same topic, too"
    )
    assert received(subscribed(""), 2) == [(READ, Stored(EPOCH, 3, 180), None), (WRITE, Stored(EPOCH, 1, 240), None)]
    assert received(subscribed("elsewhere"), 0) == []


def test_a_heartbeat_repeats_the_last_of_every_topic(feed, subscribed):
    socket = subscribed("")
    feed.publish("cscratch", cells(1), 60)
    feed.publish("cscratch", cells(2, dataset="datatargets/writebytes"), 120)
    received(socket, 2)
    feed.beat()
    feed.beat()
    assert received(socket, 4) == [(READ, Stored(EPOCH, 1, 60), None), (WRITE, Stored(EPOCH, 1, 120), None)] * 2


def test_before_anything_is_stored_there_is_nothing_to_repeat(feed, subscribed):
    socket = subscribed("")
    feed.beat()
    assert received(socket, 0) == []


def test_a_topic_ends_with_its_last_subscriber(feed, subscribed):
    first, second = subscribed("a", "b"), subscribed("a")
    assert feed.subscriptions == {b"a", b"b"}
    first.close(0)
    wait(lambda: feed.poll() == 0 and feed.subscriptions == {b"a"})
    second.unsubscribe("a")
    wait(lambda: feed.poll() == 0 and feed.subscriptions == set())


def test_a_subscriber_that_does_not_read_never_blocks_the_writer_and_learns_what_it_missed(endpoint, raw):
    with Feed(endpoint, EPOCH, high_water=10) as feed:
        slow = raw(zmq.SUB, endpoint, rcvhwm=10)
        slow.subscribe("")
        wait(lambda: feed.poll() == 1)
        for mark in range(1000):
            feed.publish("cscratch", cells(mark, count=10_000), mark)
        numbers = [stored.sequence for _, stored, _ in received(slow, 1)]
        assert numbers == sorted(set(numbers))
        assert 0 < len(numbers) < 1000
        wait(lambda: feed.beat() or (READ, Stored(EPOCH, 1000, 999), None) in received(slow, 1))


def test_malformed_messages_do_not_end_the_subscriptions_of_others(feed, raw, endpoint, subscribed):
    socket = subscribed("cscratch")
    other = raw(zmq.XSUB, endpoint)
    for junk in (b"", b"junk", b"\x02", b"\xff" * 100, b"\x00cscratch", b"\x00"):
        other.send(junk)
        other.send_multipart([junk, b"\x00cscratch", b"\x00"])
    other.send(b"\x01the end")
    wait(lambda: feed.poll() or b"the end" in feed.subscriptions)
    assert feed.subscriptions == {b"cscratch", b"the end"}
    feed.publish("cscratch", cells(1), 60)
    assert [stored.sequence for _, stored, _ in received(socket, 1)] == [1]


def test_what_was_published_does_not_change_with_the_writers_buffers(feed, subscribed):
    socket = subscribed("")
    batch = cells(0, count=100_000)
    for sequence in range(1, 21):
        batch.value[:] = sequence
        feed.publish("cscratch", batch, 60)
    batch.value[:] = -1
    assert received(socket, 20) == [(READ, Stored(EPOCH, n, 60), [float(n)] * 100_000) for n in range(1, 21)]


def test_a_flood_of_subscriptions_does_not_keep_the_writer_in_one_poll(feed, raw, endpoint):
    eager = raw(zmq.SUB, endpoint, sndhwm=0)
    for number in range(3 * MAX_SUBSCRIPTIONS_PER_POLL):
        eager.subscribe(str(number))
    counts = []
    wait(lambda: counts.append(feed.poll()) or sum(counts) == 3 * MAX_SUBSCRIPTIONS_PER_POLL)
    assert max(counts) <= MAX_SUBSCRIPTIONS_PER_POLL


def test_an_endpoint_that_can_not_be_bound_is_reported(tmp_path):
    with pytest.raises(TokiodError, match=r"the feed can't be opened at ipc:///.*: No such file or directory"):
        Feed(f"ipc://{tmp_path.parent.parent}/no/such/place", EPOCH)


@st.composite
def batches_of_any_shape(draw):
    """Whole rows, or any of their samples in any order; with short and long names."""
    width, height = draw(st.integers(1, 12)), draw(st.integers(1, 12))
    names = tuple(f"{index}{'x' * draw(st.sampled_from([1, 5, 30]))}" for index in range(width))
    time, column = np.repeat(60 + 5 * np.arange(height), width), np.tile(np.arange(width, dtype=np.uint32), height)
    if draw(st.booleans()):
        order = np.array(draw(st.permutations(range(len(time)))), dtype=int)[: draw(st.integers(0, len(time)))]
        time, column = time[order], column[order]
    return Batch("datatargets/d", "gauge", 5, names, time, column, np.arange(len(time)) + 7.0)


def named(*batches):
    return sorted(
        (time, one.columns[column], value)
        for one in batches
        for time, column, value in zip(one.time.tolist(), one.column.tolist(), one.value.tolist(), strict=True)
    )


@given(batches_of_any_shape(), st.integers(1, 60), st.integers(40, 200))
def test_pieces_of_any_batch_keep_the_limits_and_hold_its_cells(batch, most_cells, most_bytes):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bus_feed, "MAX_PIECE_CELLS", most_cells)
        patch.setattr(bus_feed, "MAX_FRAME_BYTES", most_bytes)
        bus_feed._column_groups.cache_clear()
        pieces = list(bus_feed.cut(batch))
        bus_feed._column_groups.cache_clear()
    assert all(len(one) <= most_cells and len(feed_message.encode("fs", one)[2]) <= most_bytes for one in pieces)
    assert {(one.dataset, one.form, one.step) for one in pieces} == {(batch.dataset, batch.form, batch.step)}
    assert named(*pieces) == named(batch)
