"""Rows: the increase of every counter is in one row, or the row has no value for it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokiod.agent.metric import counter, gauge
from tokiod.agent.rows import Rows
from tokiod.agent.sensor import JobEnd, Readings
from tokiod.agent.service import NodeRows

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


@pytest.mark.parametrize(("apart", "known"), [(30.0, [5, 4]), (30.5, [None, None]), (59.0, [None, None])])
def test_two_samples_in_different_rows_that_are_more_than_half_a_row_apart_leave_both_unknown(apart, known):
    """How their increase is divided is not known: each row would have a part of the other."""
    rows = rows_of([(0.0, (BYTES, "", 0)), (50.0, (BYTES, "", 5)), (50.0 + apart, (BYTES, "", 9)), (119.0, (BYTES, "", 9))])
    assert [rows.at(start).values.get(("bytes", "")) for start in (0.0, 60.0)] == known


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


def test_the_jobs_of_a_row_are_sent_with_those_that_ended_first_and_the_shortest_numbers():
    rows = Rows(JOB_METRICS)
    rows.take(job_reading([("a", CPU, 2.0), ("b", CPU, 2.5), ("b", MEMORY, 7)], begun=["a"]), 62.0)
    rows.take(job_reading(ended=[("b", {"job_cpu": 3.0})]), 63.0)
    assert repr(NodeRows({}, rows).jobs(60.0)) == "[('b', None, 63.0, True, [3, 7]), ('a', 62.0, 62.0, False, [2, None])]"
    assert rows.at(60.0).sent == {0.0}
    rows.take(job_reading([("a", CPU, 4.0)]), 122.0)
    assert repr(NodeRows({}, rows).jobs(120.0)) == "[('a', 62.0, 122.0, False, [4, None])]"
    assert rows.at(120.0).sent == set()


def test_what_was_dropped_is_in_the_row():
    rows, readings, later = Rows([BYTES]), Readings(), Readings()
    readings.drop("vanished", "a", count=2)
    later.drop("vanished", "b", count=2)
    later.drop("malformed", "c")
    rows.take({"sensor": readings}, 90.0)
    rows.take({"sensor": later}, 95.0)
    assert dict(rows.at(60.0).dropped) == {("sensor", "vanished"): 4, ("sensor", "malformed"): 1}
    found = NodeRows(METRICS, rows)
    assert found.values(60.0)[1] == {"sensor: vanished": 4, "sensor: malformed": 1}
    assert found.examples(60.0) == {"sensor: vanished": "a", "sensor: malformed": "c"}


ENERGY, POWER, HOT = counter("gpu_energy", "J", ""), gauge("gpu_power", "W", ""), gauge("gpu_temperature", "degC", "", "max")
GPUS = {metric.name: metric for metric in (ENERGY, POWER, HOT)}
ALL = {"gpu_energy": 36_000, "gpu_power": 600.0, "gpu_temperature": 50.0}
ONE = {"gpu_energy": 18_000, "gpu_power": 300.0, "gpu_temperature": 40.0}


def gpus(seconds, unread, *, drops=True, end=1320):
    """The rows of two GPUs of 300 W each. unread: the second one, or "all"; seconds: those in which it is not read."""
    rows = Rows(GPUS.values())
    for time in range(0, end, 10):
        readings = Readings()
        for name, hot in (("a", 40.0), ("b", 50.0)):
            if time not in seconds or unread not in (name, "all"):
                readings.add(ENERGY, 300 * time, name)
                readings.add(POWER, 300.0, name)
                readings.add(HOT, hot, name)
            elif drops:
                readings.drop("unreadable", name)
        rows.take({"nvidia": readings}, float(time))
    return rows


def of_node(rows):
    return [rows.at(start).of_node(GPUS) for start in rows.starts()]


def without(found, *names):
    return {name: value for name, value in found.items() if name not in names}


def test_a_sum_of_which_an_instance_cannot_be_read_is_missing_until_it_is_read_for_a_whole_row():
    found = of_node(gpus(range(310, 901), "b"))
    unread = without(ONE, "gpu_energy", "gpu_power")
    assert found == [*[ALL] * 5, without(ALL, "gpu_energy"), *[unread] * 9, without(ALL, "gpu_energy"), *[ALL] * 5, found[-1]]


def test_a_sensor_that_is_not_sampled_for_a_moment_is_not_missing():
    rows = rows_of([(0.0, (BYTES, "", 0), (USED, "", 4)), (10.0,), (20.0, (BYTES, "", 5), (USED, "", 6))])
    assert rows.at(0.0).of_node(METRICS) == {"bytes": 5, "used": 5}


def test_a_sensor_that_reads_nothing_for_a_while_gives_no_part_of_a_row():
    found = of_node(gpus(range(310, 901), "all"))
    part = without(ALL, "gpu_energy")
    assert found == [*[ALL] * 5, part, *[{}] * 9, part, *[ALL] * 5, found[-1]]


@pytest.mark.parametrize("unread", ["b", "all"])
@pytest.mark.parametrize("seconds", [range(310, 331), range(330, 350)])
def test_what_could_not_be_read_for_less_than_half_a_row_is_in_the_row_when_it_is_read(seconds, unread):
    found = of_node(gpus(seconds, unread, end=430))
    assert found[:7] == [ALL] * 7
    before = of_node(gpus(seconds, unread, end=seconds[-1] + 1))
    assert "gpu_energy" not in before[5]


def test_the_row_before_has_no_value_while_a_part_of_it_was_not_read():
    assert gpus(range(350, 370), "b", end=361).at(300.0).of_node(GPUS) == without(ALL, "gpu_energy")
    # An increase belongs to the row of its middle.
    assert gpus(range(350, 370), "b", end=371).at(300.0).of_node(GPUS) == {**ALL, "gpu_energy": 18_000 + 300 * (370 - 300)}


def test_an_instance_that_is_gone_leaves_the_sum_and_is_a_new_one_when_it_returns():
    found = of_node(gpus(range(310, 901), "b", drops=False))
    assert found[:5] == [ALL] * 5
    assert found[6:15] == [ONE] * 9
    assert found[15:21] == [without(ALL, "gpu_energy"), *[ALL] * 5]


def test_an_instance_that_is_gone_leaves_the_sum_after_an_hour_where_another_one_is_never_read():
    """A power supply was removed, beside a temperature input that is not connected: the power was missing for good."""
    rows = Rows(METRICS.values(), kept=10**6)
    for time in range(0, 3 * 3600, 10):
        readings = Readings()
        readings.add(USED, 100, "a")
        readings.add(BYTES, 5 * time, "a")
        for instance in ["b"] if time < 600 else [f"m{time // 600}"] if time >= 2 * 3600 else []:  # later, other ones come and go
            readings.add(USED, 50, instance)
            readings.add(BYTES, time, instance)
        readings.drop("not connected", "temp2")
        rows.take({"hwmon": readings}, float(time))
    by_minute = [rows.at(start).of_node(rows._metrics) for start in rows.starts()]
    assert by_minute[5] == {"used": 150, "bytes": 360}
    assert by_minute[10:71] == [{}] * 61
    assert by_minute[71:120] == [{"used": 100, "bytes": 300}] * 49
    assert len(rows._known["hwmon"]) <= 2 * (2 + 6)


@pytest.mark.parametrize("ahead", [-300, 7200])
def test_an_instance_that_cannot_be_read_after_the_clock_was_set_leaves_the_sum_missing(ahead):
    rows = gpus(range(310, 901), "b", end=600)
    rows.set_clock(float(ahead))
    for time in range(600 + ahead, 730 + ahead, 10):
        readings = Readings()
        readings.add(ENERGY, 300 * time, "a")
        readings.drop("unreadable", "b")
        rows.take({"nvidia": readings}, float(time))
    assert of_node(rows) == [{}] * 3


BOOT = 1_800_000_000.0
"""The true time of a node's boot: the offset of a clock that is right."""


