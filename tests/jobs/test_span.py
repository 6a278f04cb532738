"""What jobs did in a span is what plain dictionaries of all rows say, wherever the span begins and ends."""

import random
from itertools import pairwise

import msgspec
import numpy as np
import pytest
from job_days import DAY, JobDays, as_rows, polled, random_day

from tokiod.analysis.export_jobs import JobExport
from tokiod.analysis.top import top
from tokiod.job_columns import UNKNOWN
from tokiod.jobs import span as spans
from tokiod.jobs.rows import JobRows, Wanted, joined, polled_until, read
from tokiod.jobs.span import Days, count_names, pieces, row_count, series, span_rows
from tokiod.reader.span import Span
from tokiod.times import iso
from tokiod.web.job_lists import JobList, JobLists
from tokiod.window import Calendar, Window
from tokiod.window_data import Collected, WindowMeta, job_key

KEY, OST = job_key("4711", "1000"), b"fs-OST0000"


@pytest.fixture
def made(tmp_path):
    return JobDays(tmp_path / "jobs", window=600)


def days(made):
    return Days((made.root,), made.system)


def sums(found):
    """{(job, target): {count: sum}} of series, without zeros."""
    keys = zip(found.jobs[found.job].tolist(), found.targets[found.target].tolist(), strict=True)
    return {key: {name: int(of[i]) for name, of in found.counts.items() if of[i]} for i, key in enumerate(keys)}


def by_rows(found):
    """The same of rows."""
    result = {}
    for i in range(len(found.rows)):
        key = found.rows.jobs[found.rows.job[i]], found.rows.targets[found.rows.target[i]]
        one = result.setdefault(key, {})
        for name, values in found.activity.counts.items():
            if values[i]:
                one[name] = one.get(name, 0) + int(values[i])
    return result


@pytest.mark.parametrize("has_begin", [True, False])
@pytest.mark.parametrize("seed", range(2))
def test_random_days_add_up_in_any_span_before_and_after_they_are_merged(made, seed, has_begin):
    begin = DAY + 86400 - 3600  # two hours about midnight
    draw, rows = random.Random(seed), random_day(seed, begin, 2.0, has_begin=has_begin)
    made.store(*rows, late={row["time"] for row in rows if draw.random() < 0.01})
    for at in (DAY + 86400 + 4000, DAY + 4 * 86400):
        for _ in range(4):
            start = begin + draw.randrange(0, 6000)
            end = start + draw.randrange(60, 3600)
            assert sums(series(days(made), start, end)) == made.done(start, end)
            assert by_rows(span_rows(days(made), start, end)) == made.done(start, end)
            of_job = {key: counts for key, counts in made.done(start, end).items() if key[0].startswith(b"4003\x1f")}
            assert by_rows(span_rows(days(made), start, end, Wanted.of_job("4003"))) == of_job
        made.merged(at)


def test_spans_next_to_each_other_add_up_to_the_whole(made):
    made.store(*random_day(9))
    edges = [DAY, DAY + 777, DAY + 778, DAY + 3600, DAY + 7200]
    parts = [sums(series(days(made), start, end)) for start, end in pairwise(edges)]
    whole = sums(series(days(made), edges[0], edges[-1]))
    for key, counts in whole.items():
        assert counts == {name: sum(part.get(key, {}).get(name, 0) for part in parts) for name in counts}


@pytest.mark.parametrize("second", [0, 10])
@pytest.mark.parametrize(("begin", "day"), [(DAY, 3), (1, 90), (None, 2)])
def test_the_last_row_before_a_span_is_found_days_before_it(made, monkeypatch, begin, day, second):
    """And days without a file are not looked for one by one, however long ago the counts began."""
    made.store(polled(DAY + 10, OST, KEY, begin, {"open.samples": 7}))
    made.store(polled(DAY + day * 86400 + second, OST, KEY, begin, {"open.samples": 9}))
    spans_read, whole = [], spans.read
    monkeypatch.setattr(spans, "read", lambda paths, *rest: spans_read.append(rest[:2]) or whole(paths, *rest))
    found = span_rows(days(made), DAY + day * 86400, DAY + (day + 1) * 86400)
    assert found.activity.counts["open.samples"].tolist() == [2]
    assert found.activity.since.tolist() == [DAY + 10]
    assert len(spans_read) <= 3


