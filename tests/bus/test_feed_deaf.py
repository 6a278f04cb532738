"""Those who subscribe and never read: what waits for them is bounded, and they take nothing away from those who do."""

import ctypes
import os
from pathlib import Path

import numpy as np
import pytest
import zmq
from counted import configured, counting_here, values
from keyed import wait

from tokiod.batch import Batch
from tokiod.bus import server_socket as listening
from tokiod.bus import wire
from tokiod.bus.feed import Feed

CELLS = 5_000
BATCH = Batch("g/d", "gauge", 5, ("OST0000",), np.arange(CELLS) * 5, np.zeros(CELLS, np.uint32), np.ones(CELLS))
MESSAGE = 20 * CELLS
"""Bytes that wait in one message: a time, a column and a value for each cell."""
WAITING, DEAF = 20, 5
ROOM = 10 << 20
"""Bytes by which memory may grow beyond what waits: libzmq's own, and what malloc keeps."""


def memory():
    """Return the resident bytes of this process, without what malloc has in stock."""
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def deaf(raw):
    """Make subscribers that never read, and keep as little as they can."""

    def make(feed, endpoint, count):
        made = [raw(zmq.SUB, endpoint, rcvhwm=1, rcvbuf=1 << 16, subscribe="", reconnect_ivl=-1) for _ in range(count)]
        newcomers = []
        wait(lambda: newcomers.append(feed.poll()) or sum(newcomers) == count)
        return made

    return make


def publish(feed, live, count):
    """Publish so many messages, each of which the live subscriber takes at once; return their numbers."""
    heard = []
    for _ in range(count):
        feed.publish("s", BATCH, 60)
        # Heartbeats are for newcomers.
        while (told := wire.decode(live.recv_multipart()))[1] is None:
            pass
        heard.append(told[0].stored.sequence)
    return heard


def behind(directory):
    return values(directory).get(("tokiod_feed_fell_behind_total",), 0)


@pytest.mark.parametrize("over_tcp", [False, True], ids=["ipc", "tcp"])
def test_those_who_never_read_are_dropped_from_within_bounds_and_counted_and_others_hear_everything(
    endpoint, tcp, raw, deaf, tmp_path, over_tcp
):
    endpoint = tcp if over_tcp else endpoint
    with Feed(endpoint, "this-run", high_water=WAITING) as feed, counting_here(configured(tmp_path), "writer"):
        live = raw(zmq.SUB, endpoint, subscribe="")
        wait(lambda: feed.poll() == 1)
        publish(feed, live, 10)
        before = memory()
        deaf(feed, endpoint, DEAF)
        heard = publish(feed, live, 200)
        full, begun = memory(), behind(tmp_path)
        heard += publish(feed, live, 400)
        assert heard == list(range(11, 611))
        assert full - before < WAITING * MESSAGE + ROOM
        assert memory() - full < ROOM
        # Counted once each and not per message; those who are equally slow begin with the same one. The kernel may make more room for one
        # of them meanwhile, who then falls behind a second time.
        assert 1 <= begun <= behind(tmp_path) <= 2 * DEAF


def test_who_catches_up_and_falls_behind_again_is_counted_again(endpoint, raw, tmp_path):
    with Feed(endpoint, "this-run", high_water=WAITING) as feed, counting_here(configured(tmp_path), "writer"):
        slow = raw(zmq.SUB, endpoint, rcvhwm=1, subscribe="")
        wait(lambda: feed.poll() == 1)
        for times in range(1, 4):
            wait(lambda times=times: feed.publish("s", BATCH, 60) or behind(tmp_path) == times)
            while slow.poll(100):
                slow.recv_multipart()


def test_over_tcp_those_who_take_nothing_are_thrown_out_and_what_waited_for_them_is_freed(tcp, deaf, monkeypatch):
    monkeypatch.setitem(listening._OVER_TCP, zmq.TCP_MAXRT, 2000)
    with Feed(tcp, "this-run", high_water=WAITING * 5) as feed:
        before = memory()
        deaf(feed, tcp, 1)
        for _ in range(WAITING * 5):
            feed.publish("s", BATCH, 60)
        assert memory() - before > WAITING * MESSAGE
        wait(lambda: feed.poll() == 0 and feed.subscriptions == set())
        assert memory() - before < ROOM
