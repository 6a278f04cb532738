"""What subscribers receive through the feed's process, also when it, the writer or both are started again."""

import itertools
import stat
import time
from pathlib import Path

import numpy as np
import pytest
import zmq
from counted import configured, counting_here, values

from tokiod.batch import Batch
from tokiod.bus import feed_message
from tokiod.bus.feed import MAX_FRAME_BYTES, Feed
from tokiod.bus.header import Stored
from tokiod.bus.publisher import Publisher
from tokiod.feed_proxy.proxy import DRAIN_SECONDS, FeedProxy
from tokiod.subscribe.subscriber import Gap, Reader, Update

READ, WRITE = "fs/datatargets/readbytes", "fs/datatargets/writebytes"


class Daemon:
    """A writer's end and the feed's process, in one thread; each can be started again."""

    def __init__(self, sockets):
        self.inner, self.endpoint = f"ipc://{sockets}/feed.in", f"ipc://{sockets}/feed"
        self.feed = self.proxy = None
        self.start_writer("one")
        self.start_proxy()

    def start_writer(self, epoch):
        if self.feed is not None:
            self.feed.close()
        self.feed = Feed(self.inner, epoch)

    def start_proxy(self):
        self.stop_proxy()
        self.proxy = FeedProxy(self.inner, Publisher(self.endpoint))

    def stop_proxy(self):
        if self.proxy is not None:
            self.proxy.close()
        self.proxy = None

    def until(self, condition):
        deadline = time.monotonic() + 10
        while not condition():
            assert time.monotonic() < deadline
            self.feed.poll()
            if self.proxy is not None:
                self.proxy.turn(5)

    def follow(self, *subscribers):
        """Wait until the writer sends to the feed's process. libzmq subscribes again when a socket is next looked at."""
        self.until(lambda: ([one.poll(0) for one in subscribers] and False) or self.feed.subscriptions)

    def publish(self, *marks, watermark=60, dataset="datatargets/readbytes"):
        for mark in marks:
            self.feed.publish("fs", cells(mark, dataset=dataset), watermark)

    def close(self):
        self.stop_proxy()
        self.feed.close()


@pytest.fixture
def daemon(sockets):
    daemon = Daemon(sockets)
    yield daemon
    daemon.close()


def cells(mark, count=3, dataset="datatargets/readbytes"):
    return Batch(dataset, "gauge", 5, ("OST0000",), np.arange(count) * 5, np.zeros(count, np.uint32), np.full(count, float(mark)))


def received(daemon, socket, count):
    """Wait for so many messages, and return them with any more that come soon: (topic, stored, values or None for a heartbeat)."""
    found, begun = [], time.monotonic()
    while len(found) < count or time.monotonic() < begun + 0.1:
        assert time.monotonic() < begun + 10, found
        daemon.feed.poll()
        daemon.proxy.turn(2)
        while socket.poll(0):
            frames = socket.recv_multipart()
            header, batch = feed_message.decode(frames)
            found.append((frames[0].decode(), header.stored, None if batch is None else batch.value.tolist()))
    return found


def test_a_subscriber_receives_what_the_writer_publishes_unchanged(daemon, raw):
    socket = raw(zmq.SUB, daemon.endpoint, "fs/")
    daemon.follow()
    daemon.publish(1, 2)
    assert received(daemon, socket, 2) == [(READ, Stored("one", 1, 60), [1.0] * 3), (READ, Stored("one", 2, 60), [2.0] * 3)]


def test_without_subscribers_the_writer_sends_nothing(daemon):
    for _ in range(20):
        daemon.publish(1)
        daemon.proxy.turn(1)
    assert daemon.feed.subscriptions == set()


def test_each_new_subscriber_receives_the_last_number_of_its_topics_at_once_also_while_the_writer_is_busy(daemon, raw):
    daemon.publish(1, 2)
    daemon.publish(3, dataset="datatargets/writebytes", watermark=120)
    last_read, last_write = (READ, Stored("one", 2, 60), None), (WRITE, Stored("one", 1, 120), None)
    assert received(daemon, raw(zmq.SUB, daemon.endpoint, ""), 2) == [last_read, last_write]
    busy, daemon.feed.poll = daemon.feed.poll, lambda: None
    assert received(daemon, raw(zmq.SUB, daemon.endpoint, "fs/datatargets/w"), 1) == [last_write]
    assert received(daemon, raw(zmq.SUB, daemon.endpoint, ""), 2) == [last_read, last_write]
    daemon.feed.poll = busy


def test_heartbeats_come_from_the_writer_and_end_with_it(daemon, raw):
    socket = raw(zmq.SUB, daemon.endpoint, "")
    daemon.follow()
    daemon.publish(1)
    received(daemon, socket, 1)
    daemon.feed.beat()
    assert received(daemon, socket, 1) == [(READ, Stored("one", 1, 60), None)]
    daemon.feed.poll = lambda: None
    assert received(daemon, socket, 0) == []


