"""Pages of documents to samples: every number of every good document, and every other one counted by its reason."""

import json
import math
import random
import re
from collections import Counter

import msgspec
import numpy as np
import pytest
from collectd_documents import KINDS, Documents, hit, milliseconds
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.collectd_es import parse, parse_hits
from collectors.collectd_es.datasets import Fields, faults
from collectors.collectd_es.parse import Decoder
from collectors.collectd_es.parse_hits import Shards, last_sort
from collectors.collectd_es.series import Series
from tokiod.errors import Malformed

START = 1_513_153_800

DISK = {
    "plugin": "disk",
    "read": 1108376.2499126096,
    "@timestamp": "2017-12-13T08:30:43.951Z",
    "hostname": "bb13",
    "write": 425676.2814935992,
    "collectd_type": "disk_octets",
    "plugin_instance": "nvme2n1",
}
CPU = {
    "plugin": "cpu",
    "@timestamp": "2017-12-13T08:36:38.529Z",
    "hostname": "bb181",
    "value": 97.5,
    "collectd_type": "percent",
    "plugin_instance": "5",
    "type_instance": "idle",
}
MEMORY = CPU | {"plugin": "memory", "collectd_type": "memory", "type_instance": "used", "plugin_instance": "", "value": 0.0}
TIME = 1_513_153_843_951
READ = ("datatargets/readrates", "bb13:nvme2n1", "", TIME, 1108376.2499126096)
WRITE = ("datatargets/writerates", "bb13:nvme2n1", "", TIME, 425676.2814935992)
IDLE = ("dataservers/cpuload", "bb181", "5", 1_513_154_198_529, 97.5)


def page(*sources, **options):
    return json.dumps([hit(source) for source in sources], **options).encode()


def samples_of(series, samples):
    """The samples by name, in order."""
    names = series.names()
    numbers = zip(samples.series.tolist(), samples.time.tolist(), samples.value.tolist(), strict=True)
    return sorted((*names[number], time, value) for number, time, value in numbers)


def wanted(sources):
    """The same of well-formed documents, the slow way."""
    found = []
    for source in sources:
        part = source.get("plugin_instance", "")
        disk = source["plugin"] == "disk"
        name = (f"{source['hostname']}:{part}", "") if disk else (source["hostname"], part)
        fields = KINDS[source["plugin"], source["collectd_type"], source.get("type_instance")]
        found += [(dataset, *name, milliseconds(source["@timestamp"]), source[field]) for field, dataset in fields.items()]
    return sorted(found)


def read(body, fields=None, **rules):
    series = Series(**rules)
    samples = Decoder(series, fields).hits(body)
    assert (samples.time.dtype, samples.series.dtype, samples.value.dtype) == (np.int64, np.uint32, np.float64)
    assert np.isfinite(samples.value).all()
    return samples_of(series, samples), samples.documents, dict(samples.dropped.counts)


def test_documents_of_the_capture_become_samples():
    assert read(page(DISK, CPU)) == (sorted([READ, WRITE, IDLE]), 2, {})


@pytest.mark.parametrize("options", [{}, {"separators": (",", ":")}, {"indent": 1}, {"sort_keys": True}])
def test_every_number_of_every_document_is_there_however_the_page_is_written(options):
    found = Documents(1, hosts=5).hits(START, START + 60)
    body = json.dumps(found, **options).encode()
    assert read(body) == (wanted([h["_source"] for h in found]), len(found), {})
    assert read(memoryview(body))[1] == len(found)


