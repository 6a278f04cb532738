"""Names of series and their places in datasets."""

import itertools
import pickle
import random
import re

import pytest

from collectors.collectd_es.datasets import DATASETS, MEANS
from collectors.collectd_es.series import Key, Name, Series


def key(**changes):
    """The key of a disk document, with some of it changed."""
    return Key(**{"host": "bb1", "plugin": "disk", "type": "disk_octets", "type_instance": "", "plugin_instance": "nvme0n1"} | changes)


def memory(**changes):
    return key(**{"plugin": "memory", "type": "memory", "type_instance": "used", "plugin_instance": ""} | changes)


def cpu(**changes):
    return key(**{"plugin": "cpu", "type": "percent", "type_instance": "idle", "plugin_instance": "0"} | changes)


@pytest.mark.parametrize(
    ("key", "names"),
    [
        (key(), {"read": ("datatargets/readrates", "bb1:nvme0n1", ""), "write": ("datatargets/writerates", "bb1:nvme0n1", "")}),
        (
            key(type="disk_ops"),
            {"read": ("datatargets/readoprates", "bb1:nvme0n1", ""), "write": ("datatargets/writeoprates", "bb1:nvme0n1", "")},
        ),
        (memory(type_instance="cached"), {"value": ("dataservers/memcached", "bb1", "")}),
        (memory(type_instance="buffered"), {"value": ("dataservers/membuffered", "bb1", "")}),
        (memory(type_instance="free"), {"value": ("dataservers/memfree", "bb1", "")}),
        (memory(type_instance="used"), {"value": ("dataservers/memused", "bb1", "")}),
        (memory(type_instance="slab_recl"), {"value": ("dataservers/memslab", "bb1", "")}),
        (memory(type_instance="slab_unrecl"), {"value": ("dataservers/memslab_unrecl", "bb1", "")}),
        (cpu(), {"value": ("dataservers/cpuload", "bb1", "0")}),
        (cpu(type_instance="user"), {"value": ("dataservers/cpuuser", "bb1", "0")}),
        (cpu(type_instance="system", plugin_instance=""), {"value": ("dataservers/cpusys", "bb1", "")}),
    ],
)
def test_a_documents_names_tell_the_dataset_column_and_core_of_each_of_its_values(key, names):
    series = Series()
    found = series.resolve(key)
    assert {field: tuple(series.names()[number]) for field, number in found.items()} == names
    assert series.resolve(key) == found
    assert len(series) == len(names)


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        (key(plugin="df"), "unknown plugin"),
        (key(plugin=""), "unknown plugin"),
        (key(type="disk_time"), "unknown type"),
        (cpu(type="cpu"), "unknown type"),
        (memory(type="percent"), "unknown type"),
        (cpu(type_instance="wait"), "unknown type instance"),
        (key(type_instance="x"), "unknown type instance"),
        (memory(type_instance=""), "unknown type instance"),
        (key(host=""), "no host"),
        (key(host="nid00012"), "unknown host"),
        (key(host="bb1x"), "unknown host"),
        (key(plugin_instance=""), "no device"),
        (key(plugin_instance="sda"), "unknown device"),
        (memory(plugin_instance="numa0"), "unknown plugin instance"),
    ],
)
def test_a_key_without_a_series_has_a_reason_and_adds_no_name(key, reason):
    series = Series(re.compile("bb[0-9]+"), re.compile("nvme[0-9]n1"))
    assert series.resolve(key) == reason
    assert len(series) == 0


def test_the_pattern_of_devices_applies_to_disks_alone():
    series = Series(devices=re.compile("nvme.*"))
    assert not isinstance(series.resolve(cpu()), str)
    assert not isinstance(series.resolve(memory()), str)


@pytest.mark.parametrize("seed", range(5))
def test_columns_do_not_depend_on_the_order_in_which_names_arrive(seed):
    names = [Name("dataservers/memused", f"bb{n}") for n in (1, 2, 10, 9)]
    names += [Name("dataservers/cpuload", f"bb{n}", str(core)) for n, core in itertools.product((2, 10), (0, 9, 10))]
    random.Random(seed).shuffle(names)
    series = Series()
    for name in names:
        series.number(name)
    layout = series.layout()
    assert set(layout.columns) == set(DATASETS)
    assert layout.columns["dataservers/memused"] == ("bb1", "bb2", "bb9", "bb10")
    assert layout.columns["dataservers/cpuload"] == ("bb2", "bb10")
    assert layout.columns["datatargets/readrates"] == ()
    cores = [[tuple(series.names()[n]) for n in numbers.tolist()] for numbers, _ in layout.places["dataservers/cpuload"]]
    assert cores == [[("dataservers/cpuload", host, core) for host in ("bb2", "bb10")] for core in ("0", "9", "10")]


def test_a_column_keeps_its_place_and_later_ones_follow():
    series = Series()
    series.number(Name("dataservers/memused", "bb7"))
    assert series.layout().columns["dataservers/memused"] == ("bb7",)
    for host in ("bb9", "bb1", "bb7"):
        series.number(Name("dataservers/memused", host))
    assert series.layout().columns["dataservers/memused"] == ("bb7", "bb1", "bb9")


def test_places_name_each_series_once_in_the_column_of_its_name():
    series = Series()
    for host, core in itertools.product(range(30), range(4)):
        if core <= host % 4:
            series.resolve(cpu(host=f"bb{host}", plugin_instance=str(core)))
            series.resolve(key(host=f"bb{host}", plugin_instance=f"nvme{core}n1"))
    layout = series.layout()
    found = {}
    for dataset, places in layout.places.items():
        assert len(places) <= (4 if dataset in MEANS else 1)
        for numbers, columns in places:
            assert len(set(columns.tolist())) == len(columns)
            found |= {n: (dataset, layout.columns[dataset][c]) for n, c in zip(numbers.tolist(), columns.tolist(), strict=True)}
    assert found == {number: (name.dataset, name.column) for number, name in enumerate(series.names())}
    assert layout.mean.tolist() == [name.dataset in MEANS for name in series.names()]
    assert layout.complement.tolist() == [name.dataset == "dataservers/cpuload" for name in series.names()]


def test_another_process_numbers_are_mapped_by_its_names():
    ours, theirs = Series(), Series()
    ours.resolve(memory(host="bb2"))
    theirs.resolve(memory(host="bb1"))
    theirs.resolve(memory(host="bb2"))
    assert ours.merge(pickle.loads(pickle.dumps(theirs.names()))).tolist() == [1, 0]
    theirs.resolve(memory(host="bb3"))
    assert ours.merge(theirs.names(2)).tolist() == [2]
    assert [name.column for name in ours.names()] == ["bb2", "bb1", "bb3"]
    assert ours.merge([]).tolist() == []
