"""What the sensors read from captured trees. A new tree, with the values that belong to it, is a new test."""

import json
import os
import shutil
from pathlib import Path

import captured_tree
import pytest
from captured_tree import NAMES, sampler

from tokiod.agent.sensors import SENSORS, lustre_client

NODE_EXPORTER = {
    "fabric_received": {"mlx4_0/1": 1.8527668e07},
    "fabric_sent": {"mlx4_0/1": 1.493376e07},
    "energy_package": {"0/package-0": 240422.366267},
    "energy_core": {"0:0/core": 118821.284256},
    "context_switches": {"": 3.8014093e07},
    "major_page_faults": {"": 507162},
    "mem_dirty": {"": 1.077248e06},
    "mem_active": {"": 2.287017984e09},
    "fan": {"nct6779/fan2": 1098, "applesmc.768/Left side": 0, "applesmc.768/Right side": 1998},
}
"""What node_exporter itself prints about its tree (collector/fixtures/e2e-output.txt)."""
DISKS = {"sda": (5.13713216512e11, 2.58916880384e11, 9653.880), "nvme0n1": (2.377714176e09, 2.0199236096e10, 222.766)}


def plain(readings):
    """Return readings as what JSON can hold."""
    values = {}
    for (metric, instance), value in readings.values.items():
        values.setdefault(metric, {})[instance] = value
    for (job, where, metric), value in readings.jobs.items():
        values.setdefault(" ".join(filter(None, (job, where))), {})[metric] = value
    return {"values": values, "dropped": dict(readings.drops)}


@pytest.fixture
def tree(tmp_path):
    return lambda name: captured_tree.unpack(name, tmp_path)


def held_open(root):
    """Return the files below a directory that this process holds open."""
    links = (f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd"))  # noqa: PTH208 - names alone
    return {file for file in (str(Path(link).readlink()) for link in links if os.path.lexists(link)) if file.startswith(f"{root}/")}


@pytest.mark.parametrize("name", NAMES)
def test_all_values_of_a_tree_are_read_and_what_is_missing_is_named(name, tree):
    root = tree(name)
    running = sampler(root)
    found = {sensor: plain(readings) for sensor, readings in running.sample(0.0).items()}
    running.close()
    assert held_open(root) == set()
    expected = json.loads((captured_tree.TREES / f"{name}.json").read_text())["read"]
    assert {sensor: what for sensor, what in found.items() if sensor not in running.absent} == expected
    assert running.absent.keys() == {sensor.name for sensor in SENSORS} - expected.keys()
    assert all(reason.startswith(("no ", "not ")) for reason in running.absent.values())


def test_the_values_are_those_of_node_exporter(tree):
    running = sampler(tree("node_exporter"))
    found = {metric: by for readings in running.sample(0.0).values() for metric, by in plain(readings)["values"].items()}
    running.close()
    # It reads port 2's old counters of 32 bits, where the tree has the wide ones too.
    assert {
        metric: {name: value for name, value in found[metric].items() if name != "mlx4_0/2"} for metric in NODE_EXPORTER
    } == NODE_EXPORTER
    assert {disk: tuple(found[metric][disk] for metric in ("disk_read", "disk_written", "disk_busy")) for disk in DISKS} == DISKS
    temperatures = {name: value for name, value in found["temperature"].items() if name.startswith("coretemp.0")}
    assert temperatures == {
        "coretemp.0/Physical id 0": 55, "coretemp.0/Core 0": 54, "coretemp.0/Core 1": 52, "coretemp.0/Core 2": 53, "coretemp.0/Core 3": 50,
    }  # fmt: skip


@pytest.mark.parametrize("name", ["lustre_2.10", "lustre_2.14", "node_exporter", "procfs"])
def test_files_of_a_device_that_is_gone_are_not_held_open_after_the_next_search(name, tree):
    root = tree(name)
    running = sampler(root)
    running.sample(0.0)
    places = ("sys/class/hwmon", "sys/class/thermal", "sys/class/infiniband", "sys/class/powercap", *lustre_client.PLACES)
    before = held_open(root)
    for place in (root / place for place in places if (root / place).is_dir()):
        device = min(place.iterdir())
        shutil.rmtree(device.resolve())
        if device.is_symlink():
            device.unlink()
    running.sample(70.0)
    after = held_open(root)
    running.close()
    assert after < before
    assert not [file for file in after if file.endswith(" (deleted)")]


@pytest.mark.parametrize("name", NAMES)
def test_every_value_is_of_a_metric_that_its_sensor_declares(name, tree):
    running = sampler(tree(name))
    declared = {sensor.name: {metric.name for metric in sensor.metrics} for sensor in SENSORS}
    for sensor, readings in running.sample(0.0).items():
        assert {metric for metric, _ in readings.values} | {metric for *_, metric in readings.jobs} <= declared[sensor]
    running.close()


def test_each_metric_has_one_sensor():
    names = [metric.name for sensor in SENSORS for metric in sensor.metrics]
    assert sorted(set(names)) == sorted(names)
