"""Seal a complete day: rewrite it compactly. Unseal it: make a live file of it again.

Chunks of 720 rows (an hour of 5 s) x 32 columns: an hour of all columns and a day of one column are both read in 0.3 ms; the chunks
that h5py chooses are 100 times slower for one of the two. Raw samples that the cells determine are dropped (kept_samples), and restored in
an unsealed file.
"""

from __future__ import annotations

import errno
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from typing import TYPE_CHECKING, Any

import h5py
import msgspec
import numpy as np

from tokiod.tts import hdf5_output
from tokiod.tts.counters.day_counter import DayCounter
from tokiod.tts.dimension_scales import DimensionScales
from tokiod.tts.hdf5_output import dataset_properties, new_dataset, write_attribute
from tokiod.tts.layout import (
    FORM,
    MAX_STEP,
    OWN,
    PROVED,
    STATE_ROWS,
    NotLive,
    form_of,
    open_for_reading,
    own_name,
    read_spec,
    unreadable,
)
from tokiod.tts.live.create import Plan, build, no_pause, write_attributes, write_frame
from tokiod.tts.live.files import REAL, Files, replacing, sync_content
from tokiod.tts.live.live_file import LiveFile
from tokiod.tts.schema import MISSING
from tokiod.tts.sealed.chunks import COMPRESSION_LEVEL, Chunks, ahead, holds, pack
from tokiod.tts.sealed.kept_samples import fill_raw, kept_samples, span_of
from tokiod.tts.sealed.sealed_counter import SealedCounter

if TYPE_CHECKING:
    from collections.abc import Mapping
    from concurrent.futures import Executor
    from pathlib import Path

    from numpy.typing import NDArray

    from tokiod.tts.layout import MatrixLocation
    from tokiod.tts.live.create import Content, Pause
    from tokiod.tts.sealed.restore_raw import RestoredRaw
    from tokiod.tts.spec import FileSpec

SEAL_THREADS = 2
SMALL_CELLS = 1 << 20
"""Of a file with fewer, threads take longer to start and to take turns than they save."""
CHUNKS_A_PAUSE = 32
"""Chunks between two pauses, 6 MB before they are compressed: a pause of 5 ms after each chunk was three quarters of the time."""


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
    is_small = sum(matrix.rows * matrix.width for matrix in live.cells.values()) < SMALL_CELLS
    with nullcontext() if is_small else ThreadPoolExecutor(SEAL_THREADS) as pool:
        sealing = _SealedWriter.of(live, pool, pause)
        try:
            sealing.write(path, updated, files)
        except OSError as error:
            code = error.errno or errno.EIO
            raise SealingFailed(code, f"the sealed file can't be written: {os.strerror(code)}", str(path)) from error
        sync_content(path, files)
        sealing.verify(path)


def unseal(path: Path, target: Path | None = None, files: Files = REAL, pause: Pause = no_pause, *, created: int) -> LiveFile:
    """Make a live file, opened, of a sealed one or of another program's TTS file: at `target`, or replacing the file itself.

    Unnamed columns of another program's file are dropped. Raises NotLive for any other file.
    """
    target = target or path
    with replacing(target, files) as temporary:
        write_unsealed(path, temporary, created, files, pause).close()
    return LiveFile.open(target, files)


def write_unsealed(path: Path, temporary: Path, created: int, files: Files, pause: Pause) -> LiveFile:
    """Write a live file of a sealed one to exactly this path, durably, and return it, opened.

    Raises NotLive, also where HDF5 can't read its content.
    """
    with open_for_reading(path) as file:
        spec = _sealed_spec(path, file)
        counters = _counters(path, file, spec)
        build(temporary, Plan(spec, created, _undamaged(path, _content_of(file, counters))), files, pause)
    return LiveFile.open(temporary, files)


def _counters(path: Path, file: Any, spec: FileSpec) -> dict[str, SealedCounter]:
    try:
        return {dataset: SealedCounter.read(file, dataset) for dataset, matrix in spec.matrices.items() if matrix.counter}
    except (LookupError, ValueError, TypeError, RuntimeError, OSError) as error:  # whatever HDF5 raises for a damaged file
        raise unreadable(path, error, "its counters can't be read: ") from error


