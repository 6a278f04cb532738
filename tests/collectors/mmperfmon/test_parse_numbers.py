"""Numbers in columns of a text, against Python's float()."""

import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.mmperfmon.parse_legend import UNITS
from collectors.mmperfmon.parse_numbers import PADDING, right_aligned

WELL_FORMED = re.compile(r" *(null|\d+(\.\d+)?(( [kMGTP]?B)| KB)?)")


def parsed(cells, widths):
    """Parse lines of cells with a blank before each column; return values and whether each is well-formed, as lists of lines."""
    lines = [" " + " ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)) + " \n" for line in cells]
    text = "".join(lines).encode()
    memory = np.frombuffer(b"7" * PADDING + text + b"7" * PADDING, np.uint8)
    ends = np.cumsum(np.array(widths) + 1)
    begins = PADDING + np.arange(len(lines)) * len(lines[0])
    found = right_aligned(memory, begins, ends - widths, ends)
    return found.value.T.tolist(), np.broadcast_to(found.is_valid, found.value.shape).T.tolist()


def expected(cell):
    """What a cell means; None if it is malformed, or longer than these numbers may be."""
    if not WELL_FORMED.fullmatch(cell):
        return None
    number, _, unit = cell.strip().partition(" ")
    digits = number.replace(".", "")
    if number == "null":
        return math.nan
    if len(number) > 16 or int(digits) >= 2**53 or len(number.partition(".")[2]) > 7:
        return None
    return float(number) * UNITS[unit.encode()] if unit else float(number)


NUMBERS = (
    st.integers(0, 10**18).map(str)
    | st.integers(0, 10**9).map(str)
    | st.decimals(0, 10**8, places=2).map(str)
    | st.decimals(0, 10**3, places=7).map(lambda number: f"{number:f}")
)
CELLS = (
    NUMBERS
    | st.just("null")
    | st.builds("{} {}".format, NUMBERS, st.sampled_from([unit.decode() for unit in UNITS]))
    | st.text("0189.-+ eEnulBkKMG\t", max_size=9)
)


@settings(max_examples=1000)
@given(st.integers(1, 3).flatmap(lambda width: st.lists(st.lists(CELLS, min_size=width, max_size=width), min_size=1, max_size=6)))
def test_a_cell_is_what_float_reads_of_it_or_malformed(cells):
    widths = [max(1, *map(len, column)) for column in zip(*cells, strict=True)]
    values, are_valid = parsed(cells, widths)
    for line, row, is_valid in zip(cells, values, are_valid, strict=True):
        for cell, value, is_one in zip(line, row, is_valid, strict=True):
            wanted = expected(cell)
            if is_one:
                assert wanted is not None, cell
                assert value == wanted or (math.isnan(value) and math.isnan(wanted)), cell
            else:
                # A number with more than one line's width of blanks before its unit, or with such a length, is read with care.
                assert wanted is None or " " in cell.strip() or math.isnan(wanted) or "." in cell, cell


@pytest.mark.parametrize("width", [1, 3, 7, 8, 9, 15, 16, 17, 21, 24, 25, 33, 60])
@pytest.mark.parametrize("shift", range(9))
def test_numbers_of_each_length_are_read_in_columns_of_each_width(width, shift):
    numbers = [str(int("1234567890123456"[:length]) + shift) for length in range(1, min(width, 15) + 1)]
    numbers += [f"{number[:place]}.{number[place:]}" for number in numbers for place in range(1, len(number)) if len(number) - place < 8]
    cells = [[number, number[::-1]] for number in numbers if len(number) <= width and not number.endswith("0") and number[-2:-1] != "."]
    values, are_valid = parsed(cells, [width, width])
    for line, row, is_valid in zip(cells, values, are_valid, strict=True):
        assert (row[0], is_valid[0]) == (float(line[0]), True)
        assert not is_valid[1] or row[1] == float(line[1])


@pytest.mark.parametrize(
    "cell", ["", ".", "1.", ".5", "1.2.3", "1 2", "-1", "+1", "1e5", "0x1", "7 x", "7 BB", "7kB", "1\t", "\t1", "nul", "nullnull", "1null"]
)
def test_what_is_no_number_is_malformed(cell):
    _, are_valid = parsed([["1", cell, "2"], ["1", "3", "2"]], [3, 12, 3])
    assert are_valid == [[True, False, True], [True, True, True]]


def test_a_number_as_long_as_its_column_ends_at_its_blank():
    assert parsed([["12345678", "87654321"]], [8, 8]) == ([[12345678.0, 87654321.0]], [[True, True]])
    assert parsed([["1234567890123456", "1"]], [16, 1]) == ([[1234567890123456.0, 1.0]], [[True, True]])


def test_numbers_that_a_float_does_not_hold_are_left_to_others():
    _, are_valid = parsed([[str(2**53 - 1), str(2**53)]], [20, 20])
    assert are_valid == [[True, False]]
