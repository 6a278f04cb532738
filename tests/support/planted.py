"""Differences planted in an archive, so that what finds differences can be seen to find them."""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING

import h5py
import numpy as np

from tokiod.tts.schema import missing

if TYPE_CHECKING:
    from pathlib import Path


def plant(path: Path, value: float, dataset: str = "datatargets/readbytes") -> None:
    """Put a value into the middle one of a live file's filled cells, behind HDF5's and the daemon's back."""
    with h5py.File(path, "r") as file:
        node = file[dataset]
        filled = np.flatnonzero(~missing(node[...]))
        offset = node.id.get_offset() + 8 * int(filled[len(filled) // 2])
    fd = os.open(path, os.O_WRONLY)
    try:
        os.pwrite(fd, struct.pack("<d", value), offset)
    finally:
        os.close(fd)
