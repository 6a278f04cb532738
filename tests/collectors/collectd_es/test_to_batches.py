"""Samples to cells: every cell against a dictionary, in any order and any split of pages."""

import gzip
import itertools
import json
import os
import random
import tracemalloc
from pathlib import Path

import h5py
import numpy as np
import pytest
from collectd_documents import CPU, DATASETS, Documents, cells, hit, iso
from hypothesis import example, given, settings
from hypothesis import strategies as st

from collectors.collectd_es import to_batches as module
from collectors.collectd_es.parse import Decoder, Samples
from collectors.collectd_es.series import Series
from collectors.collectd_es.to_batches import batches
from tokiod.window import Window

START = 1_513_153_800
WINDOW = Window(START, START + 60)


@pytest.fixture
def shared():
    default = Path(__file__).parents[3].parent / "shared"
    place = Path(os.environ.get("TOKIOD_SHARED", default)) / "data"
    if not place.is_dir():
        pytest.skip(f"the captures are not here: {place}")
    return place


def decoded(pages, series):
    decoder = Decoder(series)
    return [decoder.hits(json.dumps(page).encode()) for page in pages]


def collected(pages, window=WINDOW, step=10):
    series = Series()
    return batches(decoded(pages, series), window, step, series)


def shown(cellular):
    """{dataset: {(time, column): value}}; of what a batch must be, all is checked on the way."""
    found = {}
    for batch in cellular.batches:
        assert (batch.form, batch.time.dtype, batch.column.dtype, batch.value.dtype) == ("gauge", np.int64, np.uint32, np.float64)
        assert np.isfinite(batch.value).all()
        assert len(set(batch.columns)) == len(batch.columns)
        place = batch.time * (len(batch.columns) + 1) + batch.column
        assert (np.diff(place) > 0).all(), "row by row, each cell once"
        names = [batch.columns[i] for i in batch.column]
        found[batch.dataset] = dict(zip(zip(batch.time.tolist(), names, strict=True), batch.value.tolist(), strict=True))
    assert set(found) == DATASETS
    return found


def bare(cellular):
    """All bytes."""
    return [
        (b.dataset, b.form, b.step, b.columns, b.time.tobytes(), b.column.tobytes(), b.value.tobytes()) for b in cellular.batches
    ], cellular.dropped.counts


def assert_right(found, wanted):
    for dataset in DATASETS:
        exact = dataset not in CPU
        assert found[dataset] == (wanted[dataset] if exact else pytest.approx(wanted[dataset], rel=1e-12, abs=1e-12)), dataset


def test_a_small_page_of_the_captures_form_gives_its_cells():
    disk = {"plugin": "disk", "hostname": "bb13", "collectd_type": "disk_octets", "plugin_instance": "nvme2n1"}
    cpu = {"plugin": "cpu", "hostname": "bb2", "collectd_type": "percent"}
    page = [
        hit(disk | {"read": 5.0, "write": 7.5, "@timestamp": "2017-12-13T08:30:13.951Z"}),
        hit(disk | {"read": 3.0, "write": 0.0, "@timestamp": "2017-12-13T08:30:09.999999999Z", "hostname": "bb2"}),
        hit(cpu | {"plugin_instance": "0", "type_instance": "idle", "value": 100.0, "@timestamp": "2017-12-13T08:30:00.000Z"}),
        hit(cpu | {"plugin_instance": "1", "type_instance": "idle", "value": 50.0, "@timestamp": "2017-12-13T09:30:00.001+01:00"}),
        hit(cpu | {"plugin_instance": "1", "type_instance": "user", "value": 12.5, "@timestamp": "2017-12-13T08:30:59Z"}),
    ]
    cellular = collected([page])
    found = shown(cellular)
    assert {dataset: some for dataset, some in found.items() if some} == {
        "datatargets/readrates": {(START, "bb2:nvme2n1"): 3.0, (START + 10, "bb13:nvme2n1"): 5.0},
        "datatargets/writerates": {(START, "bb2:nvme2n1"): 0.0, (START + 10, "bb13:nvme2n1"): 7.5},
        "dataservers/cpuload": {(START, "bb2"): 25.0},
        "dataservers/cpuuser": {(START + 50, "bb2"): 12.5},
    }
    assert {b.dataset: b.columns for b in cellular.batches}["datatargets/readrates"] == ("bb2:nvme2n1", "bb13:nvme2n1")
    assert cellular.dropped.counts == {}


@pytest.mark.parametrize("step", [1, 7, 10, 30, 60, 3600])
def test_every_cell_is_that_of_the_slow_way_at_any_step(step):
    documents = Documents(3, hosts=12, devices=3, cores=4)
    window = Window(START, START + 600)
    found = documents.hits(window.start, window.end)
    assert_right(shown(collected([found], window, step)), documents.cells(window.start, window.end, step))


