"""Which clients the feed accepts over real sockets; refused ones are counted, and logged once."""

import os
import socket as plain
import stat
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np
import pytest
import structlog
import zmq
from keyed import Keyring, threads, wait
from users import USERS, need_users, open_directory

from tokiod.batch import Batch
from tokiod.bus import server_socket
from tokiod.bus.feed import Feed
from tokiod.bus.publisher import MAX_SUBSCRIPTION_BYTES
from tokiod.bus.receiver import Receiver
from tokiod.bus.zap import NO_KEY, UNFINISHED, UNKNOWN, WRONG_SERVER
from tokiod.errors import ConfigError, TokiodError
from tokiod.runtime.unix_socket import is_served

EPOCH = "this-run"
TCP_REPAIR = 19


@pytest.fixture
def feed(tcp, keyring):
    keyring.allowed("friend")
    with Feed(tcp, EPOCH, keys=keyring.server_keys()) as feed:
        yield feed


def cells(mark):
    return Batch("g/d", "gauge", 5, ("OST0000",), np.arange(3) * 5, np.zeros(3, np.uint32), np.full(3, float(mark)))


def subscribed(feed, count):
    found = []
    wait(lambda: found.append(feed.poll()) or sum(found) == count)


def refused(feed, reason, count):
    """Wait until so many were refused, for a reason or because they disconnected first; return all reasons."""
    wait(lambda: feed.poll() == 0 and feed.refused[reason] + feed.refused[UNFINISHED] >= count)
    return set(feed.refused)


def test_the_right_key_gets_everything_and_no_thread_is_left(tcp, keyring, subscriber):
    before = threads()
    keys = keyring.allowed("friend")
    with Feed(tcp, EPOCH, keys=keyring.server_keys()) as feed:
        friend = subscriber(keys)
        subscribed(feed, 1)
        for mark in range(5):
            feed.publish("s", cells(mark), 60)
        assert [np.frombuffer(friend.recv_multipart()[5], "<f8").tolist() for _ in range(5)] == [[float(mark)] * 3 for mark in range(5)]
        assert feed.refused == {}
        friend.close(0)
    assert not [thread.name for thread in threading.enumerate() if thread.name.endswith("audit")]
    # Two are those of the test's own context, which is still open. The others end one by one.
    wait(lambda: threads() <= before + 2)


def test_a_feed_can_be_opened_and_closed_again_and_again(tcp, keyring):
    for _ in range(20):
        Feed(tcp, EPOCH, keys=keyring.server_keys()).close()


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        pytest.param(Keyring.unknown, UNKNOWN, id="an unknown key"),
        pytest.param(Keyring.for_another_server, WRONG_SERVER, id="a key for another server"),
        pytest.param(lambda _keyring: None, NO_KEY, id="no key"),
    ],
)
def test_a_client_without_an_allowed_key_receives_nothing_is_counted_and_logged_once(feed, keyring, subscriber, keys, reason):
    with structlog.testing.capture_logs() as logs:
        clients = [subscriber(keys(keyring), reconnect_ivl=10) for _ in range(5)]
        assert refused(feed, reason, 5) <= {reason, UNFINISHED}
        feed.publish("s", cells(1), 60)
        assert not any(client.poll(20) for client in clients)
    assert feed.subscriptions == set()
    logged = [log for log in logs if log["event"] == "feed.refused"]
    assert {(log["reason"], log["times"], log["log_level"]) for log in logged} == {(reason, 1, "warning") for reason in feed.refused}
    assert len(logged) == len(feed.refused)
    if reason == UNKNOWN:
        assert logged[0]["address"] == "127.0.0.1"
        assert len(logged[0]["key"]) == 40


def test_a_key_that_is_added_is_accepted_and_one_that_is_removed_is_disconnected(feed, keyring, subscriber):
    friend, other = keyring.allowed("friend"), keyring.allowed("other")
    feed.reload_allowed_keys()
    sockets = subscriber(friend, reconnect_ivl=10), subscriber(other, reconnect_ivl=10)
    subscribed(feed, 2)
    feed.publish("s", cells(1), 60)
    assert all(socket.recv_multipart() for socket in sockets)
    keyring.revoke("other")
    feed.reload_allowed_keys()
    # libzmq subscribes again when the socket is next looked at.
    wait(lambda: sockets[0].poll(1) or feed.poll())
    wait(lambda: feed.refused[UNKNOWN] == 1)
    assert set(feed.refused) == {UNKNOWN}
    feed.publish("s", cells(2), 120)
    while np.frombuffer(sockets[0].recv_multipart()[-1], "<f8", 3).tolist() != [2.0] * 3:
        pass
    assert not sockets[1].poll(50)


def test_clients_stay_connected_when_a_key_is_added(feed, keyring, subscriber):
    keys = keyring.allowed("friend")
    feed.reload_allowed_keys()
    subscriber(keys)
    subscribed(feed, 1)
    keyring.allowed("other")
    feed.reload_allowed_keys()
    assert feed.subscriptions == {b""}


