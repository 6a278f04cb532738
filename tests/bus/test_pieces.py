"""A window in messages: they are decoded as they were encoded, whole rows without times and columns."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokiod.batch import Batch, Rows, even_rows
from tokiod.bus import pieces as bus_pieces
from tokiod.bus import wire
from tokiod.bus.pieces import joined, pieces
from tokiod.errors import Malformed
from tokiod.window import Window
from tokiod.window_data import Collected, WindowMeta

META = WindowMeta("fs-lmt", "lmt", "fs", Window(60, 120))
NAMES = tuple(f"OST{i:04x}" for i in range(6))
TIME = np.repeat(np.arange(60, 120, 5), 6)
COLUMN = np.tile(np.arange(6, dtype=np.uint32), 12)


def batch(dataset, time=TIME, column=COLUMN, step=5, names=NAMES):
    return Batch(f"datatargets/{dataset}", "gauge", step, names, time, column, np.arange(float(len(time))))


def sent(*batches):
    """Return the number of frames of each message, and what is in them."""
    frames = [[bytes(frame) for frame in one] for one in pieces(Collected(META, batches), 7)]
    back = [wire.decode(one) for one in frames]
    for place, (header, _) in enumerate(back):
        assert (header.piece.part, header.piece.parts, header.piece.attempt) == (place, max(1, len(batches)), 7)
    return [len(one) for one in frames], [one for _, one in back]


def plain(one):
    return one.dataset, one.step, one.columns, one.time.tolist(), one.column.tolist(), one.value.tolist()


def test_whole_rows_need_no_times_and_columns_also_after_a_batch_with_the_same_ones():
    batches = [
        batch("reads"),
        batch("writes"),
        batch("three", names=NAMES[:3], column=COLUMN % 3),
        batch("same_arrays_of_other_rows", step=10),
        batch("same_arrays_of_more_columns", names=(*NAMES, "OST0006")),
        batch("copied", TIME.copy(), COLUMN.copy()),
        batch("a_hole", TIME[1:], COLUMN[1:]),
        batch("nothing", TIME[:0], COLUMN[:0]),
        batch("again"),
    ]
    lengths, back = sent(*batches)
    assert lengths == [4, 4, 6, 6, 6, 4, 6, 6, 4]
    assert [plain(one) for one in back] == [plain(one) for one in batches]
    assert [one.rows for one in back] == [Rows(60, 12) if length == 4 else None for length in lengths]


def test_a_window_without_data_is_one_message_of_two_frames():
    assert sent() == ([2], [None])


@st.composite
def batches_of_any_shape(draw):
    """One dataset's batch: whole rows, or any of their samples in any order; with short and long names."""
    width, height = draw(st.integers(1, 12)), draw(st.integers(1, 12))
    names = tuple(f"{index}{'x' * draw(st.sampled_from([1, 5, 30]))}" for index in range(width))
    time = np.repeat(60 + 5 * np.arange(height), width)
    column = np.tile(np.arange(width, dtype=np.uint32), height)
    if draw(st.booleans()):
        order = np.array(draw(st.permutations(range(len(time)))), dtype=int)[: draw(st.integers(0, len(time)))]
        time, column = time[order], column[order]
    form = draw(st.sampled_from(["gauge", "counter"]))
    value = np.arange(len(time)) + 7
    return Batch("datatargets/d", form, 5, names, time, column, value.astype(float) if form == "gauge" else value)


def cells(batch):
    columns = [batch.columns[index] for index in batch.column.tolist()]
    return sorted(zip(batch.time.tolist(), columns, batch.value.tolist(), strict=True))


@given(batches_of_any_shape(), st.integers(1, 60), st.integers(40, 200))
def test_pieces_of_any_batch_keep_the_limits_and_are_joined_to_the_same_batch(batch, most_cells, most_bytes):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bus_pieces, "MAX_PIECE_CELLS", most_cells)
        patch.setattr(bus_pieces, "MAX_FRAME_BYTES", most_bytes)
        bus_pieces._column_groups.cache_clear()
        messages = [[bytes(frame) for frame in one] for one in pieces(Collected(META, [batch]), 7)]
        bus_pieces._column_groups.cache_clear()
    decoded = [wire.decode(one) for one in messages]
    assert [header.piece.part for header, _ in decoded] == list(range(decoded[0][0].piece.parts))
    assert all(len(one) <= most_cells and len(frames[2]) <= most_bytes for frames, (_, one) in zip(messages, decoded, strict=True))
    (back,) = joined(one for _, one in decoded)
    assert (back.dataset, back.form, back.step, back.columns) == (batch.dataset, batch.form, batch.step, batch.columns)
    assert cells(back) == cells(batch)
    if len({one.columns for _, one in decoded}) == 1:
        assert plain(back) == plain(batch)
        assert back.rows == even_rows(batch)


def test_pieces_of_one_dataset_that_name_a_column_twice_are_malformed():
    one, two = batch("reads", names=NAMES), batch("reads", names=("OST0005", *"abcde"))
    with pytest.raises(Malformed, match="a column of datatargets/reads is in two pieces"):
        joined([one, two])
