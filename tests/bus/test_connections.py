"""What a connection costs is limited, before its key is known and after, and others are served meanwhile."""

import os
import socket
from contextlib import ExitStack

import pytest
import structlog
import zmq
from keyed import wait

from tokiod.bus import connections
from tokiod.bus.connections import Connections
from tokiod.bus.feed import Feed
from tokiod.bus.server_socket import MIN_UNREAD_BYTES, ServerSocket
from tokiod.bus.zap import CROWDED, UNREAD
from tokiod.clock import SystemClock

OF_ADDRESS, IN_ALL = 8, 20


@pytest.fixture
def friend(keyring):
    return keyring.allowed("friend")


@pytest.fixture
def feed(tcp, keyring, friend, monkeypatch):  # noqa: ARG001 - the friend's key is allowed
    monkeypatch.setattr(connections, "MAX_UNKNOWN_OF_ADDRESS", OF_ADDRESS)
    monkeypatch.setattr(connections, "MAX_UNKNOWN", IN_ALL)
    with Feed(tcp, "this-run", keys=keyring.server_keys()) as feed:
        yield feed


@pytest.fixture
def stranger(tcp):
    """Connect from an address, and say nothing."""
    with ExitStack() as stack:
        port = int(tcp.rpartition(":")[2])
        yield lambda source: stack.enter_context(socket.create_connection(("127.0.0.1", port), 5, (source, 0)))


def from_address(tcp, source):
    return tcp.replace("//", f"//{source}:0;")


def ended(clients):
    """Return which of them the server has ended: it has sent a part of its greeting, and the end."""
    gone = []
    for client in clients:
        client.setblocking(False)
        try:
            while client.recv(100):
                pass
        except BlockingIOError:
            continue
        except ConnectionResetError:
            pass
        gone.append(client)
    return gone


def test_of_one_address_the_newest_are_ended_at_once_and_counted_and_another_one_is_served(feed, tcp, friend, stranger, subscriber):
    with structlog.testing.capture_logs() as logs:
        strangers = [stranger("127.0.0.1") for _ in range(3 * OF_ADDRESS)]
        wait(lambda: feed.refused[CROWDED] == 2 * OF_ADDRESS, 4)
        assert ended(strangers) == strangers[OF_ADDRESS:]
        subscriber(friend, from_address(tcp, "127.0.0.2"))
        wait(lambda: feed.poll() == 1, 4)
    refused = [log for log in logs if log["event"] == "feed.refused"]
    assert [(log["reason"], log["address"], log["times"]) for log in refused] == [(CROWDED, "127.0.0.1", 1)]
    # Their place is free again as soon as they end.
    for client in strangers:
        client.close()
    wait(lambda: sum(feed.refused.values()) == 3 * OF_ADDRESS)
    subscriber(friend)
    wait(lambda: feed.poll() == 1, 4)


def test_clients_with_a_key_count_no_longer_once_they_have_shown_it(feed, friend, subscriber):
    subscriptions = []
    for count in range(1, 3 * OF_ADDRESS):
        subscriber(friend, reconnect_ivl=-1)
        wait(lambda count=count: subscriptions.append(feed.poll()) or sum(subscriptions) == count)
    assert feed.refused == {}


def test_of_all_the_newest_of_the_address_with_most_is_ended(feed, stranger):
    few = [stranger(f"127.0.1.{number}") for number in range(1, 1 + IN_ALL - OF_ADDRESS)]
    many = [stranger("127.0.2.1") for _ in range(OF_ADDRESS)]
    late = [stranger(f"127.0.3.{number}") for number in range(1, 4)]
    wait(lambda: feed.refused[CROWDED] == 3, 4)
    assert (ended(many), ended(few + late)) == (many[-3:], [])


@pytest.mark.parametrize(("client", "counted"), [("127.0.0.1", "127.0.0.1"), ("::1", "::/64")], ids=["IPv4", "IPv6"])
def test_an_address_of_ipv6_counts_by_its_network_and_one_of_ipv4_by_itself(client, counted):
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        one = Connections(server.getsockname()[1], SystemClock(), has_keys=True)
        with socket.create_connection((client, server.getsockname()[1]), 5), server.accept()[0] as accepted:
            assert one.begin(accepted.fileno()) is None
            assert one._unknown == {accepted.fileno(): counted}


def test_a_descriptor_that_belongs_to_another_by_now_is_left_alone():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as other:
        one = Connections(server.getsockname()[1], SystemClock(), has_keys=True)
        with socket.create_connection(other.getsockname(), 5) as client, other.accept()[0] as accepted:
            pipe, pair = os.pipe(), socket.socketpair()
            for descriptor in (accepted.fileno(), pipe[0], pair[0].fileno()):
                assert not one._shut(descriptor, "127.0.0.1")
            client.sendall(b"x")
            assert accepted.recv(1) == b"x"
            for end in pair:
                end.close()
            for end in pipe:
                os.close(end)


