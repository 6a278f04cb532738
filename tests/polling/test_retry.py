import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokiod.errors import ConfigError, Fatal, Malformed, NotYet, Refusal, TokiodError, Transient
from tokiod.ledger.ledger import Unstored
from tokiod.polling import retry
from tokiod.polling.retry import SourceBackoff, Verdict, decide
from tokiod.window import Window


class Loudest(random.Random):
    """Draws the upper end."""

    def uniform(self, _low, high):
        return high


LOUDEST = Loudest()


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (Transient("gone"), "transient"),
        (NotYet("later"), "not_yet"),
        (TimeoutError(), "timeout"),
        (Fatal("no such table"), "fatal"),
        (ConfigError(["no such secret"]), "fatal"),
        (Malformed("shape", "a bad batch"), "bug"),
        (TokiodError("a sentence"), "fatal"),
        (Refusal("a wrong step", "never"), "rejected"),
        (ZeroDivisionError(), "bug"),
        (ConnectionResetError(), "bug"),
    ],
)
def test_the_class_of_the_error_decides(error, outcome):
    assert retry.classify(error) == outcome
    assert decide(error, 1, 1, 15.0, LOUDEST).outcome == outcome


def test_the_wait_of_a_source_that_is_down_grows_up_to_five_minutes():
    waits = [decide(Transient("gone"), n, 1, 15.0, LOUDEST).source_wait for n in (*range(1, 12), 10_000)]
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]


def test_the_wait_for_a_busy_writer_grows_up_to_two_seconds():
    verdicts = [decide(Refusal("just being made", "busy"), n, 1, 15.0, LOUDEST) for n in (1, 2, 3, 4, 5, 10_000)]
    assert [verdict.window_wait for verdict in verdicts] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 2])
    assert {verdict.source_wait for verdict in verdicts} == {0}


def test_a_window_that_fails_three_times_waits_too_up_to_an_hour():
    waits = [decide(TimeoutError(), 1, n, 15.0, LOUDEST).window_wait for n in (1, 2, 3, 4, 12, 13, 10_000)]
    assert waits == [0, 0, 4, 8, 2048, 3600, 3600]


def test_only_the_window_waits_where_the_source_answers_and_only_the_source_where_none_would_succeed():
    verdicts = [decide(error, 7, 7, 15.0, LOUDEST) for error in (NotYet("later"), Fatal("no"), Refusal("no", "never"))]
    assert verdicts == [Verdict("not_yet", 0, 15), Verdict("fatal", 600, 0), Verdict("rejected", 0, 6 * 3600)]


@given(st.integers(1, 10_000), st.integers(1, 10_000), st.randoms(use_true_random=False))
def test_jitter_is_full_and_never_longer_than_the_exponential_or_its_cap(failures, attempts, rng):
    verdict = decide(Transient("gone"), failures, attempts, 15.0, rng)
    loudest = decide(Transient("gone"), failures, attempts, 15.0, LOUDEST)
    assert 0 <= verdict.source_wait <= loudest.source_wait <= 300
    assert 0 <= verdict.window_wait <= loudest.window_wait <= 3600


def test_jitter_spreads_sources_that_failed_together_over_the_whole_wait():
    waits = sorted(decide(Transient("gone"), 20, 1, 15.0, random.Random(seed)).source_wait for seed in range(200))
    assert waits[0] < 10
    assert waits[-1] > 290
    assert 120 < sum(waits) / 200 < 180


# ---- the failures of one source

FIRST, SECOND, THIRD = (Window(start, start + 60) for start in (0, 60, 120))


@pytest.fixture
def backoff():
    return SourceBackoff(15.0, LOUDEST)


def test_failures_in_a_row_add_up_until_a_window_is_stored_that_was_queried_after_them(backoff):
    early = backoff.begin()
    late = backoff.begin()
    assert backoff.failed(SECOND, Transient("gone"), 0.0) == Verdict("transient", 1, 0)
    assert not backoff.stored(FIRST, early)
    assert not backoff.stored(SECOND, late)
    assert backoff.failed(SECOND, Transient("gone"), 0.0) == Verdict("transient", 2, 0)
    assert backoff.stored(SECOND, backoff.begin())
    assert backoff.failed(SECOND, Transient("gone"), 0.0) == Verdict("transient", 1, 0)


def test_a_source_is_not_queried_before_its_longest_wait_is_over(backoff):
    backoff.failed(FIRST, Fatal("no such table"), 100.0)
    backoff.failed(SECOND, Transient("gone"), 101.0)
    assert backoff.not_before == 700.0


def test_the_attempts_at_a_window_are_counted_restored_and_forgotten(backoff):
    for _ in range(2):
        backoff.failed(FIRST, Transient("gone"), 0.0)
    ledger = [Unstored("s", window, "failed", 5, "Transient", "gone", 0.0, 1.0) for window in (FIRST, SECOND)]
    backoff.restore(ledger)
    assert [backoff.attempts(window) for window in (FIRST, SECOND, THIRD)] == [2, 5, 0]
    backoff.forget(Window(0, 60))
    backoff.stored(SECOND, backoff.begin())
    assert [backoff.attempts(window) for window in (FIRST, SECOND, THIRD)] == [0, 0, 0]


def test_a_window_that_the_source_has_not_reached_is_no_failure_and_ends_a_row_of_them(backoff):
    backoff.failed(FIRST, Transient("gone"), 0.0)
    assert backoff.failed(SECOND, NotYet("later"), 0.0) == Verdict("not_yet", 0, 15)
    assert backoff.attempts(SECOND) == 0
    assert backoff.failed(FIRST, Transient("gone"), 0.0).source_wait == 1


def test_windows_that_reach_a_busy_writer_together_count_as_one_and_as_no_failure(backoff):
    busy = Refusal("the file is being created", "busy")
    assert [backoff.failed(window, busy, 0.0).window_wait for window in (FIRST, SECOND, THIRD)] == [0.1, 0.1, 0.1]
    assert [backoff.failed(FIRST, busy, tick).window_wait for tick in (1.0, 2.0)] == [0.2, 0.4]
    assert (backoff.attempts(FIRST), backoff.not_before) == (0, 2.0)  # no wait of the source after the last
    backoff.stored(FIRST, backoff.begin())
    assert backoff.failed(FIRST, busy, 9.0).window_wait == 0.1


def test_a_rejected_window_does_not_mean_that_the_source_is_down(backoff):
    query = backoff.begin()
    assert backoff.failed(FIRST, Refusal("a wrong step", "never"), 0.0) == Verdict("rejected", 0, 6 * 3600)
    assert (backoff.attempts(FIRST), backoff.not_before, backoff.stored(SECOND, query)) == (1, 0.0, True)
