"""Saved pages as a source: the same cells for every split and order, from one process or several, and errors that say what to do."""

import asyncio
import gzip
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from collectd_documents import DATASETS, Documents, cells, hit
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors import collectd_es
from collectors.collectd_es import parse_workers
from collectors.collectd_es.saved_files import BUCKET_MILLISECONDS, Spool
from tokiod.collector import Site
from tokiod.errors import Fatal, TokiodError, Transient
from tokiod.testing.clock import FakeClock
from tokiod.testing.collector_contract import CollectorContract, collected, within
from tokiod.window import Calendar, Window

START = 1_513_153_800
WINDOW = Window(START, START + 60)
SITE = Site(Calendar("UTC"), FakeClock())


def saved(*paths, **options):
    return collectd_es.saved(list(paths), collectd_es.Saved(**options), SITE)


def write(path, value, *, packed=False):
    data = json.dumps(value).encode()
    path.write_bytes(gzip.compress(data) if packed else data)
    return path


def shown(batches):
    found = {}
    for batch in batches:
        names = [batch.columns[i] for i in batch.column]
        found[batch.dataset] = dict(zip(zip(batch.time.tolist(), names, strict=True), batch.value.tolist(), strict=True))
    return found


def exactly(batches):
    """What a batch is, to the byte."""
    return [(b.dataset, b.form, b.step, b.columns, b.time.tobytes(), b.column.tobytes(), b.value.tobytes()) for b in batches]


def outcome(collector, window=WINDOW):
    """The window's batches and its data."""

    async def run(c):
        data = await c.collect(window)
        return data.batches, data

    return within(collector, run)


def paged(hits, size):
    return [hits[i : i + size] for i in range(0, len(hits), size)]


class TestContract(CollectorContract):
    @pytest.fixture
    def collector(self, tmp_path):
        documents = Documents(hosts=2)
        paths = [
            write(tmp_path / f"{n}.json", paged(documents.hits(START + n * 120, START + n * 120 + 120), 50), packed=n == 1)
            for n in range(3)
        ]
        return lambda: saved(*paths)

    @pytest.fixture
    def saved(self, tmp_path):
        return lambda: saved(write(tmp_path / "whole.json", [Documents(hosts=2).hits(START, START + 360)]))

    @pytest.fixture
    def window(self):
        return Window(START, START + 360)

    @pytest.fixture
    def datasets(self):
        return DATASETS


@settings(max_examples=15, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 200), st.integers(1, 3), st.booleans())
def test_any_split_of_documents_over_pages_and_files_gives_the_same_bytes(tmp_path_factory, chance, size, files, packed):
    hits = Documents(hosts=3).hits(START - 20, START + 80)
    folder = tmp_path_factory.getbasetemp()
    whole = exactly(outcome(saved(write(folder / "whole.json", [hits])))[0])
    chance.shuffle(hits)
    pages = paged(hits, size)
    paths = [write(folder / f"{n}.json", pages[n::files], packed=packed) for n in range(files)]
    assert exactly(outcome(saved(*paths))[0]) == whole


def test_every_cell_is_that_of_the_slow_reference(tmp_path):
    documents = Documents(hosts=3)
    path = write(tmp_path / "pages.json", paged(documents.hits(START - 20, START + 80), 100))
    found = shown(outcome(saved(path))[0])
    for dataset, wanted in documents.cells(START, START + 60, 10).items():
        assert found[dataset].keys() == wanted.keys()
        assert found[dataset] == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("form", ["answers", "an answer", "lines", "hits"])
def test_answers_and_bare_hits_mean_the_same_as_pages(form, tmp_path):
    hits = Documents().hits(START, START + 60)
    pages = paged(hits, 70)
    answers = [
        {"took": 3, "hits": {"hits": page, "total": {"value": len(hits), "relation": "eq"}}, "_shards": {"total": 1}} for page in pages
    ]
    path = tmp_path / "x.json"
    if form == "lines":
        path.write_text("\n".join(map(json.dumps, [{**answer, "_shards": None} for answer in answers])))
    else:
        write(path, {"answers": [{**a, "_shards": None} for a in answers], "hits": hits, "an answer": {"hits": {"hits": hits}}}[form])
    assert exactly(outcome(saved(path))[0]) == exactly(outcome(saved(write(tmp_path / "pages.json", pages)))[0])


