"""Seal a complete day: rewrite it compactly. Unseal it: make a live file of it again.

Chunks of 720 rows (an hour of 5 s) x 32 columns: an hour of all columns and a day of one column are both read in 0.3 ms; the chunks
that h5py chooses are 100 times slower for one of the two. Raw samples that the cells determine are dropped (kept_samples). An unsealed
file has `sealed_raw` set, because raw samples of files from other programs, or sealed without all of raw, can't be restored.
"""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from tokiod.tts.layout import FORM, OWN, PROVED, NotLive, edges_name, form_of, open_for_reading, read_spec, unreadable
from tokiod.tts.live.create import LIBVER, Plan, build, no_pause, write_attributes, write_frame
from tokiod.tts.live.files import REAL, Files, replacing
from tokiod.tts.live.live_file import LiveFile
from tokiod.tts.sealed.chunks import COMPRESSION_LEVEL, Chunks, ahead, holds, pack
from tokiod.tts.sealed.kept_samples import edges, fill_raw, fill_span
from tokiod.tts.sealed.restore_raw import RestoredRaw

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from pathlib import Path

    from numpy.typing import NDArray

    from tokiod.tts.layout import MatrixLocation
    from tokiod.tts.live.create import Content, Pause
    from tokiod.tts.spec import FileSpec

SEAL_THREADS = 2


class SealingFailed(OSError):  # noqa: N818 - a state, not a fault
    """The sealed form can't be written, or does not read back as the content of the live file; nothing has changed."""


def seal(live: LiveFile | Path, target: Path, updated: int, files: Files = REAL, pause: Pause = no_pause) -> None:
    """Write a live file's sealed form to `target`, replacing any file there, after every cell was read back with the same bits.

    target may be the live file's own path: the caller then closes the live file, which has been replaced. updated: epoch seconds.
    A kill at any step leaves the old file or the sealed one. Raises NotLive, FileLost, SyncFailed, SealingFailed (a full disk too).
    """
    with nullcontext(live) if isinstance(live, LiveFile) else closing(LiveFile.open(live, files)) as source:
        source.commit()
        with replacing(target, files) as temporary:
            write_sealed(source, temporary, updated, files, pause)


def write_sealed(live: LiveFile, path: Path, updated: int, files: Files, pause: Pause) -> None:
    """Write a live file's sealed form to exactly this path, durably, and read it back; raises the errors of seal()."""
    with ThreadPoolExecutor(SEAL_THREADS) as pool:
        sealing = _SealedWriter.of(live, pool, pause)
        try:
            sealing.write(path, updated)
        except (OSError, RuntimeError) as error:
            code = getattr(error, "errno", None) or errno.EIO
            raise SealingFailed(code, f"the sealed file can't be written: {os.strerror(code)}", str(path)) from error
        _sync(path, files)
        sealing.verify(path)


def unseal(path: Path, target: Path | None = None, files: Files = REAL, pause: Pause = no_pause, *, created: int) -> LiveFile:
    """Make a live file, opened, of a sealed one or of another program's TTS file: at `target`, or replacing the file itself.

    Unnamed columns of another program's file are dropped. Raises NotLive for any other file.
    """
    target = target or path
    with replacing(target, files) as temporary:
        write_unsealed(path, temporary, created, files, pause)
    return LiveFile.open(target, files)


def write_unsealed(path: Path, temporary: Path, created: int, files: Files, pause: Pause) -> None:
    """Write a live file of a sealed one to exactly this path, durably. Raises NotLive, also where HDF5 can't read its content."""
    with open_for_reading(path) as file:
        spec = _sealed_spec(path, file)
        raw_sealed = any(matrix.counter for matrix in spec.matrices.values())
        build(temporary, Plan(spec, created, _undamaged(path, _content_of(file)), raw_sealed=raw_sealed), files, pause)


def is_sealed(path: Path) -> bool:
    """Return whether unseal() accepts a file. Raises FileNotFoundError."""
    try:
        with open_for_reading(path) as file:
            _sealed_spec(path, file)
    except NotLive:
        return False
    return True


def _sealed_spec(path: Path, file: Any) -> FileSpec:
    try:
        if form_of(file) == "live":
            raise NotLive(f"{path}: it is live, not sealed")
        return read_spec(file)
    except (KeyError, ValueError, TypeError, RuntimeError, OSError) as error:
        raise unreadable(path, error, "not a TTS file that can be unsealed: ") from error


