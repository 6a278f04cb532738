"""The notify protocol, as systemd's manual has it, over real sockets."""

import os
import socket
import subprocess
import sys

import pytest

from tokiod.runtime.sd_notify import Notifier, child_environment, fields


@pytest.fixture
def take():
    taken = []

    def take(environment):
        taken.append(Notifier.take(environment))
        return taken[-1]

    yield take
    for notifier in taken:
        notifier.close()


@pytest.fixture
def manager(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(10)
        yield listening


def test_a_unit_notifies_systemd_as_its_manual_describes(manager, tmp_path, take):
    environment = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "30000000", "HOME": "/"}
    notifier = take(environment)
    assert (notifier.watchdog, environment) == (30.0, {"HOME": "/"})
    notifier.ready()
    notifier.alive("2 sources\nrunning")
    notifier.reloading()
    notifier.stopping()
    said = [fields(manager.recv(4096)) for _ in range(4)]
    assert said[:2] == [{"READY": "1"}, {"WATCHDOG": "1", "STATUS": "2 sources running"}]
    assert (said[2].keys(), said[2]["RELOADING"], said[3]) == ({"RELOADING", "MONOTONIC_USEC"}, "1", {"STOPPING": "1"})


def test_a_name_that_begins_with_at_is_an_abstract_socket(take):
    name = f"tokiod-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"\0{name}")
        listening.settimeout(10)
        take({"NOTIFY_SOCKET": f"@{name}"}).ready()
        assert listening.recv(100) == b"READY=1"


@pytest.mark.parametrize("environment", [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "/nowhere/at/all"}, {"NOTIFY_SOCKET": "vsock:2:1"}])
def test_without_a_channel_nothing_is_sent_and_nothing_fails(environment, take):
    notifier = take(dict(environment))
    notifier.ready()
    notifier.alive("fine")
    assert notifier.watchdog is None


def test_a_watchdog_of_another_process_is_not_ours(take):
    assert take({"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"}).watchdog is None
    assert take({"WATCHDOG_USEC": "1000000", "WATCHDOG_PID": str(os.getpid())}).watchdog == 1.0


@pytest.mark.usefixtures("manager")
def test_a_receiver_that_does_not_read_blocks_no_process(tmp_path, take):
    notifier = take({"NOTIFY_SOCKET": str(tmp_path / "notify")})
    for _ in range(5000):
        notifier.alive("fine")


def test_a_child_speaks_over_a_descriptor_that_its_own_children_do_not_have():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    code = """
import os, subprocess, sys
from tokiod.runtime.sd_notify import Notifier
notifier = Notifier.take(os.environ)
look = "import os; print(os.environ.get('TOKIOD_NOTIFY_FD'), *os.listdir('/proc/self/fd'))"
told, *open_ = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, close_fds=False).stdout.split()
notifier.alive(f"{notifier.watchdog} {told} {str(notifier.channel.fileno()) in open_}")
"""
    with ours, theirs:
        ours.settimeout(10)
        environment = child_environment(theirs.fileno(), 4.5, {**os.environ, "NOTIFY_SOCKET": "/nowhere"})
        subprocess.run([sys.executable, "-c", code], env=environment, pass_fds=[theirs.fileno()], check=True, timeout=300)
        assert fields(ours.recv(4096)) == {"WATCHDOG": "1", "STATUS": "4.5 None False"}
