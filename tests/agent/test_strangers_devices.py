"""Nodes that others published, by the agent as a program: what ../shared/data/strangers/nodes/README.md calls right of their devices.

The same faults are tested by inputs in the tests of the sensors, for a clone without ../shared.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NODES = Path(os.environ.get("TOKIOD_SHARED", ROOT.parent / "shared")) / "data" / "strangers" / "nodes"

JOB, V1_JOB = "slurm:4530470", "slurm:38"
DISKS = ("nvme0n1", 23882648030), ("zd0", 16_000_000), ("rbd0", 400), ("cciss/c0d0", 80), ("emcpowera", 80)
LLITE = "ai400x-ffff96c77325c000", "lustrefs-ffff9bc043537800"

# Input, values of metrics by instance, values of metrics of one job, and what is dropped. A metric that is not named may have any.
RIGHT = [
    ("n01_iostat_loops", {}, {JOB: {"job_disk_read": 999678391296 + 9083418112 + 7480011776}}, set()),
    ("n03_iostat_torn", {}, {JOB: {"job_disk_read": None, "job_disk_writes": None, "job_cpu": 5.0}}, {"malformed"}),
    ("n04_iostat_unknown", {}, {JOB: {"job_disk_reads": 19, "job_disk_read": 241664 + 581632}}, set()),
    ("n09_diskstats_multipath", {"disk_read": {"nvme0n1": 4815165730 * 512}, "disk_writes": {"nvme0n1": 4187610}}, {}, set()),
    ("n11_diskstats_stacked", {"disk_read": {name: sectors * 512 for name, sectors in DISKS}}, {}, set()),
    ("n12_ib_saturated", {"fabric_packets_sent": {"mlx4_0/1": 123}, "fabric_receive_errors": {}}, {}, {"saturated"}),
    ("n13_llite", {"lustre_read": dict(zip(LLITE, (41809545646900, 5242880), strict=True))}, {}, set()),
    ("n15_hwmon_grace", {"power": {"ACPI000D:00/Module Power Socket 0": 531.9}}, {}, set()),
    ("n16_hwmon_429MW", {"power": {}, "temperature": {"coretemp/Physical id 0": 37.0}}, {}, {"no reading"}),
    ("n17_ipmi_openbmc_witherspoon", {"node_power": {"": 319}}, {}, set()),
    ("n17_ipmi_supermicro", {"node_power": {"": 109}}, {}, set()),
    ("n17_ipmi_zero_active", {"node_power": {}}, {}, {"not measuring"}),
    ("n21_v1_blkio_dm", {}, {V1_JOB: {"job_disk_read": 26947584, "job_disk_reads": 10}}, set()),
    ("n28_azure_vf", {"net_received": {"eth0": 5368709120}, "net_sent": {"eth0": 1073741824}}, {}, set()),
    ("n29_efa", {"fabric_received": {"rdmap16s27/1": 1 << 31}, "fabric_sent": {"rdmap16s27/1": 1 << 30}}, {}, set()),
]


def reported(name, root):
    """Return what the agent reports of an unpacked node: values, values of jobs, and what it dropped."""
    subprocess.run([sys.executable, str(NODES / "unpack.py"), str(NODES / name / "tree.json"), str(root)], check=True, timeout=60)
    line = [sys.executable, "-m", "tokiod.agent", "--once", "--json", "--root", str(root)]
    path = os.pathsep.join((str(NODES / name / "bin"), os.environ["PATH"]))
    found = json.loads(subprocess.run(line, cwd=ROOT, check=True, capture_output=True, timeout=120, env={"PATH": path}).stdout)
    values, jobs = {}, {}
    for one in found["values"]:
        values.setdefault(one["metric"], {})[one["instance"]] = one["value"]
    for one in found["jobs"]:
        jobs.setdefault(one["job"], {})[one["metric"]] = one["value"]
    return values, jobs, {one["reason"]: one["count"] for one in found["dropped"]}


@pytest.mark.skipif(not NODES.is_dir(), reason="no ../shared/data/strangers/nodes")
@pytest.mark.parametrize(("name", "values", "jobs", "dropped"), [pytest.param(*one, id=one[0]) for one in RIGHT])
def test_the_devices_of_a_published_node_count_once(tmp_path, name, values, jobs, dropped):
    found, of_jobs, lost = reported(name, tmp_path)
    assert {metric: found.get(metric, {}) for metric in values} == values
    assert {job: {metric: of_jobs[job].get(metric) for metric in metrics} for job, metrics in jobs.items()} == jobs
    # How often depends on how often a sensor was read.
    assert lost.keys() == dropped
