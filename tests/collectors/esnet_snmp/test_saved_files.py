"""Saved rates become the cells that are in them, or one sentence."""

import asyncio
import contextlib
import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.esnet_snmp import Saved, saved
from collectors.esnet_snmp.parse import OTHER_DIRECTION, REPEATED, parse_saved
from tokiod.clock import SystemClock
from tokiod.collector import Site
from tokiod.dropped import Dropped, Why
from tokiod.errors import TokiodError
from tokiod.window import Calendar, Window

CAPTURE = Path(__file__).parents[4] / "shared" / "data" / "esnet" / "esnet_snmp-2.json.gz"
SITE = Site(Calendar("America/Los_Angeles"), SystemClock())
TEXT = json.dumps({"r1": {"if_10": {"in": {"600": 1.5, "630": None, "660": -1.0}, "out": {"600": 2}, "units": "bytes/sec"}, "if_9": {}}})


def cells(path, window, **options):
    data, found = asyncio.run(saved([*path], Saved(**options), SITE).collect(window)), {}
    for batch in data.batches:
        rows = zip(batch.time.tolist(), (batch.columns[i] for i in batch.column), batch.value.tolist(), strict=True)
        found[batch.dataset] = list(rows)
    return found, data


def test_a_file_gives_its_cells_and_counts_the_rest(tmp_path):
    (tmp_path / "a.json").write_text(TEXT)
    found, data = cells([tmp_path / "a.json"], Window(600, 720))
    assert found == {"datatargets/readrates": [(600, "r1:if_10", 1.5)], "datatargets/writerates": [(600, "r1:if_10", 2.0)]}
    assert (data.records, data.dropped, data.why) == (2, {"negative rate": 1}, {"negative rate": Why("-1.0 at 660")})


def test_a_rate_that_no_link_has_is_dropped_with_an_example_also_where_means_would_hide_it(tmp_path):
    (tmp_path / "a.json").write_text('{"r": {"a": {"in": {"600": 1e12, "630": 1.8e19, "660": 5, "690": NaN}, "out": {"600": 4e13}}}}')
    found, data = cells([tmp_path / "a.json"], Window(600, 720), step=60, interval=30)
    assert found["datatargets/readrates"] == [(600, "r:a", 1e12), (660, "r:a", 5.0)]
    assert (data.dropped, data.why) == ({"implausible": 2}, {"implausible": Why("1.8e+19 at 630")})


def test_rates_in_other_units_and_of_other_interfaces_say_what_helps(tmp_path):
    (tmp_path / "a.json").write_text('{"r": {"a": {"in": {"600": 1}, "units": "bits/sec"}, "b": {"in": {"600": 1}}}}')
    _, data = cells([tmp_path / "a.json"], Window(600, 660), interface=("r:c",))
    assert data.why == {
        "interface whose rates are in other units": Why("r:a in bits/sec", '"units" must be "bytes/sec"'),
        "direction of an interface that was not asked for": Why("r:b", "name it with --interface"),
    }


def test_a_later_file_replaces_null_and_its_null_replaces_nothing(tmp_path):
    (tmp_path / "a.json").write_text(TEXT)
    (tmp_path / "b.json.gz").write_bytes(gzip.compress(b'{"r1": {"if_10": {"in": {"600": null, "630": 7}}}}'))
    found, _ = cells([tmp_path / "a.json", tmp_path / "b.json.gz"], Window(600, 660))
    assert found["datatargets/readrates"] == [(600, "r1:if_10", 1.5), (630, "r1:if_10", 7.0)]


def test_both_spellings_of_an_interface_that_is_asked_for_are_one(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps({"r": {"xe-0_0_0": {"in": {"600": 1.0, "630": 2.0}}}}))
    (tmp_path / "b.json").write_text(json.dumps({"r": {"xe-0/0/0": {"in": {"630": 3.0, "660": 4.0}}}}))
    found, _ = cells([tmp_path / "a.json", tmp_path / "b.json"], Window(600, 720), interface=("r:xe-0/0/0",))
    assert found["datatargets/readrates"] == [(600, "r:xe-0/0/0", 1.0), (630, "r:xe-0/0/0", 3.0), (660, "r:xe-0/0/0", 4.0)]


def test_what_occurs_twice_is_one_and_different_values_are_counted(tmp_path):
    point = '{"600": 1, "630": 2}'
    twice = '{"r": {"a": {"in": %s, "in": {"630": 3, "660": 4}}, "b": {"out": {"600": 5, "600": 5}}}, "r": {"a": {"out": %s}}}'
    (tmp_path / "a.json").write_text(twice % (point, point))
    found, data = cells([tmp_path / "a.json"], Window(600, 720))
    assert found["datatargets/readrates"] == [(600, "r:a", 1.0), (630, "r:a", 3.0), (660, "r:a", 4.0)]
    assert found["datatargets/writerates"] == [(600, "r:a", 1.0), (600, "r:b", 5.0), (630, "r:a", 2.0)]
    assert data.why == {REPEATED: Why("630: 2 and 3", "the later one is stored")}


def test_a_direction_of_another_name_and_a_time_that_is_none_are_counted(tmp_path):
    (tmp_path / "a.json").write_text('{"r": {"a": {"In": {"600": 1}, "out": {"600": 1, "6e2": 2}, "about": "text"}}}')
    _, data = cells([tmp_path / "a.json"], Window(600, 660))
    assert (data.dropped[OTHER_DIRECTION], data.why[OTHER_DIRECTION].example) == (1, "r:a In")
    assert data.why["malformed point"].example == "2 at 6e2"


@pytest.mark.parametrize("interface", ['"r1": {"in"', '"in": {"if"'])
def test_a_direction_is_no_router_and_no_interface_in_a_file_that_lost_lines(interface):
    """CI's fuzz found it, seed 3864865272: what was left is a JSON document, of another shape."""
    dropped = Dropped()
    assert parse_saved(b'{%s: {"600": 1.0, "630": 2.0, "out": {"600": 3.0}}}}' % interface.encode(), "a file", dropped) == {}
    assert dropped.counts == {"malformed interface name": 1}


@given(st.integers(0, len(TEXT)), st.integers(0, 20), st.binary(max_size=20))
def test_a_damaged_text_gives_points_or_a_sentence(at, length, other):
    data = TEXT.encode()
    with contextlib.suppress(TokiodError):
        parse_saved(data[:at] + other + data[at + length :], "here", Dropped())


@pytest.mark.skipif(not CAPTURE.exists(), reason="no captures")
def test_the_capture_gives_what_is_written_in_it():
    document = json.loads(gzip.decompress(CAPTURE.read_bytes()))["sunn-cr5"]["to_nersc_ip-d_v4"]
    window = Window(1549875660, 1549875660 + 210)
    found, _ = cells([CAPTURE], window, interface=("sunn-cr5:to_nersc_ip-d_v4",))
    for direction, dataset in (("in", "datatargets/readrates"), ("out", "datatargets/writerates")):
        want = {int(t): rate for t, rate in document[direction].items() if window.start <= int(t) < window.end}
        assert {time: rate for time, _, rate in found[dataset]} == want
        assert len(want) == 7
