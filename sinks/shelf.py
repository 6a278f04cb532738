"""The files of an archive: where a time belongs, which files are open, and how they are made, grown, synced and set aside."""

from __future__ import annotations

import errno
from collections import OrderedDict, defaultdict, deque
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import numpy as np

from tokiod.sink import Refused, SetAside
from tokiod.tts.counters import Counter
from tokiod.tts.create import create
from tokiod.tts.files import REAL, Files
from tokiod.tts.grow import copy, grow
from tokiod.tts.live import FileLost, LiveFile, NotLive, set_aside
from tokiod.tts.schema import ABSENT
from tokiod.tts.seal import is_sealed, seal, unseal
from tokiod.tts.spec import FileSpec, GroupSpec, MatrixSpec
from tokiod.window import Calendar, Window

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from sinks.cells import Cells
    from tokiod.clock import Clock
    from tokiod.sample import Batch


QUIET = 60.0
"""Seconds after which a day that was opened up is sealed again, if nothing more came for it."""
MARK = ".opened"


@dataclass(frozen=True, slots=True)
class Place:
    """The file of a system for [start, end)."""

    system: str
    path: Path
    start: int
    end: int


class Layout(Protocol):
    """Says which file holds a time, or that none does."""

    def __call__(self, system: str, time: int) -> Place | None:
        """Return the place of an epoch second."""
        ...


def daily(calendar: Calendar, path_of: Callable[..., Path]) -> Layout:
    """Return the layout of a daemon: a file per system and site day. path_of(day, system) fills the template."""
    latest: dict[str, deque[Place]] = defaultdict(lambda: deque(maxlen=4))

    def place(system: str, time: int) -> Place:
        for known in latest[system]:
            if known.start <= time < known.end:
                return known
        day = calendar.day(time)
        latest[system].appendleft(Place(system, path_of(day, system), day.start, day.end))
        return latest[system][0]

    return place


def single(path: Path, span: Window) -> Layout:
    """Return the layout of `tokioctl archive`: one file of a given span, whatever the system."""

    def place(system: str, time: int) -> Place | None:
        return Place(system, path, span.start, span.end) if span.start <= time < span.end else None

    return place


@dataclass(slots=True, eq=False)
class Volume:
    """An open live file in its place, with what is worth remembering about it: column maps and counters.

    joined: its guard rows hold what the neighbours know. A kill may have come between making a file and that.
    """

    place: Place
    file: LiveFile
    joined: bool = False
    _counters: dict[str, Counter] = field(default_factory=dict)
    _batches: dict[str, _Known] = field(default_factory=dict)

    def counter(self, dataset: str) -> Counter:
        """Return the counter dataset's samples with its cells."""
        if dataset not in self._counters:
            file = self.file
            self._counters[dataset] = Counter(file.cells[dataset], file.raw[dataset], file.span[dataset], keep=file.sealed_raw)
        return self._counters[dataset]

    def fits(self, batch: Batch) -> bool:
        """Whether the file has the batch's dataset, in its form and step, with all of its columns."""
        return self._known(batch).fits

    def is_whole(self, batch: Batch) -> bool:
        """Whether the batch's columns are the file's, all of them, in the same order."""
        return self._known(batch).whole

    def columns(self, batch: Batch) -> NDArray[np.intp]:
        """Return, for each of the batch's columns, the file's column; -1 where the file has none of that name."""
        return self._known(batch).columns

    def _known(self, batch: Batch) -> _Known:
        """Work out once what holds for every batch that has the same names, form and step."""
        known = self._batches.get(batch.dataset)
        if known is None or known.of != (batch.form, batch.step) or (known.names is not batch.columns and known.names != batch.columns):
            known = self._batches[batch.dataset] = _Known.of_batch(self.file.spec, batch)
        return known


@dataclass(frozen=True, slots=True, eq=False)
class _Known:
    """How batches of one dataset, form, step and one list of names stand to the file."""

    names: tuple[str, ...]
    of: tuple[str, int]
    columns: NDArray[np.intp]
    fits: bool
    whole: bool

    @classmethod
    def of_batch(cls, spec: FileSpec, batch: Batch) -> _Known:
        matrix, group = spec.matrices.get(batch.dataset), spec.groups.get(batch.dataset.partition("/")[0])
        index = {} if matrix is None else {name: i for i, name in enumerate(matrix.columns)}
        columns = np.fromiter((index.get(name, -1) for name in batch.columns), np.intp, len(batch.columns))
        same = matrix is not None and group is not None and (matrix.counter, group.step) == (batch.form == "counter", batch.step)
        whole = matrix is not None and matrix.columns == batch.columns
        return cls(batch.columns, (batch.form, batch.step), columns, not batch.columns or (same and bool((columns >= 0).all())), whole)