@pytest.mark.parametrize(("second", "done"), [(10, [2]), (9, [0])])
def test_where_no_begin_is_known_the_row_before_is_looked_for_in_two_days(made, second, done):
    made.store(polled(DAY + second, OST, KEY, None, {"open.samples": 7}), polled(DAY + 2 * 86400 + 20, OST, KEY, None, {"open.samples": 9}))
    assert series(days(made), DAY + 2 * 86400 + 10, DAY + 3 * 86400).counts["open.samples"].tolist() == done


def test_the_pieces_of_a_span_are_of_the_days_that_have_a_part_of_it_each_up_to_the_first_window_of_the_next(made):
    midnight = DAY + 86400
    times = [DAY + 5, midnight - 5, midnight + 5, midnight + 86400 + 605]
    made.store(*(polled(time, OST, KEY, DAY, {"open.samples": n + 1}) for n, time in enumerate(times)))

    def found(start, end):
        return [(day.day, piece.rows.columns["time"].tolist()) for day, piece in pieces(days(made), start, end)]

    assert found(DAY, DAY + 3 * 86400) == [(8, times[:2]), (9, times[2:3]), (10, times[3:])]
    assert found(times[1], midnight) == [(8, times[1:2])]
    assert found(times[1], times[2]) == [(8, times[1:2]), (9, [])]
    assert found(times[1], times[2] + 1) == [(8, times[1:2]), (9, times[2:3])]
    assert found(midnight, midnight + 86400 + 600) == [(9, times[2:3])]
    assert found(midnight - 60, times[3] + 1) == [(8, times[1:2]), (9, times[2:3]), (10, times[3:])]
    assert count_names(days(made), DAY, times[1]) == ["open.samples"]
    assert [row_count(days(made), *span) for span in ((DAY, DAY + 600), (DAY + 600, midnight), (times[3], times[3] + 1))] == [1, 1, 1]


def test_what_began_before_the_first_row_of_all_is_of_the_first_poll(made):
    made.store(polled(DAY + 86400 + 10, OST, KEY, DAY - 50 * 86400, {"open.samples": 7}))
    assert sums(series(days(made), DAY, DAY + 2 * 86400)) == {(KEY, OST): {"open.samples": 7}}


def test_rates_leave_out_what_was_done_before_a_span_where_polls_were_lost(made):
    made.window = 60
    made.store(polled(DAY + 5, OST, KEY, DAY, {"open.samples": 100}), DAY + 60, answered=(OST,))
    made.store(polled(DAY + 605, OST, KEY, DAY, {"open.samples": 700}))  # nothing is stored of [120, 600)
    (rate,) = series(days(made), DAY + 600, DAY + 660, spread=True).counts["open.samples"]
    assert rate == pytest.approx(600 * 5 / 485)
    made.store(*range(DAY + 120, DAY + 600, 60), answered=(OST,))  # it answered, without a row: it did nothing
    (rate,) = series(days(made), DAY + 600, DAY + 660, spread=True).counts["open.samples"]
    assert rate == 600
    assert series(days(made), DAY + 600, DAY + 660).counts["open.samples"].tolist() == [600]


def test_rates_of_the_first_poll_of_all_are_of_the_time_since_the_counts_began(made):
    made.window = 60
    made.store(polled(DAY + 3605, OST, KEY, DAY + 5, {"open.samples": 3600}))
    (rate,) = series(days(made), DAY + 3600, DAY + 3660, spread=True).counts["open.samples"]
    assert rate == pytest.approx(5)


