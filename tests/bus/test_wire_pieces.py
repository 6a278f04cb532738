"""A window in messages: they are decoded as they were encoded, whole rows without times and columns."""

import numpy as np

from tokiod.batch import Batch, Rows
from tokiod.bus import wire
from tokiod.bus.wire import pieces
from tokiod.window import Window
from tokiod.window_data import Collected, WindowMeta

NAMES = tuple(f"OST{i:04x}" for i in range(6))
TIME = np.repeat(np.arange(60, 120, 5), 6)
COLUMN = np.tile(np.arange(6, dtype=np.uint32), 12)


def batch(dataset, time=TIME, column=COLUMN, step=5, names=NAMES):
    return Batch(f"datatargets/{dataset}", "gauge", step, names, time, column, np.arange(float(len(time))))


def sent(*batches):
    """Return the number of frames of each message, and what is in them."""
    frames = [[bytes(frame) for frame in one] for one in pieces(Collected(WindowMeta("fs-lmt", "lmt", "fs", Window(60, 120)), batches), 7)]
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
