"""The sensor rapl: each kind of zone is a metric of its own, and wraps where the zone says."""

import pytest

from tokiod.agent.rows import Rows
from tokiod.agent.sensor import Absent, Readings
from tokiod.agent.sensors.rapl import Rapl
from tokiod.agent.tree import Tree

ZONES = {
    "intel-rapl:0": "package-0", "intel-rapl:0:0": "core", "intel-rapl:0:1": "dram", "intel-rapl:1": "package-1-die-0",
    "intel-rapl:2": "psys", "intel-rapl-mmio:0": "package-0", "intel-rapl:3": "unknown",
}  # fmt: skip


def put(root, zone, kind, energy=3_000_000, most=10_000_000):
    path = root / "sys/class/powercap" / zone
    path.mkdir(parents=True, exist_ok=True)
    for name, text in (("name", kind), ("energy_uj", energy), ("max_energy_range_uj", most)):
        (path / name).write_text(f"{text}\n")
    return path


@pytest.fixture
def sensor(tmp_path):
    for zone, kind in ZONES.items():
        put(tmp_path, zone, kind)
    made = Rapl(Tree(str(tmp_path)))
    made.find()
    yield made
    made.close()


def sampled(sensor):
    readings = Readings()
    sensor.sample(readings, 0.0)
    return readings


def test_parts_of_a_package_are_not_added_to_it(sensor):
    assert sampled(sensor).values == {
        ("energy_package", "0/package-0"): 3.0, ("energy_package", "1/package-1-die-0"): 3.0, ("energy_core", "0:0/core"): 3.0,
        ("energy_dram", "0:1/dram"): 3.0, ("energy_platform", "2/psys"): 3.0,
    }  # fmt: skip


def test_the_energy_of_the_eleventh_package_counts(sensor, tmp_path):
    put(tmp_path, "intel-rapl:a", "package-10")  # as prometheus/procfs has it in testdata/fixtures.ttar
    put(tmp_path, "intel-rapl:1f:0", "dram")
    sensor.find()
    assert {("energy_package", "a/package-10"): 3.0, ("energy_dram", "1f:0/dram"): 3.0}.items() <= sampled(sensor).values.items()


def test_a_zone_wraps_where_it_says(sensor, tmp_path):
    rows = Rows(sensor.metrics)
    for time, energy in enumerate((9_000_000, 1_000_000)):
        put(tmp_path, "intel-rapl:0", "package-0", energy)
        rows.take({"rapl": sampled(sensor)}, 60.0 + time)
    assert rows.at(60.0).values["energy_package", "0/package-0"] == pytest.approx(2.0)


def test_zones_come_and_go_with_a_search(sensor, tmp_path):
    sampled(sensor)
    for file in (old := tmp_path / "sys/class/powercap/intel-rapl:1").iterdir():
        file.unlink()
    old.rmdir()
    put(tmp_path, "intel-rapl:4", "package-2")
    sensor.find()
    assert [name for metric, name in sampled(sensor).values if metric == "energy_package"] == ["0/package-0", "4/package-2"]


def test_a_node_without_zones_says_so(tmp_path):
    with pytest.raises(Absent, match=r"no zone intel-rapl in /sys/class/powercap"):
        Rapl(Tree(str(tmp_path))).find()
