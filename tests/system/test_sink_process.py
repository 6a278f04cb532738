"""The real process `tokiod sink`: faults planted in the sink, reloads, removal, rewinding, what it shows, and its end."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from sunk import install_json_lines, received
from waiting import wait_for
from written_archive import MIDNIGHT, SYSTEM, WrittenArchive

from tokiod.clock import SystemClock
from tokiod.config import load as configuration
from tokiod.reports.sinks import read
from tokiod.supervisor.metrics_snapshot import take_snapshot

pytestmark = pytest.mark.system

SECTION = """
[[sink]]
name = "lines"
kind = "json_lines"
path = "{}/rows.jsonl"
"""
FAULTY = """
import asyncio
import sys
from pathlib import Path
from tokiod.change_sink import Acknowledged, SinkConfig
from tokiod.errors import Fatal

class Config(SinkConfig):
    state: str

def at(self, place):
    place_of, _, what = Path(self._file).read_text().strip().partition(" ")
    if place_of == place:
        exec(what)

def sink(config, site):
    made = Faulty(config.state)
    at(made, "sink")
    return made

class Faulty:
    def __init__(self, file):
        self._file = file

    async def open(self):
        at(self, "open")

    async def send(self, blocks):
        at(self, "send")
        try:
            await asyncio.sleep(Path(self._file).read_text().startswith("slow ") * 60)
        except BaseException as error:
            raise OSError("interrupted") from error
        return Acknowledged(len(blocks))

    async def close(self):
        at(self, "close")
