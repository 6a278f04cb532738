"""The kept samples suffice: the next day's first sample closes the last cell as with all of raw."""

import os
from contextlib import contextmanager

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tokiod.tts.counters.deltas import Deltas
from tokiod.tts.counters.deltas import day as every_cell
from tokiod.tts.live.files import REAL
from tokiod.tts.live.matrix import CELL_BYTES, Matrix, OpenFile
from tokiod.tts.schema import ABSENT, NO_ROW
from tokiod.tts.sealed.kept_samples import edges, fill_raw, fill_span
from tokiod.tts.sealed.restore_raw import RestoredRaw

ROWS = 40
WIDTH = 3
SAMPLES = st.one_of(st.just(ABSENT), st.just(0), st.integers(1, 6), st.integers(0, 2**62))


@contextmanager
def matrix(directory, name, content, dtype=np.int64):
    fd = os.open(directory / name, os.O_RDWR | os.O_CREAT)
    try:
        os.pwrite(fd, b"\0" * content.size * CELL_BYTES, 0)
        made = Matrix(OpenFile(fd, REAL, dirty=True), 0, len(content), tuple(map(str, range(content.shape[1]))), dtype)
        made.write_rows(0, content)
        yield made
    finally:
        os.close(fd)


def span_of(raw):
    """The span of a live file: rows of the first nonzero sample after the first guard, and of the last of the day."""
    nonzero, sampled = raw[1:] > 0, raw[1:-1] >= 0
    first = np.where(nonzero.any(axis=0), 1 + nonzero.argmax(axis=0), NO_ROW)
    last = np.where(sampled.any(axis=0), len(raw) - 2 - sampled[::-1].argmax(axis=0), NO_ROW)
    return np.stack([first, last])


def kept(directory, raw, cells):
    """Raw as it is in a file that was sealed and unsealed, and its kept samples."""
    order = np.arange(raw.shape[1])[::-1].copy()
    span, filled = matrix(directory, "span", span_of(raw)), matrix(directory, "cells", cells, np.float64)
    with matrix(directory, "raw", raw) as live, span as ends, filled as numbers:
        found, proved = edges(numbers, live, ends, order)
    again, restored = np.full_like(raw, ABSENT), RestoredRaw(cells[:, order], found, proved)
    for start in range(0, len(raw), 7):
        restored.fill(start, again[start : start + 7])
    fill_raw(found, 0, again)
    span = np.full((2, raw.shape[1]), NO_ROW)
    fill_span(found, len(raw), span)
    assert (span == span_of(raw)[:, order]).all()
    return again[:, np.argsort(order)], found


def closing(raw, sample):
    """The last cell of a day that is closed by a sample of the next day."""
    deltas = Deltas(raw[0])
    deltas.feed(raw[1:-1])
    deltas.end_of_day(raw[1:-1].max(axis=0) >= 0)
    return deltas.feed(sample[np.newaxis])[0]


def days(rows):
    return st.lists(st.lists(SAMPLES, min_size=WIDTH, max_size=WIDTH), min_size=rows, max_size=rows)


DIP = [[*[ABSENT] * 34, 50, 60, 65, 65, 21, 70], [0] * ROWS, [*[3] * 38, 0, 9]]


@pytest.mark.parametrize("rows", [3, 4, 5, 6, 9, ROWS])
def test_the_next_days_first_sample_makes_what_it_made(tmp_path_factory, rows):
    directory = tmp_path_factory.mktemp("edges")

    @settings(max_examples=400, deadline=None)
    @given(days(rows), st.lists(SAMPLES, min_size=WIDTH, max_size=WIDTH))
    def play(day, after):
        raw, sample = np.array(day, np.int64), np.array(after, np.int64)
        cells = every_cell(raw)
        again, found = kept(directory, raw, cells)
        assert (closing(again, sample).view(np.int64) == closing(raw, sample).view(np.int64)).all()
        assert (kept(directory, again, cells)[1] == found).all()
        closed = np.zeros(raw.shape, bool)
        closed[2:] = cells.view(np.int64) != ABSENT
        assert (again[closed] == raw[closed]).all()
        assert ((again == raw) | (again == ABSENT)).all()

    if rows == ROWS:
        play = example(np.array(DIP).T.tolist(), [70, 5, 9])(play)
    play()


def test_of_a_column_that_rises_no_more_is_kept_than_its_ends(tmp_path):
    raw = np.arange(1, 31).reshape(10, 3)
    assert sorted(set(kept(tmp_path, raw, every_cell(raw))[1][0].tolist())) == [0, 1, 8, 9]
