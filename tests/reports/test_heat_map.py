"""The drawing shows the cells: means over the values, sums, the site's times, missing cells unlike zeros."""

import datetime as dt
import re
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tokiod.reports.heat_map import HeatMap, downsample, draw_figure, draw_text, format_amount

NAN = np.nan
EPOCH = 1_517_212_800
"""2018-01-29T00:00 in Los Angeles."""


def picture(values, units="bytes", *, is_amount=True, step=3600, zone="America/Los_Angeles", start=EPOCH):
    values = np.array(values, float)
    columns = tuple(f"OST{i:04x}" for i in range(values.shape[1]))
    return HeatMap("day: datatargets/readbytes", units, start, step, columns, values, ZoneInfo(zone), is_amount)


def lines(shown, width=80, height=24):
    return draw_text(shown, width, height).plain.splitlines()


cells = st.one_of(st.just(NAN), st.integers(0, 9).map(float))


@given(arrays(float, st.tuples(st.integers(1, 12), st.integers(1, 12)), elements=cells), st.integers(1, 6), st.integers(1, 6))
def test_a_downsampled_cell_is_the_mean_of_its_cells_and_missing_only_where_all_are(values, rows, columns):
    rows, columns = min(rows, values.shape[0]), min(columns, values.shape[1])
    found = downsample(values, rows, values.shape[1])
    edges = [i * len(values) // rows for i in range(rows)] + [len(values)]
    for i, j in np.ndindex(found.shape):
        there = [value for value in values[edges[i] : edges[i + 1], j] if not np.isnan(value)]
        np.testing.assert_allclose(found[i, j], np.mean(there) if there else NAN)
    assert downsample(values, rows, columns).shape == (rows, columns)
    np.testing.assert_array_equal(np.isnan(downsample(values, 1, 1)).all(), np.isnan(values).all())


@pytest.mark.parametrize(
    ("units", "is_amount", "above", "right"),
    [("bytes", True, [1, 7, NAN], [5, 3]), ("bytes/sec", False, [1, 7, NAN], [2.5, 3]), ("%", False, [1, 3.5, NAN], [2.5, 3])],
)
def test_sums_leave_out_missing_cells_and_values_that_are_no_amounts_have_means(units, is_amount, above, right):
    shown = picture([[1, NAN], [4, 3], [NAN, NAN]], units, is_amount=is_amount)
    np.testing.assert_array_equal(shown.over_time, above)
    np.testing.assert_array_equal(shown.of_columns, right)


def test_a_terminals_map_shows_missing_unlike_zero_and_the_largest_unlike_all_others():
    values = np.full((24, 2), NAN)
    values[:8, 0], values[8:12, 0], values[12:16, 1] = 0.0, 2**30, 5 * 2**20
    shown = lines(picture(values))
    assert shown[2] == "OST0000 ........@@@@" + " " * 13 + " 4 GiB"
    assert shown[3] == "OST0001 " + " " * 12 + "...." + " " * 9 + "20 MiB"
    assert shown[5] == "'.' 0 B to '@' 1 GiB in 3600 s, blank: missing"
    assert shown[4].split() == ["00:00", "12:00", "PST"]


@pytest.mark.parametrize("width", [0, 8, 20, 24])
def test_a_map_keeps_its_least_width_in_a_narrower_terminal(width):
    found = lines(picture([[1.0, 9.0]] * 40), width)
    assert found[2:4] == ["OST0000 " + ":" * 16 + "  40 B", "OST0001 " + "@" * 16 + " 360 B"]


@given(st.integers(1, 300), st.integers(1, 60), st.integers(60, 120), st.integers(3, 30), st.integers(0, 2**32))
@settings(max_examples=50)
def test_a_terminals_map_keeps_to_its_width_and_height_and_to_plain_characters(rows, columns, width, height, seed):
    chance = np.random.default_rng(seed)
    values = np.where(
        chance.random((rows, columns)) < chance.random(), NAN, chance.integers(0, 2 ** chance.integers(1, 60), (rows, columns))
    )
    shown = lines(picture(values, step=60), width, height)
    assert len(shown) <= height + 4
    assert max(map(len, shown[1:-2])) <= width
    assert all(line.isascii() and line.isprintable() for line in shown)


@pytest.mark.parametrize(
    ("start", "rows", "labels"),
    [
        (EPOCH, 24, ["00:00", "06:00", "12:00", "18:00", "00:00"]),
        (1_541_314_800, 25, ["00:00", "11:00", "23:00"]),  # an autumn's day of 25 hours
        (EPOCH + 1800, 24, ["06:00", "12:00", "18:00", "00:00"]),
    ],
)
def test_times_are_the_sites(start, rows, labels):
    shown = picture(np.zeros((rows, 1)), start=start)
    ticks = list(shown.times(4))
    assert [text for _, text in ticks] == labels
    for place, text in ticks:
        assert dt.datetime.fromtimestamp(start + place * 3600, shown.zone).strftime("%H:%M") == text


@pytest.mark.parametrize(
    ("value", "units", "text"),
    [
        (0, "bytes", "0 B"),
        (1536, "bytes", "1.5 KiB"),
        (3 * 2**40, "bytes", "3 TiB"),
        (1024, "KiB", "1 MiB"),
        (2_500_000, "ops", "2.5 Mops"),
        (12.34, "%", "12.3 %"),
        (2**20, "bytes/sec", "1 MiB/sec"),
        (NAN, "bytes", "-"),
        (3, "", "3"),
    ],
)
def test_an_amount_is_written_with_its_prefix(value, units, text):
    assert format_amount(value, units) == text


def test_the_figure_holds_the_cells_masked_where_missing_with_units_on_every_axis_label():
    pytest.importorskip("matplotlib")
    values = np.array([[1.0, NAN], [0.0, 4.0], [NAN, NAN]])
    above, main, right, scale = draw_figure(picture(values)).axes
    (image,) = main.images
    held = image.get_array()
    np.testing.assert_array_equal(held.filled(-1), [[1, 0, -1], [-1, 4, -1]])
    (stairs,) = above.patches
    np.testing.assert_array_equal(stairs.get_data().values, [1, 4, NAN])
    assert [bar.get_width() for bar in right.patches] == [1, 4]
    assert (scale.get_ylabel(), above.get_ylabel(), right.get_xlabel()) == ("bytes in 3600 s", "sum\nbytes in 3600 s", "sum\nbytes")
    assert (main.get_xlabel(), [text.get_text() for text in main.get_yticklabels()]) == ("2018-01-29 PST", ["OST0000", "OST0001"])
    assert main.patch.get_hatch() == "////"


def test_a_picture_in_a_file_shows_missing_zero_and_largest_in_different_colours(tmp_path):
    pytest.importorskip("matplotlib")
    from matplotlib.image import imread  # noqa: PLC0415 - an extra

    values = np.zeros((30, 3))
    values[:, 0], values[:, 2] = NAN, 1.0
    figure = draw_figure(picture(values))
    figure.savefig(tmp_path / "x.png", dpi=100)
    main = figure.axes[1]
    pixels = imread(tmp_path / "x.png")[..., :3]
    places = [main.transData.transform((15.5, column)) for column in (0, 1, 2)]
    around = [pixels[int(len(pixels) - y) - 8 : int(len(pixels) - y) + 8, int(x) - 8 : int(x) + 8].reshape(-1, 3) for x, y in places]
    np.testing.assert_allclose(around[1], np.tile((0x44 / 255, 0x01 / 255, 0x54 / 255), (256, 1)), atol=0.01)
    np.testing.assert_allclose(around[2], np.tile((0xFD / 255, 0xE7 / 255, 0x25 / 255), (256, 1)), atol=0.01)
    assert (np.ptp(around[0], axis=1) < 0.01).all(), "missing is grey hatching on white"
    assert around[0].max() == 1.0
    figure.savefig(tmp_path / "x.svg")
    assert re.search(r"<svg ", (tmp_path / "x.svg").read_text())
