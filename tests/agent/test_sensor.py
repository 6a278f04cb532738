"""What a sensor hands in: values that cannot be true are dropped with a reason, the others go on."""

import pytest

from tokiod.agent.metric import Metric, counter, gauge
from tokiod.agent.sensor import MAX_COUNT, Readings, clean


@pytest.mark.parametrize(("unit", "most"), [("%", 100.0), ("W", 30_000.0), ("1/min", 60_000.0), ("B", MAX_COUNT), ("1", 1 << 62)])
def test_each_unit_has_a_largest_value(unit, most):
    readings, metric = Readings(), gauge("x", unit, "")
    readings.add(metric, most, "at it")
    readings.add(metric, most * 1.001, "beyond")
    readings.add_job("slurm:1", "", metric, most)
    readings.add_job("slurm:2", "", metric, most * 1.001)
    assert (list(readings.values), list(readings.jobs)) == ([("x", "at it")], [("slurm:1", "", "x")])
    assert dict(readings.drops) == {"implausible": 2}
    assert readings.examples == {"implausible": f"x is {most * 1.001} {unit}"}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1, -0.001])
def test_what_is_no_count_is_malformed(value):
    readings = Readings()
    readings.add(counter("x", "B", ""), value)
    assert (readings.values, dict(readings.drops)) == ({}, {"malformed": 1})


def test_a_metric_that_may_be_negative_is_bounded_on_both_sides():
    readings, metric = Readings(), Metric("x", "degC", "gauge", "", may_be_negative=True)
    for instance, value in (("cold", -40.0), ("impossible", -2.0 * MAX_COUNT)):
        readings.add(metric, value, instance)
    assert (readings.values, dict(readings.drops)) == ({("x", "cold"): -40.0}, {"implausible": 1})


def test_the_second_value_of_an_instance_is_dropped_also_among_many():
    readings, metrics = Readings(), (counter("x", "B", ""), counter("y", "B", ""))
    readings.add_all(metrics, [("x", "a"), ("y", "a")], [1, MAX_COUNT])
    readings.add_all(metrics, [("x", "a"), ("y", "b")], [2, 3])
    readings.add_all(metrics, [("x", "c"), ("y", "c")], [-1, MAX_COUNT + 1])
    assert readings.values == {("x", "a"): 1, ("y", "a"): MAX_COUNT, ("y", "b"): 3}
    assert dict(readings.drops) == {"duplicate": 1, "malformed": 1, "implausible": 1}


def test_a_wrap_is_kept_with_its_value_alone():
    readings, metric = Readings(), counter("x", "s", "")
    for instance, value, wraps_at in (("a", 1, 10), ("b", 2, 0), ("c", -1, 10)):
        readings.add(metric, value, instance, wraps_at)
    assert readings.wraps == {("x", "a"): 10}


def test_names_are_printable_and_short():
    assert clean(b"a\xff\n" + 200 * b"x") == r"a\xff\n" + 121 * "x"