class Shelf:
    """Opens, makes and grows the files that windows need, keeps the latest few open, and syncs them.

    A file that can't be trusted any more (a failed sync, truncated or replaced from outside, not a live file at all) is renamed
    and reported by the next commit; where only the sync failed, a copy of it takes its place, so that nothing that had been
    committed is lost. created: the clock's time for the `updated` attribute; pause is called between slices of long work.
    """

    def __init__(
        self, layout: Layout, clock: Clock, files: Files = REAL, pause: Callable[[], None] = lambda: None, keep_open: int = 8
    ) -> None:
        self.place = layout
        self._clock = clock
        self._files = files
        self.pause = pause
        self._keep_open = keep_open
        self._open: OrderedDict[Path, Volume] = OrderedDict()
        self._aside: list[SetAside] = []
        self._opened_up: dict[Path, float] = {}
        self._distrusted: set[Path] = set()

    def volume(self, place: Place, kind: str, chosen: Sequence[Cells]) -> Volume | None:
        """Return the place's file with a dataset and column for everything in `chosen`, made or grown where needed.

        None where there is no file yet and nothing to put into one. Raises Refused where the batches contradict the file.
        """
        volume = self._existing(place)
        if volume is not None and not volume.joined:
            self._join_seams(volume, volume.file.raw)
        if volume is not None and all(volume.fits(cells.batch) for cells in chosen):
            return volume
        try:
            wanted = _spec(place, kind, chosen)
            if volume is None:
                return self._made(place, wanted) if wanted.matrices else None
            return self._grown(volume, volume.file.spec.merged(wanted))
        except ValueError as error:
            raise Refused(f"{place.path}: {error}", retry=False) from error

    def holds(self, place: Place) -> bool:
        """Whether there is a file in a place, live or sealed."""
        return place.path in self._open or place.path.exists()

    def beside(self, place: Place, way: int) -> Volume | None:
        """Return the next (+1) or previous (-1) file if it is there."""
        neighbour = self.place(place.system, place.end if way > 0 else place.start - 1)
        return None if neighbour is None else self._existing(neighbour, unsealed=False)

    def ending_at(self, system: str, time: int) -> Volume | None:
        """Return the file whose span ends at a time, if it is there."""
        place = self.place(system, time - 1)
        return None if place is None or place.end != time else self._existing(place)

    def commit(self) -> list[SetAside]:
        """Sync every file with new cells; return those that had to be set aside."""
        for volume in [v for v in self._open.values() if v.file.dirty]:
            try:
                volume.file.commit()
            except OSError as error:
                self._distrust(volume.place, volume.file, str(error), salvage=not isinstance(error, FileLost))
        aside, self._aside = self._aside, []
        return aside

    def adopt(self, path: Path) -> None:
        """Take over a file that a predecessor opened up and did not seal again; by the mark that stands beside it."""
        self._opened_up[path] = self._clock.time()

    def seal_quiet(self, quiet: float = QUIET) -> Path | None:
        """Seal one of the files that were opened up, once nothing has come for it for so many seconds; return it.

        Raises OSError where that fails; it is tried again later.
        """
        now = self._clock.time()
        path = next((path for path, used in self._opened_up.items() if not 0 <= now - used < quiet), None)
        if path is None:
            return None
        self._opened_up[path] = now
        volume = self._open.pop(path, None)
        # A kill may have come between the mark and what it is for: then the file is sealed, still or again, or gone.
        with suppress(NotLive, FileNotFoundError), closing(volume.file if volume else LiveFile.open(path, self._files)) as file:
            seal(file, path, updated=self._now(), files=self._files, pause=self.pause)
        del self._opened_up[path]
        marked(path).unlink(missing_ok=True)
        return path

    def close(self) -> None:
        """Close all files."""
        while self._open:
            self._open.popitem()[1].file.close()

    def _existing(self, place: Place, *, unsealed: bool = True) -> Volume | None:
        if place.path in self._opened_up:
            self._opened_up[place.path] = self._clock.time()
        if place.path in self._open:
            self._open.move_to_end(place.path)
            return self._open[place.path]
        if place.path in self._distrusted and self._renamed(place.path) == str(place.path):
            raise OSError(errno.EIO, "is not to be trusted and can't be renamed", str(place.path))
        if not place.path.exists():
            return None
        try:
            file = LiveFile.open(place.path, self._files)
        except NotLive as error:
            if not is_sealed(place.path):
                self._distrust(place, None, str(error), salvage=False)
                return None
            if not unsealed:
                return None
            marked(place.path).touch()
            self.adopt(place.path)
            file = unseal(place.path, created=self._now(), files=self._files, pause=self.pause)
        return self._remember(Volume(place, file))

    def _made(self, place: Place, spec: FileSpec) -> Volume:
        create(place.path, spec, created=self._now(), files=self._files, pause=self.pause)
        volume = self._remember(Volume(place, LiveFile.open(place.path, self._files)))
        self._join_seams(volume, spec.matrices)
        return volume

    def _grown(self, volume: Volume, spec: FileSpec) -> Volume:
        changed = [d for d, m in spec.matrices.items() if m != volume.file.spec.matrices.get(d)]
        volume = self._remember(Volume(volume.place, grow(volume.file, spec, created=self._now(), pause=self.pause)))
        self._join_seams(volume, changed)
        return volume

    def _join_seams(self, volume: Volume, datasets: Iterable[str]) -> None:
        """Fill both guard rows of datasets from the neighbouring days."""
        before, after = self.beside(volume.place, -1), self.beside(volume.place, +1)
        for dataset in datasets:
            if not volume.file.spec.matrices[dataset].counter:
                continue
            counter = volume.counter(dataset)
            if before is not None and dataset in before.file.raw:
                _carry(before, before.counter(dataset).last_samples(), volume, dataset, 0)
            if after is not None and dataset in after.file.raw:
                _carry(after, after.file.raw[dataset].read(1, 2)[0], volume, dataset, counter.last_row)
        volume.joined = True

    def _remember(self, volume: Volume) -> Volume:
        self._open[volume.place.path] = volume
        for path, old in list(self._open.items())[: -self._keep_open]:
            if not old.file.dirty:
                old.file.close()
                del self._open[path]
        return volume

    def _distrust(self, place: Place, file: LiveFile | None, reason: str, *, salvage: bool) -> None:
        """Never write to a file again: what has its name, if anything has, goes aside; a copy takes its place if only a sync failed."""
        self._open.pop(place.path, None)
        aside = self._renamed(place.path)
        salvaged = salvage and file is not None and self._salvaged(place, file)
        self._aside.append(SetAside(place.system, Window(place.start, place.end), str(place.path), aside, reason, salvaged))
        if file is not None:
            file.close()

    def _renamed(self, path: Path) -> str:
        """Return the name that a distrusted file has now: none if it was gone, its old one where it can't be renamed (retried later)."""
        self._distrusted.discard(path)
        try:
            return str(set_aside(path, self._now(), self._files))
        except FileNotFoundError:
            return ""
        except OSError:
            self._distrusted.add(path)
            return str(path)

    def _salvaged(self, place: Place, file: LiveFile) -> bool:
        try:
            copy(file, place.path, file.spec, created=self._now(), pause=self.pause).close()
        except OSError:
            return False
        return True

    def _now(self) -> int:
        return int(self._clock.time())


