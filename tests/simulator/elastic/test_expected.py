import json
import math
from dataclasses import replace
from datetime import datetime

import numpy as np
import pytest

from tokiod.simulator.elastic.documents import Documents, Search
from tokiod.simulator.elastic.expected import CPU_DATASETS, MEMORY_DATASETS, CollectdAnswers
from tokiod.simulator.elastic.query import select
from tokiod.simulator.site import Site
from tokiod.window import Window

MIDNIGHT = 1_513_209_600
EPOCH = MIDNIGHT - 1805  # not on the grid of ten seconds: its first cell begins before it
SITE = Site(EPOCH, hosts=6, devices=2, cores=3)
BEFORE, AFTER = Window(MIDNIGHT - 3600, MIDNIGHT), Window(MIDNIGHT, MIDNIGHT + 1800)
WINDOWS = [Window(start, start + 60) for start in range(MIDNIGHT - 1860, AFTER.end, 60)]
RATES = {("disk_octets", "read"): "readrates", ("disk_octets", "write"): "writerates", ("disk_ops", "read"): "readoprates"}
RATES[("disk_ops", "write")] = "writeoprates"


def documents(site):
    """Read what a server of the site tells, in a bad order."""
    served = Documents(site)
    wanted = Search(select(served.names, {"range": {"@timestamp": {"lt": AFTER.end * 1000}}}), (AFTER.end + 3600) * 1000)
    text = served.text(served.positions(wanted, -1, 10**9), ordered=False)
    return [hit["_source"] for hit in json.loads(b"[" + text + b"]")][::-1]


def samples(site):
    """Return {(dataset, column, part): {time: value}} of all numbers that are told; part is a core."""
    found = {}
    for document in documents(site):
        time, host = datetime.fromisoformat(document["@timestamp"]).timestamp(), document["hostname"]
        kind, instance = document.get("type_instance", ""), document.get("plugin_instance", "")
        told = {name: value for name, value in document.items() if name in ("read", "write", "value") and isinstance(value, float)}
        for name, value in told.items():
            if document["plugin"] == "disk" and instance.startswith("nvme"):
                key = "datatargets/" + RATES[document["collectd_type"], name], f"{host}:{instance}", ""
            elif document["plugin"] == "memory":
                key = MEMORY_DATASETS[kind], host, ""
            elif document["plugin"] == "cpu":
                key = CPU_DATASETS[kind], host, instance
                value = 100 - value if kind == "idle" else value  # noqa: PLW2901 - load, not idleness
            else:
                continue
            found.setdefault(key, {})[time] = value
    return found


def expected(told, file, stored):
    """Return {(dataset, column): {cell: value}}, slowly: a mean of all samples in the cell for CPUs, the last one by time for the rest."""
    samples = {}
    for (dataset, column, _), by_time in told.items():
        for time, value in by_time.items():
            cell = int(time // 10) * 10
            if file.start <= cell < file.end and any(w.start <= cell < w.end for w in stored):
                samples.setdefault((dataset, column), {}).setdefault(cell, []).append((time, value))
    means = set(CPU_DATASETS.values())
    return {
        (dataset, column): {cell: mean(values) if dataset in means else max(values)[1] for cell, values in cells.items()}
        for (dataset, column), cells in samples.items()
    }


def mean(values):
    return math.fsum(value for _, value in values) / len(values)


@pytest.fixture(scope="module", params=[(1, True), (2, True), (3, False)], ids=["seed 1", "seed 2", "calm"])
def told(request):
    seed, trouble = request.param
    site = replace(SITE, seed=seed, trouble=trouble, growth=600)
    return site, samples(site)


@pytest.mark.parametrize("file", [BEFORE, AFTER], ids=["evening", "morning"])
@pytest.mark.parametrize(
    "stored",
    [WINDOWS, [BEFORE], [Window(MIDNIGHT - 60, MIDNIGHT + 600)], WINDOWS[::2], []],
    ids=["all", "evening only", "around midnight", "every other minute", "nothing"],
)
def test_every_cell_is_what_a_slow_reading_of_the_documents_makes_of_the_stored_windows(told, file, stored):
    site, said = told
    answers, right = CollectdAnswers(site, stored).of(file), expected(said, file, stored)
    assert answers.keys() == {dataset for dataset, _, _ in said}
    for dataset, answer in answers.items():
        assert answer.timestamps.tolist() == list(range(file.start, file.end, 10))
        for column, values in zip(answer.columns, answer.values.T.tolist(), strict=True):
            got = {t: v for t, v in zip(answer.timestamps.tolist(), values, strict=True) if not math.isnan(v)}
            want = right.get((dataset, column), {})
            assert got.keys() == want.keys()
            assert got == want if answer.exact else got == pytest.approx(want, rel=1e-14)


def test_only_means_may_differ_in_the_last_digits():
    answers = CollectdAnswers(SITE, []).of(AFTER)
    assert {name for name, answer in answers.items() if not answer.exact} == set(CPU_DATASETS.values())


def test_stored_windows_and_what_lies_before_the_first_one_are_determined():
    answers = CollectdAnswers(SITE, [Window(MIDNIGHT + 60, MIDNIGHT + 120)], since=MIDNIGHT).of(AFTER)
    rows = np.arange(180)
    for answer in answers.values():
        assert (answer.determined == ((rows >= 6) & (rows < 12))[:, np.newaxis]).all()
    before = CollectdAnswers(SITE, [], since=MIDNIGHT).of(BEFORE)
    assert all(answer.determined.all() and np.isnan(answer.values).all() for answer in before.values())


def test_two_samples_share_cells_in_the_site_under_test(told):
    site, said = told
    shared = sum(len(times) - len({int(time // 10) for time in times}) for times in said.values())
    assert (shared > 0) == site.trouble


def test_a_file_off_the_steps_is_refused():
    with pytest.raises(ValueError, match="does not lie on steps of 10 s"):
        CollectdAnswers(SITE, []).of(Window(MIDNIGHT + 5, MIDNIGHT + 65))
