"""Gzip in pieces of any length, compared with the standard library; truncated and damaged data is an error."""

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
def test_members_are_whole_however_they_are_cut_and_never_longer_than_the_size(members, size, seed):
    parts = list(unpacked(cut(packed(members), seed), size))
    assert b"".join(parts) == b"".join(data for data, _, _ in members)
    assert all(0 < len(part) <= size for part in parts)


def test_data_that_was_compressed_a_thousandfold_is_decompressed_in_parts():
    length = 0
    for part in unpacked([gzip.compress(bytes(1 << 24))], 1 << 16):
        assert len(part) <= 1 << 16
        length += len(part)
    assert length == 1 << 24


@given(MEMBERS, st.integers(0, 2**32))
def test_truncated_data_is_an_error_wherever_it_ends(members, seed):
    whole = packed([(data, level, 0) for data, level, _ in members])
    ends, at = set(), 0
    for data, level, _ in members:
        at += len(gzip.compress(data, level))
        ends.add(at)
    length = random.Random(seed).choice([n for n in range(len(whole)) if n not in ends])
    with pytest.raises(BrokenGzip, match="truncated"):
        list(unpacked(cut(whole[:length], seed), 4096))


@given(st.binary(min_size=30, max_size=300), st.integers(0, 2**32))
def test_damage_is_an_error_or_changes_no_byte(data, seed):
    whole = bytearray(gzip.compress(data))
    chance = random.Random(seed)
    whole[chance.randrange(len(whole))] ^= 1 << chance.randrange(8)
    with suppress(BrokenGzip):  # or it is in a time stamp, say, which no sum covers
        assert b"".join(unpacked(cut(bytes(whole), seed), 4096)) == data


@pytest.mark.parametrize(("rest", "fault"), [(b"more", "damaged"), (b"x", "damaged"), (bytes(9) + b"more", "damaged")])
def test_bytes_after_a_member_that_are_no_member_are_an_error(rest, fault):
    with pytest.raises(BrokenGzip, match=fault):
        list(unpacked([gzip.compress(b"text"), rest], 4096))
