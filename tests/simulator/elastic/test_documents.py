import functools
import itertools
import json
import operator
from collections import Counter
from datetime import datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokiod.simulator.elastic.collectd import INTERVAL, JITTER, Collectd, Fate
from tokiod.simulator.elastic.documents import Documents, Search
from tokiod.simulator.elastic.query import select
from tokiod.simulator.site import Site

EPOCH = 1_513_209_000  # an hour before midnight in UTC, near enough
MIDNIGHT = 1_513_209_600
SITE = Site(EPOCH, hosts=5, devices=2, cores=2)
DOCUMENTS = Documents(SITE)
END = EPOCH + 1800
LATER = (END + 3600) * 1000


def search(start=EPOCH, end=END, *, seen=LATER, query=None, part=(0, 1)):
    span = {"range": {"@timestamp": {"gte": round(start * 1000), "lt": round(end * 1000)}}}
    return Search(select(DOCUMENTS.names, {"bool": {"filter": [span, *([query] if query else [])]}}), seen, part)


def pages(wanted, size=10_000):
    after = -1
    while len(positions := DOCUMENTS.positions(wanted, after, size)):
        assert len(positions) <= size
        yield positions
        after = int(positions[-1])


def hits(wanted, size=10_000):
    return [hit for page in pages(wanted, size) for hit in json.loads(b"[" + DOCUMENTS.text(page, ordered=True) + b"]")]


def stamp(hit):
    return round(datetime.fromisoformat(hit["_source"]["@timestamp"]).timestamp() * 1000)


def key(hit):
    return tuple(hit["_source"].get(name, "") for name in ("hostname", "plugin", "collectd_type", "plugin_instance", "type_instance"))


ALL = hits(search())


def test_every_document_of_the_load_is_told_once_or_twice_with_its_very_numbers():
    load, expected = Collectd(SITE), Counter()
    for step in range((END - EPOCH) // INTERVAL + 1):
        told, (first, second) = load.told(step // 30), load.numbers(step // 30)
        row = step % 30
        for h, host in enumerate(SITE.host_names):
            for i, s in enumerate(load.series):
                fate, time = told.fate[row, h, i], int(told.time[row, h])
                if fate == Fate.ABSENT or not EPOCH * 1000 <= time < END * 1000:
                    continue
                name = (host, s.plugin, s.type, s.instance, s.kind)
                read, written = float(first[row, h, i]), float(second[row, h, i])
                numbers = {"read": read, "write": written} if s.disk else {"value": written}
                if fate == Fate.NULL:
                    numbers["read" if s.disk else "value"] = None
                elif fate == Fate.TEXT:
                    numbers["write" if s.disk else "value"] = "text"
                elif fate == Fate.SECOND_ONLY:
                    del numbers["read" if s.disk else "value"]
                elif fate == Fate.FIRST_ONLY:
                    del numbers["write" if s.disk else "value"]
                expected[(name, time, tuple(numbers.items()))] += 1 + (fate == Fate.TWICE)
    said = Counter()
    for hit in ALL:
        numbers = {name: hit["_source"][name] for name in ("read", "write", "value") if name in hit["_source"]}
        numbers = {name: "text" if value in ("NaN", "n/a") else value for name, value in numbers.items()}
        said[(key(hit), stamp(hit), tuple(numbers.items()))] += 1
    assert said == expected
    assert 2 in said.values()


def test_a_document_looks_as_it_does_at_nersc():
    by_kind = {(hit["_source"]["plugin"], "type_instance" in hit["_source"]): hit for hit in ALL if len(hit["_source"]) >= 5}
    disk, cpu, memory = by_kind["disk", False], by_kind["cpu", True], by_kind["memory", True]
    assert list(disk["_source"]) == ["plugin", "read", "@timestamp", "hostname", "write", "collectd_type", "plugin_instance"]
    assert list(cpu["_source"]) == ["plugin", "@timestamp", "hostname", "value", "collectd_type", "plugin_instance", "type_instance"]
    assert list(memory["_source"]) == ["plugin", "@timestamp", "hostname", "value", "collectd_type", "type_instance"]
    assert list(disk) == ["_index", "_id", "_score", "_source", "sort"]


def test_ids_are_unique_and_an_index_holds_the_documents_of_its_utc_day():
    assert len({hit["_id"] for hit in ALL}) == len(ALL)
    for hit in ALL:
        assert hit["_index"] == "cori-collectd-" + hit["_source"]["@timestamp"][:10].replace("-", ".")
    assert len({hit["_index"] for hit in ALL}) == 2


def test_documents_come_in_no_order_of_time_or_host():
    assert [stamp(hit) for hit in ALL] != sorted(stamp(hit) for hit in ALL)
    assert len({key(hit)[0] for hit in ALL[:20]}) > 2


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 1700), st.integers(1, 100), st.integers(1, 1000))
def test_pages_of_any_size_are_one_and_the_same_sequence(begin, length, size):
    wanted = search(EPOCH + begin, EPOCH + begin + length)
    expected = [hit for hit in ALL if EPOCH + begin <= stamp(hit) / 1000 < EPOCH + begin + length]
    assert hits(wanted, size) == expected
    assert DOCUMENTS.count(wanted) == len(expected)
    assert DOCUMENTS.count(wanted, 7) >= min(8, len(expected))


@settings(deadline=None, max_examples=25)
@given(st.lists(st.floats(0, 1800).map(lambda x: round(x, 3)), min_size=1, max_size=5))
def test_neighbouring_spans_share_no_document_and_leave_none_out(cuts):
    edges = [EPOCH, *sorted(EPOCH + cut for cut in cuts), END]
    parts = [p for a, b in itertools.pairwise(edges) for page in pages(search(a, b)) for p in page.tolist()]
    assert sorted(parts) == [hit["sort"][0] for hit in ALL]


def test_the_seconds_of_half_an_hour_share_no_document_and_leave_none_out():
    parts = [p for second in range(EPOCH, END) for page in pages(search(second, second + 1)) for p in page.tolist()]
    assert sorted(parts) == [hit["sort"][0] for hit in ALL]


@pytest.mark.parametrize("of", [2, 3, 7])
def test_slices_are_a_partition(of):
    parts = [[p for page in pages(search(part=(i, of))) for p in page.tolist()] for i in range(of)]
    assert sorted(functools.reduce(operator.iadd, parts, [])) == [hit["sort"][0] for hit in ALL]
    assert all(len(part) > len(ALL) / of / 2 for part in parts)


def test_a_query_selects_documents():
    found = hits(search(query={"bool": {"filter": [{"term": {"collectd_type": "disk_ops"}}, {"prefix": {"hostname": "bb1"}}]}}))
    assert found == [hit for hit in ALL if key(hit)[2] == "disk_ops" and key(hit)[0].startswith("bb1")]
    assert found


def test_a_document_is_found_from_its_time_on_and_everything_by_the_sites_limit():
    now = (EPOCH + 900) * 1000
    by_then = {p for page in pages(search(seen=now)) for p in page.tolist()}
    times = {hit["sort"][0]: stamp(hit) for hit in ALL}
    assert by_then <= {p for p, time in times.items() if time <= now - 1000}
    assert {p for p, time in times.items() if time <= now - 1000 * SITE.late} <= by_then
    late = {p for p, time in times.items() if now - 1000 * SITE.late < time <= now - 1000} - by_then
    assert late


def test_nothing_comes_before_the_epoch():
    assert hits(search(0, EPOCH - JITTER / 1000)) == []
    assert DOCUMENTS.text(np.empty(0, np.int64), ordered=True) == b""
