"""tokiod-sink@.service on a machine with a real systemd: with its hardening a sink reads a real archive, and sends it where it may."""

import json
import os

import numpy as np
import pyarrow.parquet
import pytest
from booted import CHECKOUT, PACKAGES, PYTHON, Machine, missing, wait
from written_archive import MIDNIGHT, SYSTEM, WrittenArchive

from tokiod.clock import SystemClock
from tokiod.simulator.sources import free_port

pytestmark = pytest.mark.system

PROGRAM = '#!/bin/sh\nexec env PYTHONPATH={}:{} {}/bin/python3 -P -m tokiod.cli.{} "$@"\n'
FILES = '\n[[sink]]\nname = "files"\nkind = "parquet"\npath = "/srv/tokiod-parquet"\n'
KAFKA = '\n[[sink]]\nname = "kafka"\nkind = "kafka"\nservers = ["127.0.0.1:{}"]\n'
CONFIG = """\
timezone = "UTC"
archive.path = "/var/lib/tokiod/tts/%Y-%m-%d/{system}.hdf5"
site.names = { cscratch = "Cori scratch" }
"""
ROWS, COLUMNS = 1440, 5


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """A sealed day, and what its files hold."""
    made = WrittenArchive(tmp_path_factory.mktemp("archive"), SystemClock())
    made.store(MIDNIGHT, ROWS, COLUMNS, np.random.default_rng(1))
    made.seal(MIDNIGHT)
    made.publish()
    held = made.held()
    made.close()
    return made, held


@pytest.fixture(scope="module")
def machine(archive, tmp_path_factory):
    if reason := missing():
        pytest.fail(reason) if os.environ.get("CI") == "true" and os.geteuid() == 0 else pytest.skip(reason)
    with Machine.boot(tmp_path_factory.mktemp("booted")) as machine:
        machine.run("install -D -m 0644 systemd/tokiod.sysusers.conf /etc/sysusers.d/tokiod.conf; systemd-sysusers")
        machine.run("install -d -m 0755 /etc/tokiod /opt/tokiod/bin; mkdir /var/srv; mount --bind /var/srv /srv")
        for name in ("tokiod", "tokioctl"):
            machine.path(f"/opt/tokiod/bin/{name}").write_text(PROGRAM.format(CHECKOUT, PACKAGES, PYTHON, name))
        machine.path("/etc/tokiod/tokiod.toml").write_text(CONFIG + FILES + KAFKA.format(free_port()))
        machine.path("/var/lib/tokiod").mkdir()
        archive[0].tts.rename(machine.path("/var/lib/tokiod/tts"))
        machine.run("chown -R tokiod:tokiod-readers /var/lib/tokiod; chmod -R u=rwX,g=rX,o= /var/lib/tokiod")
        machine.run("chmod 0755 /opt/tokiod/bin/*; install -d -o tokiod-sink -m 0755 /srv/tokiod-parquet")
        machine.run("install -m 0644 systemd/tokiod-sink@.service /etc/systemd/system/")
        machine.run("install -D -m 0644 systemd/dropins/sink-files.conf /etc/systemd/system/tokiod-sink@files.service.d/files.conf")
        machine.run("systemctl daemon-reload")
        yield machine


def shown(machine, name):
    """Return what `tokioctl sinks` shows of a sink."""
    printed = machine.run("/opt/tokiod/bin/tokioctl sinks --json", check=False).stdout
    return next(one for one in json.loads(printed) if one["name"] == name)


def test_a_sealed_day_becomes_files_that_another_user_reads(machine, archive):
    machine.run("systemctl enable --now tokiod-sink@files", timeout=200)
    wait(lambda: shown(machine, "files")["records"] > 0, 60, machine.log)
    assert (shown(machine, "files")["state"], shown(machine, "files")["lag_windows"]) == ("running", 0)
    found = {}
    for path in machine.path("/srv/tokiod-parquet").rglob("part.parquet"):
        group, dataset = path.parts[-4].removeprefix("group="), path.parts[-3].removeprefix("dataset=")
        rows = pyarrow.parquet.read_table(path, partitioning=None).to_pylist()
        for row in rows:
            cells = {name: value for name, value in row.items() if name != "time" and value is not None}
            if cells:
                found[f"{group}/{dataset}", int(row["time"].timestamp())] = cells
    assert found == archive[1]
    assert len(found) > ROWS
    user = machine.run("ps -o uid= -p $(systemctl show --property=MainPID --value tokiod-sink@files)").stdout.strip()
    assert user == str(machine.run("id -u tokiod-sink").stdout.strip())


def test_a_sink_whose_receiver_does_not_answer_waits_with_the_reason_and_the_unit_stays_up(machine):
    machine.run("systemctl start tokiod-sink@kafka", timeout=200)
    wait(lambda: shown(machine, "kafka")["state"] == "waiting", 60, machine.log)
    assert "can't be reached: Connect call failed" in shown(machine, "kafka")["reason"]
    assert machine.show("tokiod-sink@kafka", "ActiveState") == "active"
    assert shown(machine, "files")["state"] == "running"


def test_a_killed_sink_is_started_again_and_a_reload_keeps_its_process(machine):
    before = machine.show("tokiod-sink@files", "MainPID")
    machine.run("systemctl reload tokiod-sink@files", timeout=200)
    assert machine.show("tokiod-sink@files", "MainPID") == before
    machine.run("systemctl kill --signal=KILL tokiod-sink@files")
    wait(lambda: machine.show("tokiod-sink@files", "MainPID") not in {before, "0"}, 60, machine.log)


def test_a_removed_sink_ends_for_good_and_leaves_nothing_behind(machine):
    wait(lambda: machine.show("tokiod-sink@files", "ActiveState") == "active", 60, machine.log)
    path = machine.path("/etc/tokiod/tokiod.toml")
    path.write_text(path.read_text().replace(FILES, ""))
    machine.run("systemctl reload tokiod-sink@files", timeout=200)
    wait(lambda: machine.show("tokiod-sink@files", "ActiveState") == "inactive", 60, machine.log)
    assert machine.show("tokiod-sink@files", "SubState") == "dead"
    assert not machine.path("/var/lib/tokiod-sinks/files").exists()
    assert machine.path("/var/lib/tokiod-sinks/kafka").exists()
    assert "Traceback" not in machine.log()
    assert f"system={SYSTEM}" in machine.run("ls /srv/tokiod-parquet").stdout
