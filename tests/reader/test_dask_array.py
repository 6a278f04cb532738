"""archive.dask(): the same numbers as without dask, in tasks that read whole chunks of one file each, by two real workers too."""

import pickle
from itertools import accumulate

import numpy as np
import pytest
from stitched_days import READ, save, slot

import tokiod
from tokiod.reader.dask_array import row_chunks
from tokiod.reader.stitched import CHUNK_ROWS

pytest.importorskip("dask.array")
STEP, ROWS = 5, 17_280
OSTS = ["OST0000", "OST0001", "OST0002"]


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """Five days, one of them missing and the last one live; the span begins and ends within a sealed chunk."""
    directory, generator = tmp_path_factory.mktemp("dask"), np.random.default_rng(5)
    for day in (1, 2, 4, 5):
        cells = generator.integers(0, 2**30, (ROWS, len(OSTS))).astype(float)
        cells[generator.random(cells.shape) < 0.1] = np.nan
        save(directory, day, OSTS[: 3 if day > 1 else 2], cells[:, : 3 if day > 1 else 2], STEP, is_sealed=day < 5)
    start, end = slot(directory, 1).start + 1000 * STEP, slot(directory, 5).end - 100 * STEP
    with tokiod.open("fs", start, end, path=f"{directory}/%-d.hdf5") as found:
        yield found


def test_chunks_are_of_one_file_and_begin_where_sealed_chunks_do(archive, monkeypatch):
    matrix = archive.array(READ)
    found = archive.dask(READ)
    assert found.chunks == ((ROWS - 1000, ROWS, ROWS, ROWS, ROWS - 100), (3,))
    monkeypatch.setattr("tokiod.reader.dask_array.MAX_BLOCK_BYTES", CHUNK_ROWS * 2 * 3 * 8)
    rows = row_chunks(matrix)
    assert (sum(rows), max(rows)) == (matrix.rows, 2 * CHUNK_ROWS)
    first_of_days = {day * ROWS for day in range(5)}
    for edge in accumulate(rows[:-1]):
        assert (1000 + edge) % CHUNK_ROWS == 0 or 1000 + edge in first_of_days


def test_its_cells_are_those_of_the_array_and_a_column_reads_nothing_else(archive):
    whole, found = np.asarray(archive.array(READ)), archive.dask(READ)
    np.testing.assert_array_equal(found.compute(scheduler="threads"), whole)
    np.testing.assert_array_equal(found[5000:70_000:7, 1].compute(scheduler="threads"), whole[5000:70_000:7, 1])
    np.testing.assert_array_equal(archive.dask("datatargets/readrates")[:100].compute(scheduler="sync"), whole[:100] / STEP)


def test_a_matrix_is_sent_without_its_open_files(archive):
    matrix = archive.array(READ)
    text = pickle.dumps(matrix)
    np.testing.assert_array_equal(pickle.loads(text)[:50], matrix[:50])
    assert len(text) < 5000
    assert pickle.loads(text).parts is pickle.loads(text).parts


@pytest.mark.system
@pytest.mark.filterwarnings("default")  # distributed's own, of sockets that it closes when it ends
def test_two_workers_of_a_cluster_share_the_work_and_give_the_same_numbers(archive):
    distributed = pytest.importorskip("distributed")
    whole = np.asarray(archive.array(READ))
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        client.wait_for_workers(2)
        sums = np.nansum  # of integers below 2^53: the same in any order
        found = archive.dask(READ).persist()
        distributed.wait(found)
        keys = client.has_what()
        assert len([worker for worker, held in keys.items() if held]) == 2
        np.testing.assert_array_equal(sums(found, axis=0).compute(), sums(whole, axis=0))
        np.testing.assert_array_equal(found.compute(), whole)
