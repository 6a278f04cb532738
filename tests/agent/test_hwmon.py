"""The sensor hwmon: each watt once, and no value of a meter that has no reading."""

import pytest

from tokiod.agent.rows import Rows
from tokiod.agent.sensor import Absent, Readings
from tokiod.agent.sensors.hwmon import Hwmon
from tokiod.agent.tree import Tree

ALL_ONES = (1 << 32) - 1
GRACE = ("Module Power Socket {}", 531.9), ("Grace Power Socket {}", 259.0), ("CPU Power Socket {}", 251.4), ("SysIO Power Socket {}", 2.7)


class Machine:
    """A tree of hwmon, in which each chip has its device."""

    def __init__(self, root):
        self.root, self.chips = root, 0

    def put(self, driver, files, device="", measures=()):
        """Add a chip. device: where its files are, too, for a meter of ACPI; measures: what it says that it measures."""
        chip = self.root / f"sys/class/hwmon/hwmon{self.chips}"
        device = device or f"pci0000:00/0000:0{self.chips}:00.0"
        own = self.root / "sys/devices" / device
        own.mkdir(parents=True, exist_ok=True)
        chip.mkdir(parents=True)
        (chip / "name").write_text(f"{driver}\n")
        (chip / "device").symlink_to(own)
        for name, text in files.items():
            ((own if driver == "power_meter" else chip) / name).write_text(f"{text}\n")
        for number, measured in enumerate(measures):
            (own / "measures").mkdir(exist_ok=True)
            (own / "measures" / f"device:{number}").symlink_to(self.root / "sys/devices" / measured)
        self.chips += 1

    def acpi(self, watts, label="", measures=()):
        files = {"power1_average": int(watts * 1e6), **({"power1_oem_info": label} if label else {})}
        self.put("power_meter", files, f"LNXSYSTM:00/LNXSYBUS:00/ACPI000D:{self.chips:02}", measures)

    def sample(self):
        sensor, readings = Hwmon(Tree(str(self.root))), Readings()
        sensor.find()
        sensor.sample(readings, 0.0)
        sensor.close()
        return readings

    def power(self):
        """Return the meters that count, by their labels, and the power of the node."""
        readings = self.sample()
        assert not readings.drops
        rows = Rows(Hwmon.metrics)
        rows.take({"hwmon": readings}, 0.0)
        found = {instance.partition("/")[2]: value for (metric, instance), value in readings.values.items() if metric == "power"}
        return found, rows.at(0.0).of_node({metric.name: metric for metric in Hwmon.metrics})["power"]


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


def test_a_module_contains_its_grace_which_contains_its_cpu_and_its_sysio(machine):
    for socket in (0, 1):
        for label, watts in GRACE:
            machine.acpi(watts, label.format(socket))
    assert machine.power() == ({"Module Power Socket 0": 531.9, "Module Power Socket 1": 531.9}, pytest.approx(1063.8))


def test_without_a_module_grace_counts_and_without_grace_its_parts(machine):
    machine.acpi(259.0, "Grace Power Socket 0")
    machine.acpi(251.4, "CPU Power Socket 0")
    machine.acpi(80.0, "CPU Power Socket 1")
    machine.acpi(3.0, "SysIO Power Socket 1")
    assert machine.power()[0] == {"Grace Power Socket 0": 259.0, "CPU Power Socket 1": 80.0, "SysIO Power Socket 1": 3.0}


def test_meters_of_one_chip_are_nested_by_their_labels_too(machine):
    labels = {f"power{number}_oem_info": label.format(0) for number, (label, _) in enumerate(GRACE, 1)}
    machine.put("power_meter", {**labels, **{f"power{number}_average": int(watts * 1e6) for number, (_, watts) in enumerate(GRACE, 1)}})
    assert machine.power()[0] == {"Module Power Socket 0": 531.9}


def test_the_meter_of_the_machine_contains_those_of_its_gpus(machine):
    machine.put("amdgpu", {"power1_average": 300_000_000, "power1_label": "PPT"})
    machine.acpi(1200.0)
    machine.put("amdgpu", {"power1_average": 310_000_000, "power1_label": "PPT"})
    assert machine.power() == ({"power1": 1200.0}, 1200.0)


def test_a_meter_of_acpi_that_names_a_part_is_not_that_of_the_machine(machine):
    for label in ("CPU Power", "Memory", "Total Power", "GPU 0", "PCIe"):
        machine.acpi(100.0, label)
    assert machine.power() == ({"Total Power": 100.0}, 100.0)


def test_two_meters_of_the_machine_are_those_of_its_two_supplies(machine):
    machine.acpi(600.0, measures=["LNXSYSTM:00/LNXSYBUS:00"])
    machine.acpi(500.0, measures=["LNXSYSTM:00/LNXSYBUS:00"])
    machine.acpi(90.0, "CPU Power Socket 0")
    machine.put("amdgpu", {"power1_average": 300_000_000})
    assert machine.power()[1] == 1100.0


def test_a_meter_contains_what_acpi_says_that_it_measures(machine):
    machine.put("amdgpu", {"power1_average": 300_000_000, "power1_label": "PPT"}, "pci0000:00/0000:0a:00.0")
    machine.put("amdgpu", {"power1_average": 310_000_000, "power1_label": "other"}, "pci0000:00/0000:0a:00.1")
    acpi = machine.root / "sys/devices/LNXSYSTM:00/LNXSYBUS:00/PNP0A08:00"
    acpi.mkdir(parents=True)
    (acpi / "physical_node").symlink_to(machine.root / "sys/devices/pci0000:00/0000:0a:00.0")
    machine.acpi(700.0, "Riser", measures=["LNXSYSTM:00/LNXSYBUS:00/PNP0A08:00"])
    assert machine.power() == ({"Riser": 700.0, "other": 310.0}, 1010.0)


