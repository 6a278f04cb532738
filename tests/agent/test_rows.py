"""Rows: the increase of every counter is in one row, or the row has no value for it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokiod.agent.metric import counter, gauge
from tokiod.agent.rows import Rows
from tokiod.agent.sensor import JobEnd, Readings

BYTES, HOTTEST, USED = counter("bytes", "B", ""), gauge("hottest", "degC", "", "max"), gauge("used", "B", "")
METRICS = {metric.name: metric for metric in (BYTES, HOTTEST, USED)}


def read(*values):
    readings = Readings()
    for metric, instance, value in values:
        readings.add(metric, value, instance)
    return {"sensor": readings}


def rows_of(samples, **options):
    rows = Rows(METRICS.values(), **options)
    for time, *values in samples:
        rows.take(read(*values), time)
    return rows


@given(st.lists(st.tuples(st.integers(1, 29), st.integers(0, 10**15)), min_size=1, max_size=200))
def test_the_sum_of_all_rows_is_what_the_counter_counted(steps):
    rows, time, count = Rows([BYTES], kept=10**6), 600.0, 7
    rows.take(read((BYTES, "a", count)), time)
    for seconds, octets in steps:
        time, count = time + seconds, count + octets
        rows.take(read((BYTES, "a", count)), time)
    assert sum(rows.at(start).values.get(("bytes", "a"), 0) for start in rows.starts()) == count - 7


def test_an_increase_belongs_to_the_row_of_its_middle():
    rows = rows_of([(0.0, (BYTES, "", 0)), (50.0, (BYTES, "", 5)), (64.0, (BYTES, "", 7)), (76.0, (BYTES, "", 10))])
    assert [rows.at(start).values for start in (0.0, 60.0)] == [{("bytes", ""): 7}, {("bytes", ""): 3}]


@pytest.mark.parametrize(
    ("samples", "known"),
    [
        ([(5.0, (BYTES, "", 1)), (20.0, (BYTES, "", 2))], [None]),  # the agent started within the row
        ([(0.0, (BYTES, "", 1)), (20.0, (BYTES, "", 2))], [1]),
        ([(0.0, (BYTES, "", 9)), (20.0, (BYTES, "", 2)), (30.0, (BYTES, "", 3))], [None]),  # a restart within the row
        ([(0.0, (BYTES, "", 1)), (50.0, (BYTES, "", 2)), (3700.0, (BYTES, "", 9)), (3710.0, (BYTES, "", 10))], [None, None]),  # it slept
        ([(120.0, (BYTES, "", 1)), (130.0, (BYTES, "", 2)), (60.0, (BYTES, "", 3))], [None, None]),  # the clock was set back
    ],
)
def test_a_counter_of_which_a_part_is_unknown_has_no_value(samples, known):
    rows = rows_of(samples)
    assert [rows.at(start).values.get(("bytes", "")) for start in rows.starts()] == known


def test_gauges_are_means_or_the_largest():
    rows = rows_of([(time, (USED, "", time), (HOTTEST, "", time)) for time in (0.0, 30.0, 12.0)])
    assert rows.at(0.0).values == {("used", ""): 14.0, ("hottest", ""): 30.0}


def test_instances_become_one_value_of_the_node_and_a_sum_without_one_is_missing():
    samples = [(time, *((metric, name, time) for metric in METRICS.values() for name in "ab")) for time in (0.0, 10.0)]
    assert rows_of(samples).at(0.0).of_node(METRICS) == {"bytes": 20.0, "hottest": 10.0, "used": 10.0}
    samples += [(20.0, (BYTES, "a", 0), (BYTES, "b", 20), (HOTTEST, "a", 40))]
    assert rows_of(samples).at(0.0).of_node(METRICS) == {"hottest": 40.0, "used": 10.0}


def test_an_hour_is_kept():
    rows = rows_of([(60.0 * minute, (USED, "", minute)) for minute in range(200)])
    assert rows.starts() == [60.0 * minute for minute in range(140, 200)]


def test_a_late_reading_makes_no_room_of_its_own():
    rows = rows_of([(60.0 * minute, (USED, "", minute)) for minute in range(100)])
    assert rows.at(60.0).values == {}
    assert rows.starts() == [60.0 * minute for minute in range(40, 100)]


def job_reading(values=(), begun=(), ended=()):
    """Readings of jobs. values: (job, metric, value); ended: (job, {metric's name: value})."""
    readings = Readings()
    for job, metric, value in values:
        readings.add_job(job, "", metric, value)
    readings.begun.update(begun)
    readings.ended += [JobEnd(job, True, last) for job, last in ended]
    return {"jobs": readings}


def states(row):
    """{job: (begin, time, ended, {metric: value})} of a row; a list for a job that is there twice."""
    found = {}
    for state in (*row.ended, *row.jobs.values()):
        values = {metric.name: value for metric, value in zip(JOB_METRICS, state.values, strict=True) if not math.isnan(value)}
        found.setdefault(state.job, []).append((state.begin, state.time, state.has_ended, values))
    return {job: of[0] if len(of) == 1 else of for job, of in found.items()}


CPU, MEMORY = counter("job_cpu", "s", ""), gauge("job_mem", "B", "")
JOB_METRICS = (CPU, MEMORY)


def test_a_job_has_the_last_value_of_a_counter_and_the_largest_of_a_gauge_in_each_row():
    rows = Rows(JOB_METRICS)
    rows.take(job_reading([("a", CPU, 1), ("a", MEMORY, 9)], begun=["a"]), 62.0)
    rows.take(job_reading([("a", CPU, 3), ("a", MEMORY, 4)]), 119.0)
    rows.take(job_reading([("a", MEMORY, 2)]), 130.0)
    # The counter that was not read in the last row is not missing, or it would look like a restart.
    assert states(rows.at(60.0)) == {"a": (62.0, 119.0, False, {"job_cpu": 3, "job_mem": 9})}
    assert states(rows.at(120.0)) == {"a": (62.0, 130.0, False, {"job_cpu": 3, "job_mem": 2})}


def test_the_row_of_a_jobs_end_has_its_last_values_and_a_job_that_returns_begins_anew():
    rows = Rows(JOB_METRICS)
    rows.take(job_reading([("a", CPU, 1), ("a", MEMORY, 9)]), 62.0)
    rows.take(job_reading(ended=[("a", {"job_cpu": 5, "job_mem": 1})]), 70.0)
    rows.take(job_reading([("a", CPU, 2)], begun=["a"]), 80.0)
    ended, again = states(rows.at(60.0))["a"]
    assert ended == (None, 70.0, True, {"job_cpu": 5, "job_mem": 9})
    assert again == (80.0, 80.0, False, {"job_cpu": 2})
    rows.take(job_reading([("a", CPU, 4)]), 120.0)
    assert states(rows.at(120.0)) == {"a": (80.0, 120.0, False, {"job_cpu": 4})}


def test_a_job_that_no_sample_saw_is_in_the_row_of_its_end():
    rows = Rows(JOB_METRICS)
    rows.take(job_reading(begun=["a"]), 61.0)
    rows.take(job_reading(ended=[("a", {"job_cpu": 0.5})]), 62.0)
    assert states(rows.at(60.0)) == {"a": (61.0, 62.0, True, {"job_cpu": 0.5})}
    rows.take(job_reading(), 122.0)
    assert states(rows.at(120.0)) == {}


def test_what_was_dropped_is_in_the_row():
    rows, readings = Rows([BYTES]), Readings()
    readings.drop("vanished", count=2)
    rows.take({"sensor": readings}, 90.0)
    rows.take({"sensor": readings}, 95.0)
    assert dict(rows.at(60.0).dropped) == {("sensor", "vanished"): 4}
