"""What nodes sent of a window becomes a batch for each metric."""

import numpy as np

from tokiod.hub.to_window import batches

START = 1_800_000_000 // 60 * 60


def test_a_batch_has_the_cells_that_are_there_at_the_times_of_their_rows():
    values = np.array([[[1.0, np.nan], [2.0, 3.0], [np.nan, 4.0]], np.full((3, 2), np.nan)])
    found = list(batches(values, ("cpu", "load"), ("nid1", "nid2"), START))
    assert [(one.dataset, one.columns) for one in found] == [("nodes/cpu", ("nid1", "nid2")), ("nodes/load", ("nid1", "nid2"))]
    assert [(one.time.tolist(), one.column.tolist(), one.value.tolist()) for one in found] == [
        ([START, START + 60, START + 60, START + 120], [0, 0, 1, 1], [1.0, 2.0, 3.0, 4.0]), ([], [], []),
    ]  # fmt: skip


def test_metrics_of_the_same_nodes_share_their_times_and_columns():
    one_node, both = [[1.0, np.nan], [2.0, np.nan]], [[1.0, 2.0], [3.0, 4.0]]
    first, other, second = batches(np.array([one_node, both, one_node]), ("cpu", "load", "mem"), ("nid1", "nid2"), START)
    assert (first.time is second.time, first.column is second.column) == (True, True)
    assert (first.column.tolist(), other.column.tolist()) == ([0, 0], [0, 1, 0, 1])


def test_a_measured_zero_is_never_the_mark_of_a_missing_cell():
    (found,) = batches(np.array([[[-0.0]]]), ("load",), ("nid1",), START)
    assert not np.signbit(found.value).any()


def test_no_nodes_are_no_batches():
    assert list(batches(np.empty((1, 3, 0)), ("cpu",), (), START)) == []
