"""The sensor disk: each byte once, also of namespaces of NVMe with several paths, and disks that come and go."""

import pytest

from tokiod.agent.rows import Rows
from tokiod.agent.sensor import Absent, Readings
from tokiod.agent.sensors.disk import Disk
from tokiod.agent.tree import Tree

WRAP_MS = 1 << 32
SECTOR_BYTES = 512


def line(device, read, busy_ms=0, queued=0):
    return f"{device} {read} 0 {read} 0 0 0 {2 * read} 0 {queued} {busy_ms} 0\n"


class Node:
    """The sensor over a list of disks, and the rows that it fills every ten seconds."""

    def __init__(self, root):
        self.file = root / "proc/diskstats"
        self.file.parent.mkdir()
        self.file.write_text(line("8:0 sda".replace(":", " "), 0))
        self.sensor = Disk(Tree(str(root)))
        self.rows, self.time = Rows(self.sensor.metrics, step=3600.0), 0.0

    def read(self, *lines):
        self.file.write_text("".join(line(device.replace(":", " "), *counts) for device, *counts in lines))
        readings = Readings()
        self.sensor.find()
        self.sensor.sample(readings, self.time)
        self.rows.take({"disk": readings}, self.time)
        self.time += 10.0
        return {key: value for key, value in readings.values.items() if key[0] in {"disk_read", "disk_busy", "disk_queue"}}

    def total(self, name):
        return self.rows.at(0.0).of_node({metric.name: metric for metric in self.sensor.metrics}).get(name)


@pytest.fixture
def node(tmp_path):
    made = Node(tmp_path)
    yield made
    made.sensor.close()


@pytest.mark.parametrize(
    ("own", "paths", "counted"), [(0, (700, 100), 800), (800, (700, 100), 800), (900, (700, 100), 900), (300, (700, 100), 800)]
)
def test_a_namespace_has_the_larger_of_its_own_counts_and_the_sum_over_its_paths(node, own, paths, counted):
    of_paths = [(f"0:0 nvme0c{number}n1", value) for number, value in enumerate(paths)]
    found = node.read(*of_paths, ("259:1 nvme0n1", own))
    assert {key: value for key, value in found.items() if key[0] == "disk_read"} == {("disk_read", "nvme0n1"): counted * SECTOR_BYTES}


def test_namespaces_are_apart_from_each_other_and_from_disks_without_paths(node):
    found = node.read(("0:0 nvme0c0n1", 7), ("0:0 nvme0c0n2", 70), ("259:1 nvme0n1", 0), ("259:2 nvme0n2", 0), ("259:3 nvme1n1", 700))
    assert {name: value // SECTOR_BYTES for (metric, name), value in found.items() if metric == "disk_read"} == {
        "nvme0n1": 7, "nvme0n2": 70, "nvme1n1": 700,
    }  # fmt: skip


def test_paths_that_go_and_return_lose_no_byte_and_invent_none(node):
    head = ("259:1 nvme0n1", 0)
    node.read(("0:0 nvme0c0n1", 1000), ("0:0 nvme0c1n1", 5000), head)
    node.read(("0:0 nvme0c0n1", 1010), head)
    node.read(("0:0 nvme0c0n1", 1020), ("0:0 nvme0c1n1", 7), head)
    assert node.total("disk_read") == 27 * SECTOR_BYTES


def test_a_namespace_is_busy_as_its_busiest_path_is_and_the_wrap_of_one_is_no_fall(node):
    head = ("259:1 nvme0n1", 0, 0, 1)
    busy = [
        node.read(("0:0 nvme0c0n1", 0, first, 2), ("0:0 nvme0c1n1", 0, second, 3), head)
        for first, second in ((WRAP_MS - 1000, 4000), (500, 5000), (2500, 6000))
    ]
    assert [found["disk_busy", "nvme0n1"] for found in busy] == [
        pytest.approx(seconds) for seconds in (4294966.296, 4294966.296, 4294968.296)
    ]
    assert busy[-1]["disk_queue", "nvme0n1"] == 5
    assert node.total("disk_busy") == pytest.approx(2.0)


