"""Create a live file under a temporary name: HDF5 lays it out, the file layer fills it, and it is renamed when it is complete.

HDF5 writes metadata, time stamps and attributes through its own descriptor and closes the file before the file layer fills and syncs it.
One fsync then covers both, because it syncs the file and not a descriptor.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import h5py
import numpy as np

from tokiod.tts import hdf5_output
from tokiod.tts.dimension_scales import DimensionScales
from tokiod.tts.hdf5_output import dataset_properties, new_dataset, write_attribute
from tokiod.tts.layout import FORM, LIVE_FORM, MAX_STEP, OWN, RAW_SEALED, MatrixLocation, matrix_locations
from tokiod.tts.live.files import REAL, Files, exists, replacing
from tokiod.tts.schema import ABSENT, GROUPS, NO_ROW, TIMESTAMPS, VERSION, units

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from tokiod.tts.spec import FileSpec

    Pause = Callable[[], object]

SLICE_BYTES = 8 * 2**20
"""Bytes written between two syncs: few enough that concurrent commits stay under 50 ms."""

ALIGNMENT_BYTES = 4096
FILL = {"cells": ABSENT, "raw": ABSENT, "span": NO_ROW, "begin": ABSENT}
METADATA_BYTES = 2**20


class Content(Protocol):
    """The content that a new file takes over from an old one."""

    def __call__(self, location: MatrixLocation, start: int, block: NDArray[np.int64]) -> None:
        """Put the old bits of rows [start, start + len(block)) of a matrix into a block that holds the fill value."""
        ...


def no_content(location: MatrixLocation, start: int, block: NDArray[np.int64]) -> None:
    """Keep the fill value."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A file to build: its spec, the `updated` of its datasets, the content it takes over."""

    spec: FileSpec
    created: int
    content: Content = no_content


def no_pause() -> None:
    """Continue at once."""


def create(path: Path, spec: FileSpec, files: Files = REAL, pause: Pause = no_pause, *, created: int) -> None:
    """Create a live file in which every cell is missing; it appears under its name when it is complete and durable.

    created: the datasets' `updated` until sealing. pause: called between slices of 8 MiB. Raises FileExistsError, and OSError(ENOSPC).
    """
    if exists(path):
        raise FileExistsError(errno.EEXIST, "already exists", str(path))
    files.make_directory(path.parent)
    with replacing(path, files) as temporary:
        build(temporary, Plan(spec, created), files, pause)


def build(path: Path, plan: Plan, files: Files, pause: Pause) -> list[MatrixLocation]:
    """Write a live file under exactly this name, complete and durable; return where its matrices lie."""
    _check_space(path.parent, sum(p.nbytes + ALIGNMENT_BYTES for p in matrix_locations(plan.spec)) + METADATA_BYTES, files)
    locations = _lay_out(path, plan, files)
    fd = files.open(path)
    try:
        files.allocate(fd, files.fstat(fd).st_size)
        unsynced = 0
        for location in locations:
            for offset, block in _slices(location, plan.content):
                if unsynced + block.nbytes > SLICE_BYTES:
                    files.fdatasync(fd)
                    unsynced = 0
                    pause()
                files.pwrite(fd, block, offset)
                unsynced += block.nbytes
        files.fsync(fd)
    finally:
        files.close(fd)
    return locations


def write_frame(file: Any, spec: FileSpec) -> None:
    """Write what live and sealed files share: attributes, groups, time stamps."""
    file.attrs["version"] = VERSION
    file.attrs["start"] = np.int64(spec.start)
    file.attrs["end"] = np.int64(spec.end)
    for name in (g for g in GROUPS if g in spec.groups):
        group = file.create_group(name)
        group.attrs["source"] = np.bytes_(spec.groups[name].source)
        group.create_dataset(TIMESTAMPS, data=np.arange(spec.start, spec.end, spec.groups[name].step, dtype=np.int64))


def write_attributes(node: Any, name: str, own_units: str, columns: tuple[str, ...], updated: int) -> None:
    """Write the attributes of a dataset of cells. node: its h5py.h5d.DatasetID."""
    write_attribute(node, "columns", np.array([c.encode() for c in columns]))
    write_attribute(node, "units", np.bytes_(own_units or units(name)))
    write_attribute(node, "version", np.bytes_(VERSION))
    write_attribute(node, "updated", np.int64(updated))


def _check_space(directory: Path, need: int, files: Files) -> None:
    have = files.free_space(directory)
    if have < need:
        raise OSError(errno.ENOSPC, f"a new file needs {need / 2**20:.0f} MiB, {have / 2**20:.0f} MiB are free", str(directory))


def _lay_out(path: Path, plan: Plan, files: Files) -> list[MatrixLocation]:
    spec = plan.spec
    with hdf5_output.created(path, files, alignment_threshold=1, alignment_interval=ALIGNMENT_BYTES) as file:
        write_frame(file, spec)
        own = file.create_group(OWN)
        own.attrs[FORM] = np.bytes_(LIVE_FORM)
        own.attrs[RAW_SEALED] = np.int64(0)  # a part of the form; no version that was released set it
        allocated, scales = [_allocate(file, location) for location in matrix_locations(spec)], DimensionScales(file, spec)
        for location, node in allocated:
            if location.kind == "cells":
                write_attributes(node, location.dataset, spec.matrices[location.dataset].own_units, location.columns, plan.created)
                scales.attach(node, location.dataset, location.columns)
            elif location.kind == "begin":
                write_attribute(node, MAX_STEP, np.int64(spec.matrices[location.dataset].max_step))
    return [location for location, _ in allocated]


def _contiguous() -> Any:
    properties = dataset_properties()
    properties.set_layout(h5py.h5d.CONTIGUOUS)
    properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    properties.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    return properties


_CONTIGUOUS = _contiguous()


def _allocate(file: Any, location: MatrixLocation) -> tuple[MatrixLocation, Any]:
    """Create the dataset of a matrix; return the location with its offset, and the h5py.h5d.DatasetID."""
    node = new_dataset(file, location.name, (location.rows, len(location.columns)), location.dtype, _CONTIGUOUS)
    return replace(location, offset=_offset(node, location)), node


def locate(file: Any, location: MatrixLocation) -> MatrixLocation:
    """Return the location with its offset. Raises ValueError unless the dataset has that shape and is contiguous, allocated and aligned."""
    # Without h5py's objects: a file of 26 counters has 104 of these, and is opened in half the time.
    try:
        dataset = h5py.h5d.open(file.id, location.name.encode())
    except KeyError:
        raise ValueError(f"{location.name} is missing") from None
    if (dataset.shape, dataset.dtype) != ((location.rows, len(location.columns)), location.dtype):
        raise ValueError(f"{location.name} has shape {dataset.shape} and type {dataset.dtype}")
    return replace(location, offset=_offset(dataset, location))


def _offset(dataset: Any, location: MatrixLocation) -> int:
    offset: int | None = dataset.get_offset()
    if offset is None or offset % 8:
        raise ValueError(f"{location.name} is not contiguous and aligned in the file (offset {offset})")
    return offset


def _slices(location: MatrixLocation, content: Content) -> Iterator[tuple[int, NDArray[np.int64]]]:
    width = len(location.columns)
    height = max(1, SLICE_BYTES // (8 * width))
    buffer = np.empty((min(height, location.rows), width), np.int64)
    for start in range(0, location.rows, height):
        block = buffer[: location.rows - start]
        block[...] = FILL[location.kind]
        content(location, start, block)
        yield location.offset + start * width * 8, block