def test_without_keys_every_client_is_welcome(tcp, stranger, monkeypatch, subscriber):
    monkeypatch.setattr(connections, "MAX_UNKNOWN_OF_ADDRESS", OF_ADDRESS)
    with Feed(tcp, "this-run") as feed:
        strangers = [stranger("127.0.0.1") for _ in range(3 * OF_ADDRESS)]
        subscriber()
        wait(lambda: feed.poll() == 1, 4)
        assert (ended(strangers), feed.refused) == ([], {})


HANDSHAKE_BYTES = 2000
"""At most; heartbeats are not sent here."""
SIZES = 0, 1, 33, 221, 222, 223, 255, 256, 1000, 60_000
"""Of frames; from 222 to 223, those with keys have a longer header, from 255 to 256 those without."""
FRAME, WAITING = bytes(60_000), 8


@pytest.fixture(params=[True, False], ids=["with keys", "without keys"])
def receiver(request, tcp, keyring, friend, raw):
    """A ROUTER, and what makes a client of it."""
    keys = keyring.server_keys() if request.param else None
    server = ServerSocket("hub", zmq.ROUTER, tcp, keys, {zmq.RCVHWM: WAITING})

    def client():
        one = raw(zmq.DEALER, "inproc://nowhere")
        one.disconnect("inproc://nowhere")
        if keys is not None:
            friend.secure(one)
        one.connect(tcp)
        return one

    yield server, client
    server.close()


def received(server, count):
    messages = []
    while len(messages) < count:
        assert server.socket.poll(5000)
        messages.append(server.receive())
    return messages


def the_one(server):
    """Return the descriptor of the only connection, once libzmq has reported it: what it has sent may come before."""
    wait(lambda: server._connections._all)
    (descriptor,) = server._connections._all
    return descriptor


def test_what_was_read_of_a_connection_is_what_came_over_the_network(receiver):
    server, client = receiver
    one = client()
    descriptor = the_one(server)
    one.send(b"")
    received(server, 1)
    assert server._connections.end_unread(HANDSHAKE_BYTES) == []
    before = connections._transferred(descriptor)[1] - server._connections._read[descriptor]
    for size in SIZES:
        one.send_multipart([bytes(size)] * 3)
        one.send(bytes(size))
    received(server, 2 * len(SIZES))
    assert connections._transferred(descriptor)[1] - server._connections._read[descriptor] == before
    assert 0 < before < HANDSHAKE_BYTES


def test_a_connection_alone_is_ended_whose_message_has_no_end_and_counts(receiver):
    server, client = receiver
    honest, other = client(), client()
    honest.send(b"1")
    other.send(b"1")
    routes = {message[0].bytes for message in received(server, 2)}
    monitor = honest.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    # libzmq sends no part before it has the last one; this message is longer than what the server lets pass.
    other.send_multipart([FRAME] * (3 * MIN_UNREAD_BYTES // len(FRAME)), copy=False)
    with structlog.testing.capture_logs() as logs:
        wait(lambda: server.end_unread() or server.refused[UNREAD] == 1)
    assert [(log["event"], log["reason"], log["address"]) for log in logs] == [("hub.refused", UNREAD, "127.0.0.1")]
    honest.send(b"2")
    route, message = (frame.bytes for frame in received(server, 1)[0])
    assert (route in routes, message, monitor.poll(0), server.refused) == (True, b"2", 0, {UNREAD: 1})
    honest.disable_monitor()
    monitor.close(0)


def test_a_client_whose_messages_wait_to_be_read_is_not_ended(receiver):
    server, client = receiver
    one, count = client(), 2 * MIN_UNREAD_BYTES // len(FRAME)
    one.sndhwm = 0
    for _ in range(count):
        one.send(FRAME)
    # libzmq takes as many messages as it may; what waits in the kernel is not in the memory of the process.
    assert server.socket.poll(5000)
    descriptor = the_one(server)
    wait(lambda: connections._transferred(descriptor)[1] > WAITING * len(FRAME) + 100_000)
    assert server._connections.end_unread((WAITING + 2) * len(FRAME)) == []
    received(server, count)
    server.end_unread()
    one.send(b"1")
    received(server, 1)
    assert server.refused == {}


def test_what_was_read_of_an_earlier_connection_counts_for_no_later_one_of_its_descriptor():
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = Connections(server.getsockname()[1], SystemClock(), has_keys=False)
        with socket.create_connection(server.getsockname(), 5) as client, server.accept()[0] as accepted:
            one._read[accepted.fileno()] = 2 * len(FRAME)
            one.end(accepted.fileno())
            one.begin(accepted.fileno())
            client.sendall(FRAME)
            wait(lambda: connections._waiting(accepted.fileno()) == len(FRAME))
            assert one.end_unread(len(FRAME) // 2) == []
            accepted.recv(len(FRAME), socket.MSG_WAITALL)
            assert one.end_unread(len(FRAME) // 2) == [("127.0.0.1", len(FRAME))]
            assert client.recv(1) == b""
