"""The collectd collector on a real Elasticsearch and a real OpenSearch."""

import gzip
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import collectd_loader
import pytest
from collectd_documents import DATASETS, Documents
from collectd_search import SITE, WAYS, archived, assert_cells, live, meaning, none_open
from fault_proxy import FaultProxy

from collectors import collectd_es
from tokiod.errors import Fatal
from tokiod.testing.collector_contract import CollectorContract, within
from tokiod.window import Window

pytestmark = pytest.mark.system

START = 1_513_152_000
SPAN = Window(START, START + 600)
PAGE = 500


@pytest.fixture(scope="module")
def documents():
    return Documents(seed=1)


@pytest.fixture(scope="module")
def indices(search_server, documents):
    """{mapping: index} of the documents of SPAN and a little behind it."""
    made = {mapping: f"servers-{mapping}" for mapping in ("text", "keyword")}
    hits = documents.hits(SPAN.start, SPAN.end + 120)
    for mapping, name in made.items():
        collectd_loader.load(search_server, name, hits, mapping=mapping, shards=2)
    yield made
    collectd_loader.remove(search_server, ",".join(made.values()))


@pytest.fixture
def index(indices):
    """That of the mapping which Elasticsearch makes by itself."""
    return indices["text"]


@pytest.mark.parametrize("mapping", ["text", "keyword"])
@pytest.mark.parametrize(("read", "slices"), [*WAYS, ("auto", 1)])
def test_every_way_of_reading_gives_every_cell(search_server, indices, documents, mapping, read, slices):
    collector = live(search_server, indices[mapping], read=read, slices=slices, page=PAGE)
    assert_cells(meaning(collector, SPAN), documents.cells(SPAN.start, SPAN.end, 10))
    assert none_open(search_server)


class TestContract(CollectorContract):
    @pytest.fixture(params=[("scroll", 2), ("pit", 1)], ids=["scroll", "pit"])
    def collector(self, search_server, index, request):
        read, slices = request.param
        return lambda: live(search_server, index, read=read, slices=slices, page=PAGE)

    @pytest.fixture
    def saved(self, documents, tmp_path):
        path = tmp_path / "pages.json"
        path.write_text(json.dumps([documents.hits(SPAN.start, SPAN.end + 120)]))
        return lambda: collectd_es.saved([path], collectd_es.Saved(), SITE)

    @pytest.fixture
    def window(self):
        return SPAN

    @pytest.fixture
    def datasets(self):
        return DATASETS


@pytest.mark.parametrize("shards", [1, 2])
def test_documents_that_stand_twice_are_read_twice_and_count_once(search_server, own, documents, shards):
    """A point in time sorted by what equal documents have in common must not lose one of two that lie on both sides of a page's edge."""
    hits = documents.hits(SPAN.start, SPAN.start + 60)
    collectd_loader.load(search_server, own, [hit for hit in hits for _ in range(3)], shards=shards)
    window = Window(SPAN.start, SPAN.start + 60)
    with FaultProxy(search_server.url) as proxy:
        collector = live(proxy, own, read="pit", slices=2, page=11)
        assert_cells(meaning(collector, window), documents.cells(window.start, window.end, 10))
        assert within(collector, lambda c: c.collect(window)).records == len(hits) * 3
    # Only in two shards can OpenSearch's two be equal in everything, their numbers too. Then all is read again by scroll.
    assert shards == 2 or not [line for line in proxy.asked if "scroll" in line]


def test_windows_are_cut_to_the_millisecond(search_server, own):
    stamps = ["08:00:00.000Z", "08:00:09.999Z", "08:00:10.000Z", "07:59:59.999Z", "08:00:10.0001Z", "09:00:05+01:00"]
    hits = [{"_source": memory(f"2017-12-13T{stamp}", f"bb{i}", i)} for i, stamp in enumerate(stamps)]
    collectd_loader.load(search_server, own, hits)
    start = 1_513_152_000
    found = meaning(live(search_server, own), Window(start, start + 10))
    assert found == {"dataservers/memfree": {(start, "bb0"): 0.0, (start, "bb1"): 1.0, (start, "bb5"): 5.0}}


def memory(time, host, value):
    return {"@timestamp": time, "hostname": host, "plugin": "memory", "collectd_type": "memory", "type_instance": "free", "value": value}


@pytest.fixture(scope="module")
def shared():
    place = Path(os.environ.get("TOKIOD_SHARED", Path(__file__).parents[2].parent / "shared"))
    if not (place / "data").is_dir():
        pytest.skip(f"the captures are not here: {place}")
    return place


@pytest.fixture(scope="module")
def capture(search_server, shared):
    """The index of the capture of Cori's burst buffer."""
    name = "servers-capture"
    with gzip.open(shared / "data/collectd/sample_collectdes-part.json.gz") as file:
        collectd_loader.load(search_server, name, itertools.chain.from_iterable(json.load(file)), shards=2)
    yield name
    collectd_loader.remove(search_server, name)


class TestGolden:
    """Captures, loaded into the server, mean the same as in pytokio's file and as saved pages."""

    @pytest.mark.parametrize(("read", "slices"), WAYS)
    def test_every_cell_is_that_of_the_golden_file(self, search_server, shared, capture, tmp_path, read, slices):
        collector = live(search_server, capture, read=read, slices=slices, page=PAGE)
        archived(collector, Window(1_513_152_000, 1_513_155_600), tmp_path / "day.hdf5")
        tool, golden = shared / "tools/tts_diff.py", shared / "data/golden/collectdes_part.hdf5"
        command = [sys.executable, str(tool), str(golden), str(tmp_path / "day.hdf5")]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert done.stdout.strip().endswith("cells compared, 0 differ"), done.stdout

    def test_the_cpu_pages_mean_what_they_mean_as_saved_pages(self, search_server, own, shared):
        path = shared / "data/collectd/collectdes_cpuloads.json.gz"
        with gzip.open(path) as file:
            collectd_loader.load(search_server, own, itertools.chain.from_iterable(json.load(file)))
        window = Window(1_513_152_000, 1_513_155_600)
        found = meaning(live(search_server, own), window)
        assert found == meaning(collectd_es.saved([path], collectd_es.Saved(), SITE), window)
        assert set(found) >= {"dataservers/cpuload", "dataservers/cpuuser", "dataservers/cpusys"}


class TestFields:
    @pytest.mark.parametrize("read", ["scroll", "pit"])
    def test_a_mapping_that_cant_be_filtered_or_sorted_is_an_error_that_names_the_field(self, search_server, own, documents, read):
        collectd_loader.load(search_server, own, documents.hits(SPAN.start, SPAN.end), mapping="unsortable")
        with pytest.raises(Fatal, match=r"hostname|plugin|collectd_type|type_instance"):
            meaning(live(search_server, own, read=read, hosts="bb.*"), SPAN)
        assert none_open(search_server)
