"""`tokioctl reload` of a daemon and of `tokiod web`, a real process that listens on TCP."""

import asyncio
import json
import threading
from contextlib import contextmanager

import pytest
from click.testing import CliRunner
from structlog.testing import capture_logs
from users import USERS, need_users, open_directory
from web_site import WebSite

from tokiod.cli.commands import reload
from tokiod.cli.tokioctl import main
from tokiod.simulator.sources import free_port
from tokiod.supervisor.control_socket import Reloaded, serve_control

KEPT = "the daemon's own warning"


@contextmanager
def daemon(config):
    """Answer at the control socket as a daemon that has loaded a configuration."""
    over, up = threading.Event(), threading.Event()

    async def answer(_request):
        return Reloaded(keys=["web.hosts"], warnings=[KEPT])

    async def serve():
        async with serve_control(config.control, answer):
            up.set()
            await asyncio.to_thread(over.wait, 100)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert up.wait(50)
        with capture_logs():
            yield
    finally:
        over.set()
        thread.join()


@pytest.fixture
def site(tmp_path):
    site = WebSite(tmp_path, free_port())
    with daemon(site.config):
        yield site


def reloaded(site, *options):
    done = CliRunner().invoke(main, ["reload", "--config", str(site.path), *options])
    assert done.exit_code == 0, done.output
    return done.stdout, done.stderr


def test_a_page_on_tcp_is_reloaded_with_the_daemon(site):
    with site.served():
        site.path.write_text(site.path.read_text().replace("storage.example.org", "other.example.org"))
        assert site.get("/api/v1/systems", host="other.example.org").status == 403
        assert reloaded(site) == ("changed keys web.hosts\n", f"warning: {KEPT}\n")
        assert site.get("/api/v1/systems", host="other.example.org").status == 200


def test_json_has_the_warnings_that_are_printed_without_it(site, monkeypatch):
    with site.served():
        monkeypatch.setattr(reload, "listening_pid", lambda _: None)
        assert reloaded(site)[1] == f"warning: {KEPT}\nwarning: {reload.NOT_SIGNALLED}\n"
        stdout, stderr = reloaded(site, "--json")
        assert (json.loads(stdout)["warnings"], stderr) == ([KEPT, reload.NOT_SIGNALLED], "")


def test_a_user_who_may_not_signal_the_page_learns_who_may():
    need_users()
    with open_directory() as directory:
        site = WebSite(directory, free_port())
        with site.served():
            code = "import sys; from tokiod.cli.commands.reload import _reload_web; print(_reload_web(sys.argv[1]))"
            done = USERS["outsider"].python(code, site.config.web.address)
    assert (done.stdout, done.stderr) == (f"{reload.NOT_SIGNALLED}\n", "")
