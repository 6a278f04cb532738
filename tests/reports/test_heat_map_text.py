"""The terminal's map: width and height, missing unlike zero, and the words that state units, fold and scale."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mapped import mapped

from tokiod.reports.heat_map_text import draw_text

NAN = np.nan


def lines(shown, width=80, height=20, clip=99.5):
    return draw_text(shown, width, height, clip).plain.splitlines()


def test_a_map_shows_missing_unlike_zero_and_states_what_it_draws():
    values = np.full((24, 2), NAN)
    values[:8], values[8:12, 0], values[12:16] = 0.0, 2**30, 5 * 2**20
    assert lines(mapped(values)) == [
        "fs datatargets/readbytes",
        "2018-01-29 00:00 to 2018-01-30 00:00 PST",
        "                                       mean",
        "sum     ........    @@@@         3.33 MiB/s",
        "OST0000 ........@@@@....          257 MiB/s",
        "OST0001 ........    ....         1.67 MiB/s",
        "missing         ----    xxxxxxxx",
        "        00:00       12:00",
        "cells: '.' 0 B/s to '@' 1 GiB/s",
        "sum: '.' 0 B/s to '@' 10 MiB/s",
        "sum: complete rows only; 2 of 2 components report",
        "drawn: mean of rows of 3600 s; largest cell 1 GiB/s, largest sum 10 MiB/s",
        "blank: no value; missing: - some cells, x all",
    ]


def test_a_clipped_scale_is_stated():
    values = np.ones((1000, 1))
    values[500] = 2**40
    shown = lines(mapped(values, step=60), clip=99.5)
    assert shown[-5] == "cells: '.' 0 B/s to '@' 1 B/s (99.5th percentile above zero)"
    assert shown[-2].endswith("largest cell 1 TiB/s, largest sum 1 TiB/s")


def test_percentages_have_means_only():
    shown = lines(mapped([[10.0, 30.0]], "%"))
    assert (shown[2].split(), shown[3].split()[0], shown[3].split()[-2:]) == (["mean"], "mean", ["20", "%"])
    assert shown[-5] == "cells: '.' 0 % to '@' 100 %"


def test_a_maximum_is_named_so():
    shown = lines(mapped([[1.0, 9.0], [5.0, 2.0]], how="max"))
    assert (shown[2].strip(), [line.split()[-2] for line in shown[3:6]]) == ("max", ["10", "5", "9"])


@pytest.mark.parametrize("width", [0, 8, 20, 24])
def test_a_map_keeps_its_least_width_in_a_narrower_terminal(width):
    found = lines(mapped([[1.0, 9.0]] * 40), width)
    assert found[4:6] == ["OST0000 " + ":" * 16 + "  1 B/s", "OST0001 " + "@" * 16 + "  9 B/s"]


@given(st.integers(1, 300), st.integers(1, 60), st.integers(60, 120), st.integers(3, 30), st.integers(0, 2**32))
@settings(max_examples=50)
def test_a_map_keeps_to_its_width_and_height_and_to_plain_characters(rows, columns, width, height, seed):
    chance = np.random.default_rng(seed)
    values = np.where(
        chance.random((rows, columns)) < chance.random(), NAN, chance.integers(0, 2 ** chance.integers(1, 60), (rows, columns))
    )
    shown = lines(mapped(values, step=60), width, height)
    assert len(shown) <= height + 11
    assert max(map(len, shown[2:-5])) <= width
    assert max(map(len, shown[-5:])) <= 80
    assert all(line.isascii() and line.isprintable() for line in shown)


def test_shades_have_a_background_of_their_own_for_light_and_dark_terminals():
    text = draw_text(mapped([[0.0], [1.0]]), 80, 20, 99.5)
    assert {span.style for span in text.spans} == {"white on #440154", "black on #fde725"}
