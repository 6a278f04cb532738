"""Sums of jobs are what was done, once, whatever falls, jumps or is said twice. The rule itself: tests/test_increases.py."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from job_days import BILLION, DAY, JobDays, polled

from tokiod.analysis.top import top
from tokiod.increases import FELL, IMPLAUSIBLE, OLDER
from tokiod.job_columns import UNKNOWN
from tokiod.jobs.activity import activity, by_lives, following, is_next, places_before
from tokiod.jobs.rows import JobRows
from tokiod.jobs.span import Days, series, span_rows
from tokiod.jobs.unknown import sum_of, sums_at, sums_from, with_nan
from tokiod.reader.jobs import totals
from tokiod.reader.span import Span
from tokiod.window_data import ENDED_IDLE, ENDED_REMOVED, job_key

KEY, OST, NODE = job_key("4711", "1000", None, None, "a1"), b"fs-OST0000", b"nid1"


@pytest.fixture
def made(tmp_path):
    return JobDays(tmp_path / "jobs")


def days(made):
    return Days((made.root,), made.system)


def sums(made, start=DAY, end=DAY + 86400):
    found = series(days(made), start, end)
    return {name: int(values.sum()) for name, values in found.counts.items()}, dict(found.odd)


def test_a_count_of_a_node_that_falls_falls_alone(made):
    """A loop device was unmounted, and its line left io.stat: the job's CPU time went on."""
    counts = [(76_000, 500, 9000), (76_300, 600, 9100), (76_672, 20, 9200), (76_700, 25, 9300)]
    for minute, (cpu, read, faults) in enumerate(counts):
        given = {"cpu.sum": cpu, "disk_read.bytes": read, "page_faults.samples": faults}
        made.store(polled(DAY + 60 * minute + 59, NODE, KEY, DAY - 600, given))
    expected = {"cpu.sum": 76_700, "disk_read.bytes": 605, "page_faults.samples": 9300}
    assert sums(made) == (expected, {FELL: 1})
    rises = span_rows(days(made), DAY + 60, DAY + 240).activity.counts
    assert (rises["cpu.sum"].tolist(), rises["disk_read.bytes"].tolist()) == ([300, 372, 28], [100, 0, 5])
    made.merged(DAY + 4 * 86400)
    assert sums(made) == (expected, {FELL: 1})


