import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokiod.simulator.elastic.query import Names, Refused, select

FIELDS = {
    "hostname": ["bb1", "bb1", "bb2", "bb10", "login1"],
    "plugin": ["disk", "memory", "disk", "cpu", "disk"],
    "plugin_instance": ["nvme0n1", "", "sda", "7", "nvme0n1"],
}
NAMES = Names(FIELDS)
WORDS = st.sampled_from(sorted({word for words in FIELDS.values() for word in words} | {"bb", "nvme", "d", "absent"}))
LEAVES = st.one_of(
    st.builds(
        lambda kind, field, word: {kind: {field: word}}, st.sampled_from(["term", "prefix"]), st.sampled_from([*FIELDS, "no"]), WORDS
    ),
    st.builds(lambda field, words: {"terms": {field: words}}, st.sampled_from([*FIELDS]), st.lists(WORDS)),
    st.builds(lambda field, word: {"regexp": {field: {"value": f"{word}.*"}}}, st.sampled_from([*FIELDS]), WORDS),
    st.builds(lambda field: {"exists": {"field": field}}, st.sampled_from([*FIELDS, "no"])),
    st.just({"match_all": {}}),
)


def combined(inner):
    queries = st.lists(inner, max_size=3)
    return st.one_of(
        st.builds(lambda query: {"constant_score": {"filter": query}}, inner),
        st.fixed_dictionaries({}, optional=dict.fromkeys(("must", "filter", "should", "must_not"), queries)).map(lambda b: {"bool": b}),
    )


QUERIES = st.recursive(LEAVES, combined, max_leaves=8)


def matches(query, document):  # noqa: PLR0911 - a kind of query each
    """Say slowly whether a document is found."""
    ((kind, body),) = query.items()
    if kind == "match_all":
        return True
    if kind == "constant_score":
        return matches(body["filter"], document)
    if kind == "exists":
        return bool(document.get(body["field"]))
    if kind == "bool":
        must = all(matches(q, document) for name in ("must", "filter") for q in body.get(name, []))
        never = any(matches(q, document) for q in body.get("must_not", []))
        should = [matches(q, document) for q in body.get("should", [])]
        return must and not never and (any(should) or not should or "must" in body or "filter" in body)
    ((field, wanted),) = body.items()
    text = document.get(field, "")
    if not text:
        return False
    if kind == "term":
        return text == wanted
    if kind == "terms":
        return text in wanted
    return text.startswith(wanted) if kind == "prefix" else re.fullmatch(wanted["value"], text) is not None


@given(QUERIES)
def test_a_query_finds_what_a_slow_reading_of_it_finds_in_each_document(query):
    documents = [dict(zip(FIELDS, texts, strict=True)) for texts in zip(*FIELDS.values(), strict=True)]
    found = select(NAMES, query)
    assert found.series.tolist() == [matches(query, document) for document in documents]
    assert found.timeless


def test_a_name_and_its_keyword_are_the_same():
    for value in ("bb1", {"value": "bb1"}):
        assert np.array_equal(
            select(NAMES, {"term": {"hostname.keyword": value}}).series, select(NAMES, {"term": {"hostname": "bb1"}}).series
        )


@pytest.mark.parametrize(
    ("bounds", "span"),
    [
        ({"gte": 1000, "lt": 2000}, (1000, 2000)),
        ({"gt": 1000, "lte": 2000, "format": "epoch_millis"}, (1001, 2001)),
        ({"gte": "1000", "lt": "2000"}, (1000, 2000)),
        ({"gte": 1, "lt": 2, "format": "epoch_second"}, (1000, 2000)),
        ({"gte": "1970-01-01T00:00:01Z", "lt": "1970-01-01T00:00:02.5"}, (1000, 2500)),
    ],
)
def test_a_range_is_a_span_of_milliseconds_and_spans_intersect(bounds, span):
    found = select(NAMES, {"range": {"@timestamp": bounds}})
    assert (found.start, found.end) == span
    both = select(NAMES, {"bool": {"must": [{"range": {"@timestamp": bounds}}], "filter": {"range": {"@timestamp": {"lt": 1500}}}}})
    assert (both.start, both.end) == (span[0], 1500)


@pytest.mark.parametrize(
    "query",
    [
        {"wildcard": {"hostname": "bb*"}},
        {"term": {}},
        {"term": {"hostname": "bb1"}, "prefix": {"plugin": "disk"}},
        {"range": {"value": {"gte": 3}}},
        {"range": {"@timestamp": {"from": 3}}},
        {"range": {"@timestamp": {"gte": "yesterday"}}},
        {"bool": {"should": [{"range": {"@timestamp": {"gte": 3}}}]}},
        {"bool": {"must_not": {"range": {"@timestamp": {"gte": 3}}}}},
        {"regexp": {"hostname": "("}},
        {"constant_score": {}},
    ],
)
def test_what_is_not_understood_is_refused(query):
    with pytest.raises(Refused) as refused:
        select(NAMES, query)
    assert (refused.value.status, refused.value.kind) == (400, "parsing_exception")