def follow(rows, offset):
    if moved := rows.moved(offset):
        rows.set_clock(offset)
    return moved


@pytest.mark.parametrize("ahead", [300.0, 7200.0, 86_400.0, 2.5, -2.5, -300.0, -86_400.0])
@pytest.mark.parametrize("before", [270, 5430])
def test_rows_of_a_clock_that_was_set_are_dropped_and_those_after_it_are_of_the_new_clock(ahead, before):
    rows, count = Rows(METRICS.values()), 0
    for uptime in range(0, before + 3570, 10):
        offset = BOOT + (ahead if uptime < before else 0.0)
        assert follow(rows, offset) == (-ahead if uptime == before else 0.0)
        count += 10**9 if uptime <= before else 100
        rows.take(read((BYTES, "a", count), (USED, "", 1.0 if uptime < before else 9.0)), uptime + offset)
    first = (BOOT + before) // 60 * 60
    assert rows.starts() == [first + 60 * minute for minute in range(60)]
    assert rows.at(first).of_node(METRICS) == {"used": 9.0}
    whole = [rows.at(start).of_node(METRICS) for start in rows.starts()[1:-1]]
    assert whole == [{"used": 9.0, "bytes": 600}] * 58


def test_slewing_drops_nothing():
    rows = Rows([BYTES])
    for second in range(0, 3 * 3600, 10):
        offset = BOOT + 500e-6 * second
        assert follow(rows, offset) == 0.0
        rows.take(read((BYTES, "", second)), second + offset)
    assert len(rows.starts()) == 60
    assert all(rows.at(start).values[BYTES.name, ""] == pytest.approx(60, abs=10) for start in rows.starts()[:-1])