def test_a_directory_that_can_not_be_reloaded_changes_nothing(feed, keyring, subscriber):
    friend = keyring.allowed("friend")
    feed.reload_allowed_keys()
    (keyring.clients / "broken.key").write_text("no key")
    with pytest.raises(ConfigError, match=r"broken.key: contains no public key"):
        feed.reload_allowed_keys()
    subscriber(friend)
    subscribed(feed, 1)


def test_tcp_without_keys_accepts_every_client_and_counts_junk(tcp, subscriber):
    with Feed(tcp, EPOCH) as feed:
        subscriber()
        subscribed(feed, 1)
        host, port = tcp.removeprefix("tcp://").split(":")
        with plain.create_connection((host, int(port)), 5) as client:
            client.sendall(b"\xff" * 1000)
        wait(lambda: sum(feed.refused.values()) == 1)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can close a connection without a packet")
def test_a_peer_whose_machine_is_gone_is_noticed_though_nothing_is_sent_to_it(tcp, monkeypatch):
    for option in (zmq.TCP_KEEPALIVE_IDLE, zmq.TCP_KEEPALIVE_INTVL):
        monkeypatch.setitem(server_socket._TCP_OPTIONS, option, 1)
    host, port = tcp.removeprefix("tcp://").split(":")
    with Feed(tcp, EPOCH) as feed, plain.create_connection((host, int(port)), 5) as peer:
        peer.sendall(b"\xff" + b"\0" * 8 + b"\x7f\x03\0NULL" + b"\0" * 48 + b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03SUB")
        answer = b""
        while b"READY" not in answer:
            answer += peer.recv(100)
        peer.sendall(b"\0\x02\x01x")
        subscribed(feed, 1)
        # With its socket under repair, the kernel closes it without a packet to the other end, once all that was sent is acknowledged.
        time.sleep(0.3)
        peer.setsockopt(plain.IPPROTO_TCP, TCP_REPAIR, 1)
        peer.close()
        wait(lambda: feed.poll() == 0 and feed.subscriptions == set())


def test_zeromq_heartbeats_which_can_abort_the_process_are_not_used(tcp, endpoint):
    for opened, at in ((Feed, tcp), (Receiver, endpoint)):
        with opened(at, EPOCH) as one:
            assert one._server.socket.getsockopt(zmq.HEARTBEAT_IVL) == 0


def test_what_the_writer_binds_is_for_its_owner(endpoint):
    path = Path(endpoint.removeprefix("ipc://"))
    for opened in (Feed, Receiver):
        with opened(endpoint, EPOCH):
            assert stat.filemode(path.stat().st_mode) == "srw-------"


def test_a_message_that_is_no_subscription_is_counted_and_a_long_one_ends_its_connection(endpoint, raw):
    with Feed(endpoint, EPOCH) as feed:
        client = raw(zmq.XSUB, endpoint)
        for _ in range(1000):
            client.send(b"junk")
        wait(lambda: feed.poll() == 0 and feed.malformed == 1000)
        client.send(b"\x01y")
        subscribed(feed, 1)
        client.send(b"\x01" + b"x" * MAX_SUBSCRIPTION_BYTES)
        wait(lambda: feed.poll() == 0 and feed.subscriptions == set())


def test_the_path_of_a_running_process_is_not_taken_from_it_and_that_of_an_ended_one_is(tmp_path):
    """libzmq would delete the socket at the path, and no client would reach the first process any more."""
    endpoint, in_use = (
        f"ipc://{tmp_path}/feed",
        r"the feed can't be opened at ipc:///.*: Address already in use; stop the process that has it",
    )
    with Feed(endpoint, EPOCH):
        with pytest.raises(TokiodError, match=in_use):
            Feed(endpoint, EPOCH)
        assert is_served(tmp_path / "feed")
    with plain.socket(plain.AF_UNIX) as left:
        left.bind(str(tmp_path / "left"))
    with Feed(f"ipc://{tmp_path}/left", EPOCH):
        assert is_served(tmp_path / "left")


def test_a_path_at_which_this_user_may_not_connect_is_taken_as_libzmq_does():
    """The socket that another user's process left, in a directory of both."""
    need_users()
    code = """
import sys
from pathlib import Path
from tokiod.bus.feed import Feed
from tokiod.runtime.unix_socket import is_served
path = Path(sys.argv[1])
try:
    is_served(path)
except PermissionError:
    print("denied")
with Feed(f"ipc://{path}", "this-run"):
    print(is_served(path))
"""
    with open_directory() as directory, plain.socket(plain.AF_UNIX) as left:
        directory.chmod(0o777)
        left.bind(str(directory / "feed"))
        (directory / "feed").chmod(0o600)
        done = USERS["outsider"].python(code, directory / "feed")
    assert (done.stdout, done.returncode) == ("denied\nTrue\n", 0), done.stderr


def test_a_process_whose_clients_wait_to_be_accepted_serves_its_path(tmp_path):
    with plain.socket(plain.AF_UNIX) as listener, ExitStack() as clients:
        listener.bind(str(tmp_path / "feed"))
        listener.listen(0)
        for _ in range(3):
            client = clients.enter_context(plain.socket(plain.AF_UNIX, plain.SOCK_STREAM | plain.SOCK_NONBLOCK))
            with suppress(BlockingIOError):
                client.connect(str(tmp_path / "feed"))
        assert is_served(tmp_path / "feed")
