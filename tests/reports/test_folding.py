"""Folding: the mean or the maximum of the cells that are there, whether at once, in blocks, or again."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tokiod.reports.folding import Folding, folded

NAN = np.nan
HOW = {"mean": np.mean, "max": np.max}
cells = st.one_of(st.just(NAN), st.integers(0, 9).map(float))
matrices = arrays(float, st.tuples(st.integers(1, 12), st.integers(1, 12)), elements=cells)


def obvious(values, rows, how):
    """The fold of the rows, cell by cell."""
    edges = [i * len(values) // rows for i in range(rows)] + [len(values)]
    found = np.full((rows, values.shape[1]), NAN)
    for i, j in np.ndindex(found.shape):
        there = [value for value in values[edges[i] : edges[i + 1], j] if not np.isnan(value)]
        found[i, j] = HOW[how](there) if there else NAN
    return found


@pytest.mark.parametrize("how", HOW)
@given(values=matrices, rows=st.integers(1, 12))
def test_a_folded_cell_is_of_the_cells_that_are_there_and_missing_only_where_none_is(how, values, rows):
    rows = min(rows, len(values))
    found = folded(values, how).to(rows)
    np.testing.assert_allclose(found.values, obvious(values, rows, how))
    assert found.counts.sum() == np.count_nonzero(~np.isnan(values))
    np.testing.assert_allclose(folded(values.T, how).to(rows, axis=1).values.T, found.values)


@pytest.mark.parametrize("how", HOW)
@given(values=matrices, pixels=st.integers(1, 12), height=st.integers(1, 5), seed=st.integers(0, 99))
def test_blocks_with_their_own_columns_fold_to_the_same(how, values, pixels, height, seed):
    pixels = min(pixels, len(values))
    chance = np.random.default_rng(seed)
    folding = Folding(*values.shape, pixels, how)
    wanted = values.copy()
    for first in range(0, len(values), height):
        positions = chance.permutation(values.shape[1])[: chance.integers(0, values.shape[1] + 1)]
        absent = np.setdiff1d(np.arange(values.shape[1]), positions)
        wanted[first : first + height, absent] = NAN
        folding.add(first, positions, values[first : first + height][:, positions])
    np.testing.assert_allclose(folding.result().values, obvious(wanted, pixels, how))
    np.testing.assert_allclose(folding.row_sums, np.nansum(wanted, axis=1))
    np.testing.assert_array_equal(folding.row_counts, (~np.isnan(wanted)).sum(axis=1))
    np.testing.assert_equal(folding.largest, np.fmax.reduce(wanted, axis=None))


@pytest.mark.parametrize("how", HOW)
@given(values=matrices)
def test_folding_again_is_exact(how, values):
    once = folded(values, how)
    np.testing.assert_allclose(once.to(max(1, len(values) // 2)).to(1).values, once.to(1).values)