def test_a_meter_that_measures_the_system_among_others_is_that_of_the_machine(machine):
    machine.put("amdgpu", {"power1_average": 300_000_000}, "pci0000:00/0000:0a:00.0")
    machine.put("amdgpu", {"power1_average": 310_000_000}, "pci0000:00/0000:0b:00.0")
    machine.acpi(900.0, "CPU", measures=["pci0000:00/0000:0a:00.0", "LNXSYSTM:00/LNXSYBUS:00"])
    assert machine.power()[1] == 900.0


def test_two_meters_that_each_measure_the_other_both_count(machine):
    for other in ("01", "00"):
        machine.acpi(100.0, f"of {other}", measures=[f"LNXSYSTM:00/LNXSYBUS:00/ACPI000D:{other}"])
        (machine.root / f"sys/devices/LNXSYSTM:00/LNXSYBUS:00/ACPI000D:{other}").mkdir(exist_ok=True)
    assert machine.power()[1] == 200.0


@pytest.mark.parametrize(
    ("labels", "counted"),
    [(("pin", "pout1", "pout2"), {"pin"}), (("power total", "power +12v"), {"power total"}), (("System", "Proc0"), {"System"}),
     (("in 0", "in 1"), {"in 0", "in 1"}), (("totally", "other"), {"totally", "other"})],
)  # fmt: skip
def test_the_total_of_a_chip_contains_its_other_meters(machine, labels, counted):
    machine.put("pmbus", {f"power{number}_input": 1_000_000 for number in range(1, len(labels) + 1)}
                | {f"power{number}_label": label for number, label in enumerate(labels, 1)})  # fmt: skip
    machine.put("pmbus", {"power1_input": 5_000_000, "power1_label": "of another"})
    assert machine.power()[0].keys() == {*counted, "of another"}


def test_the_average_of_a_meter_comes_before_its_momentary_value(machine):
    machine.put("amdgpu", {"power1_input": 1_000_000, "power1_average": 2_000_000})
    assert machine.power() == ({"power1": 2.0}, 2.0)


@pytest.mark.parametrize("unit", [1, 1000, 1_000_000])
@pytest.mark.parametrize("bits", [32, 64])
def test_all_ones_in_the_unit_of_any_meter_is_no_reading(machine, bits, unit):
    machine.put("amdgpu", {"power1_input": ((1 << bits) - 1) * unit})
    readings = machine.sample()
    assert (readings.values, dict(readings.drops)) == ({}, {"no reading": 1})


def test_a_power_that_no_node_has_is_implausible(machine):
    machine.put("amdgpu", {"power1_input": 30_000_000_000, "power2_input": 30_000_000_001, "fan1_input": 60_000, "fan2_input": 65_535})
    readings = machine.sample()
    assert {metric: value for (metric, _), value in readings.values.items()} == {"power": 30_000.0, "fan": 60_000.0}
    assert dict(readings.drops) == {"implausible": 2}


def test_the_firmwares_meter_never_measures_nothing_and_a_gpu_may(machine):
    machine.acpi(0)
    assert machine.sample().drops == {"not measuring": 1}
    (machine.root / "sys/devices/LNXSYSTM:00/LNXSYBUS:00/ACPI000D:00/power1_average").unlink()
    machine.put("amdgpu", {"power1_average": 0})
    assert machine.power()[1] == 0


@pytest.mark.parametrize(("millidegrees", "is_read"), [(-55_000, False), (-54_999, True), (0, True), (199_999, True), (200_000, False)])
def test_a_temperature_beyond_those_of_a_sensor_is_not_connected(machine, millidegrees, is_read):
    machine.put("coretemp", {"temp1_input": millidegrees})
    readings = machine.sample()
    assert (len(readings.values), readings.drops) == ((1, {}) if is_read else (0, {"not connected": 1}))


def test_chips_of_one_device_have_their_own_names_too_and_others_the_devices(machine):
    for driver, device in (("radio0", "card"), ("radio1", "card"), ("nvme", "disk")):
        machine.put(driver, {"temp1_input": 40_000}, device)
    assert [instance for _, instance in machine.sample().values] == ["card.radio0/temp1", "card.radio1/temp1", "disk/temp1"]


def test_a_chip_without_a_device_has_the_name_of_its_driver(tmp_path):
    for chip, driver in (("hwmon0", "nct6779"), ("hwmon1", "")):
        (tmp_path / "sys/class/hwmon" / chip).mkdir(parents=True)
        (tmp_path / "sys/class/hwmon" / chip / "name").write_text(driver)
        (tmp_path / "sys/class/hwmon" / chip / "fan1_input").write_text("900\n")
    assert [instance for _, instance in Machine(tmp_path).sample().values] == ["nct6779/fan1", "unknown/fan1"]


def test_a_machine_without_sensors_says_so(tmp_path):
    with pytest.raises(Absent, match=r"no sensor in /sys/class/hwmon and /sys/class/thermal"):
        Hwmon(Tree(str(tmp_path))).find()