def test_a_decoder_that_has_learned_the_names_gives_the_same_as_a_new_one():
    series = Series()
    decoder = Decoder(series)
    for seed in (1, 1, 2, 3, 1):
        found = Documents(seed, hosts=3 + seed, devices=seed).hits(START, START + 30)
        assert samples_of(series, decoder.hits(json.dumps(found).encode())) == wanted([h["_source"] for h in found])


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (CPU | {"value": None}, "no value"),
        ({name: value for name, value in CPU.items() if name != "value"}, "no value"),
        (DISK | {"read": None, "write": None}, "no value"),
        ({name: value for name, value in DISK.items() if name not in {"read", "write"}}, "no value"),
        (CPU | {"value": "97,5"}, "value that is not a number"),
        (CPU | {"value": "NaN"}, "value that is not a number"),
        (CPU | {"value": True}, "value that is not a number"),
        (CPU | {"value": [97.5, 1.0]}, "value that is not a number"),
        (CPU | {"value": math.nan}, "value that is not finite"),
        (CPU | {"value": -math.inf}, "value that is not finite"),
        (CPU | {"value": 10**400}, "value that is not finite"),
        ({name: value for name, value in CPU.items() if name != "@timestamp"}, "no time stamp"),
        (CPU | {"@timestamp": ""}, "no time stamp"),
        (CPU | {"@timestamp": None}, "no time stamp"),
        (CPU | {"@timestamp": "2017-13-13T08:36:38.529Z"}, "malformed time stamp"),
        (CPU | {"@timestamp": True}, "name that is not a text"),
        (CPU | {"@timestamp": "2017-12-13 08:36:38.529"}, "malformed time stamp"),
        (CPU | {"hostname": None}, "no host"),
        (CPU | {"hostname": ["bb181", "bb182"]}, "name that is not a text"),
        (CPU | {"hostname": "nid00012"}, "unknown host"),
        (CPU | {"hostname": "bb1\nbb2"}, "unusable name"),
        (CPU | {"plugin_instance": "5\0"}, "unusable name"),
        (DISK | {"plugin_instance": "nvme" + "0" * 200}, "unusable name"),
        (DISK | {"plugin_instance": "sda"}, "unknown device"),
        (CPU | {"plugin": "df"}, "unknown plugin"),
        (CPU | {"collectd_type": "ping"}, "unknown type"),
        (CPU | {"type_instance": "nice"}, "unknown type instance"),
        (None, "no document"),
        ([], "no document"),
    ],
)
@pytest.mark.parametrize("learned", [False, True])
def test_a_document_that_gives_no_sample_is_counted_by_its_reason_and_harms_no_other(source, reason, learned):
    series = Series(re.compile("bb[0-9]+"), re.compile("nvme.*"))
    decoder = Decoder(series)
    if learned:
        decoder.hits(page(DISK, source, CPU))
    samples = decoder.hits(page(DISK, source, source, CPU))
    assert samples_of(series, samples) == sorted([READ, WRITE, IDLE])
    assert (samples.documents, samples.dropped.counts) == (4, Counter({reason: 2}))


@pytest.mark.parametrize("broken", ['{"a": 1}', "5", "null", '"text"', '{"_source": {"hostname": "\\ud800"}}', "[]"])
def test_a_hit_that_is_no_document_harms_no_other(broken):
    body = f"[{json.dumps(hit(DISK))}, {broken}]".encode()
    found, count, dropped = read(body)
    assert (found, count, sum(dropped.values())) == (sorted([READ, WRITE]), 2, 1)


def test_bytes_that_are_no_utf8_harm_no_other_document():
    found, count, dropped = read(page(DISK, CPU | {"hostname": "x"}).replace(b'"x"', b'"\xff"'))
    assert (found, count, sum(dropped.values())) == (sorted([READ, WRITE]), 2, 1)


@pytest.mark.parametrize(("lack", "there"), [("read", WRITE), ("write", READ)])
def test_of_a_disk_with_one_of_read_and_write_that_one_is_kept(lack, there):
    assert read(page({name: value for name, value in DISK.items() if name != lack})) == ([there], 1, {})
    assert read(page(DISK | {lack: None}, CPU)) == (sorted([there, IDLE]), 2, {})
    assert read(page(DISK | {lack: "text"})) == ([there], 1, {"value that is not a number": 1})
    assert read(page(DISK | {lack: math.inf})) == ([there], 1, {"value that is not finite": 1})


@pytest.mark.parametrize(("value", "number"), [(5, 5.0), (2**53 + 1, float(2**53)), (10**30, 1e30), (-0.0, 0.0), (5e-324, 5e-324)])
def test_a_whole_number_is_a_value_too(value, number):
    found, _, dropped = read(page(MEMORY | {"value": value}))
    assert [sample[-1] for sample in found] == [number]
    assert dropped == {}


def test_of_a_key_that_comes_twice_in_a_document_the_last_counts():
    body = page(MEMORY).replace(b'"value": 0.0', b'"value": 1.0, "value": 2.0')
    assert [sample[-1] for sample in read(body)[0]] == [2.0]
    with_nan = body.replace(b"1.0", b"NaN")
    assert [sample[-1] for sample in read(with_nan)[0]] == [2.0]


