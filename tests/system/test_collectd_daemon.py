"""The daemon over a faulty Elasticsearch: the other sources go on, status says what happens, and in the end nothing is missing."""

import json
import os
import signal
import subprocess
import sys
import time

import collectd_loader
import lmt_database
import pytest
import search_faults
from collectd_documents import Documents
from collectd_search import assert_cells, none_open
from fault_proxy import FaultProxy
from waiting import wait_for

from tokiod.clock import SimulatedClock
from tokiod.reader.followed_file import FollowedFile
from tokiod.window import Window

pytestmark = pytest.mark.system

START = lmt_database.START
SPAN = Window(START, START + 600)
INDEX = "daemon"
RATE = 20
SOURCES = """\
timezone = "UTC"
[archive]
path = "{directory}/tts/%Y-%m-%d/{{system}}.hdf5"
[bus]
endpoint = "ipc://{directory}/bus"
[feed]
endpoint = "ipc://{directory}/feed"
[[source]]
name = "lmt"
kind = "lmt"
system = "lc1"
url = "sqlite://{directory}/lmt.sqlite3"
timezone = "UTC"
retention = "2h"
[[source]]
name = "collectd"
kind = "collectd_es"
system = "bb"
url = "{url}"
index = "{index}"
retention = "2h"
page = 200
empty_after = "never"
"""


class Daemon:
    """`tokiod run` in a directory, with a clock that begins when the documents end: what comes after them is not waited for."""

    def __init__(self, directory, url):
        self.config = directory / "tokiod.toml"
        self.config.write_text(SOURCES.format(directory=directory, url=url, index=INDEX))
        self.clock = str(SimulatedClock(SPAN.end + 30.0, time.time(), RATE))
        lmt_database.save(directory / "lmt.sqlite3", lmt_database.tables(steps=SPAN.seconds // 5 + 2, zone="UTC"))
        self.log = directory / "log"
        self._directory = directory

    def __enter__(self):
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self._command("tokiod", "run"), stdout=log, stderr=log, start_new_session=True)
        return self

    def __exit__(self, *_):
        self._process.terminate()
        try:
            self._process.wait(200)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            raise

    def _command(self, program, what):
        return [sys.executable, "-m", f"tokiod.cli.{program}", what, "--config", str(self.config), "--clock", self.clock]

    def status(self):
        """{name of a source: what status --json says of it}."""
        done = subprocess.run([*self._command("tokioctl", "status"), "--json"], capture_output=True, check=False, timeout=150)
        return {source["name"]: source for source in json.loads(done.stdout or '{"sources": []}')["sources"]}

    def complete(self, name):
        """Whether a source has everything up to SPAN's end."""
        return (self.status().get(name, {}).get("watermark") or 0) >= SPAN.end

    def cells(self, system):
        """{dataset: {(time, column): value}} of SPAN in a system's file."""
        found = {}
        (path,) = (self._directory / "tts").rglob(f"{system}.hdf5")
        with FollowedFile(path) as reader:
            for dataset in reader.datasets():
                times, columns, values = reader.read(dataset, SPAN.start, SPAN.end)
                rows = zip(times.tolist(), values.tolist(), strict=True)
                found[dataset] = {(t, c): v for t, row in rows for c, v in zip(columns, row, strict=True) if v == v}  # noqa: PLR0124 - NaN
        return {dataset: cells for dataset, cells in found.items() if cells}


@pytest.fixture
def documents(search_server):
    made = Documents(seed=5)
    collectd_loader.load(search_server, INDEX, made.hits(SPAN.start, SPAN.end), shards=2)
    yield made
    collectd_loader.remove(search_server, INDEX)


def test_a_source_in_trouble_disturbs_no_other_says_so_and_misses_nothing_in_the_end(search_server, documents, tmp_path):
    with FaultProxy(search_server.url) as proxy, Daemon(tmp_path, proxy.url) as daemon:
        proxy.plan(search_faults.rejected, on="search|_pit|_mapping|_count|GET /", chance=1)
        wait_for(lambda: daemon.complete("lmt"), 60, f"LMT is not complete: {daemon.log.read_text()}")
        wait_for(lambda: daemon.status()["collectd"]["last_error"], 60, f"no error is reported: {daemon.log.read_text()}")
        troubled = daemon.status()
        assert "429" in troubled["collectd"]["last_error"]
        assert troubled["collectd"]["windows"] == 0
        assert troubled["lmt"]["last_error"] == ""
        proxy.heal()
        for fault in (search_faults.half_shards, search_faults.reset_in_body, search_faults.timed_out, search_faults.lost_answer):
            proxy.plan(fault, chance=0.05, seed=1)
        wait_for(lambda: daemon.complete("collectd"), 120, f"collectd is not complete: {daemon.log.read_text()}")
        assert_cells(daemon.cells("bb"), documents.cells(SPAN.start, SPAN.end, 10))
    assert none_open(search_server)
    assert "Traceback" not in daemon.log.read_text()