def test_a_span_of_more_rows_than_are_read_at_once_is_the_same(made, monkeypatch):
    made.store(*random_day(4))
    whole = sums(series(days(made), DAY, DAY + 7200))
    monkeypatch.setattr(spans, "ROWS_AT_ONCE", 300)
    assert sums(series(days(made), DAY, DAY + 7200)) == whole
    made.merged(DAY + 3 * 86400)
    assert sums(series(days(made), DAY, DAY + 7200)) == whole == made.done(DAY, DAY + 7200)


def test_some_counts_alone_are_those_of_all_and_without_a_begin_restarts_are_still_seen(made):
    made.store(
        polled(DAY + 5, OST, KEY, None, {"open.samples": 10, "close.samples": 10}),
        polled(DAY + 65, OST, KEY, None, {"open.samples": 12, "close.samples": 1}),
    )
    found = series(days(made), DAY, DAY + 120, counts=["open.samples"])
    assert found.counts["open.samples"].tolist() == [12]
    made.store(*random_day(3, DAY + 3600, 1.0))
    some = series(days(made), DAY + 3600, DAY + 7200, counts=["open.samples"])
    assert {*some.counts} == {"open.samples"}
    whole = made.done(DAY + 3600, DAY + 7200)
    assert sums(some) == {key: {name: n for name, n in of.items() if name == "open.samples"} for key, of in whole.items()}


def test_an_empty_table_and_a_missing_one_have_no_rows(made, tmp_path):
    assert len(series(days(made), DAY, DAY + 60)) == 0
    made.store(DAY)
    assert len(series(days(made), DAY, DAY + 60)) == len(span_rows(days(made), DAY, DAY + 60).rows) == 0
    assert days(made).newest() == DAY + 600
    (made.root / "fs" / "notes").touch()
    assert Days((tmp_path / "other", made.root), "fs").newest() == DAY + 600
    assert Days((tmp_path / "other",), "fs").newest() is None


def test_rows_of_some_keys_are_those_of_all_whether_their_slices_are_few_or_many(made, monkeypatch):
    made.store(*random_day(2, jobs=40))
    made.merged(DAY + 3 * 86400)
    whole = read(days(made).of(DAY, DAY + 7200), DAY, DAY + 7200)
    keys = whole.jobs[::2]
    wanted = whole.where(np.isin(whole.jobs[whole.job], keys))
    for limit in (64, 3):
        monkeypatch.setattr("tokiod.jobs.rows.MAX_SLICES", limit)
        found = read(days(made).of(DAY, DAY + 7200), DAY, DAY + 7200, Wanted(keys=np.append(keys, b"zz")))
        assert found.jobs.tolist() == keys.tolist()
        for name, values in found.columns.items():
            assert np.array_equal(values, wanted.columns[name])
    assert row_count(days(made), DAY, DAY + 7200) == len(whole)
    assert len(joined([whole])) == len(whole)


@pytest.mark.parametrize("seed", range(6))
def test_of_the_rows_before_a_span_those_are_kept_since_the_last_one_that_has_each_count(seed):
    """Of jobs that have rows in the span: what is read before it may be days."""
    draw, start, n = np.random.default_rng(seed), 300, 80
    job = np.sort(draw.integers(0, 9, n))
    time = np.concatenate([np.sort(draw.choice(280 if one % 3 == 0 else 600, (job == one).sum(), replace=False)) for one in np.unique(job)])
    counts = {"cpu.sum": np.arange(n), "page_faults.samples": np.arange(n), "oom_kills.samples": np.arange(n)}
    for name in ("page_faults.samples", "oom_kills.samples"):
        counts[name] = np.where(draw.random(n) < 0.5, UNKNOWN, counts[name])
    counts["mem_bytes.max"] = np.full(n, UNKNOWN)
    columns = {"time": time, "begin": np.zeros(n, int), "last": time * 10**9, "ended": np.zeros(n, int)}
    rows = JobRows(np.array([f"{one}" for one in range(9)], "S"), np.array([b"n1"]), job, np.zeros(n, int), columns, counts)
    expected = []
    for one in np.unique(job):
        of = np.flatnonzero(job == one)
        before = of[time[of] < start]
        if time[of[-1]] >= start and len(before):
            last = [
                max((at for at in before if values[at] >= 0), default=before[-1])
                for name, values in counts.items()
                if name != "mem_bytes.max"
            ]
            expected += [at for at in before if at >= min(last)]
        expected += [at for at in of if time[at] >= start]
    assert spans._last_before(rows, start).columns["last"].tolist() == (time[expected] * 10**9).tolist()
    assert spans._last_before(rows, 0) is rows


