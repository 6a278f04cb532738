"""Increases of counters: each sum equals what the source really counted, as long as it is known."""

from hypothesis import given
from hypothesis import strategies as st

from tokiod.agent.increase import Increases, Sums
from tokiod.agent.metric import counter

COUNTER = counter("c", "1", "")
IDLE = counter("idle", "s", "", slack=3.0)


@given(st.lists(st.integers(0, 499), max_size=50), st.integers(0, 999))
def test_a_counter_that_wraps_loses_nothing_while_samples_are_less_than_half_a_turn_apart(steps, first):
    increases, total, found = Increases(), first, 0
    assert increases.take(COUNTER, "x", total % 1000, 1000) is None
    for step in steps:
        total += step
        found += increases.take(COUNTER, "x", total % 1000, 1000)
    assert found == total - first


@given(st.lists(st.lists(st.integers(0, 10**18), min_size=1, max_size=5), min_size=1, max_size=10))
def test_the_increase_across_a_restart_is_unknown_and_counted_or_less_than_the_truth(lives):
    """A restart that is not seen as a fall hides in an increase, but no increase is ever invented."""
    increases, found, falls, unknown, last = Increases(), 0, 0, -1, None
    for life in lives:
        value = 0
        for step in life:
            value += step
            falls += last is not None and value < last
            increase = increases.take(COUNTER, "x", value)
            found += increase or 0
            unknown += increase is None
            last = value
    assert found <= sum(map(sum, lives))
    assert unknown == falls


def test_a_correction_within_the_slack_counts_as_unchanged():
    increases = Increases()
    assert [increases.take(IDLE, "x", value) for value in (100.0, 99.5, 100.5, 90.0, 91.0)] == [None, 0, 0.5, None, 1.0]


def test_a_fall_from_the_lower_half_is_a_restart_even_if_the_counter_wraps_somewhere():
    increases = Increases()
    assert [increases.take(COUNTER, "x", value, 1000) for value in (400, 10, 900, 20)] == [None, None, 890, 120]
    assert [increases.take(COUNTER, "y", value, 1000) for value in (900, 500, 1000, 499)] == [None, None, 500, 499]


def test_a_correction_by_all_of_the_slack_is_one_and_a_count_without_slack_or_wrap_restarts_by_any_fall():
    increases = Increases()
    assert [increases.take(IDLE, "x", value) for value in (100.0, 97.0)] == [None, 0]
    assert [increases.take(COUNTER, "y", value) for value in (1, 0)] == [None, None]
    assert ("x" in increases, "z" in increases) == (True, False)


def test_instances_are_apart_and_can_be_forgotten():
    increases = Increases()
    assert [increases.take(COUNTER, key, value) for key, value in (("a", 5), ("b", 9), ("a", 6), ("b", 11))] == [None, None, 1, 2]
    increases.forget("a")
    assert increases.take(COUNTER, "a", 7) is None


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 1000), max_size=3), max_size=20))
def test_sums_over_parts_that_come_and_go_are_what_each_counted(rounds):
    """A part that is not there in a round is gone, and counts from zero when it is back."""
    sums, counted, truth, found = Sums(), {}, 0, {}
    for steps in rounds:
        counted = {part: counted.get(part, 0) + step for part, step in steps.items()}
        truth += sum(steps.values())
        found = sums.take({part: {"bytes": value} for part, value in counted.items()})
    assert found.get("bytes", 0) == truth


def test_a_count_that_falls_adds_nothing_and_goes_on_from_its_new_value():
    sums = Sums()
    assert [sums.take({"a": {"bytes": value}})["bytes"] for value in (100, 40, 50)] == [100, 100, 110]


def test_a_part_that_could_not_be_read_is_not_gone():
    sums = Sums()
    assert [sums.take({"a": counts, "b": {"bytes": 1}})["bytes"] for counts in ({"bytes": 100}, {}, {"bytes": 130})] == [101, 101, 131]