def test_windows_longer_than_a_bucket_of_time_are_one_batch_per_dataset(tmp_path):
    documents = Documents(hosts=2, period=60)
    span = Window(START - 30, START + 1470)
    path = write(tmp_path / "pages.json", paged(documents.hits(span.start, span.end), 500))
    batches, _ = outcome(saved(path), span)
    assert len(batches) == len(DATASETS)
    found = shown(batches)
    for dataset, wanted in documents.cells(span.start, span.end, 10).items():
        assert found[dataset] == pytest.approx(wanted, rel=1e-12)


@pytest.fixture
def large(tmp_path, monkeypatch):
    """Files that are worth processes."""
    monkeypatch.setattr(parse_workers, "MIN_BYTES_FOR_WORKERS", 1000)
    hits = Documents(hosts=20).hits(START, START + 60)
    pages = paged(hits, 97)
    return [write(tmp_path / "a.json", pages[::2]), write(tmp_path / "b.json.gz", pages[1::2], packed=True)]


@pytest.mark.parametrize("workers", [1, 3])
def test_workers_give_the_same_bytes_as_one_process(workers, large):
    assert exactly(outcome(saved(*large, parse_workers=workers))[0]) == exactly(outcome(saved(*large, parse_workers=0))[0])


def test_dropped_records_are_reported_once_and_by_reason(tmp_path):
    source = {
        "plugin": "memory",
        "collectd_type": "memory",
        "type_instance": "free",
        "hostname": "bb1",
        "@timestamp": "2017-12-13T08:30:00Z",
    }
    damaged = [{"value": None}, {"value": "1,5"}, {"plugin": "df"}, {"@timestamp": "noon"}, {"hostname": "login1"}, {"@timestamp": None}]
    hits = [hit(source | {"value": 1.0} | change) for change in ({}, *damaged, {})]
    collector = saved(write(tmp_path / "x.json", [hits]), hosts="bb.*")

    async def twice(c):
        found = await c.collect(WINDOW), await c.collect(WINDOW)
        assert all(data.batches for data in found)
        return [data.dropped for data in found]

    first, second = within(collector, twice)
    assert first == {
        "no value": 1, "value that is not a number": 1, "unknown plugin": 1, "malformed time stamp": 1, "unknown host": 1,
        "no time stamp": 1, "duplicate": 1,
    }  # fmt: skip
    assert second == {"duplicate": 1}


def test_fields_hosts_devices_and_step_are_options(tmp_path):
    names = {"hostname": "host", "@timestamp": "at.time", "collectd_type": "type"}
    hits = []
    for one in Documents(hosts=2).hits(START, START + 60):
        source = {names.get(name, name): value for name, value in one["_source"].items()}
        hits.append(hit(source | {"at": {"time": source.pop("at.time")}}))
    path = write(tmp_path / "x.json", [hits])
    options = {"host_field": "host", "time_field": "at.time", "type_field": "type", "step": 20, "hosts": "bb1", "devices": "nvme1n1"}
    collector = saved(path, **options)
    assert collector.step == 20
    found = shown(outcome(collector)[0])
    wanted = cells(Documents(hosts=2).hits(START, START + 60), START, START + 60, 20)["datatargets/readrates"]
    assert found["datatargets/readrates"] == {cell: value for cell, value in wanted.items() if cell[1] == "bb1:nvme1n1"}
    assert {column for _, column in found["dataservers/memfree"]} == {"bb1"}


