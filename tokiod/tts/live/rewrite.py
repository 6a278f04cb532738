"""Files that are made beside the ones that they replace, at leisure and in any thread, and then take their names in a moment.

work() may take minutes and writes nothing but a temporary file; whoever stores windows goes on with the file that is there. finish() is
for that one, and takes milliseconds; a kill before it has renamed leaves the old file and a temporary one for sweep().
"""

from __future__ import annotations

import contextlib
import errno
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from tokiod.tts.live.create import SLICE, Plan, build
from tokiod.tts.live.files import REAL, Files, put_in_place, temporary_path
from tokiod.tts.live.live_file import LiveFile
from tokiod.tts.schema import group_of, missing
from tokiod.tts.sealed.seal import SealingFailed, write_sealed, write_unsealed
from tokiod.tts.spec import FileSpec

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from tokiod.tts.layout import Place
    from tokiod.tts.live.create import Content, Pause

LATELY = 2 * 3600
"""Seconds: a component that had no cell for so long is not expected tomorrow; should it come back, the file grows."""


class Replacement(Protocol):
    """A file on its way to a name."""

    def work(self, pause: Pause) -> None:
        """Make it, under a temporary name, durably; pause is called between pieces, and may raise."""
        ...

    def finish(self) -> LiveFile | None:
        """Give it the name, durably; return it, opened; None where it is sealed. Raises OSError; then abandon() is due."""
        ...

    def abandon(self) -> None:
        """Take away what was made; the old file is as if nothing had been."""
        ...


class _Beside:
    """What all of them share."""

    def __init__(self, path: Path, files: Files) -> None:
        self._path = path
        self._files = files
        self._temporary = temporary_path(path)
        self._made: LiveFile | None = None

    def abandon(self) -> None:
        if self._made is not None:
            self._made.close()
        with contextlib.suppress(OSError):
            self._files.unlink(self._temporary)

    def _take_name(self) -> None:
        put_in_place(self._temporary, self._path, self._files)

    def _named(self) -> LiveFile:
        """Give what was made the name. Raises RuntimeError before work()."""
        if self._made is None:
            raise RuntimeError(f"{self._path}: nothing was made yet")
        self._take_name()
        self._made.path = self._path
        return self._made


class Making(_Beside):
    """A live file of a spec in which every cell is missing."""

    def __init__(self, path: Path, spec: FileSpec, created: int, files: Files = REAL) -> None:
        super().__init__(path, files)
        self._plan = Plan(spec, created)

    def work(self, pause: Pause) -> None:
        """Make it, and the directories that lack."""
        self._files.make_directory(self._path.parent)
        build(self._temporary, self._plan, self._files, pause)
        self._made = LiveFile.open(self._temporary, self._files)

    def finish(self) -> LiveFile:
        """Give it its name."""
        return self._named()


class Following(Making):
    """The live file of [start, end) after another: with its datasets, and those of their columns that had a cell lately, or else all."""

    def __init__(self, path: Path, before: Path, span: tuple[int, int], created: int, files: Files = REAL) -> None:
        super().__init__(path, FileSpec(*span, {}, {}), created, files)
        self._before = before

    def work(self, pause: Pause) -> None:
        """Make it. Raises NotLive where the file before is none."""
        with contextlib.closing(LiveFile.open(self._before, self._files)) as before:
            matrices = {name: replace(matrix, columns=_fresh(before, name, pause)) for name, matrix in before.spec.matrices.items()}
            self._plan = replace(self._plan, spec=replace(self._plan.spec, groups=before.spec.groups, matrices=matrices))
        super().work(pause)


class Unsealing(_Beside):
    """A live file of a sealed one, see tokiod.tts.sealed.seal.unseal()."""

    def __init__(self, path: Path, created: int, files: Files = REAL) -> None:
        super().__init__(path, files)
        self._created = created

    def work(self, pause: Pause) -> None:
        """Make it. Raises NotLive."""
        write_unsealed(self._path, self._temporary, self._created, self._files, pause)
        self._made = LiveFile.open(self._temporary, self._files)

    def finish(self) -> LiveFile:
        """Give it the sealed one's name."""
        return self._named()