def sealed_spec(path: Path) -> FileSpec | None:
    """Return the spec of a file that unseal() accepts, None for any other. Raises FileNotFoundError."""
    try:
        with open_for_reading(path) as file:
            return _sealed_spec(path, file)
    except NotLive:
        return None


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


def _content_of(file: Any, counters: Mapping[str, SealedCounter]) -> Content:
    """Return the content that a live file takes over from a sealed one: all named cells, kept samples, and samples restored from cells."""
    restored: dict[str, RestoredRaw] = {}

    def fill(location: MatrixLocation, start: int, block: NDArray[np.int64]) -> None:
        if location.kind == "cells":
            cells = file[location.name][start : start + len(block), : len(location.columns)].astype("<f8", copy=False)
            block[...] = np.where(np.isnan(cells), MISSING, cells).view(np.int64)  # pytokio has NaN too
            return
        counter = counters[location.dataset]
        if location.kind == "raw":
            if start == 0:
                restored[location.dataset] = counter.restored(file[location.dataset])
            restored[location.dataset].fill(start, block)
            fill_raw(counter.kept, start, block)
        elif location.kind == "span":
            block[...] = span_of(counter.kept, counter.rows, block.shape[1])[start : start + len(block)]
        else:
            block[...] = counter.begin[start : start + len(block)]

    return fill


class _SealedWriter(msgspec.Struct, frozen=True):
    """Writes and verifies the sealed form of a live file."""

    live: LiveFile
    sealed: dict[str, Chunks]
    pool: Executor | None
    pause: Pause

    @classmethod
    def of(cls, live: LiveFile, pool: Executor | None, pause: Pause) -> _SealedWriter:
        return cls(live, {name: Chunks.of(matrix) for name, matrix in live.cells.items()}, pool, pause)

    def write(self, path: Path, updated: int, files: Files) -> None:
        with hdf5_output.created(path, files) as file:
            write_frame(file, self.live.spec)
            file.create_group(OWN).attrs[FORM] = np.bytes_("sealed")
            scales = DimensionScales(file, self.live.spec)
            for name, chunks in self.sealed.items():
                dataset = _chunked(file, name, chunks)
                write_attributes(dataset, name, self.live.spec.matrices[name].own_units, chunks.columns, updated)
                scales.attach(dataset, name, chunks.columns)
                for i, (corner, packed) in enumerate(ahead(self.pool, pack, chunks.pieces()), 1):
                    dataset.write_direct_chunk(corner, packed)
                    if i % CHUNKS_A_PAUSE == 0:
                        self.pause()
                if name in self.live.raw:
                    self._write_counter(file, name, chunks.order)
                self.pause()

    def _write_counter(self, file: Any, name: str, order: NDArray[np.intp]) -> None:
        kept, proved = kept_samples(self.live, name, order)
        write_attribute(_write(file, own_name("kept", name), kept), PROVED, proved)
        begin, end = self.live.begin[name].read(0, STATE_ROWS), DayCounter.of(self.live, name).end_state()
        max_step = np.int64(self.live.spec.matrices[name].max_step)
        write_attribute(_write(file, own_name("begin", name), begin[:, order]), MAX_STEP, max_step)
        _write(file, own_name("end", name), end[:, order])

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


def _write(file: Any, name: str, data: NDArray[Any]) -> Any:
    """Write a small dataset as a whole; return its h5py.h5d.DatasetID."""
    node = new_dataset(file, name, data.shape, data.dtype)
    node.write(h5py.h5s.ALL, h5py.h5s.ALL, np.ascontiguousarray(data))
    return node


def _chunked(file: Any, name: str, chunks: Chunks) -> Any:
    """Create a dataset that is compressed in chunks; return its h5py.h5d.DatasetID."""
    properties = dataset_properties()
    properties.set_chunk(chunks.chunk)
    properties.set_shuffle()
    properties.set_deflate(COMPRESSION_LEVEL)
    return new_dataset(file, name, (chunks.matrix.rows, chunks.matrix.width), "<f8", properties)


def _chunk(dataset: Any, corner: tuple[int, int]) -> bytes:
    stored: bytes = dataset.id.read_direct_chunk(corner)[1]
    return stored