@pytest.mark.parametrize(
    ("content", "fields"),
    [
        (b"", "expected saved pages"),
        (b'{"took": 1, "hits": {"hits": [{"_source": {}}', "not a page"),
        (b'[[{"_source": {}}], [{"_source"', "truncated in the page that begins at byte 20"),
        (b'[[{"_source": {}}], [{"_source": }], []]', "byte 20: not a page"),
        (b"[[1, 2], [x]]", "byte 9: not a page"),
        (b'{"hits": 3}', "byte 0: not a page"),
        (b"\x1f\x8b\x08\x00", "truncated gzip data"),
    ],
)
def test_a_broken_file_fails_every_window_with_its_place(content, fields, tmp_path):
    path = tmp_path / "x.json"
    path.write_bytes(content)

    async def twice(c):
        for _ in range(2):
            with pytest.raises(Fatal, match=fields) as caught:
                await collected(c, WINDOW)
            assert str(path) in str(caught.value)

    within(saved(path), twice)


@pytest.mark.parametrize("cut", [1, 20_000])
def test_a_file_that_is_cut_off_fails_in_other_processes_too(cut, large):
    for path in large:
        path.write_bytes(path.read_bytes()[:-cut])
        with pytest.raises(Fatal, match=path.name):
            outcome(saved(path, parse_workers=2))


@pytest.mark.parametrize("workers", [0, 2])
def test_all_bytes_read_are_reported_to_the_callback(workers, large):
    told_bytes = []
    site = Site(Calendar("UTC"), FakeClock(), read=told_bytes.append)
    outcome(collectd_es.saved(large, collectd_es.Saved(parse_workers=workers), site))
    assert sum(told_bytes) == sum(path.stat().st_size for path in large)


def test_a_list_without_pages_has_columns_of_nothing(tmp_path):
    batches, data = outcome(saved(write(tmp_path / "x.json", [])))
    assert {batch.dataset for batch in batches} == DATASETS
    assert not any(len(batch.time) for batch in batches)
    assert data.dropped == {}


def test_files_and_options_that_can_not_be_are_refused_at_once(tmp_path):
    path = write(tmp_path / "x.json", [])
    with pytest.raises(TokiodError, match=r"no\.json can't be read: No such file"):
        saved(tmp_path / "no.json")
    with pytest.raises(TokiodError, match=r"can't be read|is a directory|Is a directory"):
        saved(tmp_path)
    with pytest.raises(TokiodError, match="--hosts: '\\(' is not a regular expression"):
        saved(path, hosts="(")
    with pytest.raises(TokiodError, match="--plugin-field: 'plugin' is already the name of host"):
        saved(path, host_field="plugin")


def test_a_full_disk_for_the_samples_is_reported_as_such(tmp_path, monkeypatch):
    path = write(tmp_path / "x.json", [Documents().hits(START, START + 60)])
    with Path("/dev/full").open("r+b", buffering=0) as full:
        monkeypatch.setattr("collectors.collectd_es.saved_files.tempfile.TemporaryFile", lambda **_named: full)
        with pytest.raises(Transient, match="the spool in TMPDIR: No space left on device"):
            outcome(saved(path))


def test_closing_while_the_files_are_read_ends_soon_and_leaves_no_process(large):
    async def hurried(c):
        task = asyncio.ensure_future(collected(c, WINDOW))
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.wait({task})
        await asyncio.wait_for(c.close(), 20)

    asyncio.run(hurried(saved(*large * 3, parse_workers=2)))
    assert not children()