# Pages are copied once, whatever windows do to them meanwhile; the rows that these wrote to are copied again at the end, which are few.
# So nothing need be written twice while it lasts, and no window waits for it.
class Growing(_Beside):
    """A live file of another's bits with room for more; from its making on it is noted where the other is written to.

    spec: what live.spec.merged() returned. Raises FileLost or SyncFailed where the other can't be trusted.
    """

    def __init__(self, live: LiveFile, spec: FileSpec, created: int) -> None:
        super().__init__(live.path, live.files)
        live.commit()
        live.note_writes()
        self._live = live
        self._plan = Plan(spec, created, content_of(live), live.sealed_raw)

    def work(self, pause: Pause) -> None:
        """Copy it."""
        build(self._temporary, self._plan, self._files, pause)
        self._made = LiveFile.open(self._temporary, self._files)

    def finish(self) -> LiveFile:
        """Copy what was written since, and close the old file."""
        if self._made is None:
            raise RuntimeError(f"{self._path}: nothing was copied yet")
        self._live.check()
        for kind, dataset, rows in self._live.written_rows():
            old, new = self._live.matrices(kind)[dataset], self._made.matrices(kind)[dataset]
            for run in np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1):
                start, stop = int(run[0]), int(run[-1]) + 1
                block = new.read(start, stop)
                block[:, : old.width] = old.read(start, stop)
                new.write_rows(start, block)
        self._made.commit()
        grown = self._named()
        self._live.close()
        return grown

    def abandon(self) -> None:
        """Take away the copy."""
        super().abandon()
        self._live.note_writes(note=False)


class Sealing(_Beside):
    """The sealed form of a live file, which is written to its place unless the live one was written to meanwhile.

    updated: UTC epoch seconds. Raises FileLost or SyncFailed where the live one can't be trusted.
    """

    def __init__(self, live: LiveFile, updated: int) -> None:
        super().__init__(live.path, live.files)
        live.commit()
        live.note_writes()
        self.live = live
        self._updated = updated

    def work(self, pause: Pause) -> None:
        """Write it and read it back. Raises SealingFailed, Overtaken."""
        try:
            write_sealed(self.live, self._temporary, self._updated, self._files, pause)
        except SealingFailed as error:
            self._not_overtaken(error)
            raise

    def finish(self) -> None:
        """Put it in place of the live file, which is closed. Raises Overtaken, FileLost."""
        self._not_overtaken(None)
        self.live.check()
        self._take_name()
        self.live.close()

    def abandon(self) -> None:
        """Take away what was written."""
        super().abandon()
        self.live.note_writes(note=False)

    def _not_overtaken(self, error: Exception | None) -> None:
        if self.live.was_written:
            raise Overtaken(errno.EBUSY, "windows came while it was sealed", str(self._path)) from error


class Overtaken(OSError):  # noqa: N818 - what has happened
    """The live file was written to while its sealed form was made: that is worth nothing, and is made again later."""


def content_of(live: LiveFile) -> Content:
    """Return what a new file takes over from a live one, whose columns are the new one's first."""

    def fill(place: Place, start: int, block: NDArray[np.int64]) -> None:
        old = live.matrices(place.kind).get(place.dataset)
        if old is not None and old.width:
            block[:, : old.width] = old.read(start, start + len(block)).view(block.dtype)

    return fill


def _fresh(live: LiveFile, dataset: str, pause: Pause) -> tuple[str, ...]:
    """Return the columns that have a cell in the last hours that hold any."""
    matrix, lately = live.cells[dataset], LATELY // live.spec.groups[group_of(dataset)].step
    height, some = max(1, SLICE // (8 * matrix.width)), np.zeros(matrix.width, bool)
    first: int | None = None
    for stop in range(matrix.rows, 0, -height):
        if first is not None and stop <= first:
            break
        start = max(0, stop - height)
        filled = ~missing(matrix.read(start, stop))
        if first is None and filled.any():
            first = start + int(np.flatnonzero(filled.any(axis=1))[-1]) + 1 - lately
        some |= filled[max(0, (first or 0) - start) :].any(axis=0)
        pause()
    return tuple(name for name, is_there in zip(matrix.columns, some.tolist(), strict=True) if is_there) or matrix.columns