def test_a_site_names_its_fields_and_a_dot_goes_into_objects():
    fields = Fields(
        time="when", host="host.name", plugin="collectd.plugin", plugin_instance="collectd.plugin_instance", read="v.r", write="v.w"
    )
    source = {
        "when": DISK["@timestamp"],
        "host": {"name": "bb13", "ip": "10.0.0.1"},
        "collectd": {"plugin": "disk", "plugin_instance": "nvme2n1"},
        "collectd_type": "disk_octets",
        "v": {"r": DISK["read"], "w": DISK["write"]},
    }
    assert read(page(source), fields) == (sorted([READ, WRITE]), 1, {})
    assert read(page(source, source | {"host": None}), fields) == (sorted([READ, WRITE]), 2, {"no host": 1})
    assert read(page(source, source | {"host": "bb13"}), fields) == (sorted([READ, WRITE] * 2), 2, {})
    assert read(page(source | {"v": {"w": DISK["write"], "r": "x"}}), fields) == ([WRITE], 1, {"value that is not a number": 1})
    assert read(page(DISK), fields) == ([], 1, {"no plugin": 1})


def test_contradicting_names_of_fields_are_reported():
    assert faults(Fields()) == []
    assert faults(Fields(read="value")) == ["read: 'value' is already the name of value"]
    assert faults(Fields(host="plugin.name")) == ["host: 'plugin.name' can't be inside plugin, which is a plain field"]
    for name in ("", ".", "a.", ".a", "a..b"):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert({"host": name}, Fields)


INVALID = [
    None,
    [],
    CPU | {"value": "x"},
    CPU | {"value": math.nan},
    CPU | {"plugin": "df"},
    CPU | {"@timestamp": "x"},
    CPU | {"value": None},
]


@given(st.lists(st.sampled_from(INVALID), max_size=4), st.integers(0, 2**32), st.lists(st.integers(1, 30), max_size=3))
@settings(max_examples=60, deadline=None)
def test_good_documents_among_bad_ones_give_all_their_samples_in_any_split(bad, seed, sizes):
    good = list(Documents(seed % 7, hosts=2).sources(START, START + 20))
    sources = [*good, *bad]
    random.Random(seed).shuffle(sources)
    series = Series()
    decoder = Decoder(series)
    found, dropped = [], 0
    while sources:
        size = sizes.pop() if sizes else len(sources)
        samples = decoder.hits(page(*sources[:size]))
        assert samples.documents == min(size, len(sources))
        found += samples_of(series, samples)
        dropped += samples.dropped.counts.total()
        sources = sources[size:]
    assert sorted(found) == wanted(good)
    assert dropped == len(bad)


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[", b"{}", b'"text"', b"[NaN", b'[{"_source": {"value": 1}', b"\xff\xfe", b"[" * 100_000]
)
def test_what_is_no_list_of_hits_is_malformed(body):
    with pytest.raises(Malformed):
        Decoder(Series()).hits(body)


@pytest.mark.parametrize(
    "body", [b"", b"<html>502 Bad Gateway</html>", b"[]", b"5", b'{"hits": []}', b'{"hits": {"hits": {}}}', b'{"hits": NaN}']
)
def test_what_is_no_answer_is_malformed(body):
    with pytest.raises(Malformed):
        Decoder(Series()).answer(body)


def test_a_truncated_page_is_malformed_wherever_it_ends():
    body = page(DISK, CPU)
    for learned in (False, True):
        decoder = Decoder(Series())
        if learned:
            decoder.hits(body)
        for end in range(len(body)):
            with pytest.raises(Malformed):
                decoder.hits(body[:end])


def test_an_empty_page_has_no_samples():
    assert read(b"[]") == ([], 0, {})


def answer(sources=(DISK, CPU), **fields):
    found = [hit(source) | {"sort": [n, f"key {n}", None]} for n, source in enumerate(sources)]
    return json.dumps({"took": 5, **fields, "hits": {"total": {"value": 2, "relation": "eq"}, "max_score": None, "hits": found}}).encode()


def test_an_answer_contains_the_servers_metadata():
    shards = {"total": 5, "successful": 4, "skipped": 1, "failed": 1, "failures": [{"shard": 0}]}
    body = answer(_scroll_id="abc==", pit_id="def", timed_out=True, terminated_early=False, _shards=shards)
    series = Series()
    found = Decoder(series).answer(body)
    assert samples_of(series, found.samples) == sorted([READ, WRITE, IDLE])
    assert (found.timed_out, found.terminated_early, found.shards, found.hits) == (True, False, Shards(5, 4, 1), 2)


@pytest.mark.parametrize("body", [b"{}", b'{"hits": {}}', b'{"_shards": {"total": 1, "successful": 1, "failed": 0}}'])
def test_an_answer_cut_down_by_filter_path_may_lack_its_hits(body):
    found = Decoder(Series()).answer(body)
    assert (found.hits, len(found.samples)) == (0, 0)


def test_an_answer_with_a_bad_document_loses_that_alone():
    found = Decoder(Series()).answer(answer([DISK, CPU | {"value": "x"}, CPU | {"value": math.nan}, None, CPU]))
    assert (len(found.samples), found.samples.documents, found.hits) == (3, 5, 5)
    assert found.samples.dropped.counts == {"value that is not a number": 1, "value that is not finite": 1, "no document": 1}


@pytest.mark.parametrize(
    "values",
    [[], [5], [1513153843951, "a]b", "[", '"sort":[1]', None], ["x" * 30_000], [1.5, True, "é"], ["}]}}"], [{"a": [1]}]],
)
def test_the_sort_values_of_the_last_hit_are_found_whatever_they_are(values):
    many = [hit(DISK) | {"sort": ["not this one"]}, hit(DISK) | {"sort": values}]
    for options in ({}, {"indent": 2}, {"separators": (",", ":")}, {"ensure_ascii": False}):
        assert last_sort(json.dumps({"hits": {"hits": many}}, **options).encode()) == values
    body = json.dumps({"hits": {"hits": many, "total": 2}, "aggregations": {"x": [{"sort": [7]}], "sort": [8]}}).encode()
    assert last_sort(body) == values


@pytest.mark.parametrize("extra", [{}, {"x": [{"sort": [1]}]}, {"text": '"sort":[1]}]}}'}, {"sort": [1]}])
def test_a_document_that_speaks_of_sort_has_no_sort_values(extra):
    assert last_sort(json.dumps({"hits": {"hits": [hit(DISK | extra)]}}).encode()) is None
    assert last_sort(json.dumps({"hits": {"hits": []}, "aggregations": [{"sort": [1]}]}).encode()) is None


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b'{"hits": {"hits": [{"sort": [NaN]}]}}', b'{"hits": {"hits": [{"sort": ["\xff"]}]}}', b"[" * 99_999]
)
def test_a_broken_answer_has_no_sort_values(body):
    assert last_sort(body) is None


