"""Times and columns of whole rows: correct, read-only, and cached only for small batches."""

import numpy as np
import pytest

from tokiod.batch import MAX_CACHED_CELLS, Batch, Rows, even_rows, row_times


@pytest.mark.parametrize(("count", "shared"), [(MAX_CACHED_CELLS // 8, True), (MAX_CACHED_CELLS // 8 + 1, False)])
def test_times_and_columns_are_cached_for_small_batches(count, shared):
    rows = Rows(100, count)
    time, column = rows.arrays(5, 8)
    assert time.tolist() == [100 + 5 * row for row in range(count) for _ in range(8)]
    assert column.tolist() == list(range(8)) * count
    assert [one is other for one, other in zip(rows.arrays(5, 8), (time, column), strict=True)] == [shared, shared]
    assert (time.dtype, column.dtype, time.flags.writeable, column.flags.writeable) == (np.int64, np.uint32, False, False)
    batch = Batch("g/d", "gauge", 5, tuple("abcdefgh"), time, column, np.zeros(8 * count))
    assert row_times(batch).tolist() == list(range(100, 100 + 5 * count, 5))
    assert even_rows(batch) == rows
