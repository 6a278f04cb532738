"""For any order, split, repetition and attempts of pieces: each attempt is returned complete, once, and never after a newer one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokiod.batch import Batch
from tokiod.bus.header import Header, Piece
from tokiod.bus.reassembly import MAX_SETTLED_WINDOWS, NAME_OVERHEAD_BYTES, PIECE_OVERHEAD_BYTES, Reassembly
from tokiod.errors import Malformed, Refusal
from tokiod.window import Window


def batch(mark, cells=1, dataset=None):
    return Batch(
        dataset or f"g/{mark}", "gauge", 1, ("a",), np.zeros(cells, np.int64), np.zeros(cells, np.uint32), np.full(cells, float(mark))
    )


def header(start=0, attempt=1, part=0, parts=1, source="src", system="s", kind="lmt", end=None):
    return Header(1, system, piece=Piece(source, kind, start, start + 60 if end is None else end, attempt, part, parts))


def marks(arrived):
    return [b.value.tolist() for b in arrived.collected.batches]


def test_a_window_of_one_piece_is_complete_at_once():
    arrived = Reassembly(10**6).add(b"p", header(), batch(7))
    assert (arrived.peer, arrived.piece.attempt) == (b"p", 1)
    assert (arrived.collected.meta.system, arrived.collected.meta.source, arrived.collected.meta.kind) == ("s", "src", "lmt")
    assert arrived.collected.meta.window == Window(0, 60)
    assert marks(arrived) == [[7.0]]


def test_a_window_has_the_metadata_of_its_collector():
    message = Header(1, "s", piece=Piece("src", "lmt", 0, 60, 1, 0, 1, records=12, dropped={"null": 2}))
    collected = Reassembly(10**6).add(b"p", message, None).collected
    assert (collected.meta.records, collected.meta.dropped) == (12, {"null": 2})


def test_a_window_without_data_has_no_batches():
    assert Reassembly(10**6).add(b"p", header(), None).collected.batches == []


def test_batches_are_in_the_order_of_their_parts():
    reassembly = Reassembly(10**6)
    assert [reassembly.add(b"p", header(part=part, parts=3), batch(part)) for part in (2, 0)] == [None, None]
    assert marks(reassembly.add(b"p", header(part=1, parts=3), batch(1))) == [[0.0], [1.0], [2.0]]


def test_a_repeated_piece_changes_nothing():
    reassembly = Reassembly(10**6)
    assert reassembly.add(b"p", header(part=0, parts=2), batch(1)) is None
    assert reassembly.add(b"p", header(part=0, parts=2), batch(9)) is None
    assert marks(reassembly.add(b"p", header(part=1, parts=2), batch(2))) == [[1.0], [2.0]]
    assert reassembly.add(b"p", header(part=1, parts=2), batch(9)) is None
    assert (len(reassembly), reassembly.nbytes, dict(reassembly.dropped)) == (0, 0, {"duplicate": 1, "stale": 1})


def test_a_newer_attempt_replaces_an_older_one_and_its_late_pieces():
    reassembly = Reassembly(10**6)
    reassembly.add(b"p", header(attempt=1, part=0, parts=2), batch(1))
    assert reassembly.add(b"p", header(attempt=2, part=1, parts=2), batch(22)) is None
    assert reassembly.add(b"p", header(attempt=1, part=1, parts=2), batch(2)) is None
    assert marks(reassembly.add(b"p", header(attempt=2, part=0, parts=2), batch(21))) == [[21.0], [22.0]]
    assert reassembly.nbytes == 0


def test_windows_sources_and_connections_do_not_mix():
    reassembly = Reassembly(10**6)
    keys = [(peer, source, start) for peer in (b"p", b"q") for source in ("x", "y") for start in (0, 60)]
    for number, (peer, source, start) in enumerate(keys):
        assert reassembly.add(peer, header(start, source=source, part=0, parts=2), batch(number)) is None
    for number, (peer, source, start) in enumerate(keys):
        assert marks(reassembly.add(peer, header(start, source=source, part=1, parts=2), None)) == [[float(number)]]


def test_a_forgotten_connection_loses_its_pieces_and_its_settled_windows():
    reassembly = Reassembly(10**6)
    reassembly.add(b"p", header(0), None)
    reassembly.add(b"p", header(60, parts=2), batch(1))
    reassembly.add(b"q", header(60, parts=2), batch(2))
    reassembly.forget(b"p")
    assert len(reassembly) == 1
    assert reassembly.add(b"p", header(0), None) is not None
    assert marks(reassembly.add(b"q", header(60, part=1, parts=2), batch(3))) == [[2.0], [3.0]]


def test_the_windows_that_waited_longest_are_dropped_when_all_take_too_much_memory():
    each = PIECE_OVERHEAD_BYTES + NAME_OVERHEAD_BYTES + 1 + batch(0, cells=100).nbytes
    reassembly = Reassembly(3 * each)
    for number in range(5):
        reassembly.add(b"p", header(number * 60, parts=2), batch(number, cells=100))
    assert [partial.meta.window.start for partial in reassembly.pop_excess()] == [0, 60]
    assert (len(reassembly), reassembly.nbytes, reassembly.dropped["excess"]) == (3, 3 * each, 2)
    assert reassembly.add(b"p", header(0, part=1, parts=2), batch(0)) is None
    assert reassembly.dropped["stale"] == 1
    assert reassembly.add(b"p", header(120, part=1, parts=2), batch(0)) is not None


def test_a_window_that_is_too_large_is_refused_for_good_and_pieces_without_cells_are_not_free():
    reassembly = Reassembly(10 * PIECE_OVERHEAD_BYTES)
    for part in range(10):
        reassembly.add(b"p", header(part=part, parts=1001), None)
    with pytest.raises(Refusal, match=r"source src: a window of .* the limit is .*: set a shorter `window`") as refused:
        reassembly.add(b"p", header(part=10, parts=1001), None)
    assert refused.value.when == "never"
    assert reassembly.nbytes == 11 * PIECE_OVERHEAD_BYTES


def test_names_and_reasons_of_pieces_without_cells_are_not_free_and_shared_names_count_once():
    def nameless(names):
        return Batch("g/d", "gauge", 1, names, np.zeros(0, np.int64), np.zeros(0, np.uint32), np.zeros(0))

    reassembly = Reassembly(10**6)
    shared = tuple(f"{number:04}" for number in range(1000))
    for part in range(3):
        reassembly.add(b"p", header(part=part, parts=1001), nameless(shared))
    names_bytes = 1000 * (4 + NAME_OVERHEAD_BYTES)
    assert reassembly.nbytes == 3 * PIECE_OVERHEAD_BYTES + names_bytes
    reasons = Header(1, "s", piece=Piece("src", "lmt", 60, 120, 1, 0, 2, dropped=dict.fromkeys(shared, 1)))
    reassembly.add(b"p", reasons, None)
    assert reassembly.nbytes == 4 * PIECE_OVERHEAD_BYTES + 2 * names_bytes
    others = tuple(f"{number:04}" for number in range(10_000))
    with pytest.raises(Refusal, match="a window of"):
        reassembly.add(b"p", header(part=3, parts=1001), nameless(others))
    reassembly.settle(b"p", header().piece)
    assert reassembly.nbytes == PIECE_OVERHEAD_BYTES + names_bytes


def test_pieces_of_a_batch_come_out_as_one():
    reassembly = Reassembly(10**6)
    assert reassembly.add(b"p", header(part=1, parts=3), batch(2, cells=2, dataset="g/d")) is None
    assert reassembly.add(b"p", header(part=2, parts=3), batch(3)) is None
    arrived = reassembly.add(b"p", header(part=0, parts=3), batch(1, dataset="g/d"))
    assert marks(arrived) == [[1.0, 2.0, 2.0], [3.0]]


def test_the_number_of_settled_windows_is_bounded():
    reassembly = Reassembly(10**6)
    for number in range(MAX_SETTLED_WINDOWS + 10):
        reassembly.add(b"p", header(number * 60), None)
    assert len(reassembly._settled) == MAX_SETTLED_WINDOWS


@pytest.mark.parametrize(
    ("second", "reason"),
    [
        pytest.param(Header(1, "s"), "piece", id="no piece"),
        pytest.param(header(part=2, parts=2), "parts", id="part beyond parts"),
        pytest.param(header(part=0, parts=0), "parts", id="no parts"),
        pytest.param(header(end=0), "window", id="an empty window"),
        pytest.param(header(start=120, end=60), "window", id="a window that ends before it starts"),
        pytest.param(header(part=1, parts=3), "parts", id="another number of parts"),
        pytest.param(header(part=1, parts=2, system="t"), "parts", id="another system"),
        pytest.param(header(part=1, parts=2, kind="esnet"), "parts", id="another kind"),
    ],
)
def test_pieces_that_contradict_themselves_or_each_other_are_malformed(second, reason):
    reassembly = Reassembly(10**6)
    reassembly.add(b"p", header(part=0, parts=2), batch(1))
    with pytest.raises(Malformed) as caught:
        reassembly.add(b"p", second, batch(2))
    assert caught.value.reason == reason
    assert marks(reassembly.add(b"p", header(part=1, parts=2), batch(3))) == [[1.0], [3.0]]


def test_settling_an_older_attempt_does_not_affect_a_newer_one():
    reassembly = Reassembly(10**6)
    reassembly.add(b"p", header(attempt=5, parts=2), batch(1))
    reassembly.settle(b"p", header(attempt=4).piece)
    assert marks(reassembly.add(b"p", header(attempt=5, part=1, parts=2), batch(2))) == [[1.0], [2.0]]


@st.composite
def pieces_in_any_order(draw):
    """Messages (start, attempt, part, parts) of some attempts at two windows, each piece at least once or lost, in any order."""
    shapes = [(start, attempt, draw(st.integers(1, 3))) for start in (0, 60) for attempt in (1, 2, 3)]
    pieces = [(start, attempt, part, parts) for start, attempt, parts in shapes for part in range(parts)]
    copies = draw(st.lists(st.sampled_from(pieces), max_size=8))
    lost = draw(st.sets(st.sampled_from(pieces), max_size=4))
    return draw(st.permutations([piece for piece in pieces + copies if piece not in lost]))


def handed_over(sequence):
    """The obvious definition: an attempt whose every part came before any piece of a newer attempt at its window."""
    result = set()
    for start, attempt, _, parts in sequence:
        newer = [i for i, (s, a, _, _) in enumerate(sequence) if s == start and a > attempt]
        before = sequence[: min(newer, default=len(sequence))]
        if {part for s, a, part, _ in before if (s, a) == (start, attempt)} == set(range(parts)):
            result.add((start, attempt))
    return result


@given(pieces_in_any_order())
def test_in_any_order_with_any_repetition_and_loss_whole_attempts_come_once_and_never_after_a_newer_one(sequence):
    reassembly = Reassembly(10**6)
    arrived = [
        reassembly.add(b"p", header(start, attempt, part, parts), batch(attempt * 10 + part)) for start, attempt, part, parts in sequence
    ]
    arrived = [one for one in arrived if one]
    found = [(one.collected.meta.window.start, one.piece.attempt) for one in arrived]
    assert set(found) == handed_over(sequence)
    assert len(set(found)) == len(found)
    for start in (0, 60):
        attempts = [attempt for s, attempt in found if s == start]
        assert attempts == sorted(attempts)
    for one in arrived:
        assert marks(one) == [[one.piece.attempt * 10.0 + part] for part in range(len(one.collected.batches))]
    assert reassembly.nbytes == sum(partial.nbytes for partial in reassembly._partial.values())
