"""Frames as one value, and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokiod.bus.packed import MAX_FRAMES, pack, unpack
from tokiod.errors import Malformed


@given(st.lists(st.binary(max_size=40), max_size=MAX_FRAMES))
def test_frames_come_back(frames):
    assert [bytes(frame) for frame in unpack(pack(frames))] == frames


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=6), st.data())
def test_what_was_cut_is_malformed_or_a_part_of_the_frames(frames, data):
    value = pack(frames)
    cut = value[: data.draw(st.integers(0, len(value) - 1))]
    try:
        found = [bytes(frame) for frame in unpack(cut)]
    except Malformed:
        return
    assert found == frames[: len(found)]


@pytest.mark.parametrize("value", [b"\x01", b"\x05\0\0\0abc", b"\xff\xff\xff\xff", bytes(4 * (MAX_FRAMES + 1))])
def test_other_values_are_malformed(value):
    with pytest.raises(Malformed):
        unpack(value)
