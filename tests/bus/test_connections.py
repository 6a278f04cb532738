"""Connections without a known key are limited: of one address, and in all, and others are served meanwhile."""

import os
import socket
from contextlib import ExitStack

import pytest
import structlog
from keyed import wait

from tokiod.bus import connections
from tokiod.bus.connections import Connections
from tokiod.bus.feed import Feed
from tokiod.bus.zap import CROWDED
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
        one = Connections(server.getsockname()[1], SystemClock())
        with socket.create_connection((client, server.getsockname()[1]), 5), server.accept()[0] as accepted:
            assert one.begin(accepted.fileno()) is None
            assert one._unknown == {accepted.fileno(): counted}


def test_a_descriptor_that_belongs_to_another_by_now_is_left_alone():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_server(("127.0.0.1", 0)) as other:
        one = Connections(server.getsockname()[1], SystemClock())
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
