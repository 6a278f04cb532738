"""Sealing: a day that is complete, rewritten compactly; and opening it up again.

Chunks of 720 rows (an hour of 5 s) x 32 columns: an hour of all columns and a day of one column are both read in 0.3 ms, where
h5py's own guess is 100 times slower for one of the two. Of raw, only what the cells don't tell stays (kept_samples); an unsealed
file says `sealed_raw`, since of what others made, or sealed without all of raw, not all can be computed again.
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

from tokiod.tts.layout import FORM, OWN, PROVED, NotLive, edges_name, form_of, open_for_reading, read_spec
from tokiod.tts.live.create import LIBVER, Plan, build, no_pause, write_attributes, write_frame
from tokiod.tts.live.files import REAL, Files, replacing
from tokiod.tts.live.live_file import LiveFile
from tokiod.tts.schema import group_of
from tokiod.tts.sealed.chunks import LEVEL, Chunks, ahead, holds, pack
from tokiod.tts.sealed.kept_samples import edges, fill_raw, fill_span
from tokiod.tts.sealed.restore_raw import Restored

if TYPE_CHECKING:
    from concurrent.futures import Executor
    from pathlib import Path

    from numpy.typing import NDArray

    from tokiod.tts.layout import Place
    from tokiod.tts.live.create import Content, Pause
    from tokiod.tts.spec import FileSpec

THREADS = 2


class SealingFailed(OSError):  # noqa: N818 - what has happened
    """The sealed form can't be written, or does not read back as what the live file holds; nothing has changed."""


def seal(live: LiveFile | Path, target: Path, updated: int, files: Files = REAL, pause: Pause = no_pause) -> None:
    """Write a live file's sealed form to `target`, in place of what is there, once every cell was read back with the same bits.

    target may be the live file's own path: the caller then closes the live file, whose name is gone. updated: epoch seconds.
    A kill at any step leaves the old file or the sealed one. Raises NotLive, FileLost, SyncFailed, SealingFailed (a full disk too).
    """
    with nullcontext(live) if isinstance(live, LiveFile) else closing(LiveFile.open(live, files)) as source:
        source.commit()
        with replacing(target, files) as temporary:
            write_sealed(source, temporary, updated, files, pause)


def write_sealed(live: LiveFile, path: Path, updated: int, files: Files, pause: Pause) -> None:
    """Write a live file's sealed form to just this path, durably, and read it back; errors as of seal()."""
    with ThreadPoolExecutor(THREADS) as pool:
        sealing = _Sealing.of(live, pool, pause)
        try:
            sealing.write(path, updated)
        except (OSError, RuntimeError) as error:
            code = getattr(error, "errno", None) or errno.EIO
            raise SealingFailed(code, f"the sealed file can't be written: {os.strerror(code)}", str(path)) from error
        _sync(path, files)
        sealing.verify(path)


def unseal(path: Path, target: Path | None = None, files: Files = REAL, pause: Pause = no_pause, *, created: int) -> LiveFile:
    """Make a live file, opened, of a sealed one or of another program's TTS file: at `target`, or in its own place.

    Of another's file, columns without names are dropped. Raises NotLive for a file that is neither.
    """
    target = target or path
    with replacing(target, files) as temporary:
        write_unsealed(path, temporary, created, files, pause)
    return LiveFile.open(target, files)


def write_unsealed(path: Path, temporary: Path, created: int, files: Files, pause: Pause) -> None:
    """Write a live file of a sealed one to just this path, durably. Raises NotLive."""
    with open_for_reading(path) as file:
        spec = _sealed_spec(path, file)
        raw_sealed = any(matrix.counter for matrix in spec.matrices.values())
        build(temporary, Plan(spec, created, _content_of(file), raw_sealed=raw_sealed), files, pause)


def is_sealed(path: Path) -> bool:
    """Return whether unseal() can open a file up. Raises FileNotFoundError."""
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
        raise NotLive(f"{path}: not a TTS file that can be opened up: {error}") from error


def _content_of(file: Any) -> Content:
    """Return what a live file takes over from a sealed one: all named cells, the edges of raw, and of the rest what cells tell."""
    restored: dict[str, Restored] = {}

    @cache
    def kept(dataset: str) -> NDArray[np.int64]:
        samples: NDArray[np.int64] = file[edges_name(dataset)][...]
        return samples

    def fill(place: Place, start: int, block: NDArray[np.int64]) -> None:
        if place.kind == "cells":
            block[...] = file[place.name][start : start + len(block), : len(place.columns)].astype("<f8", copy=False).view(np.int64)
        elif place.kind == "raw":
            if start == 0:
                proved = file[edges_name(place.dataset)].attrs.get(PROVED, np.zeros(len(place.columns))).astype(np.bool_)
                restored[place.dataset] = Restored(file[place.dataset], kept(place.dataset), proved)
            restored[place.dataset].fill(start, block)
            fill_raw(kept(place.dataset), start, block)
        else:
            fill_span(kept(place.dataset), len(file[place.dataset]) + 2, block)

    return fill


def _sync(path: Path, files: Files) -> None:
    fd = files.open(path, os.O_RDONLY)
    try:
        files.fsync(fd)
    finally:
        files.close(fd)


@dataclass(frozen=True, slots=True)
class _Sealing:
    """A live file on its way into its sealed form."""

    live: LiveFile
    sealed: dict[str, Chunks]
    pool: Executor
    pause: Pause

    @classmethod
    def of(cls, live: LiveFile, pool: Executor, pause: Pause) -> _Sealing:
        return cls(live, {name: Chunks.of(matrix) for name, matrix in live.cells.items()}, pool, pause)

    def write(self, path: Path, updated: int) -> None:
        with h5py.File(path, "w", libver=LIBVER, locking=False) as file:
            write_frame(file, self.live.spec)
            file.create_group(OWN).attrs[FORM] = np.bytes_("sealed")
            for name, chunks in self.sealed.items():
                dataset = _chunked(file, name, chunks)
                write_attributes(dataset, name, self.live.spec.groups[group_of(name)].source, chunks.columns, updated)
                for corner, packed in ahead(self.pool, pack, chunks.pieces()):
                    dataset.id.write_direct_chunk(corner, packed)
                    self.pause()
                if name in self.live.raw:
                    kept, proved = edges(self.live.cells[name], self.live.raw[name], self.live.span[name], chunks.order)
                    file.create_dataset(edges_name(name), data=kept).attrs[PROVED] = proved.astype(np.uint8)
                self.pause()

    def verify(self, path: Path) -> None:
        """Compare every chunk as it stands in the file, and of each dataset some cells as a reader gets them, with the live file."""
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
    return file.create_dataset(name, shape, "<f8", chunks=chunks.chunk, shuffle=True, compression="gzip", compression_opts=LEVEL)


def _chunk(dataset: Any, corner: tuple[int, int]) -> bytes:
    stored: bytes = dataset.id.read_direct_chunk(corner)[1]
    return stored
