"""Subscribers that never read: the memory of what waits for them is bounded, and others receive everything."""

import ctypes
import os
from pathlib import Path

import numpy as np
import pytest
import zmq
from counted import configured, counting_here, values
from keyed import wait

from tokiod.batch import Batch
from tokiod.bus import feed_message, server_socket
from tokiod.bus.feed import Feed

CELLS = 5_000
BATCH = Batch("g/d", "gauge", 5, ("OST0000",), np.arange(CELLS) * 5, np.zeros(CELLS, np.uint32), np.ones(CELLS))
MESSAGE = 20 * CELLS
"""Bytes that wait in one message: a time, a column and a value for each cell."""
WAITING, UNREAD = 20, 5
ROOM = 10 << 20
"""Bytes by which memory may grow beyond what waits: those of libzmq itself, and free ones that malloc keeps."""


def memory():
    """Return the resident bytes of this process, without free ones that malloc keeps."""
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def unread(raw):
    """Make subscribers that never read, with as little room of their own as possible."""

    def make(feed, endpoint, count):
        made = [raw(zmq.SUB, endpoint, rcvhwm=1, rcvbuf=1 << 16, subscribe="", reconnect_ivl=-1) for _ in range(count)]
        subscriptions = []
        wait(lambda: subscriptions.append(feed.poll()) or sum(subscriptions) == count)
        return made

    return make


def publish(feed, live, count):
    """Publish so many messages, each of which the live subscriber reads at once; return their numbers."""
    numbers = []
    for _ in range(count):
        feed.publish("s", BATCH, 60)
        # Heartbeats are for new subscribers.
        while (message := feed_message.decode(live.recv_multipart()))[1] is None:
            pass
        numbers.append(message[0].stored.sequence)
    return numbers


def fell_behind(directory):
    return values(directory).get(("tokiod_feed_fell_behind_total",), 0)


@pytest.mark.parametrize("over_tcp", [False, True], ids=["ipc", "tcp"])
def test_messages_to_subscribers_that_never_read_are_bounded_and_counted_and_others_receive_everything(
    endpoint, tcp, raw, unread, tmp_path, over_tcp
):
    endpoint = tcp if over_tcp else endpoint
    with Feed(endpoint, "this-run", high_water=WAITING) as feed, counting_here(configured(tmp_path), "writer"):
        live = raw(zmq.SUB, endpoint, subscribe="")
        wait(lambda: feed.poll() == 1)
        publish(feed, live, 10)
        before = memory()
        unread(feed, endpoint, UNREAD)
        numbers = publish(feed, live, 200)
        full, begun = memory(), fell_behind(tmp_path)
        numbers += publish(feed, live, 400)
        assert numbers == list(range(11, 611))
        assert full - before < WAITING * MESSAGE + ROOM
        assert memory() - full < ROOM
        # Counted once each and not per message; equally slow ones begin with the same one. The kernel may make more room for one of them
        # meanwhile, which then falls behind a second time.
        assert 1 <= begun <= fell_behind(tmp_path) <= 2 * UNREAD


def test_a_subscriber_that_catches_up_and_falls_behind_again_is_counted_again(endpoint, raw, tmp_path):
    with Feed(endpoint, "this-run", high_water=WAITING) as feed, counting_here(configured(tmp_path), "writer"):
        slow = raw(zmq.SUB, endpoint, rcvhwm=1, subscribe="")
        wait(lambda: feed.poll() == 1)
        for times in range(1, 4):
            wait(lambda times=times: feed.publish("s", BATCH, 60) or fell_behind(tmp_path) == times)
            while slow.poll(100):
                slow.recv_multipart()


def test_over_tcp_subscribers_that_read_nothing_are_disconnected_and_their_messages_freed(tcp, unread, monkeypatch):
    monkeypatch.setitem(server_socket._TCP_OPTIONS, zmq.TCP_MAXRT, 2000)
    with Feed(tcp, "this-run", high_water=WAITING * 5) as feed:
        before = memory()
        unread(feed, tcp, 1)
        for _ in range(WAITING * 5):
            feed.publish("s", BATCH, 60)
        assert memory() - before > WAITING * MESSAGE
        wait(lambda: feed.poll() == 0 and feed.subscriptions == set())
        assert memory() - before < ROOM