def ahead(seconds, lasted, begin):
    """Rows of a job that reads 1 byte a second for two hours, by a daemon whose clock was ahead for a while from 1000 s on."""
    for second in range(60, 7200, 60):
        off = seconds if 1000 <= second < 1000 + lasted else 0
        row = polled(DAY + second + off, OST, KEY, begin, {"read_bytes.sum": second, "read_bytes.samples": second // 7})
        yield {**row, "last": (DAY + second) * BILLION}


@pytest.mark.parametrize(
    ("seconds", "lasted", "begin"), [(600, 300, DAY), (1500, 300, None), (1500, 1200, DAY), (-900, 300, None), (5000, 1800, DAY)]
)
def test_a_clock_that_jumped_doubles_nothing(made, seconds, lasted, begin):
    made.store(*ahead(seconds, lasted, begin))
    whole = 7140 if begin else 7140 - 60
    edges = [DAY, DAY + 1100, DAY + 1777, DAY + 2540, DAY + 4000, DAY + 86400]
    for at in (None, DAY + 4 * 86400):
        if at:
            made.merged(at)
        found, odd = sums(made)
        assert (found["read_bytes.sum"], odd.keys()) == (whole, {OLDER})
        parts = [sums(made, start, end)[0].get("read_bytes.sum", 0) for start, end in pairwise(edges)]
        assert (sum(parts), min(parts) >= 0) == (whole, True)


def lives(back):
    """Rows of five lives of a job, each with 10 opens, by a daemon whose clock is back by some seconds in the last one."""
    for life in range(5):
        begin = DAY + 7200 + 1000 * life
        for n in range(1, 6):
            time = begin + 60 * n - (back if life == 4 else 0)
            yield {**polled(time, OST, KEY, begin, {"open.samples": 2 * n}), "last": (begin + 60 * n - 9) * BILLION}


@pytest.mark.parametrize("back", [0, 900, 1700, 3100])
def test_a_clock_that_was_set_back_hides_no_life_of_the_counts(made, back):
    rows = list(lives(back))
    made.store(*rows[:20])
    made.store(*rows[20:], source="other")  # of one source, the table refuses windows that were polled after later ones
    edges = [DAY, DAY + 7200 + back % 977, DAY + 9300, DAY + 10_400, DAY + 86400]
    for at in (None, DAY + 4 * 86400):
        if at:
            made.merged(at)
        assert sums(made) == ({"open.samples": 50}, {})
        assert sum(sums(made, start, end)[0].get("open.samples", 0) for start, end in pairwise(edges)) == 50


def test_clocks_of_server_and_daemon_that_jump_at_one_time_double_nothing(made):
    polls = [(1040, 1011, 23), (1060, 1013, 9), (1100, 1094, 24), (1120, 887, 15), (1380, 932, 20)]
    made.store(
        *({**polled(DAY + time, OST, KEY, DAY + 850, {"open.samples": n}), "last": (DAY + last) * BILLION} for time, last, n in polls)
    )
    assert sums(made) == ({"open.samples": 24}, {OLDER: 3})


def test_windows_in_any_order_of_arrival_and_merged_twice_have_the_same_sums(made, tmp_path):
    rows = list(ahead(600, 300, DAY))
    other = JobDays(tmp_path / "other")
    for row in rows[::-1]:
        other.store(row)
    other.merged(DAY + 4200)
    made.store(*rows)
    assert sums(made) == sums(other)


@pytest.mark.parametrize("second_cpu", [864_210, 864_130, 864_300])
@pytest.mark.parametrize("seconds", [0, 1, 30])
def test_a_second_end_of_a_job_counts_nothing_again(made, seconds, second_cpu):
    """OAR's links lead an agent to one cgroup twice; it met the job when it began itself, so its begin is unknown."""
    made.store(polled(DAY + 59, NODE, KEY, None, {"cpu.sum": 864_130, "page_faults.samples": 5}))
    for source, time, cpu in (("a", DAY + 89, 864_210), ("b", DAY + 89 + seconds, second_cpu)):
        made.store(polled(time, NODE, KEY, None, {"cpu.sum": cpu, "page_faults.samples": 7}, ended=ENDED_REMOVED), source=source)
    assert sums(made)[0] == {"cpu.sum": max(80, second_cpu - 864_130), "page_faults.samples": 2}


@pytest.mark.parametrize("begin", [DAY, None])
def test_a_job_that_an_agent_meets_twice_is_counted_once(made, begin):
    """Two rows of each minute, one of which is older by a moment, in files of any order."""
    for minute, counts in enumerate([(10, 8), (12, 11), (16, 20), (21, 21), (30, 25)]):
        for source, cpu in zip("ab" if minute % 2 else "ba", counts, strict=True):
            given = {"cpu.sum": cpu, "mem_bytes.max": 10**6 // cpu}
            made.store(polled(DAY + 60 * minute + 59, NODE, KEY, begin, given), source=source)
    for at in (None, DAY + 4 * 86400):
        if at:
            made.merged(at)
        assert sums(made)[0]["cpu.sum"] == 30 - (0 if begin else 10)


def test_two_sources_that_report_one_target_do_not_multiply_its_counts(made):
    """Their polls alternate, and each says at the job's end that the target removed it."""
    for start, begin in ((0, None), (1200, None)):
        for second in range(60, 600, 60):
            for source, off in (("a", 3), ("b", 8), ("late", 45)):
                count = 10 + second // 60 if start == 0 else second // 60
                made.store(polled(DAY + start + second + off, OST, KEY, begin, {"open.samples": count}), source=source)
        for source, off in (("a", 3), ("b", 8), ("late", 45)):
            last = {"open.samples": 19 if start == 0 else 9}
            made.store(polled(DAY + start + 700 + off, OST, KEY, begin, last, ended=ENDED_REMOVED), source=source)
    assert sums(made)[0] == {"open.samples": 8 + 9}


@pytest.mark.parametrize("count", [2**63 - 1, 2**62 + 1])
def test_a_count_that_wrapped_is_no_row(made, count):
    counts = [{"read_bytes.sum": one, "read_bytes.samples": i + 1} for i, one in enumerate((5, count, 11, 12))]
    for minute, given in enumerate(counts):
        made.store(polled(DAY + 60 * minute + 5, OST, KEY, DAY, given))
    assert sums(made) == ({"read_bytes.sum": 12, "read_bytes.samples": 4}, {IMPLAUSIBLE: 1})
    span = Span(DAY, DAY + 240)
    assert totals(days(made), span, "job", "names", None)["read_bytes"].tolist() == [12]
    found = top(days(made), span, "read", "names")
    assert (found.total, found.note) == (pytest.approx(12 / 240), "left out: 1 x sample with a count above 2^62")


def test_a_sum_that_no_job_can_have_is_unknown_and_never_wraps():
    most, place = np.array([2**62, 2**62, 7, 2**62, 5], np.int64), np.array([0, 0, 1, 0, 1])
    assert sums_at(place, most, 3).tolist() == [-1, 12, 0]
    assert sums_from(np.array([0, 2]), most, None).tolist() == [-1, 2**62 + 12]
    assert sums_from(np.array([0, 2, 4]), most, None).tolist() == [-1, 2**62 + 7, 5]
    assert (sum_of(most), sum_of(most[2:3]), sum_of(np.array([-1])), sum_of(np.empty(0, np.int64))) == (None, 7, None, None)


@pytest.mark.parametrize("lowest", [-1, 0])
@pytest.mark.parametrize("seed", range(4))
def test_sums_are_of_what_is_known_at_each_place_and_from_each_row(seed, lowest):
    draw = np.random.default_rng(seed)
    values, place = draw.integers(lowest, 4, 30), np.unique(draw.integers(0, 12, 30), return_inverse=True)[1]
    firsts, weights = np.flatnonzero(np.diff(np.sort(place), prepend=-1)), draw.random(30)

    def total(some, of=None):
        known = [value * weight for value, weight in zip(some, of if of is not None else np.ones(len(some)), strict=True) if value >= 0]
        return sum(known) if known else UNKNOWN

    assert sums_at(place, values, place.max() + 1).tolist() == [total(values[place == one]) for one in range(place.max() + 1)]
    parts = [slice(first, last) for first, last in pairwise([*firsts, len(values)])]
    assert sums_from(firsts, values, None).tolist() == [total(values[part]) for part in parts]
    assert sums_from(firsts, values, weights).tolist() == pytest.approx([total(values[part], weights[part]) for part in parts])
    assert sum_of(values) == total(values)
    shown = with_nan(values)
    assert shown.dtype == (np.float64 if (values < 0).any() else np.int64)
    np.testing.assert_array_equal(shown, [np.nan if value < 0 else value for value in values])


def test_the_largest_sum_is_two_to_the_62():
    half, zeros = np.array([2**61, 2**61], np.int64), np.zeros(2, np.int64)
    assert (sum_of(half), sums_at(zeros, half, 1).tolist(), sums_from(zeros[:1], half, None).tolist()) == (2**62, [2**62], [2**62])
    more = half + 512
    assert (sum_of(more), sums_at(zeros, more, 1).tolist(), sums_from(zeros[:1], more, None).tolist()) == (None, [-1], [-1])


def test_the_lives_of_jobs_are_sorted_by_their_begin_and_each_row_follows_the_one_of_its_life():
    """Job 0: a life, one that began before it, and the first one again; job 1 on two targets."""
    job, target = np.array([0, 0, 0, 0, 1, 1]), np.array([0, 0, 0, 0, 0, 1])
    columns = {
        "time": np.array([10, 20, 30, 40, 50, 60]), "begin": np.array([8, 3, 8, 3, 3, 3]), "last": np.arange(6), "ended": np.zeros(6, int),
    }  # fmt: skip
    counts = {"open.samples": np.arange(6), "page_faults.samples": np.array([1, -1, 2, -1, 3, 4]), "mem_bytes.max": np.full(6, -1)}
    rows = JobRows(np.array([b"a", b"b"]), np.array([b"x", b"y"]), job, target, columns, counts)
    found = by_lives(rows)
    assert found.columns["time"].tolist() == [20, 40, 10, 30, 50, 60]
    assert is_next(found).tolist() == [False, True, True, True, False, False]
    assert following(found).tolist() == [False, True, False, True, False, False]
    assert {name: place.tolist() for name, place in places_before(found, is_next(found)).items()} == {
        "page_faults.samples": [-1, -1, -1, 2, -1, -1],
    }  # fmt: skip
    assert by_lives(found.where(np.array([0, 1, 2, 3]))).columns["begin"].tolist() == [3, 3, 8, 8]
    of_nodes = replace(rows, counts={"cpu.sum": np.arange(6)})
    assert by_lives(of_nodes) is of_nodes
    assert following(of_nodes).tolist() == [False, True, True, True, False, False]
    done = activity(found)
    assert (done.counts["open.samples"].tolist(), done.is_known.tolist()) == ([1, 2, 0, 2, 4, 5], [True] * 6)
    some = done.where(np.array([False, True, False, True, False, False]))
    assert (some.since.tolist(), some.counts["open.samples"].tolist(), len(some.odd[OLDER])) == ([20, 10], [2, 2], 2)
    assert done.where(np.ones(6, bool)) is done
    assert rows.where(np.ones(6, bool)) is rows


def test_the_first_row_of_a_job_whose_begin_was_rounded_down_counts_once(made):
    """Rows that are stored already: a node's job that began in the last second of a minute (begin 59.0 in its first row, 59.7 later)."""
    for time, begin, cpu in ((59, 59.0, 100), (119, 59.7, 160), (179, 59.7, 200)):
        made.store({**polled(DAY + time, NODE, KEY, DAY, {"cpu.sum": cpu}), "begin": round((DAY + begin) * BILLION)})
    assert sums(made)[0] == {"cpu.sum": 200}


def test_a_summary_of_an_idle_job_is_no_end_of_its_counts(made):
    """It is still listed, and may go on. A version without start_time says only by removing it that counts begin again."""
    ends = [(65, 5, 0), (125, 5, ENDED_IDLE), (185, 6, 0), (244, 6, ENDED_REMOVED), (305, 6, 0), (365, 7, 0)]
    made.store(*(polled(DAY + time, OST, KEY, None, {"open.samples": count}, ended=ended) for time, count, ended in ends))
    assert sums(made)[0] == {"open.samples": 1 + 7}


def test_a_begin_that_moved_is_judged_by_all_counts_also_where_some_are_wanted(made):
    """Only all counts show whether a later row with an earlier begin is of another job."""
    for time, begin, cpu, faults in ((59, DAY, 1, 9), (119, DAY - 60, 2, 5), (179, DAY - 120, 0, 4)):
        made.store(polled(DAY + time, NODE, KEY, begin, {"cpu.sum": cpu, "page_faults.samples": faults}))
    found = series(days(made), DAY + 60, DAY + 180, counts=["page_faults.samples"])
    assert found.counts["page_faults.samples"].tolist() == [0 + 4]
