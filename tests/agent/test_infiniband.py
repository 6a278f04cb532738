"""The sensor infiniband: counters that are full have no value, and ports without InfiniBand's counters those that they have."""

import pytest

from tokiod.agent.sensor import Absent, Readings
from tokiod.agent.sensors.infiniband import Infiniband
from tokiod.agent.tree import Tree

BITS = {
    "port_rcv_data": ("fabric_received", 32), "port_xmit_data": ("fabric_sent", 32), "port_rcv_packets": ("fabric_packets_received", 32),
    "port_xmit_packets": ("fabric_packets_sent", 32), "port_xmit_wait": ("fabric_send_waits", 32),
    "port_rcv_errors": ("fabric_receive_errors", 16), "port_xmit_discards": ("fabric_send_drops", 16),
    "symbol_error": ("fabric_symbol_errors", 16), "link_downed": ("fabric_link_downs", 8),
}  # fmt: skip
DATA = {"port_rcv_data", "port_xmit_data"}


def put(root, directory, counts):
    path = root / "sys/class/infiniband/mlx5_0/ports/1" / directory
    path.mkdir(parents=True, exist_ok=True)
    for name, value in counts.items():
        (path / name).write_text(f"{value}\n")


def sampled(root):
    sensor, readings = Infiniband(Tree(str(root))), Readings()
    sensor.find()
    sensor.sample(readings, 0.0)
    sensor.close()
    return {metric: value for (metric, _), value in readings.values.items()}, dict(readings.drops)


@pytest.mark.parametrize("beyond", [-1, 1])
def test_a_counter_is_read_up_to_and_beyond_its_full_width(tmp_path, beyond):
    put(tmp_path, "counters", {name: (1 << bits) - 1 + beyond for name, (_, bits) in BITS.items()})
    assert sampled(tmp_path) == (
        {metric: ((1 << bits) - 1 + beyond) * (4 if name in DATA else 1) for name, (metric, bits) in BITS.items()},
        {},
    )


@pytest.mark.parametrize("bits", [None, 32, 64])
def test_a_full_counter_has_no_value(tmp_path, bits):
    put(tmp_path, "counters", {name: (1 << (bits or own)) - 1 for name, (_, own) in BITS.items()})
    assert sampled(tmp_path) == ({}, {"saturated": len(BITS)})


def test_a_counter_of_64_bits_is_not_full_at_32(tmp_path):
    put(tmp_path, "counters_ext", {"port_rcv_data_64": (1 << 32) - 1, "port_xmit_data_64": (1 << 64) - 1})
    put(tmp_path, "counters", {"port_rcv_data": 7})
    assert sampled(tmp_path) == ({"fabric_received": 4 * ((1 << 32) - 1)}, {"saturated": 1})


def test_a_port_without_counters_has_those_of_its_hardware(tmp_path):
    put(tmp_path, "hw_counters", {"rx_bytes": 70, "tx_bytes": (1 << 32) - 1, "rx_pkts": 7, "tx_pkts": 8, "rx_drops": 9})
    assert sampled(tmp_path) == (
        {"fabric_received": 70, "fabric_sent": (1 << 32) - 1, "fabric_packets_received": 7, "fabric_packets_sent": 8},
        {},
    )


def test_a_full_counter_of_its_hardware_has_no_value(tmp_path):
    put(tmp_path, "hw_counters", {"rx_bytes": (1 << 64) - 1})
    assert sampled(tmp_path) == ({}, {"saturated": 1})
    put(tmp_path, "hw_counters", {"rx_bytes": (1 << 63) - 1})
    assert sampled(tmp_path) == ({}, {"implausible": 1})


def test_counters_of_the_port_come_before_those_of_its_hardware_unless_it_does_not_count(tmp_path):
    put(tmp_path, "counters", {"port_rcv_data": 5, "port_xmit_data": "N/A (no PMA)"})
    put(tmp_path, "hw_counters", {"rx_bytes": 70, "tx_bytes": 80})
    assert sampled(tmp_path) == ({"fabric_received": 20, "fabric_sent": 80}, {})


def test_a_port_that_counts_nothing_is_absent(tmp_path):
    put(tmp_path, "counters", {"port_rcv_data": "N/A (no PMA)"})
    with pytest.raises(Absent, match=r"no port with counters in /sys/class/infiniband"):
        sampled(tmp_path)
