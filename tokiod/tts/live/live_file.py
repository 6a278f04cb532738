"""LiveFile: the TTS file of a day that is being filled, and its durable commit."""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, get_args

import msgspec
import numpy as np

from tokiod.tts.layout import (
    SPAN_ROWS,
    Kind,
    MatrixLocation,
    NotLive,
    form_of,
    matrix_locations,
    open_for_reading,
    read_spec,
    unreadable,
)
from tokiod.tts.live.create import locate
from tokiod.tts.live.files import REAL, Files, exists, sync_name
from tokiod.tts.live.matrix import Matrix, OpenFile
from tokiod.tts.schema import NO_ROW

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from tokiod.tts.live.create import Plan
    from tokiod.tts.spec import FileSpec

__all__ = ["FileLost", "LiveFile", "NotLive", "SyncFailed", "link_aside", "set_aside"]


class FileLost(OSError):  # noqa: N818 - a state, not a fault
    """Another process truncated, replaced, unlinked or wrote to the file."""

    def __init__(self, reason: str, path: Path) -> None:
        super().__init__(errno.ESTALE, reason, str(path))
        self.reason = reason


class SyncFailed(OSError):  # noqa: N818 - a state, not a fault
    """A sync failed: writes since the last commit may be lost, whatever later syncs return."""


Identity = tuple[tuple[int, int], int]
"""Device and inode, size."""


class _FileLayout(msgspec.Struct, frozen=True):
    """The layout of a live file, as HDF5 reads it."""

    spec: FileSpec
    locations: list[MatrixLocation]


class LiveFile:
    """One live file: HDF5 locates its matrices once, then they are read and written in location.

    HDF5 has the file open only during open(), so its metadata never changes and any reader can open it at any time; a kill at any
    instant leaves a file that opens. The price is a fixed shape: a new column needs a new file (tokiod.tts.live.rewrite).

    commit() is one fdatasync for all writes. A failed sync is final: the kernel reports it once, drops the pages, and reports success
    for the next sync, so this file is never synced again. commit() compares size and inode before and after, because a truncated or
    replaced file would accept all writes without an error and, grown again by a write, read as measured zeros. The first write after a
    commit detects writes of other processes, by the modification time and the bytes written last. A hard link to the file is harmless.
    A file is dirty when it is opened, and its name is not durable: a killed process may have written to it, or renamed it, without a sync.

    cells, raw, span, begin: Matrix by logical dataset, all but cells of counters only. name_is_durable: its directory was synced under its
    present name.
    """

    def __init__(self, path: Path, layout: _FileLayout, fd: int, identity: Identity, files: Files) -> None:
        self.path = path
        self.spec = layout.spec
        self.files = files
        self.name_is_durable = False
        self._file = OpenFile(fd, files, dirty=True)
        self._failed = False
        self._identity = identity
        self.cells = self._matrices(layout, "cells")
        self.raw = self._matrices(layout, "raw")
        self.span = self._matrices(layout, "span")
        self.begin = self._matrices(layout, "begin")

    def _matrices(self, layout: _FileLayout, kind: Kind) -> dict[str, Matrix]:
        dtype = np.float64 if kind == "cells" else np.int64
        return {p.dataset: Matrix(self._file, p.offset, p.rows, p.columns, dtype) for p in layout.locations if p.kind == kind}

    @classmethod
    def open(cls, path: Path, files: Files = REAL) -> LiveFile:
        """Open a live file for writing. Raises NotLive for any other file, FileNotFoundError and other OSErrors."""
        fd = files.open(path)
        try:
            # Taken before HDF5 reads the file: one of the two detects a truncation in between.
            identity = _identity(files.fstat(fd))
            live = cls(path, _read_layout(path), fd, identity, files)
            live.check()
            live.check_spans()
        except BaseException:
            files.close(fd)
            raise
        return live

    @classmethod
    def built(cls, path: Path, plan: Plan, locations: list[MatrixLocation], files: Files) -> LiveFile:
        """Open a live file that build() has just written, whose layout is known. Raises FileLost and other OSErrors."""
        spec = replace(plan.spec, matrices=dict(plan.spec.ordered()))  # as read_spec() finds them
        fd = files.open(path)
        try:
            live = cls(path, _FileLayout(spec, locations), fd, _identity(files.fstat(fd)), files)
            live.check()
        except BaseException:
            files.close(fd)
            raise
        return live

    @property
    def dirty(self) -> bool:
        """Whether a commit has writes, or the name, to sync."""
        return self._file.dirty or not self.name_is_durable

    @property
    def was_written(self) -> bool:
        """Whether the file was written to since track_writes()."""
        return bool(self._file.written)

    def track_writes(self, *, track: bool = True) -> None:
        """Begin to record which bytes are written, or stop it."""
        self._file.written = [] if track else None

    def written_rows(self) -> Iterator[tuple[Kind, str, NDArray[np.int64]]]:
        """Yield kind, dataset and rows, ascending, of each matrix that was written to since track_writes()."""
        begin, end = np.array(self._file.written or [], np.int64).reshape(-1, 2).T
        for kind in get_args(Kind):
            for dataset, matrix in self.matrices(kind).items():
                rows = matrix.rows_touched(begin, end)
                if len(rows):
                    yield kind, dataset, rows

    def matrices(self, kind: Kind) -> dict[str, Matrix]:
        """Return cells, raw, span or begin."""
        return {"cells": self.cells, "raw": self.raw, "span": self.span, "begin": self.begin}[kind]

    def commit(self) -> None:
        """Make all writes and the name durable.

        Raises FileLost or SyncFailed; then treat all writes since the last commit as lost. Raises NameNotDurable, or OSError where the
        file can't be looked at; nothing is proved by that: the file is still to be trusted, and to be committed again.
        """
        self.sync()
        if not self.name_is_durable:
            sync_name(self.path, self.files)
            self.name_is_durable = True

    def sync(self) -> None:
        """Make all writes durable, whatever the file's name. Raises as commit() does, except NameNotDurable."""
        if self._failed:
            raise SyncFailed(errno.EIO, "an earlier sync failed; the file can not be trusted", str(self.path))
        if not self._file.dirty:
            return
        self.check()
        try:
            self.files.fdatasync(self._file.fd)
        except OSError as error:
            self._failed = True
            raise SyncFailed(error.errno, f"sync failed: {error.strerror}", str(self.path)) from error
        self._file.committed(self.check().st_mtime_ns)

    def was_overwritten(self) -> bool:
        """Return whether another process wrote to the file since the last commit: then nothing that is read from it counts.

        Raises OSError where that can't be found out.
        """
        self._file.look_for_other_writes()
        return self._file.written_by_others

    def check(self) -> os.stat_result:
        """Raise FileLost unless the path still names the opened file, of the same size, and its last write is there; return its status.

        Raises OSError where that can't be found out: a server that does not answer proves nothing against the file.
        """
        if self.was_overwritten():
            raise FileLost("another process wrote to it", self.path)
        inode, size = self._identity
        # The path first: of a file that was deleted on a file server, only the path can be looked up.
        try:
            named = self.files.stat(self.path)
        except FileNotFoundError:
            raise FileLost("it was unlinked or renamed", self.path) from None
        if (named.st_dev, named.st_ino) != inode:
            raise FileLost("another file replaced it", self.path)
        now = self.files.fstat(self._file.fd)
        if now.st_size != size:
            raise FileLost(f"its size is {now.st_size}, not {size}", self.path)
        if not now.st_nlink:
            raise FileLost("it was unlinked", self.path)
        return now

    def check_spans(self) -> None:
        """Raise NotLive if a span names rows that raw does not have: then nothing that follows from it is right, in other days either."""
        for dataset, matrix in self.span.items():
            span = matrix.read(0, SPAN_ROWS)
            if len(span) and not (span.min() >= NO_ROW and span.max() < self.raw[dataset].rows):
                raise NotLive(f"{self.path}: the span of {dataset} is damaged")

    def close(self) -> None:
        """Close the descriptor; uncommitted writes may be lost. An error of the system's close concerns only these."""
        fd, self._file.fd = self._file.fd, -1
        if fd >= 0:
            with contextlib.suppress(OSError):
                self.files.close(fd)


