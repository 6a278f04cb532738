"""What jobs did between polls, against the truth of a target that counts as Lustre does."""

import tracemalloc
from collections import Counter, defaultdict

import jobstats_text
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors._lustre_jobstats import changes
from collectors._lustre_jobstats.changes import JobCounts
from collectors._lustre_jobstats.parse import TOO_LONG

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
        self.done[job] += Counter({f"{operation} samples": samples, f"{operation} sum": total})

    def idle(self, seconds):
        self.now += seconds * SECOND

    def clean(self):
        self.jobs = {job: one for job, one in self.jobs.items() if one[1] + CLEANUP * SECOND > self.now}

    def text(self):
        return jobstats_text.target([(job, *one) for job, one in self.jobs.items()], version=self.version)


def add(found, change):
    for row, job in enumerate(change.jobs):
        for column, name in enumerate(change.operations):
            found[job] += Counter({f"{name} samples": int(change.samples[row, column]), f"{name} sum": int(change.sums[row, column])})


actions = st.tuples(st.sampled_from([b"1", b"2", b"3 x", b""]), st.sampled_from(OPERATIONS), st.integers(1, 5), st.integers(1, 2**40))
steps = st.lists(st.one_of(st.lists(actions, max_size=4), st.just("clean"), st.just("poll")), max_size=30)


@given(steps)
def test_what_is_found_is_what_jobs_did(steps):
    """Lustre 2.15 says when each count began: nothing is lost but what was done between a job's last poll and its removal."""
    target, counts, found = Target("2.15"), JobCounts(CLEANUP), defaultdict(Counter)
    counts.update(target.text())
    for step in [*steps, "poll"]:
        if step == "clean":
            add(found, counts.update(target.text()))  # all was seen before it is removed
            target.idle(2 * CLEANUP)
            target.clean()
        elif step == "poll":
            change = counts.update(target.text())
            add(found, change)
            assert not change.dropped.keys() - {changes.MISSING_EARLY}
            assert change.listed == len(target.jobs)
        else:
            for action in step:
                target.act(*action)
    sums = {job: {key: number for key, number in done.items() if number} for job, done in found.items()}
    expected = {
        job: {key: number for key, number in done.items() if number and (target.version == "2.15" or key != "open sum")}
        for job, done in target.done.items()
    }
    assert sums == {job: done for job, done in expected.items() if done}


@pytest.mark.parametrize("version", ["2.12", "2.15"])
def test_a_job_that_returns_after_its_removal_begins_at_zero(version):
    target, counts = Target(version), JobCounts(CLEANUP)
    target.act(b"7", "write_bytes", 3, 300)
    counts.update(target.text())
    target.idle(2 * CLEANUP)
    target.clean()
    target.act(b"8", "open", 1, 0)
    assert counts.update(target.text()).vanished == (b"7",)
    target.act(b"7", "write_bytes", 5, 500)
    change = counts.update(target.text())
    assert (change.jobs, change.restarted.tolist(), change.sums[0, 1]) == ((b"7",), [False], 500)


@pytest.mark.parametrize(("version", "more"), [("2.12", 2), ("2.15", 500)])
def test_counts_that_begin_again_are_taken_from_zero_and_marked(version, more):
    """Before 2.14 only a count that fell shows it; from then on start_time does, also where the new counts are larger."""
    target, counts = Target(version), JobCounts(CLEANUP)
    target.act(b"7", "write_bytes", 3, 300)
    counts.update(target.text())
    target.jobs.clear()
    target.act(b"7", "write_bytes", 1, more)
    change = counts.update(target.text())
    assert (change.jobs, change.restarted.tolist(), change.samples[0, 1], change.sums[0, 1]) == ((b"7",), [True], 1, more)


def test_the_first_poll_only_learns_where_counts_stand():
    target, counts = Target("2.15"), JobCounts(CLEANUP)
    target.act(b"7", "open", 3, 0)
    assert counts.update(target.text()).jobs == ()
    assert counts.update(target.text()).jobs == ()
    target.act(b"7", "open", 2, 0)
    assert counts.update(target.text()).samples.tolist() == [[0, 0, 2, 0]]


def test_a_job_that_a_cut_text_lacked_does_not_count_twice():
    target, counts = Target("2.15"), JobCounts(CLEANUP)
    for job in (b"1", b"2", b"3"):
        target.act(job, "write_bytes", 1, 100)
    whole = target.text()
    counts.update(whole)
    begin = whole.index(b"- job_id:", 20)
    for cut in range(begin, len(whole)):
        assert counts.update(whole[:cut]).jobs == ()
    change = counts.update(whole)
    assert (change.jobs, len(counts)) == ((), 3)


def test_a_job_that_is_older_than_the_poll_that_lacked_it_is_counted_and_not_taken_from_zero():
    target, counts = Target("2.15"), JobCounts(CLEANUP)
    target.act(b"1", "open", 1, 0)
    without = dict(target.jobs)
    target.act(b"2", "open", 9, 0)
    both, target.jobs = target.jobs, without | {b"3": (dict.fromkeys(OPERATIONS, (1, 1)), target.now + SECOND, target.now)}
    counts.update(target.text())
    target.jobs |= both
    change = counts.update(target.text())
    assert (change.jobs, change.dropped[changes.MISSED]) == ((), 1)


def test_hostile_ids_are_counted_and_leave_the_others_undisturbed():
    target, counts = Target("2.12"), JobCounts(CLEANUP)
    for job in (b"1", b"x" * 4096, b"evil\n- job_id:   1", b"2"):
        target.act(job, "open", 1, 0)
    counts.update(target.text())
    for job in (b"1", b"x" * 4096, b"2"):
        target.act(job, "open", 4, 0)
    change = counts.update(target.text())
    assert dict(zip(change.jobs, change.samples[:, 2].tolist(), strict=True)) == {b"1": 4, b"2": 4}
    assert change.dropped == {TOO_LONG: 1, changes.TWICE: 1, "malformed block of a job": 1}


def test_a_new_operation_of_an_upgraded_target_begins_at_zero():
    counts = JobCounts(CLEANUP)
    counts.update(jobstats_text.target([(b"1", {"open": (5, 0)}, EPOCH, EPOCH)]))
    change = counts.update(jobstats_text.target([(b"1", {"open": (6, 0), "fallocate": (2, 0)}, EPOCH + 1, EPOCH)]))
    assert dict(zip(change.operations, change.samples[0].tolist(), strict=True)) == {"open": 1, "fallocate": 2}


def test_memory_does_not_grow_with_polls_nor_with_jobs_that_left():
    """2,000 jobs that come and go: after 30 generations as much is held as after three."""
    counts = JobCounts(CLEANUP)
    held = []
    tracemalloc.start()
    try:
        for generation in range(30):
            now = EPOCH + generation * (CLEANUP + 1) * SECOND
            jobs = [(b"%d.%d" % (generation, job), {"open": (job, 0)}, now, now) for job in range(200)]
            change = counts.update(jobstats_text.target(jobs))
            assert len(change.vanished) == (200 if generation else 0)
            del jobs, change
            held.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert len(counts) == 200
    assert held[-1] < 1.2 * held[2]
