"""Creating HDF5 files: HDF5 never sees a write that fails.

HDF5 does not survive a write of its metadata that fails, as on a full disk: the file stays open, and the process ends by a segmentation
fault, at once or later (h5py issue 914; seen with HDF5 2.0.0). So it writes through an object that keeps the first error for its caller.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tokiod.tts.live.files import Files

LIBVER = ("v108", "v110")
"""The form of HDF5's structures: what HDF5 1.10 reads."""


@contextmanager
def created(path: Path, files: Files, **properties: Any) -> Iterator[Any]:
    """Create a file, replacing any of that name, and yield its h5py.File, which is closed at the end but not synced.

    properties: of h5py.File. Raises the first OSError of a write, instead of what HDF5 raises after it.
    """
    fd = files.create(path)
    output = _Output(fd, files)
    try:
        with h5py.File(path, "w", driver="fileobj", fileobj=output, libver=LIBVER, **properties) as file:
            yield file
    except Exception as error:
        if output.error is not None:
            raise output.error from error
        raise
    finally:
        files.close(fd)
    if output.error is not None:
        raise output.error


def write_attribute(node: Any, name: str, value: Any) -> None:
    """Write a new attribute, a NumPy array or scalar. node: an h5py.h5d.DatasetID."""
    # Without h5py's objects, which write an attribute under another name first, and look for one to replace.
    array = np.asarray(value)
    kind, space = _type(array.dtype), h5py.h5s.create_simple(array.shape) if array.shape else _SCALAR
    h5py.h5a.create(node, name.encode(), kind, space).write(array, kind)


def new_dataset(file: Any, name: str, shape: tuple[int, ...], dtype: Any, properties: Any = None) -> Any:
    """Create a dataset and the groups above it; return its h5py.h5d.DatasetID. properties: what dataset_properties() returned."""
    # Without h5py's objects, which look up each group above each of the four datasets of a counter.
    space = h5py.h5s.create_simple(shape)
    return h5py.h5d.create(file.id, name.encode(), _type(np.dtype(dtype)), space, properties or _UNTIMED, _WITH_GROUPS)


def dataset_properties() -> Any:
    """Return properties of h5py.h5p.DATASET_CREATE for new_dataset(): a dataset has no times of its own."""
    properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    properties.set_obj_track_times(False)
    return properties


def _links() -> Any:
    links = h5py.h5p.create(h5py.h5p.LINK_CREATE)
    links.set_create_intermediate_group(True)
    return links


# Made once: a file has a hundred datasets and two hundred attributes, and each of these takes 5 to 20 us to make and to forget.
_SCALAR, _UNTIMED, _WITH_GROUPS = h5py.h5s.create(h5py.h5s.SCALAR), dataset_properties(), _links()


@lru_cache(maxsize=64)
def _type(dtype: np.dtype[Any]) -> Any:
    return h5py.h5t.py_create(dtype, logical=True)


class _Output:
    """The file object that h5py expects. After the first error, which `error` keeps, it writes nothing any more."""

    def __init__(self, fd: int, files: Files) -> None:
        self.error: BaseException | None = None
        self._fd = fd
        self._files = files
        self._position = 0

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to an offset in bytes."""
        self._position = offset if whence == os.SEEK_SET else os.fstat(self._fd).st_size + offset
        return self._position

    def tell(self) -> int:
        """Return the position in bytes."""
        return self._position

    def write(self, data: memoryview) -> int:
        """Write all of `data`."""
        self._try(lambda: self._files.pwrite(self._fd, np.frombuffer(data, np.uint8), self._position))
        self._position += len(data)
        return len(data)

    def readinto(self, buffer: memoryview) -> int:
        """Fill a buffer: with zeros where nothing was written, as HDF5's own driver does."""
        np.frombuffer(buffer, np.uint8)[:] = 0
        self._try(lambda: os.preadv(self._fd, [buffer], self._position))
        self._position += len(buffer)
        return len(buffer)

    def truncate(self, size: int) -> int:
        """Set the length in bytes."""
        self._try(lambda: os.ftruncate(self._fd, size))
        return size

    def flush(self) -> None:
        """Have nothing buffered."""

    def _try(self, operation: Callable[[], object]) -> None:
        try:
            if self.error is None:
                operation()
        except BaseException as error:  # noqa: BLE001 - no exception may reach HDF5
            self.error = error
