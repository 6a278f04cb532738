import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokiod.errors import ConfigError, Fatal, Malformed, NotYet, Refusal, TokiodError, Transient
from tokiod.polling import retry
from tokiod.polling.retry import Verdict, decide


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


def test_a_source_that_is_gone_is_asked_later_and_later_up_to_five_minutes():
    waits = [decide(Transient("gone"), n, 1, 15.0, LOUDEST).source_wait for n in (*range(1, 12), 10_000)]
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]


def test_a_busy_writer_is_asked_soon_and_then_every_other_second():
    verdicts = [decide(Refusal("just being made", "busy"), n, 1, 15.0, LOUDEST) for n in (1, 2, 3, 4, 5, 10_000)]
    assert [verdict.window_wait for verdict in verdicts] == [0.25, 0.5, 1, 2, 2, 2]
    assert {verdict.source_wait for verdict in verdicts} == {0}


def test_a_window_that_fails_thrice_waits_by_itself_too_up_to_an_hour():
    waits = [decide(TimeoutError(), 1, n, 15.0, LOUDEST).window_wait for n in (1, 2, 3, 4, 12, 13, 10_000)]
    assert waits == [0, 0, 4, 8, 2048, 3600, 3600]


def test_only_the_window_waits_where_the_source_is_well_and_only_the_source_where_no_window_can_do():
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