hosts, parts = st.sampled_from(["bb1", "bb2", "bb10"]), st.sampled_from(["0", "1", "10"])
numbers = st.sampled_from([0.0, -0.0, 1.0, 99.9]) | st.floats(-1e7, 1e7)


@st.composite
def sources(draw):
    time = START * 1000 + draw(st.integers(-2, 12)) * 5000 + draw(st.sampled_from([0, 0, 1, 4999]))
    source = {"@timestamp": iso(time), "hostname": draw(hosts)}
    plugin = draw(st.sampled_from(["disk", "memory", "cpu", "cpu"]))
    if plugin == "disk":
        kind = draw(st.sampled_from(["disk_octets", "disk_ops"]))
        source |= {"collectd_type": kind, "plugin_instance": draw(parts)}
        source |= draw(st.fixed_dictionaries({}, optional={"read": numbers, "write": numbers}))
    elif plugin == "memory":
        source |= {"collectd_type": "memory", "type_instance": draw(st.sampled_from(["used", "free"])), "value": draw(numbers)}
    else:
        kind = draw(st.sampled_from(["idle", "user"]))
        source |= {"collectd_type": "percent", "type_instance": kind, "plugin_instance": draw(parts), "value": draw(st.floats(0, 100))}
    return hit({"plugin": plugin, **source})


@given(st.lists(sources(), max_size=60), st.randoms(use_true_random=False), st.sampled_from([1, 50, 2_000_000]))
@settings(max_examples=150, deadline=None)
def test_any_order_split_and_repetition_of_documents_gives_the_right_cells_and_the_same_bytes(found, chance, most):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "MAX_CELLS", most)
        first = collected([found])
        assert_right(shown(first), cells(found, WINDOW.start, WINDOW.end, 10))
        chance.shuffle(found)
        cut = chance.randint(0, len(found))
        patch.setattr(module, "MAX_CELLS", chance.choice([7, 2_000_000]))
        assert bare(collected([found[:cut], [], found[cut:]])) == bare(first)
        repeated, _ = bare(collected([found, found[:cut]]))
        assert repeated == bare(first)[0]


@given(
    st.lists(st.tuples(st.integers(0, 9999), st.integers(0, 3), st.floats(0, 100)), min_size=1, max_size=40),
    st.randoms(use_true_random=False),
)
@settings(max_examples=100, deadline=None)
@example([(1, 0, 0.1), (1, 1, 0.2), (1, 2, 0.3), (1, 3, 1e-9)], random.Random(1))
def test_a_mean_is_the_same_to_the_last_bit_whatever_arrives_first(samples, chance):
    def page():
        for ms, core, value in samples:
            source = {"plugin": "cpu", "@timestamp": iso(START * 1000 + ms), "hostname": "bb1", "collectd_type": "percent", "value": value}
            yield hit(source | {"type_instance": "user", "plugin_instance": str(core)})

    first = bare(collected([list(page())]))
    chance.shuffle(samples)
    assert bare(collected([[one] for one in page()])) == first


def memory(time, value):
    return hit(
        {"plugin": "memory", "collectd_type": "memory", "type_instance": "used", "hostname": "bb1", "value": value, "@timestamp": iso(time)}
    )


def test_of_two_samples_in_a_cell_the_last_by_time_wins_and_of_equal_times_the_largest():
    early, late, same = memory(START * 1000 + 1, 9.0), memory(START * 1000 + 9999, 2.0), memory(START * 1000 + 9999, 1.0)
    for pages in ([[early, late, same]], [[late], [same], [early]], [[same, late, early]]):
        cellular = collected(pages)
        assert shown(cellular)["dataservers/memused"] == {(START, "bb1"): 2.0}
        assert cellular.dropped.counts == {"duplicate": 1}


def test_a_negative_zero_is_a_zero_like_any_other():
    pages = [[memory(START * 1000, value) for value in values] for values in ([-0.0], [0.0], [-0.0, 0.0], [0.0, -0.0])]
    first, *others = (bare(collected([page]))[0] for page in pages)
    assert others == [first] * 3
    assert not np.signbit(np.concatenate([b.value for b in collected(pages).batches])).any()


