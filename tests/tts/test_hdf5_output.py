"""HDF5 never sees a write that fails: whichever it is, the caller gets its error, and the process stays whole."""

import errno

import h5py
import numpy as np
import pytest
from faulty_files import FaultyFiles, SimulatedKill

from tokiod.tts import hdf5_output


def write(path, files):
    """Write groups, attributes and datasets of both layouts, more than HDF5 keeps in memory."""
    with hdf5_output.created(path, files) as file:
        for group in ("datatargets", "mdtargets"):
            file.create_group(group).attrs["source"] = np.bytes_("lmt")
            for name in map(str, range(20)):
                data = np.arange(4096.0).reshape(64, 64)
                file[group].create_dataset(f"plain{name}", data=data).attrs["columns"] = np.bytes_("x" * 1000)
                file[group].create_dataset(f"chunked{name}", data=data, chunks=(8, 64), compression="gzip")


def test_a_file_has_what_was_written(tmp_path):
    files = FaultyFiles(tmp_path)
    write(tmp_path / "whole.hdf5", files)
    with h5py.File(tmp_path / "whole.hdf5") as file:
        assert (len(file["mdtargets"]), file["mdtargets/chunked7"][63, 63], file["datatargets/plain3"][1, 0]) == (40, 4095.0, 64.0)
        assert file["datatargets"].attrs["source"] == b"lmt"
    assert files.operations.count("pwrite") > 100


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_the_error_of_any_write_reaches_the_caller_and_nothing_stays_open(tmp_path, opened, code):
    files = FaultyFiles(tmp_path)
    write(tmp_path / "whole.hdf5", files)
    for n in range(1, len(files.operations), 7):
        faulty = FaultyFiles(tmp_path / "none")
        faulty.fail_at(n, code)
        with pytest.raises(OSError) as caught:  # noqa: PT011 - its code is compared
            write(tmp_path / "part.hdf5", faulty)
        assert (caught.value.errno, opened()) == (code, 0)
    write(tmp_path / "part.hdf5", files)


def test_a_kill_at_a_write_is_no_error_of_hdf5(tmp_path, opened):
    files = FaultyFiles(tmp_path)
    files.kill_at(20)
    with pytest.raises(SimulatedKill):
        write(tmp_path / "part.hdf5", files)
    assert opened() == 0


def test_an_error_of_the_caller_is_raised_as_it_is(tmp_path, opened):
    with pytest.raises(KeyError, match="mine"), hdf5_output.created(tmp_path / "part.hdf5", FaultyFiles(tmp_path)):
        raise KeyError("mine")
    assert opened() == 0


def test_the_error_of_a_write_is_raised_also_where_something_else_fails_after_it(tmp_path, opened):
    faulty = FaultyFiles(tmp_path)
    faulty.fail("pwrite", 1, errno.EIO)

    def write_and_fail():
        with hdf5_output.created(tmp_path / "part.hdf5", faulty) as file:
            file["data"] = np.zeros(1 << 16)
            file.flush()
            raise KeyError("what could not be read back")

    with pytest.raises(OSError) as caught:  # noqa: PT011 - its code is compared
        write_and_fail()
    assert (caught.value.errno, opened()) == (errno.EIO, 0)