def test_names_without_end_do_not_grow_tables_without_end(monkeypatch):
    monkeypatch.setattr(parse_hits, "MAX_NAMES", 10)
    monkeypatch.setattr(parse, "MAX_TEXTS", 10)
    series = Series(hosts=re.compile("bb1"))
    decoder = Decoder(series)
    for n in range(50):
        samples = decoder.hits(page(CPU | {"hostname": f"x{n}"}, CPU | {"hostname": f"y{n}"}, CPU | {"hostname": "bb1"}))
        assert (len(samples), samples.dropped.counts) == (1, {"unknown host": 2})
        assert samples_of(series, samples)[0][1] == "bb1"
    assert len(series) == 1
    assert decoder._codes._pairs.size < 20
    assert max(map(len, decoder._reader._known.values())) < 20


def test_keys_without_end_are_forgotten_and_read_all_the_same(monkeypatch):
    monkeypatch.setattr(parse, "MAX_KEYS", 10)
    series = Series()
    decoder = Decoder(series)
    for n in range(50):
        samples = decoder.hits(page(CPU | {"hostname": f"x{n}"}, CPU | {"hostname": "bb1"}))
        assert sorted(name[1] for name in samples_of(series, samples)) == sorted(["bb1", f"x{n}"])
        assert len(decoder._codes.tables["value"]) <= 12


def test_a_page_of_nothing_but_different_hosts_and_devices_is_read_whole(monkeypatch):
    monkeypatch.setattr(parse, "MAX_PAIRS", 100)
    monkeypatch.setattr(parse, "BATCH_DOCUMENTS", 9)
    series = Series()
    decoder = Decoder(series)
    sources = [DISK | {"hostname": f"bb{n}", "plugin_instance": f"nvme{n}n1"} for n in range(100)]
    for some in (sources, sources[:5], sources[::-1]):
        samples = decoder.hits(page(*some))
        assert samples.documents == len(some)
        assert sorted({name[1] for name in samples_of(series, samples)}) == sorted(f"{s['hostname']}:{s['plugin_instance']}" for s in some)
        assert decoder._codes._pairs.size <= 100


def test_the_codecs_name_of_the_host_is_another_form_only_where_it_can_be_one():
    assert [form.host for form in parse_hits._forms(Fields())] == ["hostname", "host"]
    assert [form.host for form in parse_hits._forms(Fields(host="node"))] == ["node"]
    assert [form.host for form in parse_hits._forms(Fields(plugin="host.plugin"))] == ["hostname"]
