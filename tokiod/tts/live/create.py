"""Making a live file: under a temporary name, laid out by HDF5, filled through the file layer, then renamed, whole.

HDF5 writes metadata, time stamps and attributes through its own descriptor and has closed the file before a byte of it is filled or
synced here; one fsync of the whole file then covers both, since it is the file that is synced, not a descriptor.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import h5py
import numpy as np

from tokiod.tts.layout import FORM, OWN, RAW_SEALED, Place, places
from tokiod.tts.live.files import REAL, Files, replacing
from tokiod.tts.schema import ABSENT, GROUPS, NO_ROW, VERSION, group_of, units

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from tokiod.tts.spec import FileSpec

    Pause = Callable[[], object]

SLICE = 8 * 2**20
"""Bytes written between two syncs: so little that commits beside it stay under 50 ms."""

ALIGNMENT = 4096
LIBVER = ("v108", "v110")
FILL = {"cells": ABSENT, "raw": ABSENT, "span": NO_ROW}
_METADATA = 2**20


class Content(Protocol):
    """What a new file takes over from an old one."""

    def __call__(self, place: Place, start: int, block: NDArray[np.int64]) -> None:
        """Put the old bits of rows [start, start + len(block)) of a matrix into a block that holds the fill."""
        ...


def nothing(place: Place, start: int, block: NDArray[np.int64]) -> None:
    """Leave the fill as it is."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a new file is to be: its spec, the `updated` of its datasets, what it takes over, whether raw of its day was lost."""

    spec: FileSpec
    created: int
    content: Content = nothing
    raw_sealed: bool = False


def no_pause() -> None:
    """Go on at once."""


def create(path: Path, spec: FileSpec, files: Files = REAL, pause: Pause = no_pause, *, created: int) -> None:
    """Make a live file in which every cell is missing; it appears under its name when it is complete and durable.

    created: the datasets' `updated` until sealing. pause: called between slices of 8 MiB. Raises FileExistsError, and OSError(ENOSPC).
    """
    if path.exists():
        raise FileExistsError(errno.EEXIST, "is there already", str(path))
    files.make_directory(path.parent)
    with replacing(path, files) as temporary:
        build(temporary, Plan(spec, created), files, pause)


def build(path: Path, plan: Plan, files: Files, pause: Pause) -> None:
    """Make a live file under just this name, whole and durable."""
    _check_space(path.parent, sum(p.nbytes + ALIGNMENT for p in places(plan.spec)) + _METADATA, files)
    placed = _lay_out(path, plan)
    fd = files.open(path)
    try:
        files.allocate(fd, files.fstat(fd).st_size)
        unsynced = 0
        for place in placed:
            for offset, block in _slices(place, plan.content):
                if unsynced + block.nbytes > SLICE:
                    files.fdatasync(fd)
                    unsynced = 0
                    pause()
                files.pwrite(fd, block, offset)
                unsynced += block.nbytes
        files.fsync(fd)
    finally:
        files.close(fd)


def write_frame(file: Any, spec: FileSpec) -> None:
    """Write what live and sealed files have in common: attributes, groups, time stamps."""
    file.attrs["version"] = VERSION
    file.attrs["start"] = np.int64(spec.start)
    file.attrs["end"] = np.int64(spec.end)
    for name in (g for g in GROUPS if g in spec.groups):
        group = file.create_group(name)
        group.attrs["source"] = np.bytes_(spec.groups[name].source)
        group.create_dataset("timestamps", data=np.arange(spec.start, spec.end, spec.groups[name].step, dtype=np.int64))


def write_attributes(dataset: Any, name: str, source: str, columns: tuple[str, ...], updated: int) -> None:
    """Write the attributes of a dataset of cells."""
    dataset.attrs["columns"] = np.array([c.encode() for c in columns])
    dataset.attrs["units"] = np.bytes_(units(name, source))
    dataset.attrs["version"] = np.bytes_(VERSION)
    dataset.attrs["updated"] = np.int64(updated)


def _check_space(directory: Path, need: int, files: Files) -> None:
    have = files.free_space(directory)
    if have < need:
        raise OSError(errno.ENOSPC, f"a new file needs {need / 2**20:.0f} MiB, {have / 2**20:.0f} MiB are free", str(directory))


def _lay_out(path: Path, plan: Plan) -> list[Place]:
    spec = plan.spec
    with h5py.File(path, "w", libver=LIBVER, locking=False, alignment_threshold=1, alignment_interval=ALIGNMENT) as file:
        write_frame(file, spec)
        own = file.create_group(OWN)
        own.attrs[FORM] = np.bytes_("live")
        own.attrs[RAW_SEALED] = np.int64(plan.raw_sealed)
        placed = [_allocate(file, place) for place in places(spec)]
        for place in (p for p in placed if p.kind == "cells"):
            write_attributes(file[place.name], place.dataset, spec.groups[group_of(place.dataset)].source, place.columns, plan.created)
    return placed


def _allocate(file: Any, place: Place) -> Place:
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_layout(h5py.h5d.CONTIGUOUS)
    properties.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    properties.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    shape = (place.rows, len(place.columns))
    file.create_dataset(place.name, shape, place.dtype, dcpl=properties)
    return located(file, place)


def located(file: Any, place: Place) -> Place:
    """Return a place with its offset. Raises ValueError unless a dataset of that shape is there, contiguous, allocated and aligned."""
    dataset = file.get(place.name)
    if dataset is None:
        raise ValueError(f"{place.name} is not there")
    if (dataset.shape, dataset.dtype) != ((place.rows, len(place.columns)), place.dtype):
        raise ValueError(f"{place.name} has shape {dataset.shape} and type {dataset.dtype}")
    offset = dataset.id.get_offset()
    if offset is None or offset % 8:
        raise ValueError(f"{place.name} has no place of its own in the file (offset {offset})")
    return replace(place, offset=offset)


def _slices(place: Place, content: Content) -> Iterator[tuple[int, NDArray[np.int64]]]:
    width = len(place.columns)
    height = max(1, SLICE // (8 * width))
    buffer = np.empty((min(height, place.rows), width), np.int64)
    for start in range(0, place.rows, height):
        block = buffer[: place.rows - start]
        block[...] = FILL[place.kind]
        content(place, start, block)
        yield place.offset + start * width * 8, block
