"""What jobs did between polls, against the truth of a target that counts as Lustre does."""

import tracemalloc
from collections import Counter, defaultdict

import job_rows
import jobstats_text
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.lustre_jobstats import changes
from collectors.lustre_jobstats.changes import JobCounts
from collectors.lustre_jobstats.parse import IMPLAUSIBLE, TOO_LONG
from collectors.lustre_jobstats.to_rows import JobKeys, TargetCounts, rows
from tokiod.window_data import ENDED_IDLE, ENDED_REMOVED, job_parts

SECOND = 10**9
EPOCH = 1_723_102_025 * SECOND
CLEANUP = 600
OPERATIONS = ("read_bytes", "write_bytes", "open", "punch")


class Target:
    """A target's job_stats. done: all that each job did, known: the part of it that a poll could see."""

    def __init__(self, version):
        self.version = version
        self.now = EPOCH
        self.jobs = {}
        self.done = defaultdict(Counter)

    def act(self, job, operation, samples, total):
        self.now += SECOND
        counts, _, start = self.jobs.get(job) or (dict.fromkeys(OPERATIONS, (0, 0)), self.now, self.now)
        before = counts[operation]
        self.jobs[job] = ({**counts, operation: (before[0] + samples, before[1] + total)}, self.now, start)
        self.done[job] += Counter({f"{operation}.samples": samples, f"{operation}.sum": total})

    def idle(self, seconds):
        self.now += seconds * SECOND

    def clean(self):
        self.jobs = {job: one for job, one in self.jobs.items() if one[1] + CLEANUP * SECOND > self.now}

    def text(self):
        return jobstats_text.target([(job, *one) for job, one in self.jobs.items()], version=self.version)