"""


@pytest.fixture
def site(monkeypatch):
    with tempfile.TemporaryDirectory(prefix="sink-") as name:
        directory = Path(name)
        install_json_lines(monkeypatch, directory)
        (directory / "site" / "tokiod_faulty.py").write_text(FAULTY)
        entries = directory / "site" / "tokiod_json_lines-1.0.dist-info" / "entry_points.txt"
        entries.write_text(entries.read_text() + "faulty = tokiod_faulty\n")
        archive = WrittenArchive(directory, SystemClock())
        numbers = np.random.default_rng(1)
        for n in range(3):
            archive.store(MIDNIGHT + n * 86400 + 3600, 10, 3, numbers)
        archive.publish()
        yield archive
        archive.close()


class Process:
    """`tokiod sink NAME`, with a service manager that listens."""

    def __init__(self, archive, name="lines"):
        self.directory, self.name = archive.directory, name
        self.log = self.directory / f"{name}.log"
        self.path = self.directory / "tokiod.toml"

    def __enter__(self):
        self.manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.manager.bind(str(self.directory / "notify"))
        self.manager.settimeout(60)
        command = [sys.executable, "-m", "tokiod.cli.tokiod", "sink", self.name, "--config", str(self.path)]
        with self.log.open("ab") as log:
            environment = {**os.environ, "NOTIFY_SOCKET": str(self.directory / "notify")}
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.manager.close()
        (self.directory / "notify").unlink()

    def await_notice(self, text):
        while text not in self.manager.recv(4096).decode():
            pass

    def events(self, name):
        found = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        return [one for one in found if one["event"] == name]

    def state(self):
        config = configuration.load(self.path)
        return next(one for one in read(config, time.time(), time.time()) if one.name == self.name)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0, self.log.read_text()


def tokioctl(archive, *arguments):
    command = [sys.executable, "-m", "tokiod.cli.tokioctl", *arguments, "--config", str(archive.directory / "tokiod.toml")]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)


def test_it_sends_reports_rewinds_reloads_and_is_removed_without_a_trace(site):
    path, rows = site.configure(SECTION.format(site.directory)), site.directory / "rows.jsonl"
    assert tokioctl(site, "sinks", "rewind", "lines", "--from", "2018-01-29").returncode == 2
    with Process(site) as sink:
        sink.await_notice("READY=1")
        wait_for(lambda: received(rows) == site.held(), 20, "not sent")
        wait_for(lambda: sink.state().records > 0 and sink.state().backlog == 0, 20, "not shown")
        found = json.loads(tokioctl(site, "sinks", "--json").stdout)
        assert [(one["name"], one["kind"], one["state"], one["trouble"]) for one in found] == [("lines", "json_lines", "running", "")]
        assert found[0]["cursor"] == site.ledger.changes.state().head
        assert (found[0]["pid"], found[0]["lag_windows"]) == (sink.process.pid, 0)
        second = subprocess.run(sink.process.args, capture_output=True, text=True, check=False, timeout=100)
        assert (second.returncode, "another process runs the sink lines" in second.stderr) == (2, True)
        rows.unlink()
        assert tokioctl(site, "sinks", "rewind", "lines", "--from", "2018-01-30T00:00:00").returncode == 0
        later = {key: cells for key, cells in site.held().items() if key[1] >= MIDNIGHT + 86400}
        wait_for(lambda: received(rows) == later, 20, "not rewound")
        path.write_text(path.read_text().replace("rows.jsonl", "other.jsonl"))
        sink.process.send_signal(signal.SIGHUP)
        sink.await_notice("READY=1")
        assert tokioctl(site, "sinks", "rewind", "lines", "--from", "2018-01-29").returncode == 0
        wait_for(lambda: received(site.directory / "other.jsonl") == site.held(), 20, "the reload is not in effect")
        sections = path.read_text()
        path.write_text(sections.replace("json_lines", "json_limes"))
        sink.process.send_signal(signal.SIGHUP)
        wait_for(lambda: sink.events("config.refused"), 20, "not refused")
        path.write_text(sections.partition("[[sink]]")[0])
        sink.process.send_signal(signal.SIGHUP)
        assert sink.process.wait(60) == 3
        assert not (site.directory / "sinks" / "lines").exists()
    assert tokioctl(site, "sinks").stderr == "no [[sink]] is configured\n"


def test_a_stopped_sink_is_down_and_follows_a_request_when_it_starts(site):
    site.configure(SECTION.format(site.directory))
    rows = site.directory / "rows.jsonl"
    with Process(site) as sink:
        wait_for(lambda: received(rows) == site.held(), 20, "not sent")
        sink.stop()
    assert (sink.state().trouble, sink.state().pid) == ("down", None)
    shown = tokioctl(site, "sinks")
    assert shown.returncode == 1
    assert "systemctl start tokiod-sink@lines" in shown.stdout
    assert "sink lines: down" in tokioctl(site, "status").stdout
    site.store(MIDNIGHT + 7200, 5, 3, np.random.default_rng(2))
    site.publish()
    assert sink.state().lag_windows >= 1
    rows.unlink()
    assert tokioctl(site, "sinks", "rewind", "lines", "--from", "2018-01-29").returncode == 0
    with Process(site) as sink:
        wait_for(lambda: received(rows) == site.held(), 20, "the request is not followed")
        sink.stop()
    assert len(sink.events("sink.stopped")) == 2


FAULTS = [
    ("sink", "raise RuntimeError('planted')", "waiting"),
    ("open", "raise RuntimeError('planted')", "waiting"),
    ("open", "raise Fatal('no permission to write: planted')", "fatal"),
    ("open", "sys.exit(3)", "waiting"),
    ("send", "raise ValueError('planted')", "waiting"),
    ("send", "raise MemoryError('planted')", "waiting"),
    ("send", "import asyncio; raise asyncio.CancelledError('planted')", "waiting"),
    ("send", "raise TimeoutError('planted')", "waiting"),
    ("close", "raise RuntimeError('planted')", "running"),
]


@pytest.mark.parametrize(("place", "what", "state"), FAULTS)
def test_a_fault_anywhere_in_a_sink_is_reported_and_heals(site, place, what, state):
    fault = site.directory / "fault"
    fault.write_text(f"{place} {what}")
    site.configure(f'[[sink]]\nname = "bad"\nkind = "faulty"\nstate = "{fault}"\n')
    with Process(site, "bad") as sink:
        sink.await_notice("READY=1")
        if state != "running":
            wait_for(lambda: sink.state().state == state, 20, f"not reported: {sink.log.read_text()}")
            assert sink.state().reason
            assert (sink.state().last_error_at or 0) > 0
        fault.write_text("")
        sink.process.send_signal(signal.SIGHUP)
        wait_for(lambda: sink.state().state == "running" and sink.state().records > 0, 30, f"not healed: {sink.log.read_text()}")
        sink.stop()
    assert site.ledger.changes.state() is not None
    assert not list(site.tts.rglob("*.aside*"))


@pytest.mark.parametrize("is_removed", [True, False])
def test_a_sink_that_fails_while_it_is_stopped_or_removed_ends_as_any_other(site, is_removed):
    fault = site.directory / "fault"
    fault.write_text("slow")
    fault.write_text("slow ")
    path = site.configure(f'[[sink]]\nname = "bad"\nkind = "faulty"\nstate = "{fault}"\ntimeout = "5s"\n')
    with Process(site, "bad") as sink:
        sink.await_notice("READY=1")
        wait_for(lambda: sink.events("sink.from_files"), 20, "not started")
        time.sleep(1)  # send() waits
        if is_removed:
            path.write_text(path.read_text().partition("[[sink]]")[0])
        sink.process.send_signal(signal.SIGHUP if is_removed else signal.SIGTERM)
        assert sink.process.wait(60) == (3 if is_removed else 0), sink.log.read_text()
        assert "Traceback" not in sink.log.read_text()
        assert (site.directory / "sinks" / "bad").exists() is not is_removed


def test_a_receiver_without_permission_is_fatal_in_one_sentence(site):
    target = site.directory / "file"
    target.mkdir()
    section = SECTION.format(site.directory).replace(f"{site.directory}/rows.jsonl", "/proc/version")
    site.configure(section)
    with Process(site) as sink:
        wait_for(lambda: sink.state().state in {"fatal", "waiting"}, 20, "not reported")
        assert "/proc/version" in sink.state().reason
        assert "Traceback" not in sink.log.read_text()
        sink.stop()


def test_the_daemons_scrape_has_the_metrics_of_the_sink(site):
    path = site.configure(SECTION.format(site.directory))
    with Process(site) as sink:
        wait_for(lambda: sink.state().records > 0, 20, "not sent")
        snapshot = take_snapshot(configuration.load(path), time.time())
        assert [(one.name, one.state) for one in snapshot.sinks] == [("lines", "running")]
        sink.stop()
    assert SYSTEM == "cscratch"


def test_an_unknown_sink_does_not_start(site):
    site.configure(SECTION.format(site.directory))
    command = [sys.executable, "-m", "tokiod.cli.tokiod", "sink", "limes", "--config", str(site.directory / "tokiod.toml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert (done.returncode, done.stderr) == (2, "tokiod: unknown sink 'limes', did you mean lines?\n")