def children():
    """Parse workers of this process, which may have started servers for other tests too."""
    found = [int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()]
    return [pid for pid in found if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


@pytest.fixture
def shared():
    default = Path(__file__).parents[3].parent / "shared"
    place = Path(os.environ.get("TOKIOD_SHARED", default))
    if not place.is_dir():
        pytest.skip(f"the captures are not here: {place}")
    return place


def archived(output, *inputs, start="2017-12-13T08:00:00Z", end="2017-12-13T09:00:00Z", options=()):
    command = [sys.executable, "-m", "tokiod.cli.tokioctl", "archive", "collectd_es", *map(str, inputs), "--output", str(output)]
    return subprocess.run([*command, "--start", start, "--end", end, *options], capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.parametrize("split", [False, True])
def test_the_capture_gives_every_cell_of_the_golden_file(shared, tmp_path, split):
    capture, output = shared / "data" / "collectd" / "sample_collectdes-part.json.gz", tmp_path / "out.hdf5"
    inputs = [capture]
    if split:
        hits = [hit for page in json.loads(gzip.decompress(capture.read_bytes())) for hit in page]
        random.Random(4).shuffle(hits)
        inputs = [write(tmp_path / f"{n}.json", paged(hits[n::3], 111)) for n in range(3)]
    result = archived(output, *inputs)
    assert result.returncode == 0, result.stderr
    compare = [sys.executable, shared / "tools" / "tts_diff.py", shared / "data" / "golden" / "collectdes_part.hdf5", output]
    difference = subprocess.run(compare, capture_output=True, text=True, check=False, timeout=300)
    assert difference.returncode == 0, difference.stdout


def test_the_command_reports_an_error_in_one_line_and_writes_nothing(tmp_path):
    path = tmp_path / "x.json"
    path.write_bytes(b'[[{"_source": {}}], [{"_sou')
    result = archived(tmp_path / "out.hdf5", path)
    assert (result.returncode, result.stdout) == (2, "")
    assert len(result.stderr.strip().splitlines()) == 1
    assert "truncated in the page" in result.stderr
    assert not (tmp_path / "out.hdf5").exists()


sample = st.tuples(
    st.integers(START * 1000 - 2 * BUCKET_MILLISECONDS, START * 1000 + 4 * BUCKET_MILLISECONDS),
    st.integers(0, 2**32 - 1),
    st.floats(allow_nan=False),
)
window = st.tuples(st.integers(-700, 1300), st.integers(1, 1500)).map(lambda t: Window(START + t[0], START + t[0] + t[1]))


def columns(samples):
    time, series, value = zip(*samples, strict=True) if samples else ((), (), ())
    return np.array(time, np.int64), np.array(series, np.uint32), np.array(value, np.float64)


def samples_within(spool, window):
    return [tuple(row) for part in spool.within(window) for row in zip(*(column.tolist() for column in part), strict=True)]


@given(st.lists(st.lists(sample, max_size=20), max_size=5), st.lists(window, max_size=4))
def test_a_window_holds_its_samples_and_no_others_in_whatever_order_they_came(parts, windows):
    spool = Spool()
    for part in parts:
        spool.add(*columns(part))
    for one in windows:
        wanted = [row for part in parts for row in part if one.start * 1000 <= row[0] < one.end * 1000]
        assert sorted(samples_within(spool, one)) == sorted(wanted)
        assert sorted(samples_within(spool, one)) == sorted(wanted), "read again"
    spool.close()


def test_columns_keep_their_types():
    spool = Spool()
    spool.add(*columns([(START * 1000, 7, 0.5)]))
    ((time, series, value),) = spool.within(Window(START, START + 1))
    assert (time.dtype, series.dtype, value.dtype) == (np.int64, np.uint32, np.float64)
    spool.close()


def test_times_before_1970_have_a_place_too():
    spool = Spool()
    spool.add(*columns([(-1, 1, 1.0), (0, 2, 2.0)]))
    assert samples_within(spool, Window(0, 60)) == [(0, 2, 2.0)]
    spool.close()


def test_nothing_is_to_be_found_on_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    spool = Spool()
    spool.add(*columns([(START * 1000, 7, 0.5)]))
    assert list(tmp_path.iterdir()) == []
    spool.close()


def test_a_full_disk_is_an_error():
    spool = Spool()
    spool._file.close()
    with Path("/dev/full").open("r+b", buffering=0) as spool._file, pytest.raises(OSError, match="No space left"):
        spool.add(*columns([(START * 1000, 7, 0.5)]))
