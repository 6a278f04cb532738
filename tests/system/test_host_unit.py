"""tokiod-host.service on a machine with a real systemd, set up as docs/hosts.md says: it collects for a daemon on another host."""

import json
import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import numpy as np
import pytest
from booted import CHECKOUT, PACKAGES, PYTHON, Machine, missing, wait
from keyed import Keyring

import tokiod
from tokiod.clock import SimulatedClock
from tokiod.simulator.lmt.database import Database
from tokiod.simulator.site import STEP, Site
from tokiod.simulator.sources import free_port
from tokiod.window import iso

pytestmark = pytest.mark.system

PROGRAM = '#!/bin/sh\nexec env PYTHONPATH={}:{} {}/bin/python3 -P -m tokiod.cli.{} "$@"\n'
EPOCH = 1_795_132_800
"""2026-11-20T00:00:00Z."""
BEGIN = EPOCH + 7200
PAST = 1500
DATABASE = "/var/lib/site/lmt.sqlite3"
DATASETS = ("datatargets/readbytes", "datatargets/writebytes", "mdtargets/opens", "dataservers/cpuload")
CONFIG = """\
timezone = "UTC"
archive.path = "{directory}/tts/%Y-%m-%d/{{system}}.hdf5"
bus.endpoint = "ipc://{directory}/run/bus"
feed.endpoint = "ipc://{directory}/feed"
[[host]]
name = "admin1"
endpoint = "tcp://127.0.0.1:{port}"
[[host]]
name = "zone-b"
sources = ["zone-lmt"]
[[source]]
name = "zone-lmt"
kind = "lmt"
system = "demo"
url = "sqlite://{database}"
retention = "{past}s"
"""


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """The host zone-b."""
    if reason := missing():
        pytest.fail(reason) if os.environ.get("CI") == "true" and os.geteuid() == 0 else pytest.skip(reason)
    with Machine.boot(tmp_path_factory.mktemp("booted")) as machine:
        machine.run("hostname zone-b")
        machine.run("install -D -m 0644 systemd/tokiod.sysusers.conf /etc/sysusers.d/tokiod.conf; systemd-sysusers")
        machine.run("install -d -m 0755 /opt/tokiod/bin /var/lib/site")
        machine.path("/opt/tokiod/bin/tokiod").write_text(PROGRAM.format(CHECKOUT, PACKAGES, PYTHON, "tokiod"))
        machine.run("chmod 0755 /opt/tokiod/bin/tokiod")
        site = Site(EPOCH, osts=3, osss=2, mdts=1, timezone="UTC")
        with closing(Database(machine.path(DATABASE), site)) as database:
            database.fill((BEGIN + 1800 - EPOCH) // STEP)
        with closing(sqlite3.connect(machine.path(DATABASE))) as copy:
            copy.execute("PRAGMA journal_mode = DELETE")
        machine.run("install -d -m 0700 /etc/tokiod/credentials")
        machine.run('/opt/tokiod/bin/tokiod keygen /etc/tokiod/credentials "$(hostname -s)"; mkdir -p /etc/tokiod/hosts')
        yield machine


class Admin:
    """The writer's host: its daemon. directory: of its configuration, keys and archive."""

    def __init__(self, directory):
        self.directory, self.config = directory, directory / "tokiod.toml"
        self.config.write_text(CONFIG.format(directory=directory, port=free_port(), database=DATABASE, past=PAST))
        keys = Keyring(directory / "keys")
        keys.made("admin1")
        (directory / "hosts").mkdir()
        for suffix in ("key", "key_secret"):
            (directory / "keys" / f"admin1.{suffix}").rename(directory / f"admin1.{suffix}")

    def start(self):
        line = [sys.executable, "-P", "-m", "tokiod.cli.tokiod", "run", "--host", "admin1", "--config", str(self.config)]
        self.clock = SimulatedClock(float(BEGIN), time.time(), 1)
        with (self.directory / "log").open("wb") as log:
            self.process = subprocess.Popen([*line, "--clock", str(self.clock)], stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def stop(self):
        self.process.terminate()
        assert self.process.wait(60) == 0

    def tokioctl(self, *words):
        line = [sys.executable, "-P", "-m", "tokiod.cli.tokioctl", *words]
        return subprocess.run(line, capture_output=True, text=True, check=False, timeout=120)

    def status(self):
        """Return what `tokioctl status` shows; nothing while the daemon starts."""
        printed = self.tokioctl("status", "--json", "--config", str(self.config)).stdout
        return json.loads(printed) if printed else {"hosts": [], "sources": []}

    def host(self):
        return next((one for one in self.status()["hosts"] if one["name"] == "zone-b"), {})


@pytest.fixture(scope="module")
def admin(machine, tmp_path_factory):
    """The writer's host, which has exchanged public keys and the configuration with zone-b."""
    made = Admin(tmp_path_factory.mktemp("admin"))
    public = machine.path("/etc/tokiod/credentials/zone-b.key").read_bytes()
    (made.directory / "hosts" / "zone-b.key").write_bytes(public)
    machine.path("/etc/tokiod/hosts/admin1.key").write_bytes((made.directory / "admin1.key").read_bytes())
    machine.path("/etc/tokiod/tokiod.toml").write_text(made.config.read_text())
    made.start()
    yield made
    made.stop()


def test_its_source_is_collected_with_every_cell(machine, admin, tmp_path):
    drop_in = "[Service]\nLoadCredential=zone-b.key_secret:/etc/tokiod/credentials/zone-b.key_secret\n"
    machine.run("install -m 0644 systemd/tokiod-host.service /etc/systemd/system/; mkdir /etc/systemd/system/tokiod-host.service.d")
    machine.path("/etc/systemd/system/tokiod-host.service.d/override.conf").write_text(drop_in)
    machine.run("systemctl daemon-reload; systemctl enable --now tokiod-host", timeout=200)
    start, end = BEGIN - PAST + 300, BEGIN - 300
    path = admin.directory / "tts" / "%Y-%m-%d" / "{system}.hdf5"

    def cells(place):
        with tokiod.open("demo", start, end, timezone="UTC", path=place) as archive:
            return {name: archive.array(name) for name in DATASETS}

    def is_complete():
        span = ("--start", iso(start), "--end", iso(end), "--clock", str(admin.clock))
        return admin.tokioctl("gaps", "zone-lmt", *span, "--config", str(admin.config)).returncode == 0

    wait(is_complete, 120, lambda: machine.log() + (admin.directory / "log").read_text()[-3000:])
    out, span = tmp_path / "out.hdf5", ("--start", iso(BEGIN - PAST), "--end", iso(BEGIN))
    done = admin.tokioctl("archive", "lmt", str(machine.path(DATABASE)), "--output", str(out), *span)
    assert out.exists(), done.stderr
    live, right = cells(path), cells(out)
    for name in DATASETS:
        assert np.array_equal(live[name], right[name], equal_nan=True)
        assert np.isfinite(live[name]).mean() > 0.9
    user = machine.run("ps -o uid= -p $(systemctl show --property=MainPID --value tokiod-host)").stdout.strip()
    assert user == machine.run("id -u tokiod").stdout.strip()


def test_a_reload_keeps_its_process_and_a_kill_starts_another_one_that_connects(machine, admin):
    before = machine.show("tokiod-host", "MainPID")
    machine.run("systemctl reload tokiod-host", timeout=200)
    assert machine.show("tokiod-host", "MainPID") == before
    contact = admin.host()["contact"]
    machine.run("systemctl kill --signal=KILL tokiod-host")
    wait(lambda: machine.show("tokiod-host", "MainPID") not in {before, "0"}, 60, machine.log)
    wait(lambda: machine.show("tokiod-host", "ActiveState") == "active", 60, machine.log)
    # Its clock is not the daemon's, which plays another day; it is connected.
    wait(lambda: admin.host().get("trouble") == "clock" and admin.host()["contact"] > contact + 1, 60, lambda: str(admin.host()))


def test_a_host_that_is_stopped_is_shown_as_such_and_ends_in_order(machine, admin):
    machine.run("systemctl stop tokiod-host", timeout=100)
    assert (machine.show("tokiod-host", "ActiveState"), machine.show("tokiod-host", "Result")) == ("inactive", "success")
    wait(lambda: admin.host().get("trouble") == "stopped", 60, lambda: str(admin.host()))
    assert "Traceback" not in machine.log()