def test_pairs_of_several_days_have_their_first_and_last_times_their_sums_and_their_largest_states(made):
    midnight, other = DAY + 86400, job_key("4712", "1000")
    made.store(
        polled(midnight - 55, b"nid2", KEY, midnight - 100, {"cpu.sum": 5, "mem_bytes.max": 9}),
        polled(midnight - 55, b"nid3", KEY, midnight - 99, {"cpu.sum": 7, "mem_bytes.max": 1}),
        polled(midnight + 5, b"nid2", KEY, midnight - 100, {"cpu.sum": 8, "mem_bytes.max": 4, "page_faults.samples": 3}),
        polled(midnight + 65, b"nid1", other, midnight + 10, {"cpu.sum": 2, "mem_bytes.max": 6, "page_faults.samples": 4}),
    )
    found = series(days(made), DAY, DAY + 2 * 86400)
    pairs = zip(
        found.jobs[found.job].tolist(), found.targets[found.target].tolist(), found.since.tolist(), found.until.tolist(), strict=True
    )
    assert list(pairs) == [
        (KEY, b"nid2", midnight - 100, midnight + 5),
        (KEY, b"nid3", midnight - 99, midnight - 55),
        (other, b"nid1", midnight + 10, midnight + 65),
    ]
    assert {name: values.tolist() for name, values in found.counts.items()} == {
        "cpu.sum": [8, 7, 2], "mem_bytes.max": [9, 1, 6], "page_faults.samples": [3, UNKNOWN, 4],
    }  # fmt: skip
    some = found.where(np.array([True, False, True]))
    assert (some.since.tolist(), some.counts["cpu.sum"].tolist(), len(some)) == ([midnight - 100, midnight + 10], [8, 2], 2)


def test_a_row_is_of_the_span_of_its_poll(made):
    made.store(polled(DAY + 60, OST, KEY, DAY, {"open.samples": 1}))
    assert len(series(days(made), DAY, DAY + 60)) == 0
    found = series(days(made), DAY + 60, DAY + 61)
    assert (found.since.tolist(), found.until.tolist()) == ([DAY], [DAY + 60])


def test_a_job_goes_on_where_the_users_of_the_day_before_were_removed(made):
    named, unnamed = job_key("4711", "1000", None, "n1", "a1b2"), job_key("4711", None, None, "n1", "a1b2")
    other = job_key("4712", "1000", None, "n1", "c3d4")
    midnight = DAY + 86400
    made.store(
        polled(midnight - 55, OST, unnamed, DAY, {"open.samples": 100}),
        polled(midnight + 5, OST, named, DAY, {"open.samples": 103}),
        polled(midnight + 5, OST, other, DAY, {"open.samples": 50}),
    )
    for _ in range(2):
        assert sums(series(days(made), midnight, midnight + 60)) == {(named, OST): {"open.samples": 3}, (other, OST): {"open.samples": 50}}
        found = span_rows(days(made), midnight - 3600, midnight + 60, Wanted.of_job("4711"))
        assert found.activity.counts["open.samples"].tolist() == [100, 3]
        made.merged(DAY + 4 * 86400)


def test_counts_of_perf_events_begin_again_alone(made):
    """The agent was started again: what the cgroup counts goes on, and what the agent counts does not."""
    counts = [(100, 50), (130, 70), (140, 5), (150, 8)]
    rows = [
        polled(DAY + 60 * i, b"nid1", KEY, DAY if i < 2 else None, {"cpu.sum": cpu, "perf_cycles.samples": cycles})
        for i, (cpu, cycles) in enumerate(counts)
    ]
    made.store(*rows)
    assert sums(series(days(made), DAY, DAY + 3600)) == {(KEY, b"nid1"): {"cpu.sum": 150, "perf_cycles.samples": 70 + 5 + 3}}


