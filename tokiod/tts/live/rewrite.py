"""Make a file that replaces another: in any thread, under a temporary name, then renamed.

work() may take minutes and writes the temporary file only; the writer goes on storing windows in the old file. finish() belongs to the
writer's own thread and takes milliseconds. A kill before the rename leaves the old file, and a temporary one that sweep() removes.
"""

from __future__ import annotations

import contextlib
import errno
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

import numpy as np

from tokiod.tts.live.create import SLICE_BYTES, Plan, build
from tokiod.tts.live.files import REAL, Files, NameNotDurable, put_in_place, temporary_path
from tokiod.tts.live.live_file import LiveFile
from tokiod.tts.schema import group_of, missing
from tokiod.tts.sealed.seal import SealingFailed, write_sealed, write_unsealed
from tokiod.tts.spec import FileSpec

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from tokiod.tts.layout import MatrixLocation
    from tokiod.tts.live.create import Content, Pause
    from tokiod.tts.spec import GroupSpec

    Limit = Callable[[FileSpec], FileSpec]
    """Sets max_step of the counters of a spec."""
    WriteSealed = Callable[[LiveFile, Path, int, Files, Pause], None]

RECENT_SECONDS = 2 * 3600
"""A component without a cell for so long is not expected the next day; the file grows if the component returns."""


class Rewrite(Protocol):
    """A file that is being made to replace another."""

    def work(self, pause: Pause) -> None:
        """Make it under a temporary name, durably. pause is called between pieces and may raise."""
        ...

    def finish(self) -> LiveFile | None:
        """Rename it and return it, opened; None for a sealed file. Raises OSError; then the old file is in place: call abandon().

        The old file is in no directory any more, and still open: call release(). The new name may not be durable yet; the next commit of
        the live file syncs it. If a power loss takes the name of a sealed file back, the live one is there again, with the same content,
        and is sealed again.
        """
        ...

    def release(self) -> None:
        """Close the file that finish() replaced, in any thread. The system frees its blocks meanwhile, for 0.2 s a gigabyte."""
        ...

    def abandon(self) -> None:
        """Remove the temporary file; the old file stays as it is."""
        ...


class _TemporaryFile:
    """What all rewrites share."""

    def __init__(self, path: Path, files: Files) -> None:
        self._path = path
        self._files = files
        self._temporary = temporary_path(path)
        self._made: LiveFile | None = None

    def release(self) -> None:
        """Do nothing: no open file was replaced."""

    def abandon(self) -> None:
        if self._made is not None:
            self._made.close()
        with contextlib.suppress(OSError):
            self._files.unlink(self._temporary)

    def _build(self, plan: Plan, pause: Pause) -> None:
        """Make the temporary file and open it."""
        self._made = LiveFile.built(self._temporary, plan, build(self._temporary, plan, self._files, pause), self._files)

    def _rename(self) -> bool:
        """Put the new file in place; return whether its name is durable."""
        try:
            put_in_place(self._temporary, self._path, self._files)
        except NameNotDurable:
            return False
        return True

    def _renamed(self) -> LiveFile:
        """Rename the new live file and return it. Raises RuntimeError before work()."""
        if self._made is None:
            raise RuntimeError(f"{self._path}: finish() before work()")
        self._made.name_is_durable = self._rename()
        self._made.path = self._path
        return self._made


class CreateFile(_TemporaryFile):
    """A live file of a spec in which every cell is missing."""

    def __init__(self, path: Path, spec: FileSpec, created: int, files: Files = REAL) -> None:
        super().__init__(path, files)
        self._plan = Plan(spec, created)

    def work(self, pause: Pause) -> None:
        """Make the file and its missing parent directories."""
        self._files.make_directory(self._path.parent)
        self._build(self._plan, pause)

    def finish(self) -> LiveFile:
        """Rename the file."""
        return self._renamed()


