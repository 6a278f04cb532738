"""What cannot be true has no cell, whatever kind returned it."""

import asyncio

import numpy as np
import pytest

from tokiod.batch import Batch
from tokiod.bounds import BOUNDS, IMPLAUSIBLE, LARGEST, outside, plausible
from tokiod.collector import SourceConfig, collect_window
from tokiod.dropped import Why
from tokiod.tts.schema import UNITS
from tokiod.window import Window
from tokiod.window_data import WindowData

WINDOW = Window(600, 660)


def batch(dataset, values, form="gauge"):
    column = np.arange(len(values), dtype=np.uint32)
    names = tuple(f"c{n}" for n in column)
    return Batch(dataset, form, 60, names, np.full(len(values), 600), column, np.array(values, np.float64 if form == "gauge" else np.int64))


def values(data):
    return [one.value.tolist() for one in data.batches]


@pytest.mark.parametrize(
    ("dataset", "good", "bad"),
    [
        ("dataservers/cpuload", [0.0, 100.0, 100.05], [-9e18, -3.0, 100.2, 1234567.0]),
        ("dataservers/memused", [0.0, 4e12], [-1.0, 2.0**63, 1.8e19]),
        ("datatargets/readrates", [0.0, 5e11], [-4.2e8, 2e12]),
        ("datatargets/writeoprates", [1e9], [2e10]),
        ("fullness/bytes", [1e15], [-9.2e18]),
        ("nodes/node_power", [0.0, 20000.0], [-1.0, 65535.0, 4_294_967.0]),
        ("nodes/temperature", [-10.0, 110.0], [-273.0, 32767.0]),
    ],
)
def test_cells_outside_of_their_units_bounds_are_dropped_and_counted(dataset, good, bad):
    found = plausible(WindowData([batch(dataset, [*good, *bad])]), {})
    assert values(found) == [good]
    assert found.dropped == {IMPLAUSIBLE: len(bad)}
    assert found.why == {IMPLAUSIBLE: Why(f"{bad[0]:.15g} {UNITS[dataset]} of c{len(good)} in {dataset}")}


def test_what_is_within_bounds_is_the_same_object():
    data = WindowData([batch("dataservers/cpuload", [0.0, 50.0]), batch("dataservers/memfree", [])])
    assert plausible(data, {}) is data


def test_what_is_no_number_is_left_to_the_writer_which_counts_it():
    data = WindowData([batch("dataservers/cpuload", [np.nan, np.inf, -np.inf, 50.0])])
    assert plausible(data, {}) is data


def test_full_counters_are_dropped_and_negative_ones_left_to_the_rule_of_differences():
    data = plausible(WindowData([batch("datatargets/readbytes", [-5, 7, 2**63 - 1, 2**62], "counter")]), {})
    assert (values(data), data.dropped) == ([[-5, 7, 2**62]], {IMPLAUSIBLE: 1})


def test_the_units_that_a_kind_declares_decide():
    data = WindowData([batch("dataservers/memused", [150.0]), batch("dataservers/cpuload", [150.0])])
    assert values(plausible(data, {"dataservers/memused": "%", "dataservers/cpuload": "bytes"})) == [[], [150.0]]


def test_reasons_of_the_collector_are_kept():
    data = WindowData([batch("dataservers/cpuload", [101.0])], dropped={IMPLAUSIBLE: 2, "no host": 1}, why={IMPLAUSIBLE: Why("first")})
    found = plausible(data, {})
    assert (found.dropped, found.why) == ({IMPLAUSIBLE: 3, "no host": 1}, {IMPLAUSIBLE: Why("first")})


def test_every_unit_of_the_schema_has_bounds_but_flags():
    assert set(UNITS.values()) - set(BOUNDS) == {""}


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-np.inf, LARGEST)])
def test_bounds_themselves_are_inside(low, high):
    assert outside(np.array([max(low, -1e300), high]), low, high) is None


def test_every_window_is_checked_whatever_collects_it():
    class Collects:
        async def collect(self, window):
            assert window == WINDOW
            return WindowData([batch("dataservers/cpuload", [50.0, 1e6])], 2)

    collected = asyncio.run(collect_window(Collects(), SourceConfig(name="a", kind="k", system="s"), WINDOW))
    assert [one.value.tolist() for one in collected.batches] == [[50.0]]
    assert (dict(collected.meta.dropped), collected.meta.records, list(collected.why)) == ({IMPLAUSIBLE: 1}, 2, [IMPLAUSIBLE])
