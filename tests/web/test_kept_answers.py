"""Answers that are kept: the newest, up to a number of bytes."""

from hypothesis import given
from hypothesis import strategies as st

from tokiod.web.kept_answers import KeptAnswers


@given(st.lists(st.sampled_from("abcdef"), max_size=40))
def test_an_answer_is_made_again_only_after_others_of_as_many_bytes(asked):
    kept, made, recent = KeptAnswers(100), [], []
    for tag in asked:
        before = len(made)
        size = 20 + ord(tag) % 7
        assert kept.get(tag, lambda tag=tag, size=size: made.append(tag) or tag.encode() * size) == tag.encode() * size
        while sum(20 + ord(one) % 7 for one in recent) > 100:
            recent.pop(0)
        assert (len(made) == before) == (tag in recent)
        recent = [one for one in recent if one != tag] + [tag]


def test_an_answer_that_is_larger_than_all_is_given_and_not_kept():
    kept, made = KeptAnswers(10), []
    for _ in range(2):
        assert kept.get("a", lambda: made.append(1) or b"x" * 11) == b"x" * 11
    assert len(made) == 2