@pytest.mark.parametrize("rows_at_once", [1 << 20, 2])
@pytest.mark.parametrize("later", [DAY + 125, DAY + 5 * 3600, DAY + 86400 + 65])
def test_a_job_whose_key_changed_with_the_configuration_is_counted_once(made, monkeypatch, later, rows_at_once):
    monkeypatch.setattr(spans, "ROWS_AT_ONCE", rows_at_once)
    named, hidden = job_key("4711", "1000", None, None, "a"), job_key("4711", None, None, None, "a")
    others = [polled(later + n, OST, job_key(f"4711{n}", "1000", None, None, f"b{n}"), later, {"open.samples": 1}) for n in range(3)]
    made.store(polled(DAY + 65, OST, named, DAY, {"open.samples": 10}))
    made.store(polled(later, OST, hidden, DAY, {"open.samples": 12}), *others)
    for at in (None, DAY + 4 * 86400):
        if at is not None:
            made.merged(at)
        assert sum(sum(counts.values()) for counts in sums(series(days(made), DAY, later + 60)).values()) == 12 + 3
        assert sum(sum(counts.values()) for counts in sums(series(days(made), later - 20, later + 60)).values()) == 2 + 3


def rate_of(made, start, end, target=OST):
    """What a target's jobs did per second in a span, by the list that `top` and the page show."""
    found = top(days(made), Span(start, end), "open", "names", targets=target.decode())
    return found.total


def steady(target, key, seconds, per_second=1, first=DAY):
    """Rows of a job that does something each second, polled 5 s into each of some minutes."""
    return [polled(first + second, target, key, DAY, {"open.samples": per_second * (first + second - DAY)}) for second in seconds]


OTHER, MINUTES = b"fs-OST0001", range(65, 7200, 60)


@pytest.fixture
def lost(made):
    """An hour from DAY + 1800 on is lost: of all targets, or of one of them."""
    made.window = 60

    def store(targets):
        polls = {target: [s for s in MINUTES if target not in targets or not 1800 <= s < 5400] for target in (OST, OTHER)}
        key = job_key("4712", "1000")
        made.store(*steady(OST, KEY, polls[OST]), *steady(OTHER, key, polls[OTHER]))
        return made

    return store


@pytest.mark.parametrize("targets", [(OST, OTHER), (OST,)])
def test_a_lost_hour_does_not_look_like_a_storm_before_and_after_a_merge(lost, targets):
    """It was lost for the whole source, or one server of two was silent."""
    made = lost(targets)
    # What was done after the last poll of a span is of the next one.
    seconds = {(5400, 5520): 65, (5402, 5490): 63, (5460, 5580): 120, (3000, 5460): 2442, (1200, 1320): 120}
    spans = [(DAY + start, DAY + end) for start, end in seconds]
    before = [(rate_of(made, *span), rate_of(made, *span, OTHER)) for span in spans]
    rates = [pytest.approx(done / (end - start), rel=0.01) for (start, end), done in seconds.items()]
    assert [rate for rate, _ in before] == rates
    assert [rate for _, rate in before] == (rates if OTHER in targets else [pytest.approx(1, rel=0.1)] * len(spans))
    lists = [_listed(made, *span) for span in spans[:1]]
    for at in (DAY + 7200 + 4000, DAY + 4 * 86400):
        made.merged(at)
        assert [(rate_of(made, *span), rate_of(made, *span, OTHER)) for span in spans] == before
        assert [_listed(made, *span) for span in spans[:1]] == lists
    assert sums(series(days(made), DAY, DAY + 7200))[KEY, OST] == {"open.samples": 7145}