class CreateNextDay(CreateFile):
    """The live file of the span [start, end) after another: the same datasets, with the columns that have a recent cell, or all columns.

    limit: sets max_step of its counters. is_current: whether a group of the other file is as it is to be from now on; groups that are not
    are left out.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what the file is made of
        self,
        path: Path,
        before: Path,
        span: tuple[int, int],
        created: int,
        limit: Limit,
        files: Files = REAL,
        is_current: Callable[[GroupSpec], bool] = lambda _group: True,
    ) -> None:
        super().__init__(path, FileSpec(*span, {}, {}), created, files)
        self._template = before
        self._limit = limit
        self._is_current = is_current

    def work(self, pause: Pause) -> None:
        """Make the file. Raises NotLive if the file before is not live."""
        with contextlib.closing(LiveFile.open(self._template, self._files)) as before:
            groups = {name: group for name, group in before.spec.groups.items() if self._is_current(group)}
            names = {name: matrix for name, matrix in before.spec.matrices.items() if group_of(name) in groups}
            matrices = {name: replace(matrix, columns=_recent(before, name, pause)) for name, matrix in names.items()}
            self._plan = replace(self._plan, spec=self._limit(replace(self._plan.spec, groups=groups, matrices=matrices)))
        super().work(pause)


class UnsealFile(_TemporaryFile):
    """A live file made of a sealed one, see tokiod.tts.sealed.seal.unseal()."""

    def __init__(self, path: Path, created: int, files: Files = REAL) -> None:
        super().__init__(path, files)
        self._created = created

    def work(self, pause: Pause) -> None:
        """Make the file. Raises NotLive."""
        self._made = write_unsealed(self._path, self._temporary, self._created, self._files, pause)

    def finish(self) -> LiveFile:
        """Rename the file over the sealed one."""
        return self._renamed()


# Each page is copied once, while windows go on being stored; the few rows that were written meanwhile are copied again in finish(). So no
# window is written twice and no window waits for the copy.
class GrowFile(_TemporaryFile):
    """A live file with the bits of another and room for more; writes to the other are tracked from the beginning of the copy.

    spec: what live.spec.merged() returned. Raises FileLost or SyncFailed if the other file can't be trusted.
    """

    def __init__(self, live: LiveFile, spec: FileSpec, created: int) -> None:
        super().__init__(live.path, live.files)
        live.commit()
        live.check()  # or the new file would take over what another process wrote to this one
        live.track_writes()
        self._live = live
        self._plan = Plan(spec, created, content_of(live))

    def work(self, pause: Pause) -> None:
        """Copy the old file."""
        self._build(self._plan, pause)

    def finish(self) -> LiveFile:
        """Copy the rows that were written since."""
        if self._made is None:
            raise RuntimeError(f"{self._path}: finish() before work()")
        self._live.check()
        for kind, dataset, rows in self._live.written_rows():
            old, new = self._live.matrices(kind)[dataset], self._made.matrices(kind)[dataset]
            for run in np.split(rows, np.flatnonzero(np.diff(rows) > 1) + 1):
                start, stop = int(run[0]), int(run[-1]) + 1
                block = new.read(start, stop)
                block[:, : old.width] = old.read(start, stop)
                new.write_rows(start, block)
        self._made.sync()
        return self._renamed()

    def release(self) -> None:
        """Close the old file."""
        self._live.close()

    def abandon(self) -> None:
        """Remove the copy."""
        super().abandon()
        self._live.track_writes(track=False)


class CopyFile(_TemporaryFile):
    """A live file with the bits of another, which is not trusted any more; finish() does not close the other."""

    def __init__(self, live: LiveFile, created: int) -> None:
        super().__init__(live.path, live.files)
        self._plan = Plan(live.spec, created, content_of(live))

    def work(self, pause: Pause) -> None:
        """Copy the old file."""
        build(self._temporary, self._plan, self._files, pause)
        self._made = LiveFile.open(self._temporary, self._files)

    def finish(self) -> LiveFile:
        """Rename the copy to the path that the other file had."""
        return self._renamed()


class SealFile(_TemporaryFile):
    """The sealed form of a live file. It replaces the live file unless that was written to meanwhile.

    updated: UTC epoch seconds. write: writes the sealed form, as write_sealed() does. Raises FileLost or SyncFailed if the live file can't
    be trusted.
    """

    def __init__(self, live: LiveFile, updated: int, write: WriteSealed = write_sealed) -> None:
        super().__init__(live.path, live.files)
        live.commit()
        live.check()  # or the new file would take over what another process wrote to this one
        live.track_writes()
        self.live = live
        self._updated = updated
        self._write = write

    def work(self, pause: Pause) -> None:
        """Write the sealed file and read it back. Raises SealingFailed, Overtaken."""
        try:
            self._write(self.live, self._temporary, self._updated, self._files, pause)
        except SealingFailed as error:
            self._check_not_overtaken(error)
            raise

    def finish(self) -> None:
        """Replace the live file. Raises Overtaken, FileLost."""
        self._check_not_overtaken(None)
        self.live.check()
        self._rename()

    def release(self) -> None:
        """Close the live file."""
        self.live.close()

    def abandon(self) -> None:
        """Remove the sealed file."""
        super().abandon()
        self.live.track_writes(track=False)

    def _check_not_overtaken(self, error: Exception | None) -> None:
        if self.live.was_written:
            raise Overtaken(errno.EBUSY, "windows were stored while the file was being sealed", str(self._path)) from error


class Overtaken(OSError):  # noqa: N818 - a state, not a fault
    """The live file was written to while its sealed form was made; seal it again later."""


def content_of(live: LiveFile) -> Content:
    """Return the content that a new file takes over from a live one, whose columns come first in the new file."""

    def fill(location: MatrixLocation, start: int, block: NDArray[np.int64]) -> None:
        old = live.matrices(location.kind).get(location.dataset)
        if old is not None and old.width:
            block[:, : old.width] = old.read(start, start + len(block)).view(block.dtype)

    return fill


def _recent(live: LiveFile, dataset: str, pause: Pause) -> tuple[str, ...]:
    """Return the columns that have a cell within RECENT_SECONDS before the dataset's last cell; all columns without one."""
    matrix, recent_rows = live.cells[dataset], RECENT_SECONDS // live.spec.groups[group_of(dataset)].step
    height, filled_columns = max(1, SLICE_BYTES // (8 * matrix.width)), np.zeros(matrix.width, bool)
    first: int | None = None
    for stop in range(matrix.rows, 0, -height):
        if first is not None and stop <= first:
            break
        start = max(0, stop - height)
        filled = ~missing(matrix.read(start, stop))
        if first is None and filled.any():
            first = start + int(np.flatnonzero(filled.any(axis=1))[-1]) + 1 - recent_rows
        filled_columns |= filled[max(0, (first or 0) - start) :].any(axis=0)
        pause()
    return tuple(name for name, is_filled in zip(matrix.columns, filled_columns.tolist(), strict=True) if is_filled) or matrix.columns
