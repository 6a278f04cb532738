"""Times and columns of whole rows: right, read-only, and kept only where they are small."""

import numpy as np
import pytest

from tokiod.batch import SHARED, columns_of, times_of, times_of_rows


@pytest.mark.parametrize(("count", "shared"), [(SHARED // 8, True), (SHARED // 8 + 1, False)])
def test_they_are_kept_for_the_next_message_unless_that_is_large(count, shared):
    time, column = times_of(100, count, 5, 8), columns_of(count, 8)
    assert time.tolist() == [100 + 5 * row for row in range(count) for _ in range(8)]
    assert column.tolist() == list(range(8)) * count
    assert (times_of(100, count, 5, 8) is time, columns_of(count, 8) is column) == (shared, shared)
    assert (time.dtype, column.dtype, time.flags.writeable, column.flags.writeable) == (np.int64, np.uint32, False, False)
    assert times_of_rows(time, column, 8).tolist() == list(range(100, 100 + 5 * count, 5))