class Polls:
    """Polls of one target, as rows of the job table."""

    def __init__(self):
        self.counts = JobCounts(CLEANUP)
        self.tables = []

    def poll(self, target):
        change = self.counts.update(target.text(), target.now // SECOND + len(self.tables))
        found = TargetCounts("fs-OST0000", target.now // SECOND + len(self.tables), change)
        self.tables.append(rows([found], JobKeys(["%j"]), 0))
        return change

    def done(self):
        """Return {job: {count: sum}} of all that rows show, without zeros."""
        totals = job_rows.totals(job_rows.joined(self.tables))
        return {job_parts(key)["id"].encode(): counts for (_, key), counts in totals.items() if counts}


actions = st.tuples(st.sampled_from([b"1", b"2", b"3 x", b""]), st.sampled_from(OPERATIONS), st.integers(1, 5), st.integers(1, 2**40))
steps = st.lists(st.one_of(st.lists(actions, max_size=4), st.just("clean"), st.just("poll")), max_size=30)


@given(steps)
def test_what_is_found_is_what_jobs_did(steps):
    """Lustre 2.15 says when each count began: nothing is lost but what was done between a job's last poll and its removal."""
    target, polls = Target("2.15"), Polls()
    polls.poll(target)
    for step in [*steps, "poll"]:
        if step == "clean":
            polls.poll(target)  # all is seen before it is removed
            target.idle(2 * CLEANUP)
            target.clean()
        elif step == "poll":
            change = polls.poll(target)
            assert not change.dropped.keys() - {changes.MISSING_EARLY, changes.RESTARTED, changes.UNSEEN_END}
            assert change.listed == len(target.jobs)
        else:
            for action in step:
                target.act(*action)
    expected = {job: {key: number for key, number in done.items() if number} for job, done in target.done.items()}
    assert polls.done() == {job: done for job, done in expected.items() if done}


@pytest.mark.parametrize("version", ["2.12", "2.15"])
def test_what_a_job_did_before_the_first_poll_that_lists_it_counts(version):
    """Also before 2.14, without start_time: the poll before did not list it. It may be over before the next one."""
    target, polls = Target(version), Polls()
    target.act(b"6", "open", 2, 0)
    polls.poll(target)
    target.act(b"7", "write_bytes", 3, 300)
    polls.poll(target)
    target.act(b"7", "write_bytes", 1, 50)
    polls.poll(target)
    assert polls.done()[b"7"] == {"write_bytes.samples": 4, "write_bytes.sum": 350}
    assert polls.done().get(b"6", {}) == ({} if version == "2.12" else {"open.samples": 2})


@given(steps, st.randoms(use_true_random=False))
def test_polls_that_are_lost_and_restarts_take_nothing_with_them(steps, chance):
    """Of polls in any number that are not stored, or not made, the next one has all, also after a restart of the collectors."""
    target, polls = Target("2.15"), Polls()
    for step in steps:
        if step == "poll":
            if chance.random() < 0.3:
                polls.counts = JobCounts(CLEANUP)
            if chance.random() < 0.5:
                polls.poll(target)
        elif step != "clean":
            for action in step:
                target.act(*action)
    polls.poll(target)
    expected = {job: {key: number for key, number in done.items() if number} for job, done in target.done.items()}
    assert polls.done() == {job: done for job, done in expected.items() if done}


@pytest.mark.parametrize("version", ["2.12", "2.15"])
def test_a_job_that_returns_after_its_removal_begins_at_zero(version):
    """Also where the new counts are larger than the last ones, and no start_time shows it."""
    target, polls = Target(version), Polls()
    target.act(b"7", "write_bytes", 3, 300)
    polls.poll(target)
    target.idle(2 * CLEANUP)
    target.clean()
    target.act(b"8", "open", 1, 0)
    change = polls.poll(target)
    begin = (b"8",) if version == "2.12" else ()  # a row of zeros at the poll before
    assert (change.jobs, change.ended.tolist()) == ((b"8", *begin, b"7"), [*(0 for _ in (b"8", *begin)), ENDED_REMOVED])
    target.act(b"7", "write_bytes", 5, 500)
    polls.poll(target)
    expected = (
        {"write_bytes.samples": 8, "write_bytes.sum": 800} if version == "2.15" else {"write_bytes.samples": 5, "write_bytes.sum": 500}
    )
    assert polls.done()[b"7"] == expected


def test_a_poll_with_a_count_that_can_not_be_true_gives_no_row_of_that_job_and_the_next_one_goes_on():
    """Without the poll the sum over both is the same, and the job does not seem to have left."""
    target, polls = Target("2.15"), Polls()
    for job in (b"1", b"2"):
        target.act(job, "read_bytes", 1, 100)
    polls.poll(target)
    target.act(b"1", "read_bytes", 1, 100)
    target.act(b"2", "read_bytes", 1, 100)
    whole = target.jobs[b"1"]
    target.jobs[b"1"] = ({**whole[0], "open": (2**64 - 1, 0)}, *whole[1:])
    change = polls.poll(target)
    assert (change.jobs, dict(change.dropped), change.listed) == ((b"2",), {IMPLAUSIBLE: 1}, 2)
    assert change.examples == {IMPLAUSIBLE: b"1: open, samples: 18446744073709551615, sum: 0"}
    target.jobs[b"1"] = whole
    assert polls.poll(target).jobs == (b"1",)
    assert polls.done() == {job: {"read_bytes.samples": 2, "read_bytes.sum": 200} for job in (b"1", b"2")}


@pytest.mark.parametrize(("version", "more", "dropped"), [("2.12", 2, {}), ("2.15", 500, {changes.RESTARTED: 1})])
def test_counts_that_begin_again_are_taken_from_zero_and_counted(version, more, dropped):
    """Before 2.14 only a count that fell shows it; from then on start_time does, also where the new counts are larger."""
    target, polls = Target(version), Polls()
    target.act(b"7", "write_bytes", 3, 300)
    polls.poll(target)
    target.jobs.clear()
    target.act(b"7", "write_bytes", 1, more)
    found = polls.poll(target)
    assert (found.dropped, found.examples) == (dropped, dict.fromkeys(dropped, b"7"))
    known = 0 if version == "2.12" else 300
    assert polls.done()[b"7"]["write_bytes.sum"] == known + more


def test_the_first_poll_has_all_counts_and_the_next_ones_those_that_changed():
    target, counts = Target("2.15"), JobCounts(CLEANUP)
    target.act(b"7", "open", 3, 0)
    assert counts.update(target.text(), target.now // SECOND).jobs == (b"7",)
    assert counts.update(target.text(), target.now // SECOND).jobs == ()
    target.act(b"7", "open", 2, 0)
    assert counts.update(target.text(), target.now // SECOND).samples.tolist() == [[0, 0, 5, 0]]


def test_counts_are_returned_again_until_they_are_stored_those_of_ended_jobs_too():
    target, counts = Target("2.15"), JobCounts(CLEANUP)
    target.act(b"7", "open", 3, 0)
    counts.update(target.text(), target.now // SECOND)
    target.idle(2 * CLEANUP)
    target.clean()
    target.act(b"8", "open", 1, 0)
    counts.update(target.text(), target.now // SECOND)
    target.act(b"7", "open", 5, 0)
    counts.update(target.text(), target.now // SECOND)
    later = target.now // SECOND + 60
    again = counts.rows([b"7", b"9"], later)
    assert (again.jobs, again.ended.tolist(), again.samples[:, 2].tolist()) == ((b"7", b"7"), [ENDED_REMOVED, 0], [3, 5])
    counts.forget([b"7"])
    assert counts.rows([b"7"], later).samples[:, 2].tolist() == [5]
    assert counts.rows([b"7"], later, [(b"7", later)]).jobs == ()


def polled(target, counts, minutes, of=b"7"):
    """Poll a minute later and later; return (seconds since the first of these polls, ended, samples of open) of each row of a job."""
    begin, found = target.now, []
    for _ in range(minutes):
        target.idle(60)
        change = counts.update(target.text(), target.now // SECOND)
        rows = zip(
            change.jobs, change.time.tolist(), change.ended.tolist(), change.samples[:, OPERATIONS.index("open")].tolist(), strict=True
        )
        found += [(time - begin // SECOND, ended, samples) for job, time, ended, samples in rows if job == of]
    return found


@pytest.mark.parametrize("version", ["2.12", "2.15"])
def test_a_job_that_is_idle_on_a_target_that_removes_none_has_one_summary(version):
    target, counts = Target(version), JobCounts(CLEANUP)
    target.act(b"7", "open", 3, 0)
    assert polled(target, counts, 30) == [(60, 0, 3), (CLEANUP + 60, ENDED_IDLE, 3)]
    target.jobs.clear()
    target.act(b"8", "open", 1, 0)
    # Before 2.14 the removal is what shows that counts begin again, so it is returned, too.
    assert polled(target, counts, 1) == ([(59, ENDED_REMOVED, 3)] if version == "2.12" else [])


def test_a_job_that_goes_on_after_a_long_time_comes_with_its_counts_at_the_poll_before():
    """So a reader of any span need not look further back than an hour, and sees when a job did something."""
    target, counts = Target("2.15"), JobCounts(CLEANUP)
    target.act(b"7", "open", 3, 0)
    polled(target, counts, 60)
    target.act(b"7", "open", 2, 0)
    assert sorted(polled(target, counts, 1)) == [(-1, 0, 3), (60, 0, 5)]
    target.act(b"7", "open", 1, 0)
    assert polled(target, counts, 1) == [(60, 0, 6)]
    again = counts.rows([b"7"], 5)
    assert (again.time.tolist(), again.samples[:, OPERATIONS.index("open")].tolist()) == ([target.now // SECOND - 122, 5], [3, 6])
    assert len(again.jobs) == 2
    counts.forget([b"7"])
    assert len(counts.rows([b"7"], 5).jobs) == 1


@pytest.mark.parametrize(("minutes", "unseen"), [(1, 0), (CLEANUP // 60, 0), (CLEANUP // 60 + 1, 1)])
def test_a_job_whose_last_operations_no_poll_may_have_seen_is_counted(minutes, unseen):
    """A target removes only idle jobs, so the last poll has all of them unless polls are further apart than its job_cleanup_interval."""
    target, counts = Target("2.15"), JobCounts(CLEANUP)
    target.act(b"7", "open", 3, 0)
    polled(target, counts, CLEANUP // 60 - 1)
    target.idle(60 * minutes - 1)
    target.jobs.clear()
    target.act(b"8", "open", 1, 0)
    change = counts.update(target.text(), target.now // SECOND)
    assert change.ended.tolist() == [0, ENDED_REMOVED]
    assert (change.dropped[changes.UNSEEN_END], change.examples.get(changes.UNSEEN_END)) == (unseen, b"7" if unseen else None)


@pytest.mark.parametrize(("idle", "is_removed"), [(CLEANUP - 15, False), (CLEANUP - 1, False), (CLEANUP, True)])
def test_a_job_that_is_missing_has_ended_only_if_it_was_idle_for_job_cleanup_interval_by_the_targets_newest_operation(idle, is_removed):
    target, counts = Target("2.15"), JobCounts(CLEANUP)
    target.act(b"7", "open", 3, 0)
    counts.update(target.text(), target.now // SECOND)
    target.idle(idle - 1)
    target.jobs.clear()
    target.act(b"8", "open", 1, 0)
    change = counts.update(target.text(), target.now // SECOND)
    assert change.jobs == ((b"8", b"7") if is_removed else (b"8",))
    assert change.dropped == ({} if is_removed else {changes.MISSING_EARLY: 1})
    assert change.examples == ({} if is_removed else {changes.MISSING_EARLY: b"7"})
    assert len(counts) == (1 if is_removed else 2)
    # A job that is still missing is counted once.
    assert counts.update(target.text(), target.now // SECOND + 1).dropped == {}


@pytest.mark.parametrize(("minutes", "rows"), [(30, [(1800, 0, 5)]), (31, [(1800, 0, 3), (1860, 0, 5)])])
def test_the_counts_before_come_with_a_job_only_after_half_of_the_time_in_which_readers_look_for_them(minutes, rows):
    target, counts = Target("2.15"), JobCounts(2 * 3600)
    target.act(b"7", "open", 3, 0)
    begin = target.now // SECOND
    counts.update(target.text(), begin)
    for minute in range(1, minutes):
        counts.update(target.text(), begin + 60 * minute)
    target.act(b"7", "open", 2, 0)
    change = counts.update(target.text(), begin + 60 * minutes)
    assert sorted(zip((change.time - begin).tolist(), change.ended.tolist(), change.samples[:, 2].tolist(), strict=True)) == rows


def test_a_job_that_a_cut_text_lacked_does_not_count_twice():
    target, counts = Target("2.15"), JobCounts(CLEANUP)
    for job in (b"1", b"2", b"3"):
        target.act(job, "write_bytes", 1, 100)
    whole = target.text()
    counts.update(whole, 1)
    begin = whole.index(b"- job_id:", 20)
    for cut in range(begin, len(whole)):
        assert set(counts.update(whole[:cut], cut).jobs) <= {b"1", b"2", b"3"}
        assert (counts.rows([b"1", b"2", b"3"], cut).samples == [0, 1, 0, 0]).all()
    change = counts.update(whole, len(whole))
    assert set(change.jobs) <= {b"3"}  # its block is another text, with the counts that it had
    assert (len(counts), change.samples.tolist()) == (3, [[0, 1, 0, 0]] * len(change.jobs))


def test_hostile_ids_are_counted_and_leave_the_others_undisturbed():
    target, counts = Target("2.12"), JobCounts(CLEANUP)
    for job in (b"1", b"x" * 4096, b"evil\n- job_id:   1", b"2"):
        target.act(job, "open", 1, 0)
    counts.update(target.text(), target.now // SECOND)
    for job in (b"1", b"x" * 4096, b"2"):
        target.act(job, "open", 4, 0)
    change = counts.update(target.text(), target.now // SECOND)
    assert dict(zip(change.jobs, change.samples[:, 2].tolist(), strict=True)) == {b"1": 5, b"2": 5}
    assert change.dropped == {TOO_LONG: 1, changes.TWICE: 1, "malformed block of a job": 1}
    assert change.examples.keys() == change.dropped.keys()
    assert (change.examples[changes.TWICE], change.examples[TOO_LONG][:5]) == (b"1", b"xxxxx")


def test_a_new_operation_of_an_upgraded_target_begins_at_zero():
    counts = JobCounts(CLEANUP)
    counts.update(jobstats_text.target([(b"1", {"open": (5, 0)}, EPOCH, EPOCH)]), 1)
    change = counts.update(jobstats_text.target([(b"1", {"open": (6, 0), "fallocate": (2, 0)}, EPOCH + 1, EPOCH)]), 2)
    assert dict(zip(change.operations, change.samples[0].tolist(), strict=True)) == {"open": 6, "fallocate": 2}


def test_memory_does_not_grow_with_polls_nor_with_jobs_that_left():
    """2,000 jobs that come and go: after 30 generations as much is held as after three."""
    counts = JobCounts(CLEANUP)
    held = []
    tracemalloc.start()
    try:
        for generation in range(30):
            now = EPOCH + generation * (CLEANUP + 1) * SECOND
            jobs = [(b"%d.%d" % (generation, job), {"open": (job, 0)}, now, now) for job in range(200)]
            change = counts.update(jobstats_text.target(jobs), now // SECOND)
            assert (change.ended == ENDED_REMOVED).sum() == (200 if generation else 0)
            counts.forget(change.jobs)
            del jobs, change
            held.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert len(counts) == 200
    assert held[-1] < 1.2 * held[2]


def test_counts_that_began_again_after_a_window_that_is_not_stored_are_kept():
    target, counts = Target("2.15"), JobCounts(CLEANUP)
    seen = []
    for _ in range(3):
        target.act(b"4711", "open", 5, 10)
        change = counts.update(target.text(), target.now // SECOND)
        seen += zip(change.start.tolist(), change.samples[:, change.operations.index("open")].tolist(), change.ended.tolist(), strict=True)
        target.jobs.clear()  # the target restarts
        target.idle(60)
    assert [one[1:] for one in seen] == [(5, 0), (5, 0), (5, ENDED_REMOVED), (5, 0), (5, ENDED_REMOVED)]
    assert (seen[2][0], seen[4][0]) == (seen[0][0], seen[1][0])