def test_rows_from_which_a_clock_was_slewed_away_are_dropped_as_if_it_was_set():
    """chrony slews by up to a twelfth."""
    rows = Rows([USED])
    for second in range(0, 600, 10):
        offset = BOOT + 20.0 - min(20.0, max(0, second - 300) / 12)
        follow(rows, offset)
        rows.take(read((USED, "", offset - BOOT)), second + offset)
    assert rows.starts()[0] > BOOT + 480
    assert all(rows.at(start).values[USED.name, ""] <= 2 for start in rows.starts())


def test_a_job_that_runs_while_the_clock_is_set_goes_on_in_the_row_after_it():
    rows = Rows(JOB_METRICS)
    follow(rows, BOOT + 300)
    rows.take(job_reading([("a", CPU, 1), ("a", MEMORY, 9)], begun=["a", "b"]), BOOT + 302)
    follow(rows, BOOT)
    rows.take(job_reading([("a", CPU, 3), ("b", CPU, 1)]), BOOT + 10)
    # Not later than a begin that the hub may have: the job table takes a later one as other counts.
    assert states(rows.at(BOOT)) == {
        "a": (BOOT + 2 - 4, BOOT + 10, False, {"job_cpu": 3}), "b": (BOOT + 2, BOOT + 10, False, {"job_cpu": 1}),
    }  # fmt: skip


def test_a_begin_that_was_sent_never_becomes_later_where_a_clock_is_set_and_set_back():
    rows = Rows(JOB_METRICS)
    follow(rows, BOOT)
    rows.take(job_reading([("a", CPU, 1)], begun=["a"]), BOOT + 2)
    begins = []
    for second, offset in enumerate((300.0, 0.1, -300.3, 0.2, 3.9), 3):
        follow(rows, BOOT + offset)
        rows.take(job_reading([("a", CPU, second)]), BOOT + offset + second)
        begins.append(next(iter(rows.at(BOOT + offset + second).jobs.values())).begin)
    assert max(begins[1], begins[3], begins[4]) <= BOOT + 2


@pytest.mark.parametrize("is_sent", [False, True])
def test_the_end_of_a_job_is_kept_in_the_row_of_its_time_where_the_clock_is_set(is_sent):
    """It was refused, if it was sent, as the clock was off."""
    rows = Rows(JOB_METRICS)
    follow(rows, BOOT + 300)
    rows.take(job_reading([("a", CPU, 1)], begun=["a"]), BOOT + 302)
    rows.take(job_reading(ended=[("a", {"job_cpu": 5})]), BOOT + 350)
    rows.take(job_reading([("b", CPU, 1)]), BOOT + 430)
    if is_sent:
        NodeRows({}, rows).jobs(BOOT + 300)
    follow(rows, BOOT)
    rows.take(job_reading([("b", CPU, 2)]), BOOT + 140)
    assert rows.starts() == [BOOT, BOOT + 120]
    assert states(rows.at(BOOT)) == {"a": (BOOT + 2 - 4, BOOT + 50, True, {"job_cpu": 5})}
    assert rows.at(BOOT).of_node({}) == {}
    assert states(rows.at(BOOT + 120)) == {"b": (None, BOOT + 140, False, {"job_cpu": 2})}


@pytest.mark.parametrize(("offsets", "kept", "counted"), [((300.0, 0.0), 0, 0), ((3.0,), 0, 1), ((300.0,), 1, 0)])
def test_an_end_that_the_hub_may_have_by_the_clock_that_is_set_is_not_sent_again(offsets, kept, counted):
    rows = Rows(JOB_METRICS)
    follow(rows, BOOT)
    rows.take(job_reading(ended=[("a", {"job_cpu": 5})]), BOOT + 10)
    NodeRows({}, rows).jobs(BOOT)
    for offset in offsets:
        follow(rows, BOOT + offset)
        rows.take(job_reading([("b", CPU, 1)]), BOOT + 100 + offset)
    found = [rows.at(start) for start in rows.starts()]
    assert sum(len(row.ended) for row in found) == kept
    reason = "jobs", "end of a job not kept, the clock was set"
    assert sum(row.dropped[reason] for row in found) == counted
    assert [row.examples[reason] for row in found if row.dropped[reason]] == ["a"] * counted
