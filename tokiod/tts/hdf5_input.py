"""Read attributes and small datasets of HDF5 without h5py's objects, which look up each thing several times."""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np

_PLAIN = "iufS"
"""Kinds of NumPy types that HDF5 reads into an array as they are."""
_ALL = h5py.h5s.ALL


def attribute(node: Any, name: str, *default: Any, of: str = ".") -> Any:
    """Return an attribute as h5py's objects do: a NumPy scalar, an array, or a str. node: an h5py.h5f.FileID, GroupID or DatasetID.

    of: a path from the node. Raises KeyError for a missing attribute, or a missing path, without a default.
    """
    try:
        found = h5py.h5a.open(node, name.encode(), obj_name=of.encode())
    except KeyError:
        if default:
            return default[0]
        raise
    # Strings of any length, booleans and attributes without a value are h5py's.
    kind, space = found.dtype, found.get_space()
    if kind.kind not in _PLAIN or not space.get_simple_extent_npoints():
        return h5py.AttributeManager(h5py.HLObject(h5py.h5o.open(node, of.encode())))[name]
    values = np.empty(space.get_simple_extent_dims(), kind)
    found.read(values)
    return values[()]


def whole(dataset: Any) -> Any:
    """Return all values of a dataset, an array of its shape. dataset: an h5py.h5d.DatasetID."""
    kind, space = dataset.dtype, dataset.get_space()
    if kind.kind not in _PLAIN or not space.get_simple_extent_npoints():
        return h5py.Dataset(dataset)[...]
    values = np.empty(space.get_simple_extent_dims(), kind)
    dataset.read(_ALL, _ALL, values)
    return values
