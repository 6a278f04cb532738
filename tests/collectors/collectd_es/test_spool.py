"""Samples on their way to windows: nothing lost, nothing in a window that isn't of it, and nothing left on the disk."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.collectd_es.spool import BUCKET_MILLISECONDS, Spool
from tokiod.window import Window

START = 1_513_152_000
sample = st.tuples(
    st.integers(START * 1000 - 2 * BUCKET_MILLISECONDS, START * 1000 + 4 * BUCKET_MILLISECONDS),
    st.integers(0, 2**32 - 1),
    st.floats(allow_nan=False),
)
window = st.tuples(st.integers(-700, 1300), st.integers(1, 1500)).map(lambda t: Window(START + t[0], START + t[0] + t[1]))


def columns(samples):
    time, series, value = zip(*samples, strict=True) if samples else ((), (), ())
    return np.array(time, np.int64), np.array(series, np.uint32), np.array(value, np.float64)


def within(spool, window):
    return [tuple(row) for part in spool.within(window) for row in zip(*(column.tolist() for column in part), strict=True)]


@given(st.lists(st.lists(sample, max_size=20), max_size=5), st.lists(window, max_size=4))
def test_a_window_holds_its_samples_and_no_others_in_whatever_order_they_came(parts, windows):
    spool = Spool()
    for part in parts:
        spool.add(*columns(part))
    for one in windows:
        wanted = [row for part in parts for row in part if one.start * 1000 <= row[0] < one.end * 1000]
        assert sorted(within(spool, one)) == sorted(wanted)
        assert sorted(within(spool, one)) == sorted(wanted), "asked again"
    spool.close()


def test_columns_keep_their_types():
    spool = Spool()
    spool.add(*columns([(START * 1000, 7, 0.5)]))
    ((time, series, value),) = spool.within(Window(START, START + 1))
    assert (time.dtype, series.dtype, value.dtype) == (np.int64, np.uint32, np.float64)
    spool.close()


def test_times_before_1970_have_a_place_too():
    spool = Spool()
    spool.add(*columns([(-1, 1, 1.0), (0, 2, 2.0)]))
    assert within(spool, Window(0, 60)) == [(0, 2, 2.0)]
    spool.close()


def test_nothing_is_to_be_found_on_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    spool = Spool()
    spool.add(*columns([(START * 1000, 7, 0.5)]))
    assert list(tmp_path.iterdir()) == []
    spool.close()


def test_a_full_disk_is_an_error():
    spool = Spool()
    spool._file.close()
    with Path("/dev/full").open("r+b", buffering=0) as spool._file, pytest.raises(OSError, match="No space left"):
        spool.add(*columns([(START * 1000, 7, 0.5)]))
