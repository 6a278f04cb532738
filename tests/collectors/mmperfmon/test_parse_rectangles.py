"""What is read of an output at once must be what is read of it line by line, or nothing."""

import datetime as dt

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mmperfmon_outputs import output, stamps

from collectors.mmperfmon import parse as parser
from collectors.mmperfmon.parse_rectangles import rectangles

FIRST = dt.datetime.fromisoformat("2019-05-15T12:01:00")
KEYS = [
    "nsd1.example.gov|CPU|cpu_user",
    "nsd1.example.gov|Memory|mem_free",
    "nsd1.example.gov|Network|eth0|net_r",
    *(f"nsd1.example.gov|GPFSNSDDisk|ddn1dt{number:02}|gpfs_nsdds_bytes_read" for number in range(6)),
]
AMOUNTS = [None, 0, 7, 1023, 10**6, 123456789012]


def text(rows=11, width=80, keys=KEYS):
    columns = {key: [AMOUNTS[(n + place) % len(AMOUNTS)] for n in range(rows)] for place, key in enumerate(keys)}
    columns[keys[0]] = [round(n * 0.37, 2) for n in range(rows)]
    return output(columns, stamps(FIRST, rows), width)


def line_by_line(data):
    """What the careful way reads."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parser, "rectangles", lambda texts: [None for _ in texts])
        return parser.parse(data)


def cells(read):
    """{(legend's place, metric, stamp): value}, and what was dropped."""
    found = {}
    for table in read.tables:
        times = [table.stamps[place : place + 19] for place in range(0, len(table.stamps), 19)]
        for metric, values in zip(table.legend.metrics[table.first :], table.value.T.tolist(), strict=False):
            found |= {(metric, time): value for time, value in zip(times, values, strict=True) if value == value}  # noqa: PLR0124 - no NaN
    return found, read.dropped.counts, [legend.metrics for legend in read.legends]


@pytest.mark.parametrize("rows", [1, 2, 9, 10, 11, 100, 999])
@pytest.mark.parametrize("width", [20, 80, 133, 30000])
def test_whatever_mmperfmon_prints_is_read_at_once(rows, width):
    data = text(rows, width) + text(rows, width)
    ((first, second),) = rectangles([b"\n" + data])
    assert first.value.shape == second.value.shape == (rows, len(KEYS))
    assert cells(parser.parse(data)) == cells(line_by_line(data))


PIECES = [b"", b" ", b"0", b"7", b".", b",", b"B", b"kB", b"G", b"l", b"-", b"\n", b"\t", b"\r", b"\x0b", b"\0", b"]", b"[", b'"', b"e"]
CHANGES = st.tuples(st.integers(0, 10**6), st.integers(0, 3), st.sampled_from(PIECES))


@settings(max_examples=1500)
@given(st.lists(CHANGES, min_size=1, max_size=3), st.integers(1, 12), st.sampled_from([20, 80, 300]), st.booleans())
def test_whatever_is_done_to_an_output_both_ways_read_the_same(changes, rows, width, is_as_long):
    data = text(rows, width)
    for at, length, piece in changes:
        place = at % len(data)
        data = data[:place] + piece + data[place + (len(piece) if is_as_long else length) :]
    assert cells(parser.parse(data)) == cells(line_by_line(data))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"7.0 B", b"7.0 x"),
        (b" 7.0 B", b"7.0 BB"),
        (b"976.6 kB", b"976.6kkB"),
        (b"976.6 kB", b"976. 6kB"),
        (b"12:03:00 ", b"12:03:000"),
        (b"\n  3 ", b"\n  4 "),
        (b"    7 ", b"  7 7 "),
        (b"    7 ", b"  7,7 "),
        (b"    7 ", b"   -7 "),
        (b"    7 ", b"   7  "),
        (b"    7 ", b"    7\0"),
        (b"    7 ", b"      "),
        (b"cpu_user mem", b"cpu_user_mem"),
        (b" 2:\t", b"12:\t"),
    ],
)
def test_what_is_not_as_mmperfmon_prints_it_is_read_with_care(old, new):
    data = b"\n" + text(width=300)
    assert data.count(old)
    assert len(old) == len(new)
    assert rectangles([data.replace(old, new, 1)]) == [None]


def test_a_unit_scales_its_number_alone():
    ((table,),) = rectangles([b"\n" + text(rows=6)])
    assert table.value[:5, 1].tolist() == [0.0, 7.0, 1023.0, 976.6 * 1024, 115.0 * 1024**3]
    assert table.value[:3, 3].tolist() == [1023.0, 10.0**6, 123456789012.0]
    assert np.isnan(table.value[[5, 3], [1, 3]]).all()
