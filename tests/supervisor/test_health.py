"""A process that is a unit of its own serves the health that it reports to systemd."""

import http.client
import re
import socket
from contextlib import closing

import pytest
from counted import configured
from waiting import wait_for

from tokiod.clock import SystemClock
from tokiod.config import load as configuration
from tokiod.runtime.service import Service
from tokiod.supervisor import health, metrics_snapshot
from tokiod.supervisor.health import Health, UnitHealth, serve_unit_health

ALIVE = Health(alive=True, ready=True)


@pytest.fixture
def now(monkeypatch):
    """The time, moved by hand."""
    times = [1000.0]
    monkeypatch.setattr(health.time, "monotonic", lambda: times[0])
    return times


def test_it_is_ready_after_its_first_report_and_alive_while_it_reports_progress(now):
    process = UnitHealth(None, 8.0, notified_at=now[0])
    assert process.health() == Health(alive=True, ready=False, reason="starting")
    process.ready()
    assert process.health() == ALIVE
    now[0] += 7
    process.alive("fine")
    now[0] += 7
    assert process.health() == ALIVE
    now[0] += 2
    assert process.health() == Health(alive=False, ready=True, reason="no progress for 9 s")
    process.reloading()
    assert not process.health().alive
    process.alive()
    assert process.health() == ALIVE


def test_without_systemd_the_limit_is_half_a_minute(now):
    process = UnitHealth(notified_at=now[0])
    process.ready()
    now[0] += 29
    assert process.health().alive
    now[0] += 2
    assert not process.health().alive


def test_every_report_still_reaches_systemd():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, theirs:
        theirs.settimeout(5)
        process = UnitHealth(ours, 8.0)
        process.alive("all well")
        process.ready()
        assert (theirs.recv(100), theirs.recv(100)) == (b"WATCHDOG=1\nSTATUS=all well", b"READY=1")


def test_without_metrics_nothing_is_served_and_nothing_changes(tmp_path):
    config = configured(tmp_path, "a", port=None)
    service = Service(lambda: config)
    assert serve_unit_health(service, SystemClock()) is service


def test_what_is_read_again_is_served(tmp_path, monkeypatch):
    monkeypatch.setattr(metrics_snapshot, "INTERVAL_SECONDS", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    configured(tmp_path, "a", port=port)
    service = serve_unit_health(Service(lambda: configuration.load(tmp_path / "tokiod.toml")), SystemClock())
    wait_for(lambda: states(port) == {"a"}, 10, "not served")
    configured(tmp_path, "a", "b", port=port)
    service.load()
    wait_for(lambda: states(port) == {"a", "b"}, 10, "not served")


def states(port):
    """Return the sources whose state is served; an empty set while no server listens."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=50)) as connection:
        try:
            connection.request("GET", "/metrics")
        except ConnectionRefusedError:
            return set()
        return set(re.findall(r'tokiod_source_state\{source="(\w+)"', connection.getresponse().read().decode()))
