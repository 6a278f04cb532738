"""For any order, split, repetition and attempts of parts: each attempt is returned whole, once, and never after a newer one."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokiod.batch import Batch
from tokiod.crossing import parts as crossing_parts
from tokiod.crossing.parts import FRAME_OVERHEAD_BYTES, MAX_SETTLED_WINDOWS, PART_BYTES, SMALL_BYTES, Joining, cut, encoded
from tokiod.errors import Malformed, Refusal
from tokiod.window_data import WindowData


class Head(msgspec.Struct, frozen=True):
    """What a part is a part of."""

    attempt: int = 1
    part: int = 0
    parts: int = 1


def add(joining, content, *, key="w", attempt=1, part=0, parts=1):
    """Add a part; return the whole window, None if parts of it are to come."""
    found = joining.add(key, Head(attempt, part, parts), [content])
    return None if found is None else b"".join(found[1])


@given(st.lists(st.binary(max_size=90), max_size=8), st.integers(1, 100), st.integers(0, 60))
def test_pieces_are_cut_into_parts_of_a_size_and_not_where_they_fit(pieces, size, small):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(crossing_parts, "SMALL_BYTES", small)
        parts = cut(pieces, size)
    assert b"".join(bytes(frame) for frames in parts for frame in frames) == b"".join(pieces)
    assert all(sum(map(len, frames)) <= size for frames in parts)
    assert all(frames and all(frames) for frames in parts) or not any(pieces)
    whole = [piece for piece in pieces if small < len(piece) <= size]
    assert all(any(piece in bytes(frame) for frames in parts for frame in frames) for piece in whole)


def test_large_pieces_are_views_and_small_ones_share_a_frame():
    large = np.arange(SMALL_BYTES, dtype=np.int64)
    ((first, view, last),) = cut([b"a", b"b", large.data.cast("B"), b"c", b"d"], 1 << 20)
    assert (bytes(first), bytes(last)) == (b"ab", b"cd")
    assert np.shares_memory(np.frombuffer(view), large)


def test_a_window_that_can_never_cross_is_refused(monkeypatch):
    batch = Batch("g/d", "gauge", 5, ("a\n",), np.zeros(1, np.int64), np.zeros(1, np.uint32), np.zeros(1))
    with pytest.raises(Refusal, match="source src: columns: column 0, ") as refused:
        encoded("src", WindowData([batch]), PART_BYTES)
    assert refused.value.when == "never"
    monkeypatch.setattr(crossing_parts, "MAX_WINDOW_BYTES", 1 << 20)
    zeros = np.zeros(1 << 16, np.int64)
    with pytest.raises(Refusal, match=r"source src: a window of .* the limit is 1 MiB: set a shorter `window`") as refused:
        encoded("src", WindowData([Batch("g/d", "counter", 5, ("a",), zeros, zeros.astype(np.uint32), zeros)]), PART_BYTES)
    assert refused.value.when == "never"


def test_parts_are_joined_in_their_order():
    joining = Joining()
    assert [add(joining, content, part=part, parts=3) for part, content in ((2, b"c"), (0, b"a"))] == [None, None]
    assert add(joining, b"b", part=1, parts=3) == b"abc"
    assert add(joining, b"", key="another") == b""


def test_a_repeated_part_changes_nothing():
    joining = Joining()
    assert add(joining, b"1", parts=2) is None
    assert add(joining, b"9", parts=2) is None
    assert add(joining, b"2", part=1, parts=2) == b"12"
    assert add(joining, b"9", part=1, parts=2) is None
    assert (len(joining), joining.nbytes, dict(joining.dropped)) == (0, 0, {"duplicate": 1, "stale": 1})


def test_a_newer_attempt_replaces_an_older_one_and_its_late_parts():
    joining = Joining()
    add(joining, b"1", attempt=1, parts=2)
    assert add(joining, b"22", attempt=2, part=1, parts=2) is None
    assert add(joining, b"2", attempt=1, part=1, parts=2) is None
    assert add(joining, b"21", attempt=2, parts=2) == b"2122"
    assert joining.nbytes == 0


def test_windows_do_not_mix_and_those_of_a_key_are_forgotten():
    joining = Joining()
    for number in range(4):
        assert add(joining, b"%d" % number, key=number, parts=2) is None
    assert add(joining, b"+", key=3, part=1, parts=2) == b"3+"
    joining.forget(lambda key: key in {0, 3})
    assert len(joining) == 2
    assert add(joining, b"again", key=3) == b"again"
    assert [add(joining, b"+", key=number, part=1, parts=2) for number in range(3)] == [None, b"1+", b"2+"]
    joining.forget()
    assert (len(joining), joining.nbytes, joining._settled) == (0, 0, {})


def test_the_windows_that_waited_longest_are_dropped_when_all_take_too_much_memory():
    each = FRAME_OVERHEAD_BYTES + 100
    joining = Joining(3 * each)
    for number in range(5):
        add(joining, bytes(100), key=number, parts=2)
    assert [one.key for one in joining.pop_excess()] == [0, 1]
    assert (len(joining), joining.nbytes, joining.dropped["excess"]) == (3, 3 * each, 2)
    assert add(joining, b"", key=0, part=1, parts=2) is None
    assert joining.dropped["stale"] == 1
    assert add(joining, b"", key=2, part=1, parts=2) == bytes(100)


def test_a_window_that_is_too_large_is_refused_for_good_and_parts_without_bytes_are_not_free():
    joining = Joining(10 * FRAME_OVERHEAD_BYTES)
    for part in range(10):
        add(joining, b"", part=part, parts=1001)
    with pytest.raises(Refusal, match=r"a window of .* the limit is .*: set a shorter `window`") as refused:
        add(joining, b"", part=10, parts=1001)
    assert refused.value.when == "never"
    assert joining.nbytes == 11 * FRAME_OVERHEAD_BYTES
    joining.settle("w", 1)
    assert joining.nbytes == 0


def test_frames_without_bytes_are_not_free():
    joining = Joining(10 * FRAME_OVERHEAD_BYTES)
    assert joining.add("w", Head(parts=3), []) is None
    assert joining.add("w", Head(part=1, parts=3), [b""] * 9) is None
    assert joining.nbytes == 10 * FRAME_OVERHEAD_BYTES
    with pytest.raises(Refusal, match="a window of"):
        joining.add("v", Head(parts=2), [b""] * 11)


def test_the_number_of_settled_windows_is_bounded():
    joining = Joining()
    for number in range(MAX_SETTLED_WINDOWS + 10):
        add(joining, b"", key=number)
    assert len(joining._settled) == MAX_SETTLED_WINDOWS


@pytest.mark.parametrize(("part", "parts"), [(2, 2), (0, 0), (1, 3)], ids=["part beyond parts", "no parts", "another number of parts"])
def test_parts_that_contradict_themselves_or_each_other_are_malformed(part, parts):
    joining = Joining()
    add(joining, b"1", parts=2)
    with pytest.raises(Malformed, match=r"^parts: "):
        add(joining, b"9", part=part, parts=parts)
    assert add(joining, b"2", part=1, parts=2) == b"12"


def test_settling_an_older_attempt_does_not_affect_a_newer_one():
    joining = Joining()
    add(joining, b"1", attempt=5, parts=2)
    joining.settle("w", 4)
    assert add(joining, b"2", attempt=5, part=1, parts=2) == b"12"


@st.composite
def parts_in_any_order(draw):
    """Messages (key, attempt, part, parts) of some attempts at two windows, each part at least once or lost, in any order."""
    shapes = [(key, attempt, draw(st.integers(1, 3))) for key in (0, 60) for attempt in (1, 2, 3)]
    sent = [(key, attempt, part, parts) for key, attempt, parts in shapes for part in range(parts)]
    copies = draw(st.lists(st.sampled_from(sent), max_size=8))
    lost = draw(st.sets(st.sampled_from(sent), max_size=4))
    return draw(st.permutations([one for one in sent + copies if one not in lost]))


def handed_over(sequence):
    """The obvious definition: an attempt whose every part came before any part of a newer attempt at its window."""
    result = set()
    for key, attempt, _, parts in sequence:
        newer = [i for i, (s, a, _, _) in enumerate(sequence) if s == key and a > attempt]
        before = sequence[: min(newer, default=len(sequence))]
        if {part for s, a, part, _ in before if (s, a) == (key, attempt)} == set(range(parts)):
            result.add((key, attempt))
    return result


@given(parts_in_any_order())
def test_in_any_order_with_any_repetition_and_loss_whole_attempts_come_once_and_never_after_a_newer_one(sequence):
    joining = Joining()
    arrived = []
    for key, attempt, part, parts in sequence:
        content = add(joining, bytes([attempt, part]), key=key, attempt=attempt, part=part, parts=parts)
        if content is not None:
            arrived.append((key, attempt))
            assert content == b"".join(bytes([attempt, number]) for number in range(parts))
    assert set(arrived) == handed_over(sequence)
    assert len(set(arrived)) == len(arrived)
    for key in (0, 60):
        attempts = [attempt for one, attempt in arrived if one == key]
        assert attempts == sorted(attempts)
    assert joining.nbytes == sum(one.nbytes for one in joining._incomplete.values())
