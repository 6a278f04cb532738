"""Counters that wrap or restart, by the files of captured trees: the row has the increase, or no value and never a wrong one."""

import json
import re
from pathlib import Path

import captured_tree
import pytest
from captured_tree import TREES, sampler

from tokiod.agent.rows import Rows
from tokiod.agent.sensors import SENSORS

PAGES = Path(__file__).parents[2] / "docs" / "sensors"
DISK_WRAP = 1 << 32
PORT = "sys/class/infiniband/mlx4_0/ports/1/counters"


def increases(root, change):
    """Return the increases within one row of two samples, the second after the tree was changed."""
    running = sampler(root)
    rows = Rows(metric for sensor in running.sensors for metric in sensor.metrics)
    rows.take(running.sample(0.0), 600.0)
    change()
    rows.take(running.sample(10.0), 610.0)
    running.close()
    return rows.at(600.0)


def test_each_sensor_that_reads_files_has_trees_of_two_kernels_versions_or_vendors():
    read = [json.loads(path.read_text())["read"] for path in TREES.glob("*.json")]
    counts = {sensor.name: sum(bool(of.get(sensor.name, {}).get("values")) for of in read) for sensor in SENSORS}
    reading = {page.stem for page in PAGES.iterdir() if re.search(r"^- Reads: .*/(proc|sys)/", page.read_text(), re.MULTILINE)}
    assert {name for name, count in counts.items() if count >= 2} == reading


def test_the_energy_of_a_processor_goes_on_where_its_counter_wraps(tmp_path):
    root = captured_tree.unpack("node_exporter", tmp_path)
    zone = root / "sys/class/powercap/intel-rapl:0"
    most = int((zone / "max_energy_range_uj").read_text())
    (zone / "energy_uj").write_text(f"{most - 4_000_000}\n")
    row = increases(root, lambda: (zone / "energy_uj").write_text("6000000\n"))
    assert row.values["energy_package", "0/package-0"] == pytest.approx(10.0)


def test_the_time_of_a_disk_goes_on_where_its_counter_of_32_bits_wraps(tmp_path):
    root = captured_tree.unpack("procfs", tmp_path)
    path = root / "proc/diskstats"

    def busy(milliseconds):
        lines = [line.split() for line in path.read_text().splitlines()]
        path.write_text("".join(f"{' '.join([*line[:12], str(milliseconds), *line[13:]])}\n" for line in lines))

    busy(DISK_WRAP - 250)
    row = increases(root, lambda: busy(500))
    found = [value for (metric, _), value in row.values.items() if metric == "disk_busy"]
    assert found == [pytest.approx(0.75)] * len(found)
    assert len(found) > 1


@pytest.mark.parametrize(
    ("tree", "file", "metrics"),
    [
        ("linux_6.18", "proc/stat", {"cpu_user", "interrupts", "forks"}),
        ("node_exporter", "proc/stat", {"cpu_user", "context_switches"}),
        ("linux_6.18", "proc/vmstat", {"page_faults", "paged_in"}),
        ("procfs", "proc/diskstats", {"disk_reads", "disk_written"}),
        ("linux_6.18", "proc/net/dev", {"net_received", "net_packets_sent"}),
        ("lustre_2.10", None, {"lustre_read", "lustre_open"}),
        ("lustre_2.14", None, {"lustre_read", "lustre_open"}),
    ],
)
def test_counters_that_restart_have_no_value_in_their_row_and_others_do(tmp_path, tree, file, metrics):
    """After a start of the node, a module or a mount all counters of a file are small."""
    root = captured_tree.unpack(tree, tmp_path)
    paths = [root / file] if file else [path for path in root.rglob("stats") if "llite" in str(path)]

    def restart():
        for path in paths:
            words = [line.split(" ") for line in path.read_text().splitlines()]
            small = [[word if not word.isdigit() or len(word) < 3 else word[-2:] for word in line] for line in words]
            path.write_text("".join(f"{' '.join(line)}\n" for line in small))

    row = increases(root, restart)
    found = row.of_node({metric.name: metric for sensor in SENSORS for metric in sensor.metrics}).keys()
    assert found.isdisjoint(metrics)
    if file:
        assert found & {"load_1min", "mem_total"}


def test_a_port_whose_old_counter_is_full_is_counted_and_its_value_is_not_used(tmp_path):
    root = captured_tree.unpack("node_exporter", tmp_path)
    for name in ("port_rcv_data", "port_rcv_data_64"):
        for path in root.rglob(name):
            path.write_text(f"{(1 << 32) - 1}\n") if not name.endswith("_64") else path.unlink()
    running = sampler(root)
    found = running.sample(0.0)["infiniband"]
    running.close()
    assert found.drops["saturated"] >= 1
    assert not [key for key in found.values if key[0] == "fabric_received"]
