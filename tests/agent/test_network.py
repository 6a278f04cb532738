"""The sensor network: each byte once."""

import pytest

from tokiod.agent.sensor import Absent, Readings
from tokiod.agent.sensors.network import Network
from tokiod.agent.tree import Tree

HEAD = "Inter-|   Receive  |  Transmit\n face |bytes packets errs drop fifo |bytes packets errs drop fifo\n"
TCP = "Tcp: RtoAlgorithm RetransSegs InErrs\nTcp: 1 2 3\n"


@pytest.fixture
def node(tmp_path):
    (tmp_path / "proc/net").mkdir(parents=True)
    (tmp_path / "proc/net/snmp").write_text(TCP)
    for name in ("eth0", "enP1", "eth1"):
        (tmp_path / "sys/class/net" / name / "device").mkdir(parents=True)
    (tmp_path / "sys/class/net/bond0").mkdir()
    (tmp_path / "sys/class/net/enP1/master").symlink_to("../eth0")
    (tmp_path / "sys/class/net/eth1/master").symlink_to("../bond0")
    lines = (
        f"{name}: " + " ".join(str(number) for number in range(first, first + 16))
        for first, name in enumerate(("eth0", "enP1", "eth1", "bond0"))
    )
    (tmp_path / "proc/net/dev").write_text(HEAD + "\n".join(lines) + "\n")
    return tmp_path


def sampled(root):
    sensor, readings = Network(Tree(str(root))), Readings()
    sensor.find()
    sensor.sample(readings, 0.0)
    sensor.close()
    return readings


def test_all_counters_are_read_of_the_interfaces_that_count(node):
    names = ("received", "packets_received", "receive_errors", "receive_drops", "sent", "packets_sent", "send_errors", "send_drops")
    readings = sampled(node)
    assert readings.values == {
        **{(f"net_{metric}", name): first + column for first, name in ((0, "eth0"), (2, "eth1"))
           for metric, column in zip(names, (0, 1, 2, 3, 8, 9, 10, 11), strict=True)},
        ("tcp_retransmitted", ""): 2,
    }  # fmt: skip
    assert not readings.drops


def test_a_short_line_is_counted_with_its_interface(node):
    (node / "proc/net/dev").write_text(HEAD + "eth0: 1 2 3\neth1:" + " 5" * 16 + "\n")
    readings = sampled(node)
    assert readings.examples == {"malformed": "ValueError: the line of eth0 in /proc/net/dev has 3 fields"}
    assert readings.values["net_sent", "eth1"] == 5


def test_without_the_two_lines_of_tcp_that_is_counted(node):
    (node / "proc/net/snmp").write_text("Udp: InDatagrams\nUdp: 1\n")
    assert sampled(node).examples == {"malformed": "ValueError: no two lines Tcp: in /proc/net/snmp"}


def test_a_node_without_an_interface_of_a_device_says_so(tmp_path):
    with pytest.raises(Absent, match=r"no interface of a device in /sys/class/net"):
        Network(Tree(str(tmp_path))).find()
