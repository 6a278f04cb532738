"""That each connection that was not let in is counted once, whatever it does and however slow the door is."""

import select
import socket
import struct
import time
from collections import Counter
from contextlib import closing, suppress

import pytest
import structlog
import zmq
from hypothesis import given
from hypothesis import strategies as st
from keyed import wait

from tokiod.bus import zap as door
from tokiod.bus.feed import Feed
from tokiod.bus.zap import JUNK, NO_KEY, SETTLED, UNFINISHED, UNKNOWN, WRONG_SERVER, Door

GREETING, WELCOME = 64, 170
"""Bytes of what a server says first."""
RUDE = b"\x04\x05\x04RUDE"
"""A command that there is not."""

CAME, LET_IN, WENT = (zmq.EVENT_ACCEPTED, None), (zmq.EVENT_HANDSHAKE_SUCCEEDED, 0), (zmq.EVENT_DISCONNECTED, None)
NOBODY, GAVE_UP = (zmq.EVENT_HANDSHAKE_FAILED_AUTH, 400), (zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL, 32)
MISMATCH, UNREADABLE, WHATEVER = (
    (zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL, code)
    for code in (
        zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH,
        zmq.PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC,
        zmq.PROTOCOL_ERROR_ZMTP_UNSPECIFIED,
    )
)
FATES = (
    (None, [CAME], [LET_IN]),
    (None, [CAME], [LET_IN], [WENT]),
    (NO_KEY, [CAME], [MISMATCH, WENT]),
    (WRONG_SERVER, [CAME], [UNREADABLE, WENT]),
    (UNFINISHED, [CAME], [GAVE_UP, WENT]),
    (UNKNOWN, [CAME], [NOBODY], [WENT]),
    (UNKNOWN, [CAME], [NOBODY], [WHATEVER, WENT]),
    (JUNK, [CAME], [WHATEVER, WENT]),
    (JUNK, [CAME], [WENT]),
)
"""What a connection is counted as, and what libzmq says of it; in brackets what it says at once."""


@pytest.fixture
def feed(tcp, keyring):
    keyring.admitted("friend")
    with Feed(tcp, "this-run", guard=keyring.guard()) as feed:
        yield feed


def dial(tcp):
    host, port = tcp.removeprefix("tcp://").split(":")
    return socket.create_connection((host, int(port)), 5)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"GET / HTTP/1.0\r\n\r\n" * 10, JUNK),
        (b"\xff" + b"\0" * 8 + b"\x7f\x03\0" + b"NULL" + b"\0" * 48, NO_KEY),
        (b"", UNFINISHED),
        (b"\xff", UNFINISHED),
    ],
    ids=["another protocol", "a greeting without keys", "nothing", "the beginning of a greeting"],
)
def test_who_does_not_even_speak_zeromq_is_counted(feed, tcp, said, reason):
    for _ in range(20):
        with dial(tcp) as stranger:
            stranger.sendall(said)
    wait(lambda: feed.poll() == 0 and sum(feed.refused.values()) == 20)
    assert set(feed.refused) <= {reason, UNFINISHED}
    if reason != UNFINISHED:
        assert feed.refused[reason] > 0
    assert feed.subscriptions == set()


def test_strangers_that_go_while_their_key_is_looked_up_are_counted_once(feed, keyring, subscriber, monkeypatch):
    answer, asked = Door._answer, []

    def slowly(self, question):
        time.sleep(0.1)
        answer(self, question)
        asked.append(question)

    monkeypatch.setattr(Door, "_answer", slowly)
    strangers = [subscriber(keyring.stranger(), reconnect_ivl=-1) for _ in range(10)]
    wait(lambda: len(asked) == 3)
    for stranger in strangers:
        stranger.close(0)
    wait(lambda: len(asked) == 10)
    wait(lambda: sum(feed.refused.values()) >= 10)
    time.sleep(0.1)
    assert sum(feed.refused.values()) == 10
    assert set(feed.refused) == {UNKNOWN, UNFINISHED}


class Clock:
    """Stands still."""

    now = 100.0

    def monotonic(self):
        return self.now


@given(fates=st.lists(st.sampled_from(FATES), max_size=30), order=st.randoms(use_true_random=True))
def test_each_connection_is_counted_once_in_whatever_order_they_come_and_go(fates, order):
    refused, clock, begun = Counter(), Clock(), Counter()
    left, open_ = {number: list(said) for number, (_, *said) in enumerate(fates)}, {}
    with zmq.Context() as context, closing(Door("feed", context, None, refused)) as watching, structlog.testing.capture_logs():
        watching._clock = clock
        while left:
            one = order.choice(list(left))
            if one not in open_:
                open_[one] = min(set(range(40)) - set(open_.values()))
                begun[fates[one][0]] += 1
            for kind, value in left[one].pop(0):
                watching._hear([struct.pack("=Hi", kind, open_[one] if value is None else value), b"tcp://127.0.0.1:1"])
                watching._miss()
            if (kind, value) == WENT:
                del open_[one]
            if not left[one]:
                del left[one]
            assert refused <= begun
            clock.now += 0.1
        clock.now += SETTLED
        watching._miss()
    assert refused == Counter(reason for reason, *_ in fates if reason)


def relay(client, server, fuse):
    """Carry bytes both ways until the server has answered the client's key, say a rude word to it then, and wait until all are silent.

    libzmq hangs up at once where it has not let the client in; otherwise it only listens no more.
    """
    said, is_lit = 0, False
    with suppress(OSError):
        while (ready := select.select([client, server], [], [], 1)[0]) and (some := ready[0].recv(1 << 16)):
            (client if ready[0] is server else server).sendall(some)
            said += len(some) * (ready[0] is server)
            if said > GREETING + WELCOME and not is_lit:
                time.sleep(fuse)
                server.sendall(RUDE)
                is_lit = True
    return is_lit


@pytest.mark.parametrize(("is_friend", "counted"), [(False, {UNKNOWN: 1}), (True, {})], ids=["refused", "let in"])
def test_who_breaks_the_protocol_after_the_answer_is_not_counted_again(tcp, keyring, subscriber, monkeypatch, is_friend, counted):
    monkeypatch.setattr(door, "SETTLED", 0.3)
    keys = keyring.admitted("other") if is_friend else keyring.stranger()
    with Feed(tcp, "this-run", guard=keyring.guard()) as feed, socket.create_server(("127.0.0.1", 0)) as between, dial(tcp) as server:
        subscriber(keys, f"tcp://127.0.0.1:{between.getsockname()[1]}", reconnect_ivl=-1)
        with between.accept()[0] as client:
            assert relay(client, server, 0.4 * is_friend)
        # One more, that is certainly counted after all that there was to count.
        with dial(tcp) as stranger:
            stranger.sendall(b"GET / HTTP/1.0")
        wait(lambda: feed.refused[JUNK] > 0)
        time.sleep(0.5)
        assert feed.refused == counted | {JUNK: 1}


def test_who_is_ended_without_a_word_is_counted_beside_those_who_have_just_been_let_in(feed, tcp, keyring, subscriber, monkeypatch):
    monkeypatch.setattr(door, "SETTLED", 2.0)
    friend = keyring.admitted("other")
    feed.readmit()
    for _ in range(3):
        subscriber(friend)
        with dial(tcp) as stranger:
            stranger.sendall(b"GET / HTTP/1.0")
    newcomers = []
    wait(lambda: newcomers.append(feed.poll()) or sum(newcomers) == 3)
    wait(lambda: feed.refused[JUNK] == 3)
    time.sleep(1.0)
    assert feed.refused == {JUNK: 3}