def _undamaged(path: Path, content: Content) -> Content:
    """Return the same content, which raises NotLive where the file is damaged, and OSError where the system can't read it."""

    def fill(location: MatrixLocation, start: int, block: NDArray[np.int64]) -> None:
        try:
            content(location, start, block)
        except (LookupError, ValueError, TypeError, RuntimeError, OSError) as error:  # whatever HDF5 raises for a damaged file
            raise unreadable(path, error, f"{location.name} can't be read: ") from error

    return fill


def _content_of(file: Any) -> Content:
    """Return the content that a live file takes over from a sealed one: all named cells, kept samples, and samples restored from cells."""
    restored: dict[str, RestoredRaw] = {}

    @cache
    def kept(dataset: str) -> NDArray[np.int64]:
        samples: NDArray[np.int64] = file[edges_name(dataset)][...]
        return samples

    def fill(location: MatrixLocation, start: int, block: NDArray[np.int64]) -> None:
        if location.kind == "cells":
            block[...] = file[location.name][start : start + len(block), : len(location.columns)].astype("<f8", copy=False).view(np.int64)
        elif location.kind == "raw":
            if start == 0:
                proved = file[edges_name(location.dataset)].attrs.get(PROVED, np.zeros(len(location.columns))).astype(np.bool_)
                restored[location.dataset] = RestoredRaw(file[location.dataset], kept(location.dataset), proved)
            restored[location.dataset].fill(start, block)
            fill_raw(kept(location.dataset), start, block)
        else:
            fill_span(kept(location.dataset), len(file[location.dataset]) + 2, block)

    return fill


def _sync(path: Path, files: Files) -> None:
    fd = files.open(path, os.O_RDONLY)
    try:
        files.fsync(fd)
    finally:
        files.close(fd)


@dataclass(frozen=True, slots=True)
class _SealedWriter:
    """Writes and verifies the sealed form of a live file."""

    live: LiveFile
    sealed: dict[str, Chunks]
    pool: Executor
    pause: Pause

    @classmethod
    def of(cls, live: LiveFile, pool: Executor, pause: Pause) -> _SealedWriter:
        return cls(live, {name: Chunks.of(matrix) for name, matrix in live.cells.items()}, pool, pause)

    def write(self, path: Path, updated: int) -> None:
        with h5py.File(path, "w", libver=LIBVER, locking=False) as file:
            write_frame(file, self.live.spec)
            file.create_group(OWN).attrs[FORM] = np.bytes_("sealed")
            for name, chunks in self.sealed.items():
                dataset = _chunked(file, name, chunks)
                write_attributes(dataset, name, self.live.spec.matrices[name].own_units, chunks.columns, updated)
                for corner, packed in ahead(self.pool, pack, chunks.pieces()):
                    dataset.id.write_direct_chunk(corner, packed)
                    self.pause()
                if name in self.live.raw:
                    kept, proved = edges(self.live.cells[name], self.live.raw[name], self.live.span[name], chunks.order)
                    file.create_dataset(edges_name(name), data=kept).attrs[PROVED] = proved.astype(np.uint8)
                self.pause()

    def verify(self, path: Path) -> None:
        """Compare every stored chunk, and some cells of each dataset as a reader gets them, with the live file."""
        with open_for_reading(path) as file:
            for name, chunks in self.sealed.items():
                dataset, some = file[name], slice(0, chunks.chunk[1])
                stored = ((corner, (_chunk(dataset, corner), bits)) for corner, bits in chunks.pieces())
                same = all(result for _, result in ahead(self.pool, holds, stored))
                if not same or dataset[0, some].tobytes() != chunks.matrix.read(0, 1)[0, chunks.order[some]].tobytes():
                    raise SealingFailed(errno.EIO, f"{name} does not read back as it was written", str(path))
                self.pause()


def _chunked(file: Any, name: str, chunks: Chunks) -> Any:
    shape = (chunks.matrix.rows, chunks.matrix.width)
    return file.create_dataset(
        name, shape, "<f8", chunks=chunks.chunk, shuffle=True, compression="gzip", compression_opts=COMPRESSION_LEVEL
    )


def _chunk(dataset: Any, corner: tuple[int, int]) -> bytes:
    stored: bytes = dataset.id.read_direct_chunk(corner)[1]
    return stored
