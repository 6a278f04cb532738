"""Where the time of a window went, with a real MariaDB: delays of a proxy in front of it, of a sync and of the writer, in their stages."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import lmt_database
import pytest
from slow_proxy import SlowProxy
from waiting import wait_for

from tokiod.clock import SimulatedClock
from tokiod.config import load as configuration
from tokiod.reports.stages import read_stages

pytestmark = pytest.mark.system

DELAY, RATE = 3.0, 10
SLOW_SYNC = f"""\
import os, time
real = os.fdatasync
def fdatasync(fd):
    try:
        os.unlink(os.environ["SLOW_SYNC"])
    except FileNotFoundError:
        pass
    else:
        time.sleep({DELAY})
    real(fd)
os.fdatasync = fdatasync
"""
CONFIG = """\
timezone = "UTC"
[archive]
path = "{0}/tts/%Y-%m-%d/{{system}}.hdf5"
[bus]
endpoint = "ipc://{0}/private/bus"
[feed]
endpoint = "ipc://{0}/feed"
[[source]]
name = "lmt"
kind = "lmt"
system = "cscratch"
url = "mysql://stages@127.0.0.1:{1}/stages"
timezone = "{2}"
window = "60s"
settle = "15s"
retention = "10m"
"""
NOW = lmt_database.START + 900


@pytest.fixture
def database(mariadb):
    """A database of an hour and a half, of which the daemon's clock shows the first quarter."""

    async def fill():
        schema = Path(__file__).with_name("lmt_schema.sql").read_text()
        await mariadb.execute("DROP DATABASE IF EXISTS stages", "CREATE DATABASE stages", "CREATE USER IF NOT EXISTS stages@'%'")
        await mariadb.execute("GRANT SELECT ON stages.* TO stages@'%'")
        await mariadb.execute(*[one for one in schema.split(";") if one.strip()], database="stages")
        for table, rows in lmt_database.tables(steps=1080).items():
            if rows:
                marks = ", ".join(["%s"] * len(rows[0]))
                await mariadb.execute(f"INSERT INTO {table} VALUES ({marks})", rows=rows, database="stages")

    asyncio.run(fill())
    return mariadb.port


@pytest.fixture
def site(database, tmp_path, monkeypatch):
    """A daemon that asks the database through a proxy and has stored what it could."""
    (tmp_path / "sitecustomize.py").write_text(SLOW_SYNC)
    (tmp_path / "private").mkdir(mode=0o700)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("SLOW_SYNC", str(tmp_path / "slow"))
    with SlowProxy(database) as proxy:
        path = tmp_path / "tokiod.toml"
        path.write_text(CONFIG.format(tmp_path, proxy.port, lmt_database.ZONE))
        with daemon(path, SimulatedClock(NOW, time.time(), RATE)) as process:
            made = Site(tmp_path, configuration.load(path), proxy, process)
            made.settle()
            yield made


@contextmanager
def daemon(path, clock):
    command = [sys.executable, "-P", "-m", "tokiod.cli.tokiod", "run", "--config", str(path), "--clock", str(clock)]
    with path.with_name("log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


class Site:
    def __init__(self, directory, config, proxy, process):
        self.directory, self.config, self.proxy, self._process = directory, config, proxy, process

    def windows(self, since=0.0):
        return [one for one in read_stages(self.config.stages) if one.kind == "window" and one.stages[-1].start >= since]

    def settle(self):
        """Wait until three more windows are stored, one after the other."""
        begun = time.time()
        wait_for(lambda: sum(one.state == "stored" for one in self.windows(begun)) >= 3, 90, f"nothing is stored: {self.directory}/log")

    def writer(self):
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()
        return next(int(pid) for pid in children if b"writer" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"))


def slow_database(site):
    site.proxy.hold(DELAY)
    assert site.proxy.held.wait(60)


def slow_sync(site):
    (site.directory / "slow").touch()
    wait_for(lambda: not (site.directory / "slow").exists(), 60, "nothing was synced")


def stopped_writer(site):
    pid = site.writer()
    os.kill(pid, signal.SIGSTOP)
    try:
        wait_for(
            lambda: any(one.stages[-1].stage == "bus" and one.stages[-1].seconds >= DELAY for one in site.windows()), 60, "no open bus"
        )
    finally:
        os.kill(pid, signal.SIGCONT)


def test_planted_delays_appear_in_their_stage_and_nowhere_else(site):
    for plant, stage in ((slow_database, "fetch"), (slow_sync, "sync"), (stopped_writer, "bus")):
        begun = time.time()
        plant(site)
        site.settle()
        slow = {span.stage for one in site.windows(begun) for span in one.stages if span.seconds >= DELAY and span.stage != "due"}
        assert slow == {stage}
