"""What the commands report of `tokiod web`: of a real process, over a Unix socket and over TCP."""

import os
import signal
import socket
import threading
import time
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from commanded import ran
from web_site import NOW, WebSite

from tokiod.cli.common import web_process
from tokiod.cli.common.web_process import WebState, ask_web, listening_pid
from tokiod.simulator.sources import free_port


@pytest.fixture
def site(tmp_path):
    return WebSite(tmp_path)


def test_a_process_that_runs_answers_with_its_pid_and_state(site):
    with site.served() as process:
        assert ask_web(str(site.socket)) == WebState(process.pid, "alive", 0, False, {"loaded": 0, "refused": 0})
        done = ran(site.path, "status", at=NOW)
        assert "tokiod web: alive, 0 viewers, no messages from the feed\n" in done.output


def test_over_tcp_it_has_no_pid(tmp_path):
    site = WebSite(tmp_path, port := free_port())
    with site.served():
        found = ask_web(f"127.0.0.1:{port}")
        assert (found.pid, found.health) == (None, "alive")


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_over_tcp_the_kernel_shows_which_process_listens(host):
    bare = host.strip("[]")
    with socket.create_server((bare, 0), family=socket.AF_INET6 if ":" in bare else socket.AF_INET) as listener:
        assert listening_pid(f"{host}:{listener.getsockname()[1]}") == os.getpid()
    assert listening_pid(f"{host}:{free_port()}") is None


def test_another_server_at_its_address_is_no_web_process_with_a_state(tmp_path):
    (tmp_path / "healthz").write_text("alive\n")
    (tmp_path / "metrics").write_text("process_open_fds 7\n")
    handler = partial(SimpleHTTPRequestHandler, directory=tmp_path)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        assert ask_web(f"127.0.0.1:{server.server_port}") == WebState(None)
        server.shutdown()
        serving.join()


def test_one_that_hangs_is_reported_within_seconds(site, monkeypatch):
    monkeypatch.setattr(web_process, "ANSWER_SECONDS", 0.2)
    with site.served() as process:
        os.kill(process.pid, signal.SIGSTOP)
        try:
            begun = time.monotonic()
            found = ask_web(str(site.socket))
            assert time.monotonic() - begun < 2
        finally:
            os.kill(process.pid, signal.SIGCONT)
    assert (found.pid, found.health, found.sentence) == (process.pid, "", "no answer within 0.2 s")


def test_without_a_process_there_is_no_state_also_where_a_killed_one_left_its_socket(site):
    assert ask_web(str(site.socket)) is None
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(site.socket))
    assert ask_web(str(site.socket)) is None
    assert "tokiod web" not in ran(site.path, "status", at=NOW).output
