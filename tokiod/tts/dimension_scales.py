"""Dimension scales: the names of both axes of each dataset, where other programs look for them.

xarray, netCDF and MATLAB show times and components by them; TTS readers need none of it. netCDF wants all axes of a dataset to have one, or
none, and the scale in the dataset's group. There is no missing_value and no _FillValue: programs compare them with ==, so that -0.0
would hide every measured zero, too. So a text states what is missing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from tokiod.tts.hdf5_output import write_attribute
from tokiod.tts.schema import COMPONENTS, GROUPS, TIMESTAMPS, group_of

if TYPE_CHECKING:
    from tokiod.tts.spec import FileSpec

UNITS_OF_TIME = np.bytes_("seconds since 1970-01-01 00:00:00 UTC")
TEXT_OF_MISSING = np.bytes_("negative zero (sign bit set)")


# Without h5py's objects, which take 2 ms of a dataset's creation.
class DimensionScales:
    """The scales of a file that HDF5 is creating: of each group the time stamps, and the names of components of its datasets."""

    def __init__(self, file: Any, spec: FileSpec) -> None:
        self._file = file
        self._titles: dict[tuple[str, tuple[str, ...]], bytes] = {}
        self._scales: dict[tuple[str, bytes], Any] = {}
        for name in (group for group in GROUPS if group in spec.groups):
            stamps = file[name][TIMESTAMPS]
            stamps.attrs["units"], stamps.attrs["step"] = UNITS_OF_TIME, np.int64(spec.groups[name].step)
            self._add(name, TIMESTAMPS.encode(), stamps.id)

    def attach(self, node: Any, dataset: str, columns: tuple[str, ...]) -> None:
        """Name the axes of a dataset of cells. Datasets of a group with the same columns share a scale: datatarget, datatarget_2.

        node: its h5py.h5d.DatasetID.
        """
        group = group_of(dataset)
        title = self._title(group, columns)
        for axis, name in enumerate((TIMESTAMPS.encode(), title)):
            h5py.h5ds.attach_scale(node, self._scales[group, name], axis)
            h5py.h5ds.set_label(node, axis, name)
        write_attribute(node, "missing", TEXT_OF_MISSING)

    def _title(self, group: str, columns: tuple[str, ...]) -> bytes:
        if (group, columns) not in self._titles:
            number = 1 + sum(other == group for other, _ in self._titles)
            title = COMPONENTS[group] + (f"_{number}" if number > 1 else "")
            self._titles[group, columns] = title.encode()
            names = np.array([name.encode() for name in columns])
            self._add(group, title.encode(), self._file[group].create_dataset(title, data=names).id)
        return self._titles[group, columns]

    def _add(self, group: str, title: bytes, scale: Any) -> None:
        h5py.h5ds.set_scale(scale, title)
        self._scales[group, title] = scale