def test_what_is_published_while_the_feeds_process_is_down_is_a_hole_in_the_numbers(daemon, raw):
    socket, reader = raw(zmq.SUB, daemon.endpoint, "", reconnect_ivl=10), Reader()
    daemon.follow()
    daemon.publish(1)
    (event,) = [event for event in read(daemon, socket, reader, 1) if isinstance(event, Update)]
    daemon.stop_proxy()
    daemon.until(lambda: not daemon.feed.subscriptions)
    daemon.publish(2, 3, 4, watermark=120)
    daemon.start_proxy()
    daemon.follow(socket)
    daemon.publish(5, watermark=180)
    gap, *updates = read(daemon, socket, reader, 2)
    assert gap in (Gap("fs", "datatargets/readbytes", 3, 60, 120), Gap("fs", "datatargets/readbytes", 3, 60, 180))
    assert [update.batch.value.tolist() for update in updates] == [[5.0] * 3]
    assert event.watermark == 60


def test_another_writer_is_another_epoch_and_what_the_former_one_numbered_is_forgotten(daemon, raw):
    socket, reader = raw(zmq.SUB, daemon.endpoint, ""), Reader()
    daemon.follow()
    daemon.publish(1)
    daemon.publish(1, dataset="datatargets/writebytes")
    read(daemon, socket, reader, 2)
    daemon.start_writer("two")
    daemon.follow()
    daemon.publish(2, watermark=30)
    gap, update = read(daemon, socket, reader, 2)
    assert (gap, update.batch.value.tolist()) == (Gap("fs", "datatargets/readbytes", None, 60, 30), [2.0] * 3)
    assert received(daemon, raw(zmq.SUB, daemon.endpoint, ""), 1) == [(READ, Stored("two", 1, 30), None)]


def read(daemon, socket, reader, count):
    found, begun = [], time.monotonic()
    while len(found) < count:
        assert time.monotonic() < begun + 10, found
        daemon.feed.poll()
        daemon.proxy.turn(2)
        while socket.poll(0):
            found += reader.read(socket.recv_multipart())
    return found


def test_the_writer_never_waits_for_a_feed_process_that_does_not_read(daemon, raw, tmp_path):
    raw(zmq.SUB, daemon.endpoint, "")
    daemon.follow()
    with counting_here(configured(tmp_path), "writer"):
        begun = time.monotonic()
        for mark in range(5000):
            daemon.feed.publish("fs", cells(mark, count=1000), 60)
        assert time.monotonic() - begun < 20
        assert values(tmp_path)["tokiod_feed_fell_behind_total",] >= 1


def test_a_client_that_unsubscribes_from_what_others_subscribed_to_silences_nothing(daemon, raw):
    socket = raw(zmq.SUB, daemon.endpoint, "")
    daemon.follow()
    hostile = raw(zmq.XSUB, daemon.endpoint)
    for _ in range(10):
        hostile.send(b"\x00")
    hostile.send(b"\x01the end")
    daemon.until(lambda: b"the end" in daemon.proxy.external.subscriptions)
    daemon.publish(7)
    assert (READ, Stored("one", 1, 60), [7.0] * 3) in received(daemon, socket, 1)


def test_a_large_batch_is_published_in_messages_of_bounded_frames_each_with_its_number(daemon, raw):
    socket = raw(zmq.SUB, daemon.endpoint, "")
    daemon.follow()
    large = cells(1, count=600_000)
    daemon.feed.publish("fs", large, 60)
    found = received(daemon, socket, 3)
    assert [stored.sequence for _, stored, _ in found] == [1, 2, 3]
    assert sum(len(value) for _, _, value in found) == 600_000
    assert all(8 * len(value) <= MAX_FRAME_BYTES for _, _, value in found)


def test_the_inner_socket_is_for_the_daemons_user_alone(daemon):
    assert stat.filemode(Path(daemon.inner.removeprefix("ipc://")).stat().st_mode) == "srw-------"


def test_subscribers_and_what_is_published_to_them_are_counted(daemon, raw, tmp_path):
    with counting_here(configured(tmp_path), "feed"):
        for topic in (b"", b"fs", b"fs"):
            raw(zmq.SUB, daemon.endpoint, topic)
        subscriptions = []
        while sum(subscriptions) < 3:
            subscriptions.append(daemon.proxy.external.poll())
        assert values(tmp_path)["tokiod_feed_subscriptions_total",] == 3
        assert values(tmp_path)["tokiod_feed_topics",] == 2
        daemon.follow()
        daemon.publish(1, 2)
        daemon.feed.beat()
        daemon.until(lambda: values(tmp_path).get(("tokiod_feed_messages_total",)) == 2)


def test_at_the_end_what_the_writer_sent_last_still_reaches_the_subscribers(daemon, raw):
    socket = raw(zmq.SUB, daemon.endpoint, "")
    daemon.follow()
    daemon.publish(*range(500))
    daemon.feed.close(1000)
    # By the number of turns, as on a busy machine the writer's messages may pause for longer than the process waits.
    turns = itertools.count(0, DRAIN_SECONDS / 50)
    daemon.proxy.drain(lambda: next(turns))
    daemon.stop_proxy()
    numbers = [feed_message.decode(socket.recv_multipart())[0].stored.sequence for _ in range(500)]
    assert numbers == list(range(1, 501))
    daemon.start_writer("two")
