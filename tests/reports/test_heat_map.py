"""What a heat map shows: one fold in all panels, sums of complete rows, missing rows, and a scale that one outlier does not spoil."""

import numpy as np
import pytest
from stitched_days import SITE, save, slot

from tokiod.reader.span import Span
from tokiod.reader.stitched import stitch
from tokiod.reports import heat_map as module
from tokiod.reports.heat_map import heat_map, scale_of
from tokiod.reports.quantities import Quantity

NAN = np.nan
BYTES = Quantity("B/s", 1.0)


def mapped(slots, how="mean", dataset="datatargets/readbytes"):
    matrix = stitch([place.path for place in slots], dataset, Span(slots[0].start, slots[-1].end))
    return heat_map(matrix, how, "fs", SITE.zone)


def test_amounts_are_rates_and_sums_are_of_complete_rows_only(tmp_path):
    day = save(tmp_path, 1, ["a", "b"], np.array([[1, 3], [5, NAN], [NAN, NAN], [0, 2]]) * 3600)
    found = mapped([day])
    np.testing.assert_array_equal(found.cells.values[:5], [[1, 3], [5, NAN], [NAN, NAN], [0, 2], [NAN, NAN]])
    np.testing.assert_array_equal(found.of_all.values[:5], [4, NAN, NAN, 2, NAN])
    np.testing.assert_array_equal(found.of_columns.values, [2, 2.5])
    np.testing.assert_array_equal(found.missing[:5], [0, 0.5, 1, 0, 1])
    assert (found.largest_cell, found.largest_of_all, found.filled, found.reporting) == (5, 4, 5, 2)


def test_percentages_have_the_mean_of_all_and_a_scale_to_100(tmp_path):
    day = save(tmp_path, 1, ["a", "b"], [[10, 30]], dataset="dataservers/cpuload")
    found = mapped([day], dataset="dataservers/cpuload")
    assert (found.of_all.values[0], found.scale(50).end, found.scale(50).clipped) == (20, 100, None)


def test_one_fold_holds_in_all_panels(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MAX_PIXELS", 12)
    day = save(tmp_path, 1, ["a", "b"], np.array([[1, 3], [5, 1]] * 12) * 3600)
    means, largest = mapped([day], "mean"), mapped([day], "max")
    assert (means.cells.values[0].tolist(), means.of_all.values[0], means.of_columns.values.tolist()) == ([3, 2], 5, [3, 2])
    assert (largest.cells.values[0].tolist(), largest.of_all.values[0], largest.of_columns.values.tolist()) == ([5, 3], 6, [5, 3])


def test_a_missing_row_survives_folding(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MAX_PIXELS", 2)
    values = np.ones((24, 2))
    values[20] = NAN
    assert mapped([save(tmp_path, 1, ["a", "b"], values)]).missing.tolist() == [0, 1 / 12]


def test_a_component_without_any_value_is_not_expected_and_one_that_comes_later_only_from_then_on(tmp_path):
    """A decommissioned OST stays in LMT's tables; an OST that is built in later is in no earlier file."""
    first = save(tmp_path, 1, ["a", "gone"], [[3600, NAN]] * 24)
    second = save(tmp_path, 2, ["a", "gone", "new"], [[3600, NAN, 3600]] * 12 + [[3600, NAN, NAN]] * 12)
    found = mapped([first, second])
    np.testing.assert_array_equal(found.of_all.values, [1] * 24 + [2] * 12 + [NAN] * 12)
    np.testing.assert_array_equal(found.missing, [0] * 36 + [0.5] * 12)
    assert (found.reporting, found.words()[0]) == (2, "sum: complete rows only; 2 of 3 components report")


def test_a_day_without_a_file_is_missing_as_a_whole(tmp_path):
    found = mapped([save(tmp_path, 1, ["a"], [[1]] * 24), slot(tmp_path, 2), save(tmp_path, 3, ["a"], [[1]] * 24)])
    assert found.missing.tolist() == [0] * 24 + [1] * 24 + [0] * 24
    assert np.isnan(found.of_all.values[24:48]).all()


def test_the_number_of_missing_cells_is_drawn_of_days_without_a_file_and_of_columns_that_a_day_lacks(tmp_path):
    days = [save(tmp_path, 1, ["a", "b"], [[1, NAN]] * 24), slot(tmp_path, 2), save(tmp_path, 3, ["a"], [[1]] * 24)]
    found = mapped(days, dataset="datatargets/readbytes/missing")
    assert found.of_all.values.tolist() == [1] * 24 + [2] * 24 + [1] * 24
    assert found.missing.tolist() == [0] * 72


def test_a_day_without_any_value_is_missing(tmp_path):
    found = mapped([save(tmp_path, 1, ["a"], [[NAN]])])
    assert (found.missing.tolist(), found.reporting, found.filled) == ([1] * 24, 0, 0)
    assert (found.scale(99.5).end, np.isnan(found.largest_cell)) == (1, True)


def test_many_columns_are_folded_to_bands(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MAX_BANDS", 2)
    found = mapped([save(tmp_path, 1, "abcd", np.array([[1, 2, 3, 6]]) * 3600)])
    assert found.cells.values[0].tolist() == [1.5, 4.5]
    assert found.of_all.values[0] == 12


def test_a_scale_ends_at_a_percentile_of_the_values_above_zero_and_states_it():
    values = np.concatenate([np.zeros(5000), np.full(998, 10.0), [NAN, 10.0, 82e9]])
    scale = scale_of(values, BYTES, 99.5)
    assert scale.words(BYTES) == "10 B/s (99.5th percentile above zero)"
    whole = scale_of(values, BYTES, 100)
    assert (whole.end, whole.clipped, whole.words(BYTES)) == (82e9, None, "76.4 GiB/s")


@pytest.mark.parametrize("count", [1, 2, 24, 200])
def test_a_scale_of_few_values_ends_at_the_largest(count):
    assert scale_of(np.arange(count) + 1.0, BYTES, 99.5).end == count
