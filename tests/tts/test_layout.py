"""What makes a file one of tokiod, and one that HDF5 can't read."""

import itertools
import os
import threading
from contextlib import suppress

import h5py
import pytest

from tokiod.tts.layout import NotLive, form_of, open_for_reading


def test_a_form_whose_heap_is_damaged_is_reported_with_the_file(tmp_path):
    path = tmp_path / "fs.hdf5"
    with h5py.File(path, "w") as file:
        file.create_group("_tokiod").attrs["form"] = "a string of any length is in a heap"
    content = path.read_bytes()
    path.write_bytes(content.replace(b"GCOL", b"xxxx"))
    with h5py.File(path) as file, pytest.raises(NotLive, match=str(path)):
        form_of(file)


def test_a_file_that_goes_while_hdf5_opens_it_is_missing_and_not_damaged(tmp_path):
    """HDF5 looks for it a second time, of a thousand times once too late."""
    whole, is_over, latest = tmp_path / "whole", threading.Event(), [tmp_path / "0"]
    h5py.File(whole, "w").close()

    def come_and_go():
        for number in itertools.takewhile(lambda _: not is_over.is_set(), itertools.count()):
            latest[0] = tmp_path / str(number)
            os.link(whole, latest[0])
            latest[0].unlink()

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        for _ in range(3000):
            with suppress(FileNotFoundError):
                open_for_reading(latest[0]).close()
    finally:
        is_over.set()
        thread.join()