def test_the_time_of_a_disk_goes_on_where_it_wraps(node):
    for busy_ms in (WRAP_MS - 250, 500):
        node.read(("8:0 sda", 0, busy_ms))
    assert node.total("disk_busy") == pytest.approx(0.75)


def test_the_sum_over_the_paths_is_forgotten_with_the_namespace(node):
    node.read(("0:0 nvme0c0n1", 1000), ("8:0 sda", 5))
    node.read(("8:0 sda", 5))
    assert node.read(("0:0 nvme0c0n1", 40), ("8:0 sda", 5))["disk_read", "nvme0n1"] == 40 * SECTOR_BYTES


def test_a_disk_that_is_back_has_no_increase_over_its_time_away(node):
    node.read(("8:0 sda", 10), ("8:16 sdb", 1000))
    node.read(("8:0 sda", 20))
    assert node.total("disk_read") == 10 * SECTOR_BYTES
    node.read(("8:0 sda", 30), ("8:16 sdb", 5000))
    # What the new disk had read before the sample belongs to no one known: the row has no sum.
    assert node.total("disk_read") is None


@pytest.mark.parametrize("further", ["", " 7 7 7 7", " 7 7 7 7 7 7"])
@pytest.mark.parametrize("name", ["sda", "nvme0c0n1"])
def test_all_counts_of_a_line_are_read_in_every_kernel(node, name, further):
    node.file.write_text(f"8 0 {name} 1 2 3 4 5 6 7 8 9 10000 11{further}\n8 16 sdb 0 0 0 0 0 0 0 0 0 0 0{further}\n")
    readings = Readings()
    node.sensor.find()
    node.sensor.sample(readings, 0.0)
    of = name.replace("c0", "")
    counts = {"disk_reads": 1, "disk_read": 3 * 512, "disk_writes": 5, "disk_written": 7 * 512, "disk_queue": 9, "disk_busy": 10.0}
    assert readings.values == {(metric, disk): value * (disk == of) for disk in (of, "sdb") for metric, value in counts.items()}


def test_a_namespace_whose_paths_did_nothing_has_zeros(node):
    assert set(node.read(("0:0 nvme0c0n1", 0), ("8:0 sda", 1)).items()) >= {(("disk_queue", "nvme0n1"), 0), (("disk_read", "nvme0n1"), 0)}


def test_a_short_line_of_a_disk_is_counted_and_one_of_a_partition_is_not(node):
    node.file.write_text("8 0 sda 1 2 3\n8 1 sda1 1 2 3 4\n" + line("8 16 sdb", 9))
    readings = Readings()
    node.sensor.find()
    node.sensor.sample(readings, 0.0)
    assert dict(readings.drops) == {"malformed": 1}
    assert readings.values["disk_reads", "sdb"] == 9


def test_a_list_without_a_disk_is_absent(node):
    node.file.write_text(line("7 0 loop0", 5))
    with pytest.raises(Absent, match=r"no disk in /proc/diskstats"):
        node.sensor.find()
    node.file.unlink()
    with pytest.raises(Absent, match=r"no /proc/diskstats"):
        node.sensor.find()


def test_the_disks_are_those_of_sys_block_that_are_made_of_no_other(node, tmp_path):
    for directory in ("sda/slaves", "bcache0/slaves/sda", "cciss!c0d0/slaves", "rbd0"):
        (tmp_path / "sys/block" / directory).mkdir(parents=True)
    devices = ("8:0 sda", "8:1 sda1", "252:0 bcache0", "104:0 cciss/c0d0", "104:1 cciss/c0d0p1", "251:0 rbd0", "251:1 rbd0p1")
    found = node.read(*((device, 100) for device in devices), ("0:0 nvme0c0n1", 5))
    assert [name for metric, name in found if metric == "disk_read"] == ["sda", "cciss/c0d0", "rbd0", "nvme0n1"]