@pytest.mark.parametrize("answered", [(), (OTHER,), (OST, OTHER)])
def test_a_window_without_rows_polled_the_targets_that_answered(made, answered):
    """One server was silent for half an hour while no job did anything on the other; or both answered. Earlier versions did not say."""
    made.window = 60
    made.store(*steady(OST, KEY, range(65, 1800, 60)), *steady(OTHER, job_key("4712"), range(65, 1800, 60)), answered=(OST, OTHER))
    made.store(*range(DAY + 1800, DAY + 3600, 60), answered=answered)
    made.store(*steady(OST, KEY, (3605, 3665)), *steady(OTHER, job_key("4712"), (3665,)), answered=(OST, OTHER))
    polled = DAY + 3600 if OST in answered else DAY + 1800
    expected = pytest.approx((60 + (3605 - 1745) * min(1, 5 / (DAY + 3605 - polled))) / 120)
    for at in (None, DAY + 4 * 3600, DAY + 4 * 86400):
        if at is not None:
            made.merged(at)
        assert rate_of(made, DAY + 3600, DAY + 3720) == expected
        assert polled_until(made.root / "fs" / "2024-08-08", DAY, DAY + 3600, np.array([OST, OTHER])).tolist() == [
            polled,
            DAY + 3600 if OTHER in answered else DAY + 1800,
        ]


def test_targets_that_answered_in_any_attempt_at_a_window_polled_it(made):
    for answered in ((OST,), (OTHER,)):
        made.store(DAY, answered=answered)
    found = polled_until(made.root / "fs" / "2024-08-08", DAY - 60, DAY + 3600, np.array([OST, OTHER, b"fs-OST0002"]))
    assert found.tolist() == [DAY + made.window] * 2 + [0]


def _listed(made, start, end):
    """The page's list of a span, and what the export has of it."""
    given = {"system": "fs", "start": iso(start), "end": iso(end), "by": "open", "of": "job", "limit": "9", "target": ""}
    found = msgspec.json.decode(bytes(JobLists().of(days(made), "names", given, DAY + 9000)), type=JobList)
    rows = "".join(JobExport(days(made), Span(start, end), "names").json_pieces())
    return [(one.job, one.rate) for one in found.lines], rows


def test_a_span_that_begins_within_a_window_that_was_polled_has_what_its_next_poll_says(made):
    """Windows of ten minutes, polled after five seconds: from then on to the next poll, all is of the span."""
    made.store(*steady(OST, KEY, (5, 605, 1205)))
    assert rate_of(made, DAY + 900, DAY + 1300) == pytest.approx(600 / 400)
    made.merged(DAY + 4 * 86400)
    assert rate_of(made, DAY + 900, DAY + 1300) == pytest.approx(600 / 400)


def test_a_window_of_another_source_says_nothing_about_a_target(made):
    made.window = 60
    made.store(*steady(OST, KEY, (5, 605)), source="oss")
    made.store(*range(DAY + 60, DAY + 600, 60), source="mds")
    for _ in range(2):
        assert rate_of(made, DAY + 600, DAY + 660) == pytest.approx(600 * 5 / 545 / 60)
        made.merged(DAY + 4 * 86400)


def test_a_row_of_the_poll_before_in_a_later_window_polled_nothing_in_it(made):
    """Where a job's last row is old, its next one comes with the counts at the poll before: of the time before a lost hour."""
    made.window = 60
    made.store(*steady(OST, KEY, (5, 65)))
    meta = WindowMeta("jobs", "lustre_jobstats", "fs", Window(DAY + 3660, DAY + 3720))
    made.table.apply(Collected(meta, (), [as_rows(steady(OST, KEY, (65, 3665)))]))
    assert made.table.commit() == []
    for _ in range(2):
        assert rate_of(made, DAY + 3663, DAY + 3700) == pytest.approx(3600 * 2 / 3545 / 37)
        made.merged(DAY + 4 * 86400)


def test_a_job_that_began_in_a_lost_hour_is_spread_over_its_own_time(made):
    made.window = 60
    made.store(*steady(OST, KEY, (5, 65, 3665)))
    made.store(polled(DAY + 3665, OST, job_key("4713"), DAY + 3600, {"open.samples": 65}))
    assert rate_of(made, DAY + 3660, DAY + 3720) == pytest.approx((3600 * 5 / 3545 + 5) / 60)


