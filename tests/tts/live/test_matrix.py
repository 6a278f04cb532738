import errno

import numpy as np
import pytest
from faulty_files import FaultyFiles
from hypothesis import given, settings
from hypothesis import strategies as st

from tokiod.tts.live import matrix as module
from tokiod.tts.live.files import REAL
from tokiod.tts.live.matrix import Matrix, OpenFile

OFFSET = 4096


@pytest.fixture
def matrix_of(tmp_path):
    """A matrix of any shape that lies in a file between bytes that no one may touch; it begins with distinct values."""
    opened = []

    def make(rows, width, dtype=np.float64, files=REAL):
        path = tmp_path / f"matrix{len(opened)}"
        around = np.full(OFFSET // 8, 77)
        values = np.arange(rows * width).astype(dtype)
        path.write_bytes(around.tobytes() + values.tobytes() + around.tobytes())
        opened.append(OpenFile(files.open(path), files, dirty=False))
        return Matrix(opened[-1], OFFSET, rows, tuple(f"c{i}" for i in range(width)), dtype), path

    yield make
    for file in opened:
        REAL.close(file.fd)


def around(path):
    content = np.frombuffer(path.read_bytes(), np.int64)
    return set(content[: OFFSET // 8].tolist()) | set(content[-OFFSET // 8 :].tolist())


@st.composite
def assignments(draw):
    """Any cells of any shape: scattered, rectangles in either order, with duplicates."""
    rows, width = draw(st.integers(1, 40)), draw(st.integers(1, 40))
    shape = draw(st.sampled_from(["scattered", "rectangle", "columns first", "duplicates"]))
    chance = np.random.default_rng(draw(st.integers(0, 2**32)))
    if shape in ("rectangle", "columns first"):
        top, left = int(chance.integers(rows)), int(chance.integers(width))
        if chance.random() < 0.5:
            left = 0
        bottom, right = (
            int(chance.integers(top, rows)) + 1,
            width if left == 0 and chance.random() < 0.7 else int(chance.integers(left, width)) + 1,
        )
        row, column = np.mgrid[top:bottom, left:right]
        if shape == "columns first":
            row, column = row.T, column.T
        return rows, width, row.ravel().copy(), column.ravel().astype(np.uint32), chance
    n = int(chance.integers(0, rows * width + 1))
    cells = chance.choice(rows * width, n, replace=shape == "duplicates")
    return rows, width, cells // width, (cells % width).astype(np.intp), chance


@settings(max_examples=100, deadline=None)
@given(
    assignments(),
    st.sampled_from([np.float64, np.int64]),
    st.booleans(),
    st.sampled_from([3, 16, 16_384]),
    st.sampled_from([0, 5, 2048]),
    st.sampled_from([0, 2, 8]),
)
def test_assign_is_numpys_assignment_for_any_cells_in_any_order(tmp_path_factory, case, dtype, compare, block, join, sparse):
    rows, width, row, column, chance = case
    path = tmp_path_factory.getbasetemp() / "assigned"
    before = np.arange(rows * width).astype(dtype).reshape(rows, width)
    path.write_bytes(before.tobytes())
    value = chance.permutation(
        np.concatenate([before[row, column][: len(row) // 2], chance.integers(0, 99, len(row) - len(row) // 2).astype(dtype)])
    )
    expected = before.copy()
    for r, c, v in zip(row, column, value, strict=True):
        expected[r, c] = v
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK_CELLS", block)
        patch.setattr(module, "SCRATCH_CELLS", 4 * block)
        patch.setattr(module, "SPARSE_CELLS", sparse)
        patch.setattr(module, "JOIN_CELLS", join)
        file = OpenFile(REAL.open(path), REAL, dirty=False)
        try:
            changed = Matrix(file, 0, rows, tuple(map(str, range(width))), dtype).assign(row, column, value, compare=compare)
        finally:
            REAL.close(file.fd)
    assert path.read_bytes() == expected.tobytes()
    if not compare:
        assert changed is None
    elif len(set(zip(row.tolist(), column.tolist(), strict=True))) == len(row):
        assert changed.tolist() == [value[i].tobytes() != before[row[i], column[i]].tobytes() for i in range(len(row))]


def test_of_a_cell_given_twice_in_one_block_what_it_ends_as_is_compared(matrix_of):
    matrix, _ = matrix_of(2, 3)
    changed = matrix.assign(np.array([1, 1, 0]), np.array([2, 2, 0]), np.array([9.0, 5.0, 4.0]), compare=True)
    assert changed.tolist() == [False, False, True]


def test_bits_are_compared_not_values(matrix_of):
    matrix, _ = matrix_of(1, 3)
    matrix.write_rows(0, np.array([[0.0, np.nan, -0.0]]))
    changed = matrix.assign(np.zeros(3, np.int64), np.arange(3), np.array([-0.0, np.nan, -0.0]), compare=True)
    assert changed.tolist() == [True, False, False]


@pytest.mark.parametrize("dtype", [np.float64, np.int64])
def test_rows_are_read_as_they_were_written_and_nothing_around_them_is_touched(matrix_of, dtype):
    matrix, path = matrix_of(5, 3, dtype)
    matrix.write_rows(3, np.array([[1, 2, 3], [4, 5, 6]], dtype))
    assert matrix.read(0, 5).tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [1, 2, 3], [4, 5, 6]]
    assert matrix.read(2, 2).shape == (0, 3)
    assert (around(path), matrix.read(0, 1).dtype) == ({77}, dtype)


def test_rows_are_read_into_the_array_that_is_given(matrix_of):
    matrix, _ = matrix_of(5, 3)
    out = np.empty((2, 3))
    assert matrix.read(1, 3, out) is out
    assert out.tolist() == [[3, 4, 5], [6, 7, 8]]


def test_a_block_of_another_order_in_memory_is_written_row_by_row(matrix_of):
    matrix, _ = matrix_of(2, 3)
    matrix.write_rows(0, np.asfortranarray(np.array([[9.0, 8, 7], [6, 5, 4]])))
    assert matrix.read(0, 2).tolist() == [[9, 8, 7], [6, 5, 4]]


def test_strided_values_are_assigned_each_to_its_cell(matrix_of):
    matrix, _ = matrix_of(2, 2)
    matrix.assign(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]), np.arange(8.0)[::2])
    assert matrix.read(0, 2).tolist() == [[0, 2], [4, 6]]


def test_a_full_width_rectangle_is_one_write_and_no_read(matrix_of, tmp_path):
    files = FaultyFiles(tmp_path)
    matrix, _ = matrix_of(200, 248, files=files)
    del files.operations[:]
    row, column = np.mgrid[40:160, 0:248]
    matrix.assign(row.ravel(), column.ravel().astype(np.uint32), np.ones(row.size))
    assert files.operations == ["pwrite"]


def test_a_lonely_cell_is_one_write_and_close_cells_are_joined(matrix_of, tmp_path):
    files = FaultyFiles(tmp_path)
    matrix, _ = matrix_of(400, 248, files=files)
    del files.operations[:]
    matrix.assign(np.array([0, 200, 201, 399]), np.array([3, 7, 9, 0]), np.ones(4))
    assert files.operations == ["pwrite", "pread_into", "pwrite", "pwrite"]


@pytest.mark.parametrize(
    ("row", "column"),
    [([0, -1], [0, 0]), ([0, 5], [0, 0]), ([0, 0], [0, 3]), ([0, 0], [0, -1]), ([4, 4, 4, 5, 5, 5], [0, 1, 2, 0, 1, 2])],
)
def test_a_cell_outside_is_refused_before_anything_is_written(matrix_of, row, column):
    matrix, path = matrix_of(5, 3)
    content = path.read_bytes()
    with pytest.raises(IndexError):
        matrix.assign(np.array(row), np.array(column), np.ones(len(row)))
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "call",
    [
        lambda matrix: matrix.assign(np.array([0]), np.array([0]), np.array([2**53 + 1])),
        lambda matrix: matrix.write_rows(0, np.ones((1, 3), np.int64)),
    ],
    ids=["assign", "write_rows"],
)
def test_values_of_another_type_are_refused_not_converted(matrix_of, call):
    matrix, path = matrix_of(5, 3)
    content = path.read_bytes()
    with pytest.raises(TypeError, match="int64 values for cells of float64"):
        call(matrix)
    assert path.read_bytes() == content


def test_rows_outside_and_blocks_of_another_shape_are_refused(matrix_of):
    matrix, path = matrix_of(5, 3)
    content = path.read_bytes()
    for start, block in ((4, np.ones((2, 3))), (-1, np.ones((1, 3)))):
        with pytest.raises(IndexError):
            matrix.write_rows(start, block)
    with pytest.raises(ValueError, match="rows of 3 columns"):
        matrix.write_rows(0, np.ones((1, 2)))
    with pytest.raises(IndexError):
        matrix.read(4, 6)
    with pytest.raises(ValueError, match="can not hold rows"):
        matrix.read(0, 2, np.empty((2, 2)))
    with pytest.raises(ValueError, match="1 rows, 1 columns, 2 values"):
        matrix.assign(np.array([0]), np.array([0]), np.ones(2))
    assert path.read_bytes() == content


def test_a_write_makes_the_file_dirty_even_when_it_fails(matrix_of, tmp_path):
    files = FaultyFiles(tmp_path)
    matrix, _ = matrix_of(5, 3, files=files)
    assert not matrix._file.dirty
    files.fail("pwrite", 1, errno.ENOSPC)
    with pytest.raises(OSError, match="No space left"):
        matrix.write_rows(0, np.ones((1, 3)))
    assert matrix._file.dirty


def test_columns_are_found_by_name(matrix_of):
    matrix, _ = matrix_of(1, 3)
    assert (matrix.columns, matrix.index) == (("c0", "c1", "c2"), {"c0": 0, "c1": 1, "c2": 2})