def marked(path: Path) -> Path:
    """Return the mark beside a file that was sealed and is opened up: it is to be sealed again, whatever happens meanwhile."""
    return path.with_name(f".{path.name}{MARK}")


def _spec(place: Place, kind: str, chosen: Sequence[Cells]) -> FileSpec:
    groups: dict[str, GroupSpec] = {}
    matrices: dict[str, MatrixSpec] = {}
    for batch in (cells.batch for cells in chosen if cells.batch.columns):
        group = GroupSpec(batch.step, kind)
        if groups.setdefault(batch.dataset.partition("/")[0], group) != group:
            raise Refused(f"{batch.dataset}: step {batch.step}, the rest of its group has another", retry=False)
        known = matrices.setdefault(batch.dataset, MatrixSpec((), batch.form == "counter"))
        if known.counter != (batch.form == "counter"):
            raise Refused(f"{batch.dataset}: a gauge and a counter in one window", retry=False)
        matrices[batch.dataset] = MatrixSpec(tuple(dict.fromkeys(known.columns + batch.columns)), known.counter)
    return FileSpec(place.start, place.end, groups, matrices)


def _carry(source: Volume, value: NDArray[np.int64], target: Volume, dataset: str, row: int) -> None:
    """Copy one value per column name from one file into a guard row of another."""
    index = {name: i for i, name in enumerate(target.file.spec.matrices[dataset].columns)}
    names = source.file.spec.matrices[dataset].columns
    here = np.fromiter((index.get(name, -1) for name in names), np.intp, len(names))
    known = (here >= 0) & (value != ABSENT)
    target.counter(dataset).store(np.full(int(known.sum()), row), here[known], value[known])
