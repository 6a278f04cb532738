"""What is published, heard by raw subscribers."""

import time

import numpy as np
import pytest
import zmq

from tokiod.batch import Batch
from tokiod.bus import wire
from tokiod.bus.feed import BURST, Feed
from tokiod.bus.wire import Stored
from tokiod.errors import TokiodError

EPOCH = "this-run"


@pytest.fixture
def feed(endpoint):
    with Feed(endpoint, EPOCH) as feed:
        yield feed


@pytest.fixture
def listener(raw, endpoint, feed):
    """Make subscribers that the feed knows of."""

    def make(*topics, **options):
        socket = raw(zmq.SUB, endpoint, **options)
        for topic in topics:
            socket.subscribe(topic)
        newcomers = []
        wait(lambda: newcomers.append(feed.poll()) or sum(newcomers) == len(topics))
        return socket

    return make


def wait(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def cells(mark, count=3, dataset="datatargets/readbytes"):
    return Batch(dataset, "gauge", 5, ("OST0000",), np.arange(count) * 5, np.zeros(count, np.uint32), np.full(count, float(mark)))


def heard(socket, count):
    """Wait for so many messages, and return them with any more that come soon: (topic, stored, values or None for a heartbeat)."""
    found = []
    while len(found) < count or socket.poll(20):
        frames = socket.recv_multipart()
        header, batch = wire.decode(frames)
        found.append((frames[0].decode(), header.stored, None if batch is None else batch.value.tolist()))
    return found


READ, WRITE = "cscratch/datatargets/readbytes", "cscratch/datatargets/writebytes"


def test_a_subscriber_hears_what_is_stored_with_epoch_number_and_watermark(feed, listener):
    socket = listener("")
    feed.publish("cscratch", cells(1), 60)
    feed.publish("cscratch", cells(2), 120)
    assert heard(socket, 2) == [(READ, Stored(EPOCH, 1, 60), [1.0] * 3), (READ, Stored(EPOCH, 2, 120), [2.0] * 3)]


def test_each_topic_is_numbered_by_itself_without_holes_whoever_listens(feed, listener):
    feed.publish("cscratch", cells(0), 60)
    socket = listener("")
    heard(socket, 1)
    for mark in range(3):
        feed.publish("cscratch", cells(mark), 60)
        feed.publish("cscratch", cells(mark, dataset="datatargets/writebytes"), 60)
        feed.publish("edison", cells(mark), 60)
    numbers = [(topic, stored.sequence) for topic, stored, _ in heard(socket, 9)]
    assert sorted(numbers) == sorted(
        [
            (READ, 2),
            (READ, 3),
            (READ, 4),
            *((f"edison/{d}", n) for d in ["datatargets/readbytes"] for n in (1, 2, 3)),
            *((WRITE, n) for n in (1, 2, 3)),
        ]
    )


def test_only_subscribed_topics_are_heard(feed, listener):
    socket = listener("cscratch/datatargets/w", "edison/")
    for system in ("cscratch", "edison"):
        feed.publish(system, cells(1), 60)
        feed.publish(system, cells(1, dataset="datatargets/writebytes"), 60)
    assert [topic for topic, _, _ in heard(socket, 3)] == [WRITE, "edison/datatargets/readbytes", "edison/datatargets/writebytes"]


def test_to_publish_is_enough_to_notice_a_subscriber(feed, raw, endpoint):
    socket = raw(zmq.SUB, endpoint)
    socket.subscribe("")
    wait(lambda: feed.publish("cscratch", cells(1), 60) or socket.poll(0))
    feed.publish("cscratch", cells(2), 120)
    wait(lambda: heard(socket, 1)[-1][2] == [2.0] * 3)


def test_a_cell_that_became_missing_is_a_nan(feed, listener):
    socket = listener("")
    feed.publish("cscratch", cells(np.nan), 60)
    ((_, _, values),) = heard(socket, 1)
    assert np.isnan(values).all()


def test_who_comes_late_is_told_at_once_how_far_its_topics_are(feed, listener):
    for watermark in (60, 120, 180):
        feed.publish("cscratch", cells(1), watermark)
    feed.publish("cscratch", cells(1, dataset="datatargets/writebytes"), 240)
    assert heard(listener("cscratch/datatargets/r"), 1) == [(READ, Stored(EPOCH, 3, 180), None)]
    assert heard(listener("cscratch/datatargets/r"), 1) == [(READ, Stored(EPOCH, 3, 180), None)], "the second one to ask the same, too"
    assert heard(listener(""), 2) == [(READ, Stored(EPOCH, 3, 180), None), (WRITE, Stored(EPOCH, 1, 240), None)]
    assert heard(listener("elsewhere"), 0) == []


def test_a_heartbeat_repeats_the_last_of_every_topic(feed, listener):
    socket = listener("")
    feed.publish("cscratch", cells(1), 60)
    feed.publish("cscratch", cells(2, dataset="datatargets/writebytes"), 120)
    heard(socket, 2)
    feed.beat()
    feed.beat()
    assert heard(socket, 4) == [(READ, Stored(EPOCH, 1, 60), None), (WRITE, Stored(EPOCH, 1, 120), None)] * 2


def test_before_anything_is_stored_there_is_nothing_to_repeat(feed, listener):
    socket = listener("")
    feed.beat()
    assert heard(socket, 0) == []


def test_subscriptions_end_with_the_last_who_has_them(feed, listener):
    first, second = listener("a", "b"), listener("a")
    assert feed.subscriptions == {b"a", b"b"}
    first.close(0)
    wait(lambda: feed.poll() == 0 and feed.subscriptions == {b"a"})
    second.unsubscribe("a")
    wait(lambda: feed.poll() == 0 and feed.subscriptions == set())


def test_one_who_does_not_read_never_holds_the_writer_up_and_learns_what_it_missed(endpoint, raw):
    with Feed(endpoint, EPOCH, high_water=10) as feed:
        deaf = raw(zmq.SUB, endpoint, rcvhwm=10)
        deaf.subscribe("")
        wait(lambda: feed.poll() == 1)
        for mark in range(1000):
            feed.publish("cscratch", cells(mark, count=10_000), mark)
        numbers = [stored.sequence for _, stored, _ in heard(deaf, 1)]
        assert numbers == sorted(set(numbers))
        assert 0 < len(numbers) < 1000
        wait(lambda: feed.beat() or (READ, Stored(EPOCH, 1000, 999), None) in heard(deaf, 1))


def test_a_rude_subscriber_can_not_end_the_subscriptions_of_others(feed, raw, endpoint, listener):
    socket = listener("cscratch")
    rude = raw(zmq.XSUB, endpoint)
    for junk in (b"", b"junk", b"\x02", b"\xff" * 100, b"\x00cscratch", b"\x00"):
        rude.send(junk)
        rude.send_multipart([junk, b"\x00cscratch", b"\x00"])
    rude.send(b"\x01the end")
    wait(lambda: feed.poll() or b"the end" in feed.subscriptions)
    assert feed.subscriptions == {b"cscratch", b"the end"}
    feed.publish("cscratch", cells(1), 60)
    assert [stored.sequence for _, stored, _ in heard(socket, 1)] == [1]


def test_what_was_published_does_not_change_with_the_writers_buffers(feed, listener):
    socket = listener("")
    batch = cells(0, count=100_000)
    for sequence in range(1, 21):
        batch.value[:] = sequence
        feed.publish("cscratch", batch, 60)
    batch.value[:] = -1
    assert heard(socket, 20) == [(READ, Stored(EPOCH, n, 60), [float(n)] * 100_000) for n in range(1, 21)]


def test_a_flood_of_subscriptions_does_not_keep_the_writer_in_one_poll(feed, raw, endpoint):
    eager = raw(zmq.SUB, endpoint, sndhwm=0)
    for number in range(3 * BURST):
        eager.subscribe(str(number))
    counts = []
    wait(lambda: counts.append(feed.poll()) or sum(counts) == 3 * BURST)
    assert max(counts) <= BURST


def test_an_endpoint_that_can_not_be_bound_is_a_sentence(tmp_path):
    with pytest.raises(TokiodError, match=r"the feed can't be opened at ipc:///.*: No such file or directory"):
        Feed(f"ipc://{tmp_path.parent.parent}/no/such/place", EPOCH)
