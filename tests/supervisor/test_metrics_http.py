"""Metrics and health over real sockets: the answers, and that no slow client delays another."""

import gzip
import http.client
import os
import socket
import threading
import time
from collections import Counter
from contextlib import closing, contextmanager, suppress

import pytest
from counted import configured, counting_here
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from tokiod.config import load as configuration
from tokiod.ledger.ledger import Ledger, StoredEntry
from tokiod.metrics import catalogue
from tokiod.runtime import http_server
from tokiod.simulator.sources import free_port
from tokiod.supervisor import metrics_http, metrics_snapshot
from tokiod.supervisor.health import Health
from tokiod.supervisor.metrics_http import MetricsServer
from tokiod.testing.clock import FakeClock
from tokiod.window import Window
from tokiod.window_data import WindowMeta

NOON = 1_517_184_000 + 12 * 3600
FINE = Health(alive=True, ready=True, restarts={"writer": 2})


def serve(config, health, clock):
    server = MetricsServer(config.metrics.address, config, health, clock)
    server.open()
    return server


class Site:
    """An archive of one source, stored up to now, and a server of its metrics."""

    def __init__(self, directory, *sources):
        self.port = free_port()
        self.config = configured(directory, *sources, port=self.port)
        self.clock = FakeClock(NOON)
        self.health = lambda: FINE
        self.ledger = Ledger.open(self.config.archive.ledger)
        for source in self.config.source:
            self.ledger.register(source, NOON - 3600)
            self.ledger.set_state(source.name, "running", "", NOON)
            self.store(source.name)

    def store(self, name, end=NOON):
        self.ledger.store([StoredEntry(WindowMeta(name, "lmt", f"fs-{name}", Window(NOON - 3600, end)), 600)], end)

    def get(self, path, method="GET", timeout=50):
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)) as connection:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def metrics(self):
        """Return all samples, {(name, labels...): value}."""
        status, text = self.get("/metrics")
        assert status == 200
        return {
            (sample.name, *(sample.labels[key] for key in sorted(sample.labels))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }


@pytest.fixture
def open_site(tmp_path, monkeypatch):
    monkeypatch.setattr(metrics_snapshot, "INTERVAL_SECONDS", 0.0)
    opened = []

    def open_site(*sources):
        site = Site(tmp_path, *sources)
        opened.append((site, serve(site.config, lambda: site.health(), site.clock)))  # noqa: PLW0108 - tests replace it
        wait(lambda: site.get("/readyz")[0])
        return site

    yield open_site
    for site, server in opened:
        server.close()
        site.ledger.close()


def wait(condition, seconds=10.0):
    end = time.monotonic() + seconds
    while True:
        with suppress(OSError):
            if condition():
                return
        assert time.monotonic() < end
        time.sleep(0.02)


@contextmanager
def hanging(port, words=b""):
    """Be a client that sends some words and then nothing."""
    with socket.create_connection(("127.0.0.1", port), timeout=100) as client:
        client.sendall(words)
        yield client


# ---- answers


def test_a_daemon_that_makes_progress_is_alive_and_ready(open_site):
    site = open_site("a")
    assert site.get("/healthz") == (200, "alive\n")
    assert site.get("/readyz") == (200, "ready\n")


def test_a_daemon_that_makes_no_progress_is_dead_and_the_reason_names_the_child(open_site):
    site = open_site("a")
    site.health = lambda: Health(alive=False, ready=True, reason="the writer has made no progress for 31 s")
    assert site.get("/healthz") == (503, "dead: the writer has made no progress for 31 s\n")
    assert site.metrics()["tokiod_alive",] == 0


def test_a_daemon_that_has_not_started_yet_is_alive_and_not_ready(open_site):
    site = open_site("a")
    site.health = lambda: Health(alive=True, ready=False, reason="waiting for the writer's welcome")
    assert site.get("/healthz") == (200, "alive\n")
    assert site.get("/readyz") == (503, "not ready: waiting for the writer's welcome\n")


def test_sources_in_trouble_make_it_degraded_by_name_and_not_dead(open_site):
    site = open_site("a", "b", "c")
    site.clock.jump(3600)
    site.ledger.store([StoredEntry(WindowMeta("b", "lmt", "fs-b", Window(NOON, NOON + 3600)), 600)], NOON + 3600)
    site.ledger.set_state("a", "waiting", "no answer", NOON)
    assert site.get("/healthz") == (200, "degraded: waiting: a; late: c\n")
    assert [site.metrics()["tokiod_source_stale", name] for name in "abc"] == [1, 0, 1]


def test_a_ledger_that_cannot_be_read_is_no_reason_for_a_restart(open_site):
    site = open_site("a")
    site.ledger.close()
    site.config.archive.ledger.write_bytes(b"no ledger at all" * 100)
    assert site.get("/healthz") == (200, "degraded: the ledger can't be read\n")
    found = site.metrics()
    assert (found["tokiod_ledger_readable",], found["tokiod_alive",]) == (0, 1)
    assert not [name for name, *_ in found if name.startswith("tokiod_source")]


def test_a_daemon_that_cannot_report_its_health_is_dead(open_site):
    site = open_site("a")
    site.health = lambda: 1 / 0
    assert site.get("/healthz") == (503, "dead: its health is unknown: division by zero\n")


def test_a_fault_of_the_server_is_logged_and_answered(open_site, monkeypatch):
    site = open_site("a")
    monkeypatch.setattr(
        metrics_http, "_plain", lambda status, text, made=metrics_http._plain: made(status, text) if status == 500 else 1 / 0
    )
    with capture_logs() as logs:
        assert site.get("/healthz") == (500, "internal error: see the log of tokiod\n")
    assert [(log["event"], log["reason"]) for log in logs] == [("metrics.failed", "division by zero")]


def test_other_paths_list_the_paths_and_metrics_are_read_only(open_site):
    site = open_site("a")
    assert site.get("/") == (404, "not found: there are /metrics, /healthz and /readyz\n")
    assert [site.get("/metrics", method=method)[0] for method in ("POST", "PUT", "DELETE", "HEAD")] == [405] * 4
    assert site.get("/healthz", method="HEAD") == (200, "")


@pytest.mark.parametrize(
    ("host", "status"),
    [("127.0.0.1:{port}", 200), ("localhost:{port}", 200), ("LOCALHOST", 200), ("[::1]:{port}", 200), ("192.0.2.1", 200), ("", 200),
     ("evil.example:{port}", 403), ("evil.example", 403), ("127.0.0.1.evil.example:{port}", 403), ("localhost.evil.example", 403),
     ("{machine}:{port}", 403)],
)  # fmt: skip
def test_a_page_whose_name_resolves_to_the_address_reads_nothing(open_site, host, status):
    site = open_site("one")
    host = host.format(port=site.port, machine=socket.gethostname())
    for path in ("/metrics", "/healthz", "/readyz"):
        with closing(http.client.HTTPConnection("127.0.0.1", site.port, timeout=50)) as connection:
            connection.putrequest("GET", path, skip_host=True)
            connection.putheader("Host", host)
            connection.endheaders()
            assert connection.getresponse().status == status


def test_beyond_loopback_the_machines_own_name_is_accepted_too():
    name = socket.gethostname().partition(".")[0]
    hosts = [f"{name}:9464", f"{name}.example.org:9464", "evil.example:9464", "10.0.0.1:9464"]
    assert [metrics_http._is_own_name(host, "0.0.0.0:9464") for host in hosts] == [True, True, False, True]


def test_a_client_chooses_names_compression_and_openmetrics(open_site):
    site = open_site("a")
    chosen = site.get("/metrics?name[]=tokiod_alive&name[]=tokiod_source_stale")[1]
    assert [line for line in chosen.splitlines() if not line.startswith("#")] == ["tokiod_alive 1.0", 'tokiod_source_stale{source="a"} 0.0']
    with closing(http.client.HTTPConnection("127.0.0.1", site.port, timeout=50)) as connection:
        connection.request("GET", "/metrics", headers={"Accept-Encoding": "gzip", "Accept": "application/openmetrics-text; version=1.0.0"})
        answer = connection.getresponse()
        assert (answer.headers["Content-Encoding"], answer.headers["Connection"]) == ("gzip", "close")
        assert answer.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
        assert gzip.decompress(answer.read()).endswith(b"# EOF\n")


def test_the_state_of_the_sources_comes_from_the_ledger(open_site):
    site = open_site("a")
    site.clock.jump(75)
    site.ledger.lost("a", Window(NOON - 7200, NOON - 3600), "Retention", "gone", NOON)
    found = site.metrics()
    assert found["tokiod_source_lag_seconds", "a"] == 75
    assert found["tokiod_source_watermark_timestamp_seconds", "a"] == NOON
    assert (found["tokiod_source_gap_seconds", "a"], found["tokiod_source_lost_seconds", "a"]) == (60, 3600)
    assert {state: found["tokiod_source_state", "a", state] for state in catalogue.STATES} == dict.fromkeys(catalogue.STATES, 0) | {
        "running": 1
    }


def test_the_files_of_yesterday_today_and_tomorrow_and_the_disk_are_reported(open_site):
    site = open_site("a")
    for day, size in (("28", 10), ("29", 20), ("30", 30)):
        path = site.config.archive.root / f"2018-01-{day}" / "fs-a.hdf5"
        path.parent.mkdir()
        path.write_bytes(b"x" * size)
    found = site.metrics()
    assert [found["tokiod_file_size_bytes", day, "fs-a"] for day in catalogue.DAYS] == [10, 20, 30]
    assert [found["tokiod_file_filled_ratio", day, "fs-a"] for day in catalogue.DAYS] == [0, pytest.approx(1 / 24), 0]
    assert 0 < found["tokiod_archive_free_bytes",] < found["tokiod_archive_size_bytes",]


def test_the_share_of_a_file_that_only_a_watched_folder_fills_is_unknown_and_has_no_sample(open_site):
    site = open_site("a")
    with (site.config.archive.root.parent / "tokiod.toml").open("a") as file:
        file.write('[[source]]\nname = "folder"\nkind = "mmperfmon"\nsystem = "hs"\nwatch = "/nowhere"\n')
    config = configuration.load(site.config.archive.root.parent / "tokiod.toml")
    for system in ("fs-a", "hs"):
        path = config.archive.root / "2018-01-29" / f"{system}.hdf5"
        path.parent.mkdir(exist_ok=True)
        path.touch()
    snapshots = metrics_snapshot.Snapshots(config, site.clock)
    found = {family.name: family.samples for family in metrics_snapshot.ArchiveCollector(snapshots, lambda: FINE, Counter()).collect()}
    assert [one.labels["system"] for one in found["tokiod_file_filled_ratio"]] == ["fs-a"]
    assert [one.labels["system"] for one in found["tokiod_file_size_bytes"]] == ["fs-a", "hs"]


def test_what_the_processes_count_is_reported_with_their_state(open_site):
    site = open_site("a")
    with counting_here(site.config, "collectors"):
        catalogue.WINDOWS.inc("a", "stored")
        found = site.metrics()
    assert found["tokiod_windows_total", "stored", "a"] == 1
    assert (found["tokiod_process_up", "collectors"], found["tokiod_process_up", "writer"]) == (1, 0)
    assert found["tokiod_process_resident_memory_bytes", "collectors"] > 1e6
    assert (found["tokiod_process_restarts_total", "writer"], found["tokiod_process_restarts_total", "collectors"]) == (2, 0)


def test_every_metric_has_the_name_type_and_help_that_tokiod_metrics_gives_it(open_site):
    site = open_site("a")
    with counting_here(site.config, "collectors"):
        text = site.get("/metrics")[1]
    served = {family.name: (family.type, family.documentation) for family in text_string_to_metric_families(text)}
    mine = [metric for metric in catalogue.ALL if not metric.roles or "collectors" in metric.roles]
    assert served == {metric.name.removesuffix("_total"): (metric.type, metric.text) for metric in mine}


def test_a_server_that_comes_back_begins_at_zero_but_for_processes_that_live(open_site, tmp_path):
    with counting_here(configured(tmp_path, "a"), "collectors"):
        catalogue.WINDOWS.inc("a", "stored")
        assert open_site("a").metrics()["tokiod_windows_total", "stored", "a"] == 1


def test_a_reload_reports_the_new_sources(open_site, tmp_path):
    site = open_site("a")
    server = serve(site.config, lambda: FINE, site.clock)
    server.close()
    server.reload(configured(tmp_path, "a", "b"))
    assert [line.name for line in server._snapshots.latest().status.sources] == ["a", "b"]


# ---- clients that hang


def is_open(client):
    client.settimeout(0)
    try:
        return client.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False


def test_silent_clients_delay_no_other_and_are_disconnected(open_site, monkeypatch):
    monkeypatch.setattr(http_server, "REQUEST_SECONDS", 0.5)
    site = open_site("a")
    with hanging(site.port) as silent, hanging(site.port, b"GET /metr") as half:
        begun = time.monotonic()
        assert site.get("/healthz") == (200, "alive\n")
        assert time.monotonic() - begun < 0.5
        assert (silent.recv(1), half.recv(1)) == (b"", b"")
    wait(lambda: site.metrics()["tokiod_http_ended_total",] == 2)


def test_a_client_that_sends_its_request_too_slowly_is_disconnected(open_site, monkeypatch):
    monkeypatch.setattr(http_server, "REQUEST_SECONDS", 0.6)
    site = open_site("a")
    with hanging(site.port, b"GET /") as dripping:
        dripping.settimeout(0.05)
        words = iter(range(200))
        while next(words) < 100:
            try:
                dripping.sendall(b"a")
                assert dripping.recv(1) == b""
            except TimeoutError:
                continue
            except ConnectionError:
                pass
            break
    assert 5 < next(words) < 100


def test_hundreds_that_hang_are_not_hundreds_of_connections_and_the_next_client_is_served(open_site, monkeypatch):
    """A new connection ends the oldest: no client waits for the time limits of those that hang."""
    monkeypatch.setattr(http_server, "REQUEST_SECONDS", 60)
    monkeypatch.setattr(http_server, "CONNECTION_SECONDS", 60)
    site = open_site("a")
    before, clients = threading.active_count(), []
    try:
        clients.extend(socket.create_connection(("127.0.0.1", site.port), timeout=100) for _ in range(200))
        wait(lambda: site.get("/healthz") == (200, "alive\n"))
        assert threading.active_count() - before <= 2
        assert sum(is_open(client) for client in clients) < http_server.MAX_CONNECTIONS
        assert site.get("/metrics")[0] == 200
    finally:
        for client in clients:
            client.close()


def test_a_client_that_does_not_read_its_answer_delays_no_other(open_site):
    site = open_site("a")
    with hanging(site.port, b"GET /metrics HTTP/1.0\r\n\r\n"):
        assert site.get("/metrics", timeout=5)[0] == 200


def test_a_ledger_that_hangs_delays_one_request_and_no_further(open_site, monkeypatch):
    site = open_site("a")
    monkeypatch.setattr(metrics_snapshot, "WAIT_SECONDS", 0.3)
    assert site.get("/healthz") == (200, "alive\n")
    released, looks = threading.Event(), []

    def hang(*_):
        looks.append(threading.current_thread())
        released.wait(100)
        raise OSError("released")

    monkeypatch.setattr(metrics_snapshot, "take_snapshot", hang)
    begun = time.monotonic()
    for _ in range(5):
        assert site.get("/healthz") == (200, "alive\n")  # as was seen before
    assert time.monotonic() - begun < 5 * 0.3
    assert len(looks) == 1
    monkeypatch.setattr(metrics_snapshot, "MAX_AGE_SECONDS", 0.0)
    assert site.get("/healthz") == (200, "degraded: the ledger can't be read\n")
    released.set()
    looks[0].join()


def test_malformed_requests_are_refused_and_print_nothing(open_site, capfd):
    site = open_site("a")
    for words in (os.urandom(5000), b"GET " + b"a" * 100_000 + b"\r\n\r\n", b"\r\n\r\n", b"GET /metrics\r\n", b"A / HTTP/9.9\r\n\r\n"):
        with hanging(site.port, words) as client, suppress(OSError):
            client.shutdown(socket.SHUT_WR)
            client.recv(100_000)
    assert site.get("/healthz")[0] == 200
    assert capfd.readouterr().err == ""


# ---- the address


def test_an_address_in_use_is_logged_and_retried_until_it_is_free(tmp_path, monkeypatch):
    monkeypatch.setattr(metrics_http, "RETRY_SECONDS", 0.1)
    site = Site(tmp_path, "a")
    with socket.create_server(("127.0.0.1", site.port)), capture_logs() as logs:
        server = serve(site.config, lambda: FINE, site.clock)
        wait(lambda: len(logs) > 2)
    assert logs[0] == {
        "event": "metrics.failed",
        "log_level": "warning",
        "reason": f"cannot listen on 127.0.0.1:{site.port}: Address already in use; retrying every 0 s",
    }
    wait(lambda: site.get("/readyz") == (200, "ready\n"))
    server.close()
    site.ledger.close()
    with pytest.raises(ConnectionRefusedError):
        site.get("/readyz")


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6 here")
def test_an_ipv6_address_is_served(tmp_path):
    site = Site(tmp_path, "a")
    path = tmp_path / "tokiod.toml"
    path.write_text(path.read_text().replace("127.0.0.1", "[::1]"))
    config = configuration.load(path)
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6 here")
    server = serve(config, lambda: FINE, site.clock)
    wait(lambda: socket.create_connection(("::1", site.port), timeout=1).close() is None)
    server.close()
    site.ledger.close()