def test_the_newest_window_of_all_files_is_the_last_one(made):
    """Of several files the one that ends last counts, whichever is listed last."""
    made.window = 60
    made.store(DAY, DAY + 60, DAY + 86400)
    made.merged(DAY + 86400 + 5000)
    made.store(DAY + 86400 - 600)
    assert days(made).newest() == DAY + 86400 + 60
    made.table.calendar = Calendar("UTC")
    made.store(DAY + 86400 + 600, DAY + 86400 + 120)
    meta = WindowMeta("aa", "lustre_jobstats", "fs", Window(DAY + 86400, DAY + 86400 + 30))
    made.table.apply(Collected(meta, (), [as_rows([])]))
    assert made.table.commit() == []
    assert days(made).newest() == DAY + 86400 + 660


def test_a_window_in_which_no_job_did_anything_polled_its_targets_also_where_the_span_begins_in_it(made):
    made.store(*steady(OST, KEY, (5,)), DAY + 600, *steady(OST, KEY, (1205,)), answered=(OST,))
    assert rate_of(made, DAY + 900, DAY + 1300) == pytest.approx(1200 / 400)


def test_a_row_at_the_begin_of_a_span_is_about_the_time_before_it(made):
    made.window = 60
    made.store(*steady(OST, KEY, (5, 65, 3660)))
    assert rate_of(made, DAY + 3660, DAY + 3720) == 0


def test_counts_that_were_not_seen_before_are_of_all_the_time_since_their_begin(made):
    """Of this job no row came before, though its target was polled: its blocks could not be read."""
    made.window = 60
    made.store(*steady(OST, KEY, range(5, 3660, 60)), polled(DAY + 3665, OST, job_key("4713"), DAY, {"open.samples": 3665}))
    assert rate_of(made, DAY + 3660, DAY + 3720) == pytest.approx(5 / 60)


def test_a_row_of_a_poll_of_the_day_before_is_counted_there_though_it_stands_in_a_window_of_the_next_day(made):
    midnight = DAY + 86400
    made.store(polled(midnight - 1200, OST, job_key("1"), DAY, {"open.samples": 1}))  # the day has a window
    early, late = (polled(midnight + time, OST, KEY, DAY, {"open.samples": count}) for time, count in ((-500, 7), (10, 9)))
    made.store(early, late, late={midnight - 500})
    for at in (None, DAY + 4 * 86400):
        if at:
            made.merged(at)
        for edges in ((DAY, DAY + 3 * 86400), (midnight - 700, midnight - 400), (midnight - 400, midnight), (midnight, midnight + 60)):
            expected = {midnight - 700: 7, midnight - 400: 0, midnight: 2}.get(edges[0], 9)
            assert sums(series(days(made), *edges)).get((KEY, OST), {}).get("open.samples", 0) == expected, edges
            assert by_rows(span_rows(days(made), *edges)).get((KEY, OST), {}).get("open.samples", 0) == expected, edges


def test_a_row_of_a_poll_shows_that_its_target_was_polled_though_it_stands_in_a_later_window(made):
    made.store(polled(DAY + 5, OST, KEY, DAY, {"open.samples": 1}))
    made.store(polled(DAY + 1190, OST, job_key("2"), DAY, {"open.samples": 1}), late={DAY + 1190})
    for at in (None, DAY + 4 * 86400):
        if at is not None:
            made.merged(at)
        for start, until in ((DAY + 1199, DAY + 1190), (DAY + 1190, DAY + 600)):
            assert polled_until(made.root / "fs" / "2024-08-08", DAY, start, np.array([OST])).tolist() == [until], (at, start)


def test_the_window_of_a_row_a_day_before_the_span_was_polled(made):
    """It ended ten minutes after DAY. What was done since is divided over the time from then on."""
    late = 86400 + 700
    made.store(*steady(OST, KEY, (5, late + 1205)))
    assert rate_of(made, DAY + late, DAY + late + 1800) == pytest.approx((late + 1200) * 1205 / (late + 605) / 1800, rel=1e-7)
