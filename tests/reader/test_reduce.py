"""Reductions are those of numpy over every cell that is not missing, whatever the files are."""

import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stitched_days import READ, save, save_as_pytokio, slot

import tokiod
from tokiod.reader import reduce as reduction
from tokiod.reader.errors import UnclearTime

STEP = 300
ABSENCE = f"{READ}/missing"
NUMPY = {
    "sum": np.nansum, "mean": np.nanmean, "max": np.nanmax, "min": np.nanmin, "p50": np.nanmedian,
    "p95": lambda cells, axis: np.nanpercentile(cells, 95, axis=axis), "count": lambda cells, axis: (~np.isnan(cells)).sum(axis=axis),
    "missing": lambda cells, axis: np.isnan(cells).sum(axis=axis),
}  # fmt: skip


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    directory, generator = tmp_path_factory.mktemp("days"), np.random.default_rng(11)
    for day, columns in ((1, 40), (2, 35), (4, 40)):
        values = generator.random((288, columns)) * 100 - 20
        values[generator.random(values.shape) < 0.4] = np.nan
        values[:, 3], values[30:60] = np.nan, np.nan
        values[generator.random(values.shape) < 0.1] = 0.0
        save(directory, day, [f"c{i}" for i in range(columns)], values, STEP, is_sealed=day != 2)
    values = generator.random((288, 40)) * 100 - 20
    values[generator.random(values.shape) < 0.2] = np.nan
    values[generator.random(values.shape) < 0.2] = -0.0
    save_as_pytokio(directory, 5, [f"c{i}" for i in range(40)], values, STEP)
    first = slot(directory, 1)
    return lambda skip, rows: tokiod.open("fs", first.start + skip * STEP, first.start + (skip + rows) * STEP, path=directory / "%-d.hdf5")


def reduced_by_numpy(cells, how, axis):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = np.asarray(NUMPY[how](cells, axis=axis), float)
    return np.where(np.isnan(cells).all(axis=axis), np.nan, found) if how == "sum" else found


@pytest.mark.parametrize("how", NUMPY)
@pytest.mark.parametrize("dataset", [READ, "datatargets/readrates"])
def test_null_points_of_a_file_of_pytokio_are_missing(tmp_path, how, dataset):
    cells = np.arange(20.0).reshape(10, 2)
    cells[[1, 4, 5], 0] = np.nan
    cells[2, 0], cells[3, 0] = -0.0, 0.0
    place = save_as_pytokio(tmp_path, 1, ["a", "b"], cells, STEP)
    cells[2, 0] = np.nan
    with tokiod.open("fs", place.start, place.start + 10 * STEP, path=tmp_path / "%-d.hdf5") as one:
        found = one.reduce(dataset, how=how)
        scale = STEP if dataset.endswith("rates") and how not in ("count", "missing") else 1
        np.testing.assert_allclose(found.values * scale, [reduced_by_numpy(cells, how, 0)])


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    dataset=st.sampled_from([READ, ABSENCE]),
    skip=st.integers(0, 500),
    rows=st.integers(1, 1400),
    every=st.integers(1, 400),
    how=st.sampled_from([*NUMPY]),
)
def test_bins_of_rows_are_those_of_numpy(archive, dataset, skip, rows, every, how):
    with archive(skip, rows) as one:
        cells = one.array(dataset)[...]
        found = one.reduce(dataset, every * STEP, how)
        assert found.columns == one.columns(dataset)
        np.testing.assert_array_equal(found.times, one.array(dataset).times[::every])
        expected = np.array([reduced_by_numpy(cells[first : first + every], how, 0) for first in range(0, rows, every)])
        np.testing.assert_allclose(found.values, expected, rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("dataset", [READ, ABSENCE])
@pytest.mark.parametrize("how", NUMPY)
def test_columns_are_reduced_as_by_numpy(archive, how, dataset):
    one = archive(100, 900)
    found = one.reduce(dataset, how=how, over="columns")
    assert found.shape == (900, 1)
    np.testing.assert_allclose(found.values[:, 0], reduced_by_numpy(one.array(dataset)[...], how, 1), rtol=1e-12, atol=1e-9)


def test_missing_cells_of_days_without_a_file_and_of_columns_that_a_day_lacks_are_counted(archive):
    one = archive(0, 4 * 288)
    days = one.array(ABSENCE)[...].reshape(4, 288, 40).sum(axis=1)
    assert days[2].tolist() == [288.0] * 40
    assert days[1, 35:].tolist() == [288.0] * 5
    np.testing.assert_array_equal(one.reduce(ABSENCE, "1d", "sum").values, days)
    over_columns = one.reduce(ABSENCE, how="sum", over="columns").values[:, 0]
    np.testing.assert_array_equal(over_columns.reshape(4, 288).sum(axis=1), days.sum(axis=1))


def test_few_columns_at_a_time_have_the_same_percentiles(archive, monkeypatch):
    expected = archive(0, 500).reduce(READ, "1d", "p95").values
    monkeypatch.setattr(reduction, "MAX_BLOCK_BYTES", 8 * 288 * 7)
    np.testing.assert_array_equal(archive(0, 500).reduce(READ, "1d", "p95").values, expected)


def test_without_a_length_all_rows_are_one(archive):
    found = archive(0, 288).reduce(READ, how="sum")
    np.testing.assert_allclose(found.column("c0"), [np.nansum(archive(0, 288).array(READ)[:, "c0"])])
    assert found.frame().shape == (1, 40)


def test_what_is_no_reduction_is_refused(archive):
    with pytest.raises(ValueError, match="how='median': known: sum, mean"):
        archive(0, 5).reduce(READ, "1h", "median")
    with pytest.raises(UnclearTime, match="200 is not a multiple of 300 s"):
        archive(0, 5).reduce(READ, 200)
    with pytest.raises(UnclearTime, match="keeps all rows"):
        archive(0, 5).reduce(READ, "1h", over="columns")
