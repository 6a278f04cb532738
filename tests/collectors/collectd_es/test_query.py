"""Queries, mappings and answers of collectd_es, by themselves; what real servers make of them is in tests/system."""

import json
import re

import msgspec
import pytest

from collectors.collectd_es.collector import indices
from collectors.collectd_es.complete import Incomplete, check_all_read, check_shards, check_whole
from collectors.collectd_es.datasets import DATASETS, Fields
from collectors.collectd_es.parse import Decoder
from collectors.collectd_es.parse_hits import Shards
from collectors.collectd_es.query import TERMS, Wanted, mapped_fields, query, unmapped, usable_names
from collectors.collectd_es.search import Search, find_id, sort_order, total_hits
from collectors.collectd_es.series import Series
from tokiod.errors import Fatal
from tokiod.window import Window

WINDOW = Window(1_513_152_000, 1_513_152_060)
NAMES = {
    "plugin": "plugin",
    "type": "collectd_type.keyword",
    "type_instance": "type_instance",
    "host": "hostname",
    "plugin_instance": "dev",
}


def conditions(wanted):
    (time, *others) = query(WINDOW, wanted, Fields(), NAMES)["constant_score"]["filter"]["bool"]["filter"]
    assert time == {"range": {"@timestamp": {"gte": 1_513_152_000_000, "lt": 1_513_152_060_000, "format": "epoch_millis"}}}
    return others


def test_one_plugins_datasets_are_queried_by_type_and_instance():
    (found,) = conditions(Wanted(frozenset({"dataservers/memfree", "dataservers/memused"})))
    wanted = [
        {"term": {"plugin": "memory"}},
        {"terms": {"collectd_type.keyword": ["memory"]}},
        {"terms": {"type_instance": ["free", "used"]}},
    ]
    assert found == {"bool": {"filter": wanted}}


def test_several_plugins_are_alternatives_and_prefixes_narrow_hosts_and_disks():
    prefix, found = conditions(Wanted(frozenset(DATASETS), "bb", "nvme"))
    assert prefix == {"prefix": {"hostname": "bb"}}
    assert found["bool"]["minimum_should_match"] == 1
    plugins = [one["bool"]["filter"] for one in found["bool"]["should"]]
    assert [filters[0] for filters in plugins] == [{"term": {"plugin": name}} for name in ("disk", "memory", "cpu", "aggregation")]
    assert [{"prefix": {"dev": "nvme"}} in filters for filters in plugins] == [True, False, False, False]
    assert plugins[0][1] == {"terms": {"collectd_type.keyword": ["disk_octets", "disk_ops"]}}


def test_the_mapping_is_queried_for_the_filtered_fields():
    assert Wanted(frozenset()).filtered == TERMS
    assert Wanted(frozenset(), "bb", "nvme").filtered == (*TERMS, "host", "plugin_instance")
    assert mapped_fields(Fields(type="t"), TERMS) == "@timestamp,plugin,t,type_instance"


def mapped(**fields):
    """An index's part of the answer to _mapping/field."""
    return {"mappings": {name: {"full_name": name, "mapping": {name.rpartition(".")[2]: what}} for name, what in fields.items()}}


DATE, KEYWORD = {"type": "date"}, {"type": "keyword"}
TEXT = {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}}


def test_a_keyword_is_used_as_it_is_and_a_text_by_its_keyword():
    found = usable_names(
        {"i": mapped(**{"@timestamp": DATE, "plugin": KEYWORD, "hostname": TEXT})}, Fields(), ("plugin", "host", "type"), "i"
    )
    assert found == {"plugin": "plugin", "host": "hostname.keyword", "type": "collectd_type"}


def test_a_filtered_field_that_no_index_has_is_named_with_the_key_that_helps():
    mapping = {"i": mapped(**{"@timestamp": DATE, "plugin": KEYWORD}), "j": mapped(type=KEYWORD)}
    assert unmapped(mapping, Fields(), TERMS) == "no index has a field collectd_type: set fields.type"
    assert unmapped(mapping, Fields(type="type"), TERMS) == ""
    assert unmapped({"i": mapped()}, Fields(), TERMS) == ""


def test_a_field_inside_an_object_is_found_by_its_whole_name():
    fields = Fields(host="host.name")
    assert usable_names({"i": mapped(**{"@timestamp": DATE, "host.name": TEXT})}, fields, ("host",), "i") == {"host": "host.name.keyword"}


@pytest.mark.parametrize(
    ("mapping", "fields"),
    [
        ({"i": mapped(**{"@timestamp": DATE, "hostname": {"type": "text"}})}, "i: hostname is mapped as text"),
        ({"i": mapped(**{"@timestamp": {"type": "text"}})}, "i: @timestamp is mapped as text, not as a date"),
        ({"i": mapped(**{"@timestamp": DATE, "hostname": KEYWORD | {"index": False}})}, "i: hostname is mapped as keyword"),
        (
            {"i": mapped(**{"@timestamp": DATE, "hostname": KEYWORD}), "j": mapped(**{"@timestamp": DATE, "hostname": TEXT})},
            "p: the indices differ on hostname: hostname in i, hostname.keyword in j",
        ),
    ],
)
def test_a_mapping_that_can_not_be_used_is_an_error_that_names_field_and_index(mapping, fields):
    with pytest.raises(Fatal) as caught:
        usable_names(mapping, Fields(), ("host",), "p")
    assert str(caught.value).startswith(fields)


