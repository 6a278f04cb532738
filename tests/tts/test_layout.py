"""What makes a file one of tokiod, and one that HDF5 can't read."""

import h5py
import pytest

from tokiod.tts.layout import NotLive, form_of


def test_a_form_whose_heap_is_damaged_is_reported_with_the_file(tmp_path):
    path = tmp_path / "fs.hdf5"
    with h5py.File(path, "w") as file:
        file.create_group("_tokiod").attrs["form"] = "a string of any length is in a heap"
    content = path.read_bytes()
    path.write_bytes(content.replace(b"GCOL", b"xxxx"))
    with h5py.File(path) as file, pytest.raises(NotLive, match=str(path)):
        form_of(file)
