"""What the commands report of `tokiod web`: of a real process, over a Unix socket and over TCP."""

import os
import signal
import socket
import time

import pytest
from commanded import ran
from web_site import NOW, WebSite

from tokiod.cli.common import web_process
from tokiod.cli.common.web_process import WebState, ask_web
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