def test_a_window_holds_what_is_from_its_start_on_and_before_its_end():
    times = [START * 1000 - 1, START * 1000, (START + 60) * 1000 - 1, (START + 60) * 1000, 0, -(2**62) // 10**6, 2**62 // 10**6]
    cellular = collected([[memory(time, 1.0 + n) for n, time in enumerate(times[:5])]])
    assert shown(cellular)["dataservers/memused"] == {(START, "bb1"): 2.0, (START + 50, "bb1"): 3.0}
    assert cellular.dropped.counts == {"outside the window": 3}
    assert cellular.dropped.why["outside the window"].example == f"{np.datetime64(START * 1000 - 1, 'ms')}Z"


def test_a_window_that_is_no_multiple_of_the_step_ends_with_a_shorter_row():
    cellular = collected([[memory((START + 24) * 1000, 1.0)]], Window(START, START + 25))
    assert shown(cellular)["dataservers/memused"] == {(START + 20, "bb1"): 1.0}


def test_a_window_without_samples_has_every_dataset_and_the_columns_that_are_known():
    series = Series()
    assert [(b.dataset, b.columns, len(b)) for b in batches([], WINDOW, 10, series).batches] == [
        (d, (), 0) for d in series.layout().columns
    ]
    some = decoded([Documents().hits(START, START + 10)], series)
    full = batches(some, WINDOW, 10, series)
    empty = batches([], WINDOW, 10, series)
    late = batches(some, Window(START + 60, START + 120), 10, series)
    for without in (empty, late):
        assert [(b.dataset, b.columns) for b in without.batches] == [(b.dataset, b.columns) for b in full.batches]
        assert [len(b) for b in without.batches] == [0] * len(DATASETS)


def test_a_new_host_gets_columns_after_the_known_ones():
    series = Series()
    decoder = Decoder(series)
    for seen, count in enumerate((2, 4), 1):
        found = Documents(1, hosts=count).hits(START, START + 10)
        random.Random(seen).shuffle(found)
        cellular = batches([decoder.hits(json.dumps(found).encode())], WINDOW, 10, series)
        columns = {b.dataset: b.columns for b in cellular.batches}
        assert columns["dataservers/cpuload"] == tuple(f"bb{n}" for n in range(1, count + 1))
        assert_right(shown(cellular), cells(found, WINDOW.start, WINDOW.end, 10))


def test_samples_of_several_processes_give_the_same_bytes_as_those_of_one():
    found = Documents(5, hosts=6).hits(START, START + 60)
    ours = Series()
    samples = []
    for part in range(3):
        theirs = Series()
        (one,) = decoded([found[part::3]], theirs)
        samples.append(
            Samples(one.time, np.array(ours.numbers(theirs.names()), np.uint32)[one.series], one.value, one.documents, one.dropped)
        )
    assert bare(batches(samples, WINDOW, 10, ours)) == bare(collected([found]))


def test_the_capture_gives_every_cell_of_the_golden_file_and_no_other(shared):
    pages = json.loads(gzip.decompress((shared / "collectd" / "sample_collectdes-part.json.gz").read_bytes()))
    found = {batch.dataset: batch for batch in collected(pages, Window(1_513_152_000, 1_513_155_600)).batches}
    with h5py.File(shared / "golden" / "collectdes_part.hdf5") as golden:
        wanted = {f"{group}/{name}": golden[group][name] for group in golden for name in golden[group] if name != "timestamps"}
        assert set(found) == set(wanted)
        for dataset, right in wanted.items():
            batch = found[dataset]
            assert batch.columns == tuple(name.decode() for name in right.attrs["columns"])
            grid = np.full(right.shape, -0.0)
            grid[(batch.time - 1_513_152_000) // 10, batch.column] = batch.value
            assert grid.tobytes() == right[...].tobytes(), dataset


@pytest.mark.parametrize("seed", range(3))
def test_the_captured_loads_give_the_right_cells_in_any_split_of_their_pages(shared, seed):
    pages = json.loads(gzip.decompress((shared / "collectd" / "collectdes_cpuloads.json.gz").read_bytes()))
    everything = [one for page in pages for one in page]
    window = Window(1_513_152_000, 1_513_155_600)
    whole = collected(pages, window)
    assert_right(shown(whole), cells(everything, window.start, window.end, 10))
    assert len([None for b in whole.batches if len(b)]) == 13 - 1, "of memory, free is not in the capture"
    chance = random.Random(seed)
    chance.shuffle(everything)
    cuts = [0, *sorted(chance.sample(range(len(everything)), 7)), len(everything)]
    assert bare(collected([everything[a:b] for a, b in itertools.pairwise(cuts)], window)) == bare(whole)


def test_a_day_of_few_samples_among_many_series_needs_little_memory():
    series = Series()
    series.numbers([("dataservers/cpuuser", f"h{host}", str(core)) for host in range(400) for core in range(10)])
    at = np.arange(0, 86_400, 600, dtype=np.int64)
    samples = Samples((START + at) * 1000, np.full(len(at), 7, np.uint32), at / 1000, len(at), {})
    tracemalloc.start()
    cellular = batches([samples], Window(START, START + 86_400), 10, series)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert shown(cellular)["dataservers/cpuuser"] == {(START + t, "h0"): t / 1000 for t in at.tolist()}
    assert peak < 64 * 2**20, "of 265 MiB that all cells of the day would take"