def test_a_template_names_the_utc_days_of_a_window_and_the_days_next_to_it():
    midnight = 1_513_123_200
    assert indices("c-%Y.%m.%d", Window(midnight - 60, midnight)) == ("c-2017.12.11,c-2017.12.12,c-2017.12.13", True)
    assert indices("c-%Y.%m.%d", Window(midnight, midnight + 60)) == ("c-2017.12.12,c-2017.12.13,c-2017.12.14", True)
    assert indices("c-%Y.%m", Window(midnight, midnight + 60)) == ("c-2017.12", True)
    assert (indices("c-*", WINDOW), indices("c", WINDOW)) == (("c-*", True), ("c", False))


def answer(**more):
    body = {"timed_out": False, "_shards": {"total": 2, "successful": 2, "skipped": 1, "failed": 0}, "hits": {"hits": []}} | more
    return Decoder(Series()).answer(msgspec.json.encode(body))


def test_an_answer_is_whole_where_every_shard_answered_also_those_that_were_skipped():
    check_whole(answer())
    check_whole(answer(terminated_early=False))
    check_all_read(5, 5)
    check_all_read(5, None)


@pytest.mark.parametrize(
    "more",
    [
        {"timed_out": True},
        {"terminated_early": True},
        {"_shards": None},
        {"_shards": {"total": 2, "successful": 1, "skipped": 0, "failed": 1}},
        {"_shards": {"total": 2, "successful": 2, "skipped": 0, "failed": 1}},
        {"_shards": {"total": 2, "successful": 1, "skipped": 1, "failed": 0}},
    ],
)
def test_an_answer_that_is_not_all_is_incomplete_though_its_status_is_200(more):
    with pytest.raises(Incomplete):
        check_whole(answer(**more))


def test_fewer_or_more_documents_than_the_server_had_found_are_incomplete():
    for read in (4, 6):
        with pytest.raises(Incomplete, match=f"read {read} documents of 5"):
            check_all_read(read, 5)
    with pytest.raises(Incomplete):
        check_shards(Shards(total=3, successful=2))


@pytest.mark.parametrize(
    ("head", "total"),
    [
        (b'{"_scroll_id":"x","took":1,"hits":{"total":{"value":17,"relation":"eq"},"max_score":null', 17),
        (b'{"took":1, "hits" : { "total" : { "value" : 17 , "relation" : "eq" }, "hits":[', 17),
        (b'{"hits":{"total":{"value":10000,"relation":"gte"},"max_score":1', None),
        (b'{"_shards":{"total":5,"successful":5},"hits":{"total":17,"max_score":1', 17),
        (b'{"_shards":{"total":5,"successful":5},"hits":{"max_score":1', None),
    ],
)
def test_the_number_of_documents_is_read_from_the_head_of_an_answer(head, total):
    assert total_hits(head) == total


@pytest.mark.parametrize("length", [10, 4_000, 100_000])
def test_an_id_may_be_as_long_as_there_are_shards_and_the_total_is_found_after_it(length):
    body = json.dumps({"_scroll_id": "s" * length, "pit_id": "p" * length, "took": 1, "hits": {"total": {"value": 17, "relation": "eq"}}})
    assert total_hits(body.encode()) == 17
    for name, letter in (("_scroll_id", "s"), ("pit_id", "p")):
        assert find_id(re.compile(rf'"{name}"\s*:\s*"([^"]+)"'.encode()), body.encode()) == letter * length


def test_what_looks_like_an_id_inside_a_document_is_ignored():
    body = b'{"took":1,"hits":{"total":{"value":1,"relation":"eq"},"hits":[{"_source":{"_scroll_id":"evil"}}]}}'
    assert find_id(re.compile(rb'"_scroll_id"\s*:\s*"([^"]+)"'), body) is None


def test_names_stand_in_a_url_as_they_are_or_quoted():
    search = Search("a-*,b/c?", True, {}, (), 10, 60)
    assert (search.path, search.allow_missing) == ("a-*,b%2Fc%3F", "&ignore_unavailable=true&allow_no_indices=true")
    assert (search.filter, search.body(0, 1)) == ("", {"size": 10, "query": {}, "track_total_hits": True})
    assert search.body(1, 3)["slice"] == {"id": 1, "max": 3}


def test_elasticsearch_has_an_order_of_its_own_and_opensearch_needs_all_fields_that_distinguish_documents():
    assert sort_order("elasticsearch", "@timestamp", ("hostname",)) == ["_shard_doc"]
    names = [next(iter(one)) for one in sort_order("opensearch", "@timestamp", ("hostname", "plugin"))]
    assert names == ["@timestamp", "hostname", "plugin", "_seq_no"]
