"""Names of series and their places in datasets."""

import itertools
import pickle
import random
import re

import pytest

from collectors.collectd_es.datasets import DATASETS, MEANS
from collectors.collectd_es.series import MAX_NAME_LENGTH, Series, Texts


def key(**changes):
    """The key of a disk document, with some of it changed."""
    return {"host": "bb1", "plugin": "disk", "type": "disk_octets", "type_instance": "", "plugin_instance": "nvme0n1"} | changes


def memory(**changes):
    return key(**{"plugin": "memory", "type": "memory", "type_instance": "used", "plugin_instance": ""} | changes)


def cpu(**changes):
    return key(**{"plugin": "cpu", "type": "percent", "type_instance": "idle", "plugin_instance": "0"} | changes)


def resolved(series, key):
    """Return the number of each field of a document that holds a value, or the reason why it has no series."""
    texts = {**key}
    host = texts.pop("host")
    kind = series.kind(Texts(**texts))
    return kind.fault(series.host_fault(host)) or {field: series.numbers(kind.names(field, [host]))[0] for field in kind.datasets}


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
    found = resolved(series, key)
    assert {field: series.names()[number] for field, number in found.items()} == names
    assert resolved(series, key) == found
    assert len(series) == len(names)


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        (key(plugin="df"), "unknown plugin"),
        (key(plugin=""), "unknown plugin"),
        (key(type="disk_time"), "unknown type"),
        (cpu(type="ping"), "unknown type"),
        (memory(type="percent"), "unknown type"),
        (cpu(type_instance="wait"), "unknown type instance"),
        (key(type_instance="x"), "unknown type instance"),
        (memory(type_instance=""), "unknown type instance"),
        (key(host=""), "no host"),
        (key(host="bb1\n"), "unusable name"),
        (key(host="nid" + "1" * MAX_NAME_LENGTH), "unusable name"),
        (key(host="nid00012", plugin_instance="sda\x7f"), "unusable name"),
        (key(host="nid00012", plugin_instance=""), "unknown host"),
        (key(host="", plugin_instance="\n"), "no host"),
        (key(host="", plugin="df"), "unknown plugin"),
        (key(host="nid00012"), "unknown host"),
        (key(host="bb1x"), "unknown host"),
        (key(plugin_instance=""), "no device"),
        (key(plugin_instance="sda"), "unknown device"),
        (memory(plugin_instance="numa0"), "unknown plugin instance"),
    ],
)
def test_a_key_without_a_series_has_a_reason_and_adds_no_name(key, reason):
    series = Series(re.compile("bb[0-9]+"), re.compile("nvme[0-9]n1"))
    assert resolved(series, key) == reason
    assert len(series) == 0


def test_the_pattern_of_devices_applies_to_disks_alone():
    series = Series(devices=re.compile("nvme.*"))
    assert not isinstance(resolved(series, cpu()), str)
    assert not isinstance(resolved(series, memory()), str)


@pytest.mark.parametrize("seed", range(5))
def test_columns_do_not_depend_on_the_order_in_which_names_arrive(seed):
    names = [("dataservers/memused", f"bb{n}", "") for n in (1, 2, 10, 9)]
    names += [("dataservers/cpuload", f"bb{n}", str(core)) for n, core in itertools.product((2, 10), (0, 9, 10))]
    random.Random(seed).shuffle(names)
    series = Series()
    series.numbers(names)
    layout = series.layout()
    assert set(layout.columns) == set(DATASETS)
    assert layout.columns["dataservers/memused"] == ("bb1", "bb2", "bb9", "bb10")
    assert layout.columns["dataservers/cpuload"] == ("bb2", "bb10")
    assert layout.columns["datatargets/readrates"] == ()
    cores = [[series.names()[n] for n in numbers.tolist()] for numbers, _ in layout.places["dataservers/cpuload"]]
    assert cores == [[("dataservers/cpuload", host, core) for host in ("bb2", "bb10")] for core in ("0", "9", "10")]


def test_a_column_keeps_its_place_and_later_ones_follow():
    series = Series()
    series.numbers([("dataservers/memused", "bb7", "")])
    assert series.layout().columns["dataservers/memused"] == ("bb7",)
    series.numbers([("dataservers/memused", host, "") for host in ("bb9", "bb1", "bb7")])
    assert series.layout().columns["dataservers/memused"] == ("bb7", "bb1", "bb9")


def test_places_name_each_series_once_in_the_column_of_its_name():
    series = Series()
    for host, core in itertools.product(range(30), range(4)):
        if core <= host % 4:
            resolved(series, cpu(host=f"bb{host}", plugin_instance=str(core)))
            resolved(series, key(host=f"bb{host}", plugin_instance=f"nvme{core}n1"))
    layout = series.layout()
    found = {}
    for dataset, places in layout.places.items():
        assert len(places) <= (4 if dataset in MEANS else 1)
        for numbers, columns in places:
            assert len(set(columns.tolist())) == len(columns)
            found |= {n: (dataset, layout.columns[dataset][c]) for n, c in zip(numbers.tolist(), columns.tolist(), strict=True)}
    assert found == {number: (dataset, column) for number, (dataset, column, _) in enumerate(series.names())}
    assert layout.mean.tolist() == [dataset in MEANS for dataset, *_ in series.names()]
    assert layout.complement.tolist() == [dataset == "dataservers/cpuload" for dataset, *_ in series.names()]


def test_another_process_numbers_are_mapped_by_its_names():
    ours, theirs = Series(), Series()
    resolved(ours, memory(host="bb2"))
    resolved(theirs, memory(host="bb1"))
    resolved(theirs, memory(host="bb2"))
    assert ours.numbers(pickle.loads(pickle.dumps(theirs.names()))) == [1, 0]
    resolved(theirs, memory(host="bb3"))
    assert ours.numbers(theirs.names(2)) == [2]
    assert [column for _, column, _ in ours.names()] == ["bb2", "bb1", "bb3"]
    assert ours.numbers([]) == []
