"""The picture holds the cells, the same units and scale as the terminal's map, and a legend for what is missing."""

import re
from dataclasses import replace

import numpy as np
import pytest
from mapped import mapped

pytest.importorskip("matplotlib", reason="an extra")

from matplotlib.image import imread
from matplotlib.text import Text

from tokiod.reports.heat_map_figure import draw_figure, save_figure

NAN = np.nan
GIB = 2**30
CAPTION = """\
colours end at 1 B/s; sum: axis ends at 1 B/s
sum: complete rows only; 1 of 2 components report
drawn: mean of rows of 3600 s; largest cell 1 B/s, largest sum 1 B/s"""


def words(figure):
    """Every text of a figure."""
    return {text.get_text() for text in figure.findobj(Text)} - {""}


def test_the_figure_holds_the_cells_masked_where_missing_with_units_on_every_panel():
    values = np.array([[1.0, NAN], [0.0, 4.0], [NAN, NAN]]) * GIB
    figure = draw_figure(mapped(values), 99.5)
    above, strip, main, right, scale, _ = figure.axes
    (image,) = main.images
    np.testing.assert_array_equal(image.get_array().filled(-1), [[1, 0, -1], [-1, 4, -1]])
    assert image.get_clim() == (0, 4)
    assert main.patch.get_hatch() == "////"
    np.testing.assert_array_equal(above.patches[0].get_data().values, [NAN, 4, NAN])
    np.testing.assert_array_equal(right.patches[0].get_data().values, [0.5, 4])
    np.testing.assert_allclose(strip.patches[0].get_data().values, [0.65, 0, 1])
    assert (scale.get_ylabel(), above.get_ylabel(), right.get_xlabel()) == ("GiB/s", "sum\nGiB/s", "mean of each\nGiB/s")
    assert [text.get_text() for text in main.get_yticklabels()] == ["OST0000", "OST0001"]


def test_title_legend_and_caption_state_what_is_drawn_in_letters_of_nine_points():
    figure = draw_figure(mapped([[1.0, NAN]] * 24), 99.5)
    assert {
        "fs datatargets/readbytes\n2018-01-29 00:00 to 2018-01-30 00:00 PST",
        "no value",
        "cells missing",
        CAPTION,
    } <= words(figure)


def test_percentages_have_axes_to_100_in_all_panels():
    figure = draw_figure(mapped([[10.0, 30.0]] * 3, "%"), 99.5)
    above, _, main, right, scale, _ = figure.axes
    assert (above.get_ylim(), main.images[0].get_clim(), right.get_xlim()) == ((0, 100), (0, 100), (0, 100))
    assert (above.get_ylabel(), scale.get_ylabel()) == ("mean\n%", "%")


def test_an_outlier_is_clipped_named_and_leaves_the_others_their_colours():
    values = np.full((1000, 2), 10.0)
    values[500, 0] = 1e12
    figure = draw_figure(mapped(values, step=60), 99.5)
    above, _, main, *_ = figure.axes
    assert main.images[0].get_clim() == (0, 10)
    assert above.get_ylim() == (0, 21)
    assert "▲ 931 GiB/s" in words(figure)
    assert any("colours end at 10 B/s (99.5th percentile above zero); sum: axis ends at 20 B/s (99.5th" in text for text in words(figure))
    assert any("largest cell 931 GiB/s, largest sum 931 GiB/s" in text for text in words(figure))


def test_a_component_far_above_all_others_is_named_and_leaves_them_their_bars():
    values = np.tile([2.0, 4.0, 1e12], (24, 1))
    right = draw_figure(mapped(values), 99.5).axes[3]
    assert (right.get_xlim(), right.texts[0].get_text()) == ((0, 4.2), "OST0002 ▶ 931 GiB/s")
    for few in (np.tile([2.0, 1e12], (24, 1)), np.tile([2.0, 4.0, 30.0], (24, 1))):
        assert not list(draw_figure(mapped(few), 99.5).axes[3].texts)


@pytest.mark.parametrize(("clip", "end"), [(40, 401), (60, 999)])
def test_a_sum_is_drawn_up_to_its_largest_unless_an_outlier_would_flatten_it(clip, end):
    assert draw_figure(mapped(np.arange(1000.0)[:, np.newaxis], step=60), clip).axes[0].get_ylim()[1] == pytest.approx(1.05 * end)


def test_sums_of_which_no_row_is_complete_are_stated_as_such():
    assert "no row is complete" in words(draw_figure(mapped([[1.0, NAN], [NAN, 1.0]]), 99.5))


@pytest.mark.parametrize("columns", [1, 1000])
def test_names_of_components_fit_beside_the_map(columns):
    main = draw_figure(mapped(np.ones((3, columns))), 99.5).axes[2]
    assert 1 <= len(main.get_yticks()) <= 26


@pytest.mark.parametrize("dark", [False, True])
def test_a_picture_in_a_file_shows_missing_zero_and_largest_in_different_colours(tmp_path, dark):
    values = np.zeros((30, 3))
    values[:, 0], values[:, 2] = NAN, 1.0
    values[0, 0] = 0.0
    save_figure(mapped(values), tmp_path / "x.png", 99.5, dark=dark)
    pixels = imread(tmp_path / "x.png")[..., :3]
    for red, green, blue in ((0x44, 0x01, 0x54), (0xFD, 0xE7, 0x25), (0x14, 0x16, 0x1A) if dark else (255, 255, 255)):
        assert (np.abs(pixels * 255 - (red, green, blue)).max(axis=2) < 1.5).sum() > 1000
    assert (pixels[0, 0] * 255).round().astype(int).tolist() == ([0x14, 0x16, 0x1A] if dark else [255] * 3)


def test_a_vector_picture_is_made_too(tmp_path):
    save_figure(mapped([[1.0]]), tmp_path / "x.svg", 99.5, dark=False)
    assert re.search(r"<svg ", (tmp_path / "x.svg").read_text())


def test_names_are_drawn_as_text_and_not_as_formulas(tmp_path):
    named = replace(mapped([[1.0, 2.0]]), title="f$^$x.hdf5", columns=("a$^$", "${A}_${B}"))
    save_figure(named, tmp_path / "x.svg", 99.5, dark=False)
    assert (tmp_path / "x.svg").stat().st_size > 1000
