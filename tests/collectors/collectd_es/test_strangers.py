"""Documents as other sites store them: what has one meaning gives its cells, the rest a reason, an example and a remedy."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from collectors import collectd_es
from collectors.collectd_es.config import DiskMaxRate
from collectors.collectd_es.plausible import COUNTER, FRACTION
from collectors.collectd_es.series import PART_OF_DISKS
from tokiod.bounds import IMPLAUSIBLE
from tokiod.collector import Site
from tokiod.errors import Fatal
from tokiod.testing.clock import FakeClock
from tokiod.testing.collector_contract import within
from tokiod.window import Calendar, Window

START = 1_717_230_600
"""2024-06-01T08:30:00Z."""
WINDOW = Window(START, START + 120)
SITE = Site(Calendar("UTC"), FakeClock())
STRANGERS = Path(os.environ.get("TOKIOD_SHARED", Path(__file__).parents[3].parent / "shared")) / "data" / "strangers" / "servers"

STAMP = "2024-06-01T08:30:02.118Z"
DISK = {"@timestamp": STAMP, "hostname": "n1", "plugin": "disk", "plugin_instance": "sda", "collectd_type": "disk_octets"}
CPU = {"@timestamp": STAMP, "hostname": "n1", "plugin": "cpu", "plugin_instance": "0", "collectd_type": "percent", "type_instance": "idle"}
RATES = {"read": 1.5, "write": 2.5}
READ, WRITE = "datatargets/readrates", "datatargets/writerates"


def without(source, *names):
    return {name: value for name, value in source.items() if name not in names}


def outcome(path, **options):
    """{dataset: {(row, column): value}} of the window, and its data."""

    async def collect(collector):
        return await collector.collect(WINDOW)

    data = within(collectd_es.saved([path], collectd_es.Saved(parse_workers=0, **options), SITE), collect)
    found = {}
    for batch in data.batches:
        names = [batch.columns[i] for i in batch.column]
        cells = dict(zip(zip(((batch.time - START) // 10).tolist(), names, strict=True), batch.value.tolist(), strict=True))
        found |= {batch.dataset: cells} if cells else {}
    return found, data


@pytest.fixture
def read(tmp_path):
    def of(*sources, **options):
        path = tmp_path / "hits.json"
        path.write_text(json.dumps([[{"_index": "i", "_id": "1", "_source": source} for source in sources]]))
        return outcome(path, **options)

    return of


ARRAYS = {"values": [1.5, 2.5], "dsnames": ["read", "write"], "dstypes": ["derive", "derive"], "interval": 10.0}
FORMS = {
    "numbers as text": DISK | {"read": "1.5", "write": "25e-1"},
    "lists of one": DISK | {"hostname": ["n1"], "read": [1.5], "write": [2.5]},
    "null without a meaning": DISK | RATES | {"type_instance": None},
    "the codec's host": without(DISK, "hostname") | RATES | {"host": "n1"},
    "the host of ECS": without(DISK, "hostname") | RATES | {"host": {"name": "n1", "hostname": "n1.example.org"}},
    "a literal dotted name": without(DISK, "hostname") | RATES | {"host.name": "n1"},
    "write_http": without(DISK, "hostname", "collectd_type") | ARRAYS | {"host": "n1", "type": "disk_octets", "type_instance": ""},
    "write_http's time": without(DISK, "@timestamp") | ARRAYS | {"time": 1717230602.118},
    "milliseconds": DISK | RATES | {"@timestamp": 1717230602118},
    "seconds as text": DISK | RATES | {"@timestamp": "1717230602"},
    "Graylog": without(DISK, "@timestamp", "hostname") | RATES | {"timestamp": "2024-06-01 08:30:02.118", "source": "n1"},
    "objects": {
        "@timestamp": STAMP,
        "hostname": "n1",
        "collectd": {"plugin": "disk", "type": "disk_octets", "plugin_instance": "sda", "disk": {"disk_octets": RATES}},
    },
}


@pytest.mark.parametrize("form", FORMS)
def test_what_has_one_meaning_gives_its_cells(read, form):
    """Next to a document of the usual form too."""
    usual = DISK | RATES | {"hostname": "n2"}
    for sources in ([FORMS[form]], [usual, FORMS[form], usual | {"collectd_type": "disk_ops"}]):
        found, data = read(*sources)
        assert (found[READ][0, "n1:sda"], found[WRITE][0, "n1:sda"], data.dropped) == (1.5, 2.5, {})


def test_write_http_is_read_with_the_names_of_its_fields_too(read):
    found, data = read(FORMS["write_http"], host_field="host", type_field="type")
    assert (found[READ], found[WRITE], data.dropped) == ({(0, "n1:sda"): 1.5}, {(0, "n1:sda"): 2.5}, {})


def test_an_integer_names_a_core(read):
    found, data = read(*(CPU | {"plugin_instance": core, "value": 90.0 + core} for core in range(3)))
    assert (found, data.dropped) == ({"dataservers/cpuload": {(0, "n1"): 9.0}}, {})


@pytest.mark.parametrize("separator", ["\n", "\r\n", "\n\n"])
@pytest.mark.parametrize(
    "wrap", [lambda source: {"_index": "i", "_source": source}, lambda source: source], ids=["elasticdump", "Logstash"]
)
def test_a_document_a_line_is_a_page(tmp_path, wrap, separator):
    path = tmp_path / "lines.ndjson"
    sources = [DISK | RATES | {"@timestamp": f"2024-06-01T08:{30 + n // 6}:{n % 6}2Z", "note": "} {"} for n in range(8)]
    path.write_text(separator.join(json.dumps(wrap(source)) for source in sources) + separator)
    found, data = outcome(path)
    assert (found[READ], data.dropped) == ({(n, "n1:sda"): 1.5 for n in range(8)}, {})


def test_a_line_that_is_cut_off_refuses_the_file(tmp_path):
    path = tmp_path / "lines.ndjson"
    path.write_text(json.dumps(DISK | RATES) + "\n" + json.dumps(DISK | RATES)[:-20])
    with pytest.raises(Fatal, match="not a page"):
        outcome(path)


def test_jiffies_per_second_are_percent_of_a_core(read):
    found, data = read(
        *(CPU | {"collectd_type": "cpu", "plugin_instance": str(core), "value": value} for core, value in enumerate((98.5, 100.4)))
    )
    assert (found, data.dropped) == ({"dataservers/cpuload": {(0, "n1"): 0.75}}, {})


def test_jiffies_as_counters_are_dropped_with_the_option_of_collectd_that_helps(read):
    found, data = read(*(CPU | {"collectd_type": "cpu", "plugin_instance": str(core), "value": 123456 + core} for core in range(2)))
    assert (found, data.dropped) == ({}, {COUNTER: 2})
    assert "ValuesPercentage" in data.why[COUNTER].remedy
    found, data = read(CPU | {"collectd_type": "cpu", "value": 50}, values="counters")
    assert (found, data.dropped) == ({}, {"CPU in jiffies": 1})


def test_collectds_own_mean_over_cores_counts_where_no_core_does(read):
    mean = CPU | {"plugin": "aggregation", "plugin_instance": "cpu-average", "value": 40.0}
    cores = [CPU | {"plugin_instance": core, "value": 50.0} for core in "01"]
    assert read(mean)[0] == {"dataservers/cpuload": {(0, "n1"): 60.0}}
    assert read(mean, *cores)[0] == {"dataservers/cpuload": {(0, "n1"): 50.0}}
    assert read(CPU | {"plugin_instance": "", "value": 10.0}, *cores)[0] == {"dataservers/cpuload": {(0, "n1"): 50.0}}
    found, data = read(mean | {"plugin_instance": "cpu-sum"})
    assert (found, data.dropped) == ({}, {"CPU figure that is not per core": 1})


PARTS = [
    "sda1",
    "sdab12",
    "nvme0n1p2",
    "nvme0c0n1",
    "dm-0",
    "md0",
    "md127",
    "loop3",
    "vda1",
    "xvda1",
    "mmcblk0p1",
    "cciss_c0d0p1",
    "emcpowera",
    "zd16",
]
DISKS = ["sda", "sdab", "nvme0n1", "nvme10n2", "vda", "xvdb", "mmcblk0", "cciss_c0d0", "rbd0", "nbd1", "mapper_vg-lv"]


def test_bytes_of_a_disk_count_once(read):
    found, data = read(*(DISK | RATES | {"plugin_instance": device} for device in [*PARTS, *DISKS]))
    assert {column for _, column in found[READ]} == {f"n1:{device}" for device in DISKS}
    assert data.dropped == {PART_OF_DISKS: len(PARTS)}
    assert data.why[PART_OF_DISKS].example == "n1/disk-sda1/disk_octets"
    assert "devices" in data.why[PART_OF_DISKS].remedy


def test_devices_says_what_is_counted(read):
    found, data = read(*(DISK | RATES | {"plugin_instance": device} for device in ("md0", "sda")), devices=r"md\d+")
    assert ({column for _, column in found[READ]}, data.dropped) == ({"n1:md0"}, {"unknown device": 1})


@pytest.mark.parametrize(
    ("source", "reason", "remedy"),
    [
        (without(DISK, "hostname") | RATES, "no host", "fields.host"),
        (without(DISK, "collectd_type") | RATES, "no type", "fields.type"),
        ({"@timestamp": STAMP, "metricset": {"name": "diskio"}}, "no plugin", "fields.plugin"),
        (DISK | RATES | {"plugin": "df"}, "unknown plugin", "fields.plugin"),
        (without(DISK, "plugin_instance") | RATES, "no device", "fields.plugin_instance"),
        (DISK, "no value", "fields.read"),
        (DISK | RATES | {"@timestamp": "2024-06-01T08:30:02"}, "malformed time stamp", "zone"),
        (DISK | RATES | {"hostname": ["a", "b"]}, "name that is not a text", "fields.host"),
        (DISK | {"read": "1,5", "write": None}, "value that is not a number", ""),
    ],
)
def test_what_is_dropped_has_an_example_and_a_remedy(read, source, reason, remedy):
    found, data = read(source, source)
    assert (found, data.dropped) == ({}, {reason: 2})
    assert data.why[reason].example
    assert remedy in data.why[reason].remedy


def counted(host="n1", first=19147144000, **more):
    """Counters of a disk that reads 4 KiB and writes 8 KiB in each step."""
    stamps = [f"2024-06-01T08:30:{n}2.118Z" for n in range(4)]
    return [
        DISK | {"hostname": host, "@timestamp": stamp, "read": first + 4096 * n, "write": 3608629000 + 8192 * n} | more
        for n, stamp in enumerate(stamps)
    ]


def test_counters_in_the_place_of_rates_are_refused_with_the_option_that_helps(read):
    with pytest.raises(Fatal, match=r'19147156288 bytes/sec of n1:sda .*values = "counters".*StoreRates'):
        read(*counted())


def test_many_small_counters_are_refused_too(read):
    with pytest.raises(Fatal, match="never fall"):
        read(
            *(one for n in range(4) for one in counted(first=4096, plugin_instance=f"nvme{n}n1", write=0)),
            *counted(first=0, write=0),
            *counted(first=0, plugin_instance="sdb"),
            *counted(first=0, plugin_instance="sdc"),
        )


def test_counters_that_begin_again_are_refused_too(read):
    disks = [one for disk in "abcdefgh" for one in counted(first=1000 * ord(disk), plugin_instance=f"sd{disk}")]
    later = [one | {"@timestamp": one["@timestamp"].replace(":30:", ":31:"), "read": 9 + n, "write": 5 + n} for n, one in enumerate(disks)]
    with pytest.raises(Fatal, match="StoreRates"):
        read(*disks, *later)


def test_counters_with_one_sample_of_each_series_are_refused(read):
    sample = counted()[0]
    with pytest.raises(Fatal, match="StoreRates"):
        read(sample, sample | {"plugin_instance": "sdb"})
    found, data = read(sample | {"read": 506212594000, "write": 0}, sample | {"plugin_instance": "sdb", "read": 0, "write": 0})
    assert (len(found[READ]), data.dropped) == (1, {IMPLAUSIBLE: 1})


def test_an_idle_host_next_to_one_with_counters_has_counters_too(read):
    idle = [one | {"read": 3_000_000_000, "write": 4096} for one in counted("n2")]
    with pytest.raises(Fatal, match="StoreRates"):
        read(*counted(), *idle)
    fractions = [one | {"hostname": "n3", "read": 0.5, "write": 1.5} for one in counted()]
    found, data = read(*counted(), *idle, *fractions)
    assert ({column for _, column in found[READ]}, data.dropped) == ({"n3:sda"}, {COUNTER: 16})


def test_one_disk_whose_counters_begin_again_is_refused(read):
    later = [
        one | {"@timestamp": one["@timestamp"].replace(":30:", ":31:"), "read": 9 + n, "write": 5 + n} for n, one in enumerate(counted())
    ]
    with pytest.raises(Fatal, match="StoreRates"):
        read(*counted(), *later)


def test_a_load_that_begins_on_all_disks_is_stored(read):
    ramp = [one | {"read": 1000 * n, "write": 512 * n} for disk in "abcdefgh" for n, one in enumerate(counted(plugin_instance=f"sd{disk}"))]
    found, data = read(*ramp)
    assert (len(found[READ]), data.dropped) == (32, {})


def test_a_core_that_was_hardly_used_has_no_rate_next_to_counters_in_jiffies(read):
    kinds = {"idle": 123456, "system": 3000, "user": 57}
    found, data = read(*(CPU | {"collectd_type": "cpu", "type_instance": kind, "value": value} for kind, value in kinds.items()))
    assert (found, data.dropped) == ({}, {COUNTER: 3})


def test_counters_of_one_host_among_rates_are_dropped(read):
    rates = [one | {"read": 1000.25, "write": 5.0} for one in counted("n2")]
    found, data = read(*counted(), *rates, *(one | {"read": 0, "write": 0} for one in counted("n3")))
    assert {column for _, column in found[READ]} == {"n2:sda", "n3:sda"}
    assert data.dropped == {COUNTER: 8}
    assert "counters" in data.why[COUNTER].remedy


@pytest.mark.parametrize(
    "reads",
    [
        (1000000, 2000000, 3000000, 4000000),
        (2e10, 1e10, 2e10, 3e10),
        (2e10, 2e10, 2e10, 2e10),
        (1.6e10, 2e10 + 0.5, 3e10, 4e10),
        (0, 0, 0, 0),
    ],
    ids=["small", "falling", "constant", "with a fraction", "idle"],
)
def test_rates_that_happen_to_be_whole_numbers_are_stored(read, reads):
    found, data = read(*(one | {"read": value, "write": 0} for one, value in zip(counted(), reads, strict=True)))
    assert (list(found[READ].values()), data.dropped) == ([float(value) for value in reads], {})


def test_counters_are_stored_as_counters(read):
    found, data = read(*counted(), *(one | {"collectd_type": "disk_ops", "read": 7, "write": 8} for one in counted()), values="counters")
    assert {batch.dataset for batch in data.batches if batch.form == "counter"} == {
        f"datatargets/{n}" for n in ("readbytes", "writebytes", "readops", "writeops")
    }
    assert found["datatargets/readbytes"] == {(n, "n1:sda"): 19147144000 + 4096 * n for n in range(4)}
    assert all(batch.value.dtype == (np.int64 if batch.form == "counter" else np.float64) for batch in data.batches)
    assert data.dropped == {}


def test_what_no_counter_can_be_is_dropped(read):
    found, data = read(*counted(write=2**64 - 1)[:1], *counted(write=-1)[1:2], *counted(write=0.5)[2:3], values="counters")
    assert list(found) == ["datatargets/readbytes"]
    assert data.dropped == {IMPLAUSIBLE: 2, FRACTION: 1}
    assert "rates" in data.why[FRACTION].remedy


def test_counters_need_the_sample_after_a_span_and_have_a_largest_rate():
    options = collectd_es.Saved(values="counters")
    assert collectd_es.saved([__file__], options, SITE).needs_sample_at_end
    assert not collectd_es.saved([__file__], collectd_es.Saved(), SITE).needs_sample_at_end
    assert options.max_rates() == {
        "datatargets/readbytes": 5e10, "datatargets/writebytes": 5e10, "datatargets/readops": 1e7, "datatargets/writeops": 1e7,
    }  # fmt: skip
    assert options.datasets() > set(options.max_rates())


def test_values_that_no_disk_and_no_core_can_have_are_dropped(read):
    cores = [CPU | {"plugin_instance": core, "value": value} for core, value in (("0", 98.0), ("1", 1.8e19))]
    users = [one | {"type_instance": "user", "value": value} for one, value in zip(cores, (-3.0, 250.0), strict=True)]
    found, data = read(
        *cores, *users, DISK | {"read": -4.2e8, "write": 5.0}, DISK | {"hostname": "n2", "read": 506212594000.0, "write": 5.5}
    )
    assert found == {"dataservers/cpuload": {(0, "n1"): 2.0}, WRITE: {(0, "n1:sda"): 5.0, (0, "n2:sda"): 5.5}}
    assert data.dropped == {IMPLAUSIBLE: 5}
    assert data.why[IMPLAUSIBLE].example == "506212594000 bytes/sec of n2:sda in datatargets/readrates, 2024-06-01T08:30:02Z"
    assert "max_rate" in data.why[IMPLAUSIBLE].remedy
    why = read(*cores)[1].why[IMPLAUSIBLE]
    assert (why.example, why.remedy) == ("1.8e+19 % of n1 in dataservers/cpuload, core 1, 2024-06-01T08:30:02Z", "")


def test_max_rate_is_the_sites(read):
    fast = DISK | {"read": 4e10, "write": 2e11}
    assert read(fast)[0] == {READ: {(0, "n1:sda"): 4e10}}
    assert read(fast, max_rate=DiskMaxRate(bytes=3e11))[0] == {READ: {(0, "n1:sda"): 4e10}, WRITE: {(0, "n1:sda"): 2e11}}
    assert read(fast, max_rate=DiskMaxRate(bytes=1e10))[0] == {}


def test_a_share_that_is_rounded_up_is_100(read):
    found, data = read(CPU | {"value": 100.00000000000001}, CPU | {"type_instance": "user", "value": 100.05})
    assert (found, data.dropped) == ({"dataservers/cpuload": {(0, "n1"): 0.0}, "dataservers/cpuuser": {(0, "n1"): 100.0}}, {})


FOUND = {
    "es_aggregation.json": ({"dataservers/cpuload": [50.0]}, {}),
    "es_codec_host.json": ({READ: [1.5] * 4, WRITE: [2.5] * 4}, {}),
    "es_corrupt_cpu_2209.json": ({"dataservers/cpuload": [2.0]}, {IMPLAUSIBLE: 3}),
    "es_cpu_both.json": ({"dataservers/cpuload": [50.0]}, {}),
    "es_cpu_jiffies.json": ({}, {COUNTER: 4}),
    "es_cpu_over_million_1045.json": ({}, {IMPLAUSIBLE: 1}),
    "es_dotted_keys.json": ({READ: [1.5], WRITE: [2.5]}, {}),
    "es_ecs_host.json": ({READ: [1.5] * 4, WRITE: [2.5] * 4}, {}),
    "es_elasticdump.ndjson": ({READ: [1.5] * 4, WRITE: [2.5] * 4}, {}),
    "es_flat_fields_api.json": ({READ: [1.5], WRITE: [2.5]}, {}),
    "es_fqdn_and_short.json": ({"dataservers/memfree": [1.0] * 3}, {}),
    "es_graylog.json": ({READ: [1.5], WRITE: [2.5]}, {}),
    "es_int_instance.json": ({"dataservers/cpuload": [8.5]}, {}),
    "es_logstash2014_no_type_instance.json": (
        {"dataservers/membuffered": [55103488.0], "dataservers/memfree": [665567232.0]},
        {"unknown type instance": 1},
    ),
    "es_logstash_file_output.ndjson": ({READ: [1.5] * 4, WRITE: [2.5] * 4}, {}),
    "es_metricbeat.json": ({}, {"no plugin": 1}),
    "es_negative_rate.json": ({WRITE: [5.0]}, {IMPLAUSIBLE: 1}),
    "es_nulls_lists.json": ({READ: [1.5, 1.5]}, {}),
    "es_ovirt_unrolled.json": ({READ: [1.5] * 4, WRITE: [2.5] * 4}, {}),
    "es_partitions.json": ({READ: [1000.0], WRITE: [0.0]}, {PART_OF_DISKS: 4}),
    "es_rate_leak_2296.json": ({READ: [46.5, 44.9, 42.3, 45.2], WRITE: [0.0] * 5}, {IMPLAUSIBLE: 1}),
    "es_string_numbers.json": ({READ: [1108376.25] * 4, WRITE: [42.0] * 4}, {}),
    "es_timestamps.json": ({"dataservers/memfree": [100.0, 101.0, 102.0, 103.0, 104.0, 105.0, 109.0]}, {"malformed time stamp": 5}),
    "es_whole_answer.json": ({READ: [1.5] * 4, WRITE: [2.5] * 4}, {}),
    "es_write_http_arrays.json": ({READ: [1.5] * 4, WRITE: [2.5] * 4}, {}),
}


@pytest.mark.skipif(not STRANGERS.is_dir(), reason="the strangers' inputs are not here")
@pytest.mark.parametrize("name", FOUND)
def test_each_public_example_gives_what_is_right(name):
    found, data = outcome(STRANGERS / name)
    assert ({dataset: list(cells.values()) for dataset, cells in found.items()}, data.dropped) == FOUND[name]
    assert all(data.why[reason].example for reason in data.dropped)


@pytest.mark.skipif(not STRANGERS.is_dir(), reason="the strangers' inputs are not here")
def test_the_codecs_counters_are_refused_as_rates_and_stored_as_counters():
    with pytest.raises(Fatal, match="StoreRates"):
        outcome(STRANGERS / "es_codec_counters.json")
    found, _ = outcome(STRANGERS / "es_codec_counters.json", values="counters")
    assert list(found["datatargets/readbytes"].values()) == [19147144000 + 4096 * n for n in range(4)]
    assert {path.name for path in STRANGERS.glob("es_*")} - set(FOUND) == {"es_codec_counters.json"}
