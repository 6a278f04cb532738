"""The agent's Debian package on a machine with a systemd of its own: installed as docs/nodes.md says, hardened, seen by a real hub.

The tests are one story: the machine is booted once. The hub runs outside of it, on the network that both share.
"""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from booted import LOG, Machine, missing
from node_hub import HubOutside
from waiting import PATIENCE, wait_for

pytestmark = pytest.mark.system

ROOT = Path(__file__).parents[2]
UNIT = "tokiod-agent.service"
MAX_RESIDENT = 25_000_000
"""Of the agent, by issue 24."""
DPKG = """
set -eu
cp -a /lib/systemd/system /run/units
mount --bind /run/units /lib/systemd/system
mkdir -p /var/lib/dpkg/info /var/lib/dpkg/updates /var/lib/dpkg/triggers /var/log/apt
touch /var/lib/dpkg/status /var/lib/dpkg/available
dpkg --install --force-depends /var/tmp/agent.deb 2>&1
"""
"""The machine's system is read only, and its /var is empty: units are of its own, and dpkg knows no other package."""


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    if not shutil.which("dpkg-deb"):
        pytest.skip("dpkg-deb builds the package")
    directory = tmp_path_factory.mktemp("dist")
    line = ["sh", "packaging/build-agent.sh", str(directory)]
    built = subprocess.run(line, cwd=ROOT, env={**os.environ, "PYTHON": sys.executable}, capture_output=True, text=True, check=False)
    if built.returncode and "pip" in built.stderr.lower():
        pytest.skip(f"pyzmq's wheels can't be fetched: {built.stderr[-200:]}")
    assert built.returncode == 0, built.stderr
    return next(directory.glob("*.deb"))


@pytest.fixture(scope="module")
def hub(tmp_path_factory):
    outside = HubOutside(tmp_path_factory.mktemp("hub"))
    yield outside
    outside.close()


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    if reason := missing():
        pytest.fail(reason) if os.environ.get("CI") == "true" and os.geteuid() == 0 else pytest.skip(reason)
    with Machine.boot(tmp_path_factory.mktemp("booted")) as booted:
        booted.path("/run/systemd/system/tokiod-agent.service.d").mkdir(exist_ok=True)
        yield booted


def state(machine):
    return machine.run(f"systemctl show --property=ActiveState --value {UNIT}", check=False).stdout.strip()


def log(machine):
    return machine.path(LOG).read_text(errors="replace") if machine.path(LOG).exists() else ""


def shown(machine, name):
    return machine.run(f"systemctl show --property={name} --value {UNIT}").stdout.strip()


def test_the_package_is_installed_and_prints_what_the_node_would_report(machine, package):
    shutil.copy(package, machine.path("/var/tmp/agent.deb"))
    assert "Setting up tokiod-agent" in machine.run(DPKG, timeout=120).stdout
    assert machine.run("/opt/tokiod-agent/bin/tokiod-agent --once").stdout.startswith("node ")


def test_it_starts_with_the_files_that_the_document_names_and_the_hub_accepts_it(machine, hub):
    etc = machine.path("/etc/tokiod-agent")
    for name, copy in (("server.key", "hub.key"), ("compute.key_secret", "node.key_secret")):
        shutil.copy(hub.ring.directory / name, etc / copy)
    (etc / "node.key_secret").chmod(0o600)
    (etc / "agent.toml").write_text(
        f'hub = "tcp://127.0.0.1:{hub.port}"\nhub_key_file = "hub.key"\nkey_file = "node.key_secret"\nnode = "nid1"\n'
        'perf_node = ["page_faults"]\nperf_jobs = ["task_clock", "page_faults"]\n'
    )
    dropins = machine.path("/run/systemd/system/tokiod-agent.service.d")
    shutil.copy(ROOT / "systemd" / "dropins" / "agent-perf.conf", dropins)
    machine.run(f"systemctl daemon-reload; systemctl enable --now {UNIT}", timeout=90)
    wait_for(lambda: state(machine) == "active", 60, lambda: log(machine))
    wait_for(lambda: "nid1" in hub.nodes, 60, lambda: log(machine))
    wait_for(lambda: "hub: connected" in shown(machine, "StatusText"), 60, lambda: shown(machine, "StatusText"))


def test_a_sensor_without_anything_to_read_is_reported_once_and_the_others_go_on(machine):
    time.sleep(5 * PATIENCE)
    absent = [line for line in log(machine).splitlines() if "nothing to read" in line]
    assert len(absent) == len(set(absent)) >= 3
    named = {line.partition("sensor ")[2].partition(":")[0] for line in absent}
    assert {"ipmi", "nvidia"} <= named
    # The drop-in gives the right to count perf events.
    assert "perf" not in named
    assert "no perf events" not in log(machine)
    assert "Traceback" not in log(machine)


def test_a_row_of_the_node_and_a_job_in_its_cgroups_reach_the_hub(machine, hub):
    machine.run("mkdir -p /sys/fs/cgroup/system.slice/slurmstepd.scope")
    start = int(time.time()) // 60 * 60 + 60
    wait_for(lambda: time.time() > start + 2, 70, "the minute does not begin")
    job = "/sys/fs/cgroup/system.slice/slurmstepd.scope/job_77"
    # The children of the pipe touch pages, which the loop alone need not do.
    computing = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; true | true"
    machine.run(f"mkdir {job}; sh -c 'echo $$ > {job}/cgroup.procs; {computing}'; sleep 0.3; rmdir {job}")
    wait_for(lambda: time.time() > start + 61, 70, "the minute does not end")
    data = hub.collect(start)
    cells = {batch.dataset: batch.value.tolist() for batch in data.batches}
    assert len(cells["nodes/mem_total"]) == len(cells["nodes/cpu_user"]) == len(cells["nodes/load_1min"]) == 1
    (rows,) = data.tables
    found = dict(zip(rows.columns, rows.values, strict=True))
    assert found["job"][0].startswith(b"77\x1f")
    assert (found["target"].tolist(), found["ended"].tolist()) == ([b"nid1"], [1])
    assert 10_000 < found["cpu.sum"][0] < 20_000_000
    # By perf events, from the moment at which the agent met the cgroup.
    assert 0.5 * found["cpu.sum"][0] < found["perf_task_clock.sum"][0] < 1.1 * found["cpu.sum"][0] + 10_000
    assert found["perf_page_faults.samples"][0] > 0


def test_it_takes_little_memory_and_has_no_process_but_its_own(machine):
    pid = shown(machine, "MainPID")
    status = machine.path(f"/proc/{pid}/status").read_text()
    resident = int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) * 1024
    print(f"resident {resident / 1e6:.1f} MB, CPU {int(shown(machine, 'CPUUsageNSec')) / 1e9:.2f} s")
    assert resident < MAX_RESIDENT
    assert machine.run(f"cat /proc/{pid}/task/{pid}/children").stdout == ""


def test_a_killed_agent_is_started_again_and_a_stop_ends_it(machine, hub):
    session = hub.nodes["nid1"].session
    machine.run(f"systemctl kill --signal=KILL {UNIT}")
    wait_for(lambda: hub.nodes["nid1"].session != session, 90, lambda: log(machine))
    machine.run(f"systemctl stop {UNIT}", timeout=30)
    assert state(machine) == "inactive"
    assert "watchdog" not in log(machine).lower()
