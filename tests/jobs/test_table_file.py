"""A file of the job table is what its grammar says, and nothing else is taken for one."""

from pathlib import Path

import h5py
import numpy as np
import pytest

from tokiod.jobs import table_file
from tokiod.jobs.table_file import FORM, Index, NotAJobTable, earliest, narrow, opened, polled, read, write
from tokiod.tts.live.files import Files
from tokiod.window_data import job_key

JOBS = np.array([job_key(job, "1000", None, None, f"{job:0>12}") for job in ("1", "17", "170", "18")], "S")
TARGETS = np.array([f"fs-OST{n:04x}" for n in range(9)], "S")
WINDOWS = (("a", 0, 60), ("a", 60, 120), ("bb", 0, 60))


def written(path, rows=7, windows=WINDOWS, answered=None, **columns):
    first = np.array([0, 1, 3, 3, rows], np.int64)
    given = {"window": np.arange(rows) % 3, "target": np.arange(rows) % 9, "time": 100 - np.arange(rows), **columns}
    given |= {name: np.zeros(rows, np.int64) for name in ("begin", "last", "ended")}
    write(path, Files(), Index("fs", windows, JOBS, TARGETS, first, tuple(given)), given.items(), answered)
    return given


def test_what_is_written_is_what_is_read(tmp_path):
    before = len([*Path("/proc/self/fd").iterdir()])
    given = written(tmp_path / "a", **{"open.samples": np.arange(7) * 10})
    assert len([*Path("/proc/self/fd").iterdir()]) == before, "it is closed"
    with opened(tmp_path / "a") as (file, index):
        assert (index.system, index.windows, index.jobs.tolist(), index.targets.tolist()) == (
            "fs", WINDOWS, JOBS.tolist(), TARGETS.tolist(),
        )  # fmt: skip
        assert (index.first.tolist(), sorted(index.columns), index.counts) == ([0, 1, 3, 3, 7], sorted(given), ("open.samples",))
        for name, values in given.items():
            assert read(file, f"rows/{name}").tolist() == values.tolist()
            assert read(file, f"rows/{name}", slice(2, 5)).tolist() == values[2:5].tolist()
            assert read(file, f"rows/{name}", slice(3, 3)).tolist() == []
        found = {job: index.rows_of(job) for job in (b"0", b"1", b"17", b"170", b"18", b"2", b"fs")}
        empty = {b"0": slice(0, 0), b"170": slice(3, 3), b"2": slice(7, 7), b"fs": slice(7, 7)}
        assert found == empty | {b"1": slice(0, 1), b"17": slice(1, 3), b"18": slice(3, 7)}
    assert earliest(tmp_path / "a") == 94
    written(tmp_path / "none", 0, windows=())
    with opened(tmp_path / "none") as (file, index):
        assert (index.windows, read(file, "windows/source").tolist(), read(file, "rows/time").tolist()) == ((), [], [])
    assert earliest(tmp_path / "none") == 0


@pytest.mark.parametrize("answered", [np.eye(3, 9, 6, bool), np.ones((3, 9), bool), np.zeros((3, 9), bool), None])
def test_a_file_says_of_each_window_which_targets_answered(tmp_path, answered):
    written(tmp_path / "a", answered=answered)
    with opened(tmp_path / "a") as (file, index):
        assert np.array_equal(polled(file, index), np.zeros((3, 9), bool) if answered is None else answered)
        assert ("polled" in file["windows"]) == (answered is not None and answered.any())


def test_columns_are_compressed_in_chunks_that_a_reader_of_one_job_can_take(tmp_path):
    written(tmp_path / "few", answered=np.ones((3, 9), bool))
    written(tmp_path / "many", 16385)
    for name, chunk in (("few", 7), ("many", 16384)):
        with h5py.File(tmp_path / name) as file:
            assert (file.attrs["form"], file.attrs["system"], FORM) == ("tokiod jobs 1", "fs", "tokiod jobs 1")
            for column in file["rows"].values():
                assert (column.chunks, column.compression, column.compression_opts, column.shuffle) == ((chunk,), "gzip", 1, True)
            assert [file[path].chunks for path in ("windows/source", "windows/start", "names/job", "first")] == [None] * 4
            assert name == "many" or file["windows/polled"].chunks == (6,)


def test_a_column_is_written_in_slices_of_any_length(tmp_path, monkeypatch):
    """HDF5's lock is held during each: windows are stored between two of them."""
    assert table_file.SLICE_ROWS == 1 << 20
    for rows in (7, 8, 9):
        monkeypatch.setattr(table_file, "SLICE_ROWS", 4)
        given = written(tmp_path / str(rows), rows)
        with opened(tmp_path / str(rows)) as (file, _):
            assert {name: read(file, f"rows/{name}").tolist() for name in given} == {name: of.tolist() for name, of in given.items()}


@pytest.mark.parametrize(("size", "dtype"), [(0, "u1"), (1, "u1"), (256, "u1"), (257, "u2"), (65536, "u2"), (65537, "u4")])
def test_indexes_have_the_smallest_type_that_holds_them(size, dtype):
    found = narrow(np.array([0, max(size - 1, 0)]), size)
    assert (found.dtype, found.tolist()) == (np.dtype(dtype), [0, max(size - 1, 0)])


def test_other_files_are_refused_with_what_is_wrong(tmp_path):
    (tmp_path / "text").write_text("x" * 5000)
    written(tmp_path / "newer")
    with h5py.File(tmp_path / "newer", "a") as file:
        file.attrs["form"] = "tokiod jobs 2"
    with h5py.File(tmp_path / "other", "w") as file:
        file["x"] = [1]
    for name, reason in (
        (
            "newer",
            r"table, or of a newer tokiod \(its form is 'tokiod jobs 2', expected 'tokiod jobs 1'\): move it away",
        ),
        ("other", "is not a file of the job table"),
        ("text", str(tmp_path / "text")),
    ):
        with pytest.raises(NotAJobTable, match=reason), opened(tmp_path / name):
            pass
    with pytest.raises(FileNotFoundError), opened(tmp_path / "none"):
        pass
