"""LiveFile: the TTS file of a day that is being filled, and what makes a commit trustworthy."""

from __future__ import annotations

import datetime as dt
import errno
import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

import numpy as np

from tokiod.tts.layout import OWN, RAW_SEALED, Kind, NotLive, Place, form_of, open_for_reading, places, read_spec
from tokiod.tts.live.create import located
from tokiod.tts.live.files import REAL, Files
from tokiod.tts.live.matrix import Matrix, OpenFile

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from tokiod.tts.spec import FileSpec

__all__ = ["FileLost", "LiveFile", "NotLive", "SyncFailed", "set_aside"]


class FileLost(OSError):  # noqa: N818 - what has happened
    """The file is not what it was: truncated, replaced or unlinked by somebody else."""

    def __init__(self, reason: str, path: Path) -> None:
        super().__init__(errno.ESTALE, reason, str(path))
        self.reason = reason


class SyncFailed(OSError):  # noqa: N818 - what has happened
    """A sync failed: what was written since the last commit may be gone, whatever later syncs say."""


Identity = tuple[tuple[int, int], int, int]
"""Device and inode, size, links."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What HDF5 tells about a live file."""

    spec: FileSpec
    places: list[Place]
    sealed_raw: bool


class LiveFile:
    """One live file: HDF5 tells once where its matrices stand, then they are read and written in place.

    HDF5 has the file open only while this is being made, so its metadata never changes and any reader can open it at any time; a kill
    at any instant leaves a file that opens. The price is that the shape is fixed: a new column is a new file (tokiod.tts.live.grow).

    commit() is one fdatasync for all that was written. A failed one is final: the kernel reports it once, drops the pages, and calls
    the next sync a success, so this file is never synced again. Size, inode and link count are looked at before and after, since a file
    that was truncated or replaced would swallow everything without an error and, grown again by a write, read as measured zeros. Whether
    somebody else wrote to it shows at the first write after a commit, in its time of modification and what was written last.
    A file counts as dirty when it is opened: what it holds may be a killed predecessor's, not yet on the disk.

    cells, raw, span: Matrix by logical dataset, raw and span of counters only. sealed_raw: an earlier sealing dropped raw samples of
    the day, so an absent one says nothing about its cell.
    """

    def __init__(self, path: Path, layout: Layout, fd: int, identity: Identity, files: Files) -> None:
        self.path = path
        self.spec = layout.spec
        self.files = files
        self.sealed_raw = layout.sealed_raw
        self._file = OpenFile(fd, files, dirty=True)
        self._failed = False
        self._identity = identity
        self.cells = self._matrices(layout, "cells")
        self.raw = self._matrices(layout, "raw")
        self.span = self._matrices(layout, "span")

    def _matrices(self, layout: Layout, kind: Kind) -> dict[str, Matrix]:
        dtype = np.float64 if kind == "cells" else np.int64
        return {p.dataset: Matrix(self._file, p.offset, p.rows, p.columns, dtype) for p in layout.places if p.kind == kind}

    @classmethod
    def open(cls, path: Path, files: Files = REAL) -> LiveFile:
        """Open a live file for filling. Raises NotLive for any other file, FileNotFoundError and other OSErrors."""
        fd = files.open(path)
        try:
            # Before HDF5 looks: what is truncated in between is then known by one of the two.
            identity = _identity(files.fstat(fd))
            live = cls(path, _read_layout(path), fd, identity, files)
            live.check()
        except BaseException:
            files.close(fd)
            raise
        return live

    @property
    def dirty(self) -> bool:
        """Whether a commit has something to do."""
        return self._file.dirty

    @property
    def was_written(self) -> bool:
        """Whether the file was written to since note_writes()."""
        return bool(self._file.written)

    def note_writes(self, *, note: bool = True) -> None:
        """Begin to note where the file is written to, or stop it."""
        self._file.written = [] if note else None

    def written_rows(self) -> Iterator[tuple[Kind, str, NDArray[np.int64]]]:
        """Yield each matrix that was written to since note_writes(), by kind and dataset, and which of its rows, ascending."""
        begin, end = np.array(self._file.written or [], np.int64).reshape(-1, 2).T
        for kind in get_args(Kind):
            for dataset, matrix in self.matrices(kind).items():
                rows = matrix.rows_of(begin, end)
                if len(rows):
                    yield kind, dataset, rows

    def matrices(self, kind: Kind) -> dict[str, Matrix]:
        """Return cells, raw or span."""
        return {"cells": self.cells, "raw": self.raw, "span": self.span}[kind]

    def commit(self) -> None:
        """Make all that was written durable. Raises FileLost or SyncFailed; then nothing since the last commit is stored."""
        if self._failed:
            raise SyncFailed(errno.EIO, "an earlier sync failed; the file is not to be trusted", str(self.path))
        if not self.dirty:
            return
        self.check()
        try:
            self.files.fdatasync(self._file.fd)
        except OSError as error:
            self._failed = True
            raise SyncFailed(error.errno, f"sync failed: {error.strerror}", str(self.path)) from error
        self._file.committed(self.check().st_mtime_ns)

    def check(self) -> os.stat_result:
        """Raise FileLost unless the file still is what was opened, under its name; return its status."""
        if self._file.is_foreign:
            raise FileLost("somebody else wrote to it", self.path)
        inode, size, links = self._identity
        now = self.files.fstat(self._file.fd)
        if now.st_size != size:
            raise FileLost(f"its size is {now.st_size}, was {size}", self.path)
        try:
            named = self.files.stat(self.path)
        except FileNotFoundError:
            raise FileLost("it was unlinked or renamed", self.path) from None
        if (named.st_dev, named.st_ino) != inode:
            raise FileLost("another file has its name", self.path)
        if now.st_nlink != links:
            raise FileLost(f"it has {now.st_nlink} names, had {links}", self.path)
        return now

    def close(self) -> None:
        """Give the descriptor back; what was not committed may be lost."""
        fd, self._file.fd = self._file.fd, -1
        if fd >= 0:
            self.files.close(fd)

    def set_aside(self, now: int) -> Path:
        """Rename the file to NAME.aside-STAMP, durably, and return that path; now: UTC epoch seconds."""
        return set_aside(self.path, now, self.files)


def set_aside(path: Path, now: int, files: Files = REAL) -> Path:
    """Rename a file that is not trusted to NAME.aside-STAMP, never over another, durably; now: UTC epoch seconds."""
    stamp = dt.datetime.fromtimestamp(now, dt.UTC).strftime("%Y%m%dT%H%M%SZ")
    candidates = (path.with_name(f"{path.name}.aside-{stamp}{'' if n == 1 else f'-{n}'}") for n in itertools.count(1))
    aside = next(candidate for candidate in candidates if not candidate.exists())
    files.rename(path, aside)
    files.fsync_directory(path.parent)
    return aside


def _identity(status: os.stat_result) -> Identity:
    return (status.st_dev, status.st_ino), status.st_size, status.st_nlink


def _read_layout(path: Path) -> Layout:
    with open_for_reading(path) as file:
        form = form_of(file)
        if form != "live":
            raise NotLive(f"{path}: it is a {form} file")
        try:
            spec = read_spec(file)
            return Layout(spec, [located(file, place) for place in places(spec)], bool(file[OWN].attrs[RAW_SEALED]))
        except (KeyError, ValueError, TypeError, RuntimeError, OSError) as error:  # whatever HDF5 makes of a file that is broken
            raise NotLive(f"{path}: {error}") from error