def set_aside(path: Path, now: int, files: Files = REAL) -> Path:
    """Rename an untrusted file to NAME.aside-STAMP, never over another file, and return that path; now: UTC epoch seconds.

    Raises OSError where it can't be renamed. Where only the directory can't be synced, the file may have its old name again after a power
    loss: then the process that opens it examines it anew.
    """
    aside = _name_aside(path, now)
    files.rename(path, aside)
    with contextlib.suppress(OSError):
        files.fsync_directory(path.parent)
    return aside


def link_aside(path: Path, now: int, files: Files = REAL) -> Path:
    """Give an untrusted file the name that set_aside() would, besides its own, and return that path. Raises OSError."""
    aside = _name_aside(path, now)
    files.link(path, aside)
    return aside


def _name_aside(path: Path, now: int) -> Path:
    stamp = dt.datetime.fromtimestamp(now, dt.UTC).strftime("%Y%m%dT%H%M%SZ")
    candidates = (path.with_name(f"{path.name}.aside-{stamp}{'' if n == 1 else f'-{n}'}") for n in itertools.count(1))
    return next(candidate for candidate in candidates if not exists(candidate))


def _identity(status: os.stat_result) -> Identity:
    return (status.st_dev, status.st_ino), status.st_size


def _read_layout(path: Path) -> _FileLayout:
    with open_for_reading(path) as file:
        form = form_of(file)
        if form != "live":
            raise NotLive(f"{path}: it is a {form} file")
        try:
            spec = read_spec(file)
            locations = [locate(file, location) for location in matrix_locations(spec)]
            return _FileLayout(spec, locations)
        except (KeyError, ValueError, TypeError, RuntimeError, OSError) as error:  # whatever HDF5 raises for a damaged file
            raise unreadable(path, error) from error
