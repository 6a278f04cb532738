"""Attributes and datasets are read as h5py's own objects read them."""

import h5py
import numpy as np
import pytest

from tokiod.tts.hdf5_input import attribute, whole

VALUES = {
    "number": 5,
    "share": np.float32(0.5),
    "bytes": np.bytes_("form"),
    "names": np.array(["a", "bcd"], "S"),
    "numbers": np.arange(6, dtype=np.uint8).reshape(2, 3),
    "text": "of any length",
    "texts": ["of", "any length"],
    "truth": True,
    "no name": np.array([], "S1"),
    "empty": h5py.Empty("i4"),
}


@pytest.fixture
def file(tmp_path):
    with h5py.File(tmp_path / "a.hdf5", "w") as file:
        group = file.create_group("group")
        dataset = group.create_dataset("d", data=[1.5, np.nan])
        for node in (file, group, dataset):
            for name, value in VALUES.items():
                node.attrs[name] = value
        yield file


@pytest.mark.parametrize("name", VALUES)
def test_an_attribute_is_what_h5py_returns(file, name):
    for node, of in ((file.id, "."), (file.id, "group"), (file.id, "group/d"), (file["group"].id, "d"), (file["group/d"].id, ".")):
        found, right = attribute(node, name, of=of), file.attrs[name]
        assert type(found) is type(right)
        assert found == right if isinstance(right, h5py.Empty) else np.array_equal(found, right)


def test_a_missing_attribute_or_path_has_the_default(file):
    assert attribute(file.id, "no", 7) == attribute(file.id, "number", 7, of="no/path") == 7
    for of in (".", "no"):
        with pytest.raises(KeyError):
            attribute(file.id, "no", of=of)


@pytest.mark.parametrize("values", [np.arange(4), np.ones((2, 0)), np.array(["a", "b"], "S1"), [b"x", b"of any length"], 3.5])
def test_a_dataset_is_what_h5py_returns(file, values):
    dataset = file.create_dataset("x", data=values)
    assert np.array_equal(whole(dataset.id), dataset[...])
    assert np.shape(whole(dataset.id)) == dataset.shape
