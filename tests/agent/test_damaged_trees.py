"""Files that vanish, are garbage or cannot be read: a counted reason, and the other values stay as they are."""

import random

import captured_tree
import pytest
from captured_tree import NAMES, sampler

GARBAGE = {
    "empty": b"",
    "a line": b"\n",
    "binary": bytes(range(256)) * 20,
    "zeros": bytes(4096),
    "too large a number": b"9" * 400,
    "negative": b"-1\n",
    "nan": b"nan\n",
    "words": b"some total avg10 cpu: {} : - job_id\n" * 50,
    "no answer": b"N/A (no PMA)\n",
}
FAULT = "fault in the sensor"


def files(root):
    return sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())


def everything(found):
    return {(sensor, key): value for sensor, readings in found.items() for key, value in [*readings.values.items(), *readings.jobs.items()]}


def faults(found):
    return {sensor: readings.examples[FAULT] for sensor, readings in found.items() if FAULT in readings.drops}


def die(running):
    """Close what is open: a removed file of the kernel cannot be read through an old descriptor, and one of a directory here could."""
    for sensor in running.sensors:
        for holder in sensor.jobs.values() if sensor.name == "jobs" else [sensor]:
            holder.close()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("garbage", GARBAGE)
def test_garbage_in_any_file_is_counted_and_changes_no_value_of_another_file(name, garbage, tmp_path):
    root = captured_tree.unpack(name, tmp_path)
    running = sampler(root)
    whole = everything(running.sample(0.0))
    time = 0.0
    for path in files(root):
        text = path.read_bytes()
        path.write_bytes(GARBAGE[garbage])
        found = running.sample(time := time + 10.0)
        assert faults(found) == {}
        changed = {key for key, value in everything(found).items() if whole.get(key) != value}
        assert {sensor for sensor, _ in changed} <= {sensor for sensor, readings in found.items() if readings.drops} | set(may_be(path))
        path.write_bytes(text)
    assert everything(running.sample(time + 10.0)).keys() <= whole.keys()
    running.close()


def may_be(path):
    """Return the sensors for which garbage in this file can be a value: a number alone is one whatever it is."""
    return ("hwmon", "infiniband", "jobs", "rapl") if path.name not in {"stat", "meminfo"} else ()


@pytest.mark.parametrize("name", NAMES)
def test_every_cut_of_every_file_is_survived(name, tmp_path):
    root = captured_tree.unpack(name, tmp_path)
    running, drawn, time = sampler(root), random.Random(name), 0.0
    running.sample(time)
    for path in files(root):
        text = path.read_bytes()
        for _ in range(10):
            path.write_bytes(text[: drawn.randrange(len(text) + 1)])
            time += 10.0
            assert faults(running.sample(time)) == {}
        path.write_bytes(text)
    running.close()


@pytest.mark.parametrize("name", NAMES)
def test_files_that_vanish_are_counted_until_the_next_search_and_come_back(name, tmp_path):
    root = captured_tree.unpack(name, tmp_path)
    running = sampler(root)
    whole = everything(running.sample(0.0))
    kept = {path: path.read_bytes() for path in files(root)}
    for path in kept:
        path.unlink()
    die(running)
    found = running.sample(10.0)
    assert faults(found) == {}
    assert everything(found) == {}
    for path, text in kept.items():
        path.write_bytes(text)
    back = everything({**running.sample(70.0), **running.sample(80.0)})
    running.close()
    missing = {key for key in whole if key not in back}
    assert {sensor for sensor, _ in missing} <= {"jobs"}  # a job whose cgroup vanished has ended


def test_an_exception_that_no_sensor_should_raise_stops_no_other(tmp_path):
    root = captured_tree.unpack("linux_6.18", tmp_path)
    running = sampler(root)
    broken = next(sensor for sensor in running.sensors if sensor.name == "memory")
    broken.sample = lambda *_: 1 / 0
    found = running.sample(0.0)
    running.close()
    assert faults(found) == {"memory": "ZeroDivisionError: division by zero"}
    assert {"cpu", "paging", "disk", "network"} <= {sensor for sensor, readings in found.items() if readings.values}
