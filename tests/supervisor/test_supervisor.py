"""The supervisor over stand-ins for its processes: a reload that fails changes nothing, and a stop ends a reload."""

import asyncio
import errno
import os
import signal
import sys
import time

import pytest
from structlog.testing import capture_logs

from tokiod.clock import SystemClock
from tokiod.errors import TokiodError
from tokiod.runtime.sd_notify import NO_NOTIFIER
from tokiod.supervisor import child_group, child_process, config_copy
from tokiod.supervisor.control_socket import Refused
from tokiod.supervisor.supervisor import STOPPING, Supervisor

CONFIG = """\
timezone = "UTC"
log_level = "info"
[archive]
path = "{0}/tts/%Y-%m-%d/{{system}}.hdf5"
seal_after = "2d"
[bus]
endpoint = "ipc://{0}/p/bus"
[feed]
endpoint = "ipc://{0}/f/feed"
"""
CHILD = """
import os, signal, sys, time
from tokiod.runtime.sd_notify import Notifier
notifier = Notifier.take(os.environ)
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
signal.signal(signal.SIGHUP, lambda *_: None if os.path.exists(sys.argv[1]) else notifier.ready())
notifier.ready()
while True:
    notifier.alive("at work")
    time.sleep(0.05)
"""


class Site:
    """busy: while this file exists, no process applies a reload."""

    def __init__(self, directory, monkeypatch):
        self.path, self.busy = directory / "tokiod.toml", directory / "busy"
        self.path.write_text(CONFIG.format(directory))
        monkeypatch.setattr(child_group, "python_command", lambda *_: [sys.executable, "-c", CHILD, str(self.busy)])
        self.supervisor = Supervisor(self.path, [], NO_NOTIFIER, SystemClock(), lambda _: None)

    def change(self, old, new):
        self.path.write_text(self.path.read_text().replace(old, new))

    def play(self, scene):
        """Run a scene once all are ready, then stop; return what was logged after that began, and how long the stop took."""

        async def played():
            running = asyncio.create_task(self.supervisor.run())
            async with asyncio.timeout(30):
                while not (self.supervisor._children.keepers and self.supervisor._children.are_ready):
                    await asyncio.sleep(0.02)
                await scene()
                begun = time.monotonic()
                os.kill(os.getpid(), signal.SIGTERM)
                with capture_logs() as logs:
                    await running
                return logs, time.monotonic() - begun

        return asyncio.run(played())


@pytest.fixture
def site(tmp_path, monkeypatch):
    return Site(tmp_path, monkeypatch)


@pytest.fixture
def failures(monkeypatch):
    """What the next starts of processes raise."""
    create, found = asyncio.create_subprocess_exec, []

    async def failing(*arguments, **options):
        if found:
            raise found.pop()
        return await create(*arguments, **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", failing)
    return found


def test_a_configuration_that_can_not_be_copied_is_not_applied_and_is_once_there_is_room(site, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def scene():
        site.change("2d", "5d")
        with monkeypatch.context() as patched:
            patched.setattr(config_copy, "replace_file", full)
            refused = await site.supervisor.reload()
        assert isinstance(refused, Refused)
        assert "No space left on device: make room there" in refused.faults[0]
        assert (await site.supervisor.reload()).keys == ["archive.seal_after"]

    site.play(scene)


def test_a_configuration_that_does_not_work_is_taken_back_also_on_a_disk_that_became_full(site, monkeypatch):
    replace = config_copy.replace_file

    def once(*arguments):
        replace(*arguments)
        monkeypatch.setattr(config_copy, "replace_file", full)

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def not_ready():
        raise TokiodError("not ready with it")

    async def scene():
        site.change("2d", "5d")
        monkeypatch.setattr(config_copy, "replace_file", once)
        monkeypatch.setattr(site.supervisor, "_until_ready", not_ready)
        assert await site.supervisor.reload() == Refused(["not ready with it"])
        assert 'seal_after = "2d"' in site.supervisor._copy._copy.read_text()
        while not site.supervisor._children.are_ready:
            await asyncio.sleep(0.02)

    site.play(scene)


def test_a_reload_whose_processes_can_not_be_started_for_a_moment_starts_them_again(site, failures):
    async def scene():
        site.change("2d", "5d")
        failures.append(OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)))
        assert (await site.supervisor.reload()).keys == ["archive.seal_after"]

    site.play(scene)
    assert failures == []


def test_a_stop_ends_a_reload_that_a_process_does_not_apply(site):
    site.busy.touch()

    async def scene():
        site.change("info", "debug")
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.sleep(0.3)

    logs, seconds = site.play(scene)
    assert seconds < child_process.RELOAD_LIMIT_SECONDS / 2
    assert [log["error"] for log in logs if log["event"] == "config.failed"] == [STOPPING]
    assert [log["child"] for log in logs if log["event"] == "child.started"] == []


def test_a_reload_after_a_stop_is_refused(site):
    async def scene():
        site.change("2d", "5d")

    site.play(scene)
    assert asyncio.run(site.supervisor.reload()) == Refused([STOPPING])


def test_a_process_that_can_not_be_started_again_for_a_moment_is_tried_again(site, failures):
    async def scene():
        child = site.supervisor._children._children[-1]
        failures.append(OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)))
        os.kill(child.pid, signal.SIGKILL)
        while not (child.restarts and child.is_ready and child.starts == 2):
            await asyncio.sleep(0.02)

    site.play(scene)
    assert failures == []
