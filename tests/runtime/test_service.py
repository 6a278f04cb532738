"""What all processes do alike, with real signals, a real configuration, and a real socket in place of the service manager's."""

import asyncio
import os
import select
import signal
import socket

import pytest
from structlog.testing import capture_logs

from tokiod.config import load as configuration
from tokiod.errors import TokiodError
from tokiod.runtime.sd_notify import Notifier, fields
from tokiod.runtime.service import Service

VALID = 'timezone = "UTC"\n[archive]\npath = "/srv/tts/%Y-%m-%d/{system}.hdf5"\n'
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@pytest.fixture
def service(tmp_path):
    handlers = [(number, signal.getsignal(number)) for number in SIGNALS]
    (path := tmp_path / "tokiod.toml").write_text(VALID)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    theirs.setblocking(False)
    with ours, theirs:
        made = Service(lambda: configuration.load(path), Notifier(ours))
        made.path, made.manager = path, theirs
        yield made
        os.close(made.wakeup)
    for number, handler in handlers:
        signal.signal(number, handler)


def notified(service):
    """Return what the service manager received since the last look."""
    found = []
    try:
        while True:
            found += [key for key in fields(service.manager.recv(4096)) if key != "MONOTONIC_USEC"]
    except BlockingIOError:
        return found


def is_awake(service):
    """Whether a poll for the descriptor ends at once."""
    return bool(select.select([service.wakeup], [], [], 0)[0])


def send(number):
    os.kill(os.getpid(), number)


def never():
    raise AssertionError("it was reloaded")


def test_a_reload_is_reported_from_its_begin_to_its_end(service):
    with capture_logs() as logs, service.reloading():
        config = service.load()
        assert notified(service) == ["RELOADING"]
    assert (config.timezone, notified(service), logs) == ("UTC", ["READY"], [])


def test_a_wrong_configuration_is_refused_with_its_faults_and_the_process_keeps_its_own(service):
    used = [service.load()]
    service.path.write_text(VALID + "nonsense = 1\nother = 1\n")
    with capture_logs() as logs, service.reloading():
        used.append(service.load())
    (refused,) = logs
    assert (refused["event"], refused["log_level"], len(used)) == ("config.refused", "error", 1)
    faults = [":4: archive: nonsense: unknown key", ":5: archive: other: unknown key"]
    assert [fault.removeprefix(str(service.path)) for fault in refused["faults"]] == faults
    assert notified(service) == ["RELOADING", "READY"]


def test_a_configuration_whose_needs_are_missing_is_refused_and_a_fault_of_the_code_is_not(service):
    with capture_logs() as logs, service.reloading():
        raise TokiodError("no key")
    assert [(log["event"], log["faults"]) for log in logs] == [("config.refused", ["no key"])]
    with pytest.raises(ZeroDivisionError), service.reloading():
        _ = 1 / 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_loop_ends_at_either_signal_which_ends_its_poll(service, number):
    service.catch_signals()
    assert (service.must_stop(never), is_awake(service)) == (False, False)
    send(number)
    assert (is_awake(service), service.must_stop(never)) == (True, True)


def test_a_loop_reloads_once_for_each_request_and_then_waits_again(service):
    service.catch_signals()
    reloads = []
    for _ in range(2):
        send(signal.SIGHUP)
        assert is_awake(service)
        assert not service.must_stop(lambda: reloads.append(1))
        assert (service.must_stop(never), is_awake(service)) == (False, False)
    assert reloads == [1, 1]


def test_what_is_requested_during_a_reload_is_not_lost(service):
    service.catch_signals()
    send(signal.SIGHUP)
    assert not service.must_stop(lambda: send(signal.SIGHUP))
    assert is_awake(service)
    assert service.must_stop(lambda: send(signal.SIGTERM))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_event_loop_works_until_either_signal_and_reloads_meanwhile(service, number):
    done = []

    async def work():
        try:
            send(signal.SIGHUP)
            await asyncio.sleep(10)
        finally:
            done.append(notified(service))

    def reload():
        done.append("reloaded")
        send(number)

    async def scenario():
        await service.until_signal(work(), reload)
        done.append(notified(service))

    asyncio.run(scenario())
    assert done == ["reloaded", [], ["STOPPING"]]


def test_work_that_fails_ends_the_process_with_its_error(service):
    async def work():
        raise TokiodError("can't go on")

    with pytest.raises(TokiodError, match="can't go on"):
        asyncio.run(service.until_signal(work(), never))
