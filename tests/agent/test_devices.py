"""Each byte counts once: which of the kernel's devices count, by what it says of them."""

import pytest

from tokiod.agent.devices import Disks, interfaces, namespace_of
from tokiod.agent.tree import Tree

DEVICES = "Character devices:\n  8 st\n253 aux\n\nBlock devices:\n  7 loop\n  8 sd\n251 zram\n253 device-mapper\n230 zvol\n259 blkext\n"


def made(root, *directories, files=(), links=()):
    for directory in directories:
        (root / directory).mkdir(parents=True)
    for path, text in files:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    for path, to in links:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).symlink_to(to)
    return Tree(str(root))


def disks_of(tree, *devices):
    """Return those of `MAJOR:MINOR NAME` that count."""
    disks, names = Disks(tree), {device.split()[1] for device in devices if " " in device}
    return [device for device in devices if disks.is_disk(*device.split(), **({"listed": names} if " " in device else {}))]


def test_a_disk_is_what_sys_block_has_and_is_made_of_no_other(tmp_path):
    tree = made(
        tmp_path,
        "sys/block/sda/slaves",
        "sys/block/sda/sda1",
        "sys/block/md127/slaves/sda1",
        "sys/block/dm-0/slaves/md127",
        "sys/block/bcache0/slaves/sda1",
        "sys/block/rbd0/slaves",
        "sys/block/xvda1",
        "sys/block/cciss!c0d0",
        "sys/block/cciss!c0d1/slaves/sda",
    )
    listed = ("8:0 sda", "8:1 sda1", "9:127 md127", "252:0 dm-0", "251:0 bcache0", "250:0 rbd0", "250:1 rbd0p1", "202:1 xvda1")
    assert disks_of(tree, *listed, "104:0 cciss/c0d0", "104:1 cciss/c0d0p1", "104:16 cciss/c0d1") == [
        "8:0 sda",
        "250:0 rbd0",
        "202:1 xvda1",
        "104:0 cciss/c0d0",
    ]


def test_devices_of_a_jobs_cgroup_are_decided_by_their_numbers(tmp_path):
    tree = made(
        tmp_path,
        "sys/dev/block/8:0/slaves",
        "sys/dev/block/253:0/slaves/sda2",
        "sys/dev/block/8:2/slaves",
        "sys/devices/virtual/block/zram0/slaves",
        files=[("sys/dev/block/8:2/partition", "2\n")],
        links=[("sys/dev/block/249:0", "../../devices/virtual/block/zram0")],
    )
    assert disks_of(tree, "8:0", "8:2", "253:0", "249:0", "7:3", "1:0", "43:0", "147:1", "9:0", "11:0", "2:0", "259:1") == ["8:0", "259:1"]


@pytest.mark.parametrize("attribute", ["partition", "dm", "md", "loop", "disksize"])
def test_a_device_says_itself_that_it_is_no_disk(tmp_path, attribute):
    tree = made(tmp_path, "sys/dev/block/240:0/queue", f"sys/dev/block/240:1/{attribute}")
    assert disks_of(tree, "240:0", "240:1") == ["240:0"]


def test_drivers_with_numbers_of_their_own_are_known_by_proc_devices(tmp_path):
    tree = made(tmp_path, files=[("proc/devices", DEVICES)])
    assert disks_of(tree, "8:0", "251:0", "253:0", "230:16", "259:0", "240:0") == ["8:0", "259:0", "240:0"]


def test_volumes_of_managers_that_name_no_disks_are_none(tmp_path):
    devices = "Character devices:\n  1 mem\n\nBlock devices:\n  8 sd\n120 emcpower\n199 VxVM\n"
    disks = [f"sys/block/{name}/slaves" for name in ("sda", "emcpowera", "VxVM1", "VxDMP1")]
    tree = made(tmp_path, *disks, files=[("proc/devices", devices)])
    assert disks_of(tree, "8:0 sda", "120:0 emcpowera", "199:1 VxVM1", "201:1 VxDMP1") == ["8:0 sda"]


@pytest.mark.parametrize("name", ["loop0", "ram1", "zram0", "dm-3", "md0", "md_d1", "sr0", "fd0", "nbd1", "drbd0", "bcache0"])
def test_the_names_that_drivers_give_are_enough_where_nothing_else_is_known(tmp_path, name):
    assert disks_of(Tree(str(tmp_path)), "240:0 sda", f"240:1 {name}") == ["240:0 sda"]


def test_without_sys_a_partition_is_what_has_its_disk_in_the_list(tmp_path):
    listed = ("8:0 sda", "8:10 sda10", "259:0 nvme0n1", "259:1 nvme0n1p2", "230:1 zd0p1", "230:0 zd0", "202:1 xvda1", "8:16 sdp1")
    assert disks_of(Tree(str(tmp_path)), *listed) == ["8:0 sda", "259:0 nvme0n1", "230:0 zd0", "202:1 xvda1", "8:16 sdp1"]


def test_a_device_with_a_name_is_known_by_its_number_where_sys_block_is_not_there(tmp_path):
    tree = made(tmp_path, "sys/dev/block/240:0/slaves", "sys/dev/block/240:1/slaves/vol0")
    assert disks_of(tree, "240:0 vol0", "240:1 vol1", "240:2 vol2") == ["240:0 vol0", "240:2 vol2"]


def test_a_device_whose_volume_is_taken_apart_does_not_become_a_disk_while_it_is_listed(tmp_path):
    tree = made(tmp_path, "sys/dev/block/253:0/slaves/sda2")
    disks = Disks(tree)
    assert not disks.is_disk("253:0")
    (tmp_path / "sys/dev/block/253:0/slaves/sda2").rmdir()
    disks.forget(but={"253:0"})
    assert not disks.is_disk("253:0")
    disks.forget()
    assert disks.is_disk("253:0")


def test_a_path_of_nvme_leads_to_its_namespace():
    assert [namespace_of(name) for name in ("nvme0c1n2", "nvme10c0n1", "nvme0n1", "nvme0c0n1p1", "sda")] == [
        "nvme0n2",
        "nvme10n1",
        None,
        None,
        None,
    ]


def test_interfaces_count_that_are_of_a_device_unless_their_master_is_too(tmp_path):
    net = "sys/class/net"
    tree = made(
        tmp_path,
        *(f"{net}/{name}/device" for name in ("eth0", "eth1", "eth2", "enP1", "ib0")),
        f"{net}/bond0",
        f"{net}/br0",
        f"{net}/veth1",
        f"{net}/lo",
        f"{net}/eth0.100",
        links=[
            (f"{net}/eth1/master", "../../../virtual/net/bond0"),
            (f"{net}/eth2/master", "../bond0"),
            (f"{net}/bond0/master", "../br0"),
            (f"{net}/enP1/master", "../../VMBUS:01/net/eth0"),
            (f"{net}/eth0/master", "../br0"),
            (f"{net}/veth1/master", "../br0"),
        ],
    )
    assert interfaces(tree) == ["eth0", "eth1", "eth2", "ib0"]


def test_a_node_without_interfaces_has_none(tmp_path):
    assert interfaces(Tree(str(tmp_path))) == []
