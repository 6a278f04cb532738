"""Gzip in pieces of any length, held against the standard library; what is cut off or broken is told."""

import gzip
import random
from contextlib import suppress

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tokiod.toolkit.gzip_stream import BrokenGzip, unpacked

MEMBERS = st.lists(
    st.tuples(st.binary(max_size=300).map(lambda data: data * 9), st.integers(0, 9), st.integers(0, 5)), min_size=1, max_size=4
)


def packed(members):
    return b"".join(gzip.compress(data, level) + b"\0" * zeros for data, level, zeros in members)


def cut(data, seed):
    chance, at = random.Random(seed), 0
    while at < len(data):
        length = chance.choice((1, 2, 9, 18, 4096))
        yield data[at : at + length]
        at += length


@given(MEMBERS, st.integers(1, 5000), st.integers(0, 2**32))
@example([(b"", 0, 0)], 1, 0)
def test_members_come_whole_however_they_are_cut_and_never_more_at_a_time_than_was_asked_for(members, size, seed):
    parts = list(unpacked(cut(packed(members), seed), size))
    assert b"".join(parts) == b"".join(data for data, _, _ in members)
    assert all(0 < len(part) <= size for part in parts)


def test_what_became_a_thousandth_is_unpacked_in_parts():
    length = 0
    for part in unpacked([gzip.compress(bytes(1 << 24))], 1 << 16):
        assert len(part) <= 1 << 16
        length += len(part)
    assert length == 1 << 24


@given(MEMBERS, st.integers(0, 2**32))
def test_what_is_cut_off_is_told_wherever_that_is(members, seed):
    whole = packed([(data, level, 0) for data, level, _ in members])
    ends, at = set(), 0
    for data, level, _ in members:
        at += len(gzip.compress(data, level))
        ends.add(at)
    length = random.Random(seed).choice([n for n in range(len(whole)) if n not in ends])
    with pytest.raises(BrokenGzip, match="cut off"):
        list(unpacked(cut(whole[:length], seed), 4096))


@given(st.binary(min_size=30, max_size=300), st.integers(0, 2**32))
def test_damage_is_told_or_does_no_harm(data, seed):
    whole = bytearray(gzip.compress(data))
    chance = random.Random(seed)
    whole[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
    with suppress(BrokenGzip):  # or it is in a time stamp, say, which no sum covers
        assert b"".join(unpacked(cut(bytes(whole), seed), 4096)) == data


def test_what_follows_a_member_and_is_none_is_told():
    with pytest.raises(BrokenGzip, match="broken"):
        list(unpacked([gzip.compress(b"text"), b"x"], 4096))
