"""The fault matrix of collectd_es: whatever a server and its network do, a window comes whole or not at all.

Each fault is made by a proxy in front of a real server; the archive in the end equals the one that nothing disturbed.
"""

import random

import collectd_loader
import h5py
import numpy as np
import pytest
import search_faults
from collectd_documents import Documents
from collectd_search import WAYS, Patient, archived, live, none_open
from fault_proxy import FaultProxy
from search_faults import PAGES

from tokiod.window import Window

pytestmark = pytest.mark.system

START = 1_513_152_000
SPAN = Window(START, START + 900)
INDEX = "faults"
PAGE = 250
BROKEN = [
    search_faults.rejected,
    search_faults.circuit_breaker,
    search_faults.unavailable,
    search_faults.all_shards_failed,
    search_faults.gateway_html,
    search_faults.html,
    search_faults.half_shards,
    search_faults.missing_shards,
    search_faults.timed_out,
    search_faults.terminated_early,
    search_faults.fewer_hits,
    search_faults.reset,
    search_faults.lost_answer,
    search_faults.reset_in_body,
    search_faults.truncated,
    search_faults.empty,
    search_faults.context_missing,
]
PARTIAL = [search_faults.half_shards, search_faults.missing_shards, search_faults.timed_out, search_faults.terminated_early]
"""In which hits and total agree with each other."""

UNHEARD = {"lost_answer", "reset_in_body", "truncated", "empty"}
"""Faults after the server has answered. A scroll that it opened then lives until it expires."""

SILENT = [search_faults.hang, search_faults.hang_in_body, search_faults.drip]


def cells(path):
    """{dataset: array} of a TTS file."""
    found = {}
    with h5py.File(path) as file:
        file.visititems(lambda name, item: found.update({name: item[:]}) if isinstance(item, h5py.Dataset) else None)
    return found


@pytest.fixture(scope="module")
def loaded(search_server):
    documents = Documents(seed=4)
    collectd_loader.load(search_server, INDEX, documents.hits(SPAN.start, SPAN.end), shards=2)
    yield search_server
    collectd_loader.remove(search_server, INDEX)


@pytest.fixture(scope="module")
def undisturbed(loaded, tmp_path_factory):
    path = tmp_path_factory.mktemp("undisturbed") / "day.hdf5"
    archived(live(loaded, INDEX, read="scroll"), SPAN, path)
    return cells(path)


@pytest.fixture
def proxy(loaded):
    with FaultProxy(loaded.url) as proxy:
        yield proxy


def asked_until_whole(proxy, out, **options):
    """Archive the span through the proxy; returns the errors of the attempts that failed."""
    options = {"page": PAGE, "request_timeout": 20} | options
    patient = Patient(live(proxy, INDEX, **options), attempts=80)
    archived(patient, SPAN, out)
    return patient.failures


def assert_same(found, wanted):
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


@pytest.mark.parametrize(("read", "slices"), [("scroll", 2), ("pit", 1)])
@pytest.mark.parametrize("fault", BROKEN, ids=lambda fault: fault.__name__)
def test_a_page_that_is_broken_costs_an_attempt_and_no_cell(loaded, undisturbed, proxy, tmp_path, fault, read, slices):
    proxy.plan(fault, on=PAGES, nth=[1, 6, 17])
    failures = asked_until_whole(proxy, tmp_path / "day.hdf5", read=read, slices=slices)
    assert proxy.made == [fault.__name__] * 3
    assert len(failures) <= 3
    assert_same(cells(tmp_path / "day.hdf5"), undisturbed)
    if fault.__name__ in UNHEARD:
        loaded.ask("DELETE", "/_search/scroll/_all")
    assert none_open(loaded)


@pytest.mark.parametrize("read", ["scroll", "pit"])
@pytest.mark.parametrize("fault", PARTIAL, ids=lambda fault: fault.__name__)
def test_a_window_of_one_page_that_lacks_half_is_asked_again_whatever_its_total_says(undisturbed, proxy, tmp_path, fault, read):
    proxy.plan(fault, on=PAGES, nth=[1])
    failures = asked_until_whole(proxy, tmp_path / "day.hdf5", read=read, page=10_000)
    assert (proxy.made, len(failures)) == ([fault.__name__], 1 if read == "scroll" else 0)
    assert_same(cells(tmp_path / "day.hdf5"), undisturbed)


@pytest.mark.parametrize("read", ["scroll", "pit"])
@pytest.mark.parametrize("fault", SILENT, ids=lambda fault: fault.__name__)
def test_a_server_that_falls_silent_is_given_up_in_time(loaded, undisturbed, proxy, tmp_path, fault, read):
    proxy.plan(fault, on=PAGES, nth=[4])
    failures = asked_until_whole(proxy, tmp_path / "day.hdf5", read=read, request_timeout=1.5)
    assert proxy.made == [fault.__name__]
    assert len(failures) <= 1
    assert_same(cells(tmp_path / "day.hdf5"), undisturbed)
    assert none_open(loaded)


@pytest.mark.parametrize(("read", "slices"), WAYS)
def test_a_storm_of_all_faults_at_once_ends_in_the_same_archive(loaded, undisturbed, proxy, tmp_path, read, slices):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    # One request in fifteen goes wrong: an attempt by scroll, of some twenty requests, has one chance in four.
    for fault in BROKEN:
        proxy.plan(fault, on=f"{PAGES}|_mapping", chance=0.004, seed=f"{seed} {fault.__name__}")
    proxy.plan(search_faults.lost_answer, on=PAGES, nth=[3])
    asked_until_whole(proxy, tmp_path / "day.hdf5", read=read, slices=slices)
    assert proxy.made
    assert_same(cells(tmp_path / "day.hdf5"), undisturbed)
    loaded.ask("DELETE", "/_search/scroll/_all")
    assert none_open(loaded)
