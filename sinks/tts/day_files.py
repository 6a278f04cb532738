"""The files of an archive: which are open, and how they are made, grown, opened up, sealed, synced and set aside."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sinks.tts.background import AtOnce
from sinks.tts.guard_rows import join
from sinks.tts.open_day_file import Volume, spec_of
from sinks.tts.quarantine import Distrusted
from sinks.tts.reopened import QUIET, OpenedUp
from sinks.tts.rewrites import Replacing
from tokiod.errors import Refusal
from tokiod.sink import Done
from tokiod.tts.live.files import REAL, Files
from tokiod.tts.live.live_file import FileLost, LiveFile, NotLive
from tokiod.tts.live.rewrite import CreateFile, CreateNextDay, GrowFile, SealFile, UnsealFile
from tokiod.tts.sealed.seal import is_sealed
from tokiod.tts.sealed.sealed_neighbour import SealedDay

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from sinks.tts.background import Workshop
    from sinks.tts.guard_rows import Beside
    from sinks.tts.rewrites import Ongoing, What
    from sinks.tts.select import Cells
    from tokiod.archive.layout import Layout, Place
    from tokiod.clock import Clock
    from tokiod.sink import SetAside
    from tokiod.tts.live.rewrite import Rewrite
    from tokiod.tts.spec import FileSpec


PATIENCE = 0.02
"""Seconds that a window waits for its file to be made or grown: a small one is ready by then, and nobody has to come again. Behind another
file that is waited for it isn't, and windows of twenty systems that all have none yet would wait for each other."""


@dataclass(frozen=True, slots=True)
class Limits:
    """keep_open: how many files stay open; columns: how many a dataset may have, so that a source gone mad does not fill the disk."""

    keep_open: int = 8
    columns: int = 50_000


class Shelf:
    """Opens, makes and grows the files that windows need, keeps the latest few open, and syncs them.

    What takes long is done in a workshop: a window whose file is just being made, grown or opened up is refused, to come again soon.
    A file that can't be trusted any more (a failed sync, truncated or replaced from outside, not a live file at all) is renamed
    and reported by the next commit; where only the sync failed, a copy of it takes its place, so that nothing that had been
    committed is lost. The clock's time is the `updated` attribute; pause is called between slices of work that is done here.
    """

    def __init__(
        self,
        layout: Layout,
        clock: Clock,
        files: Files = REAL,
        workshop: Workshop | None = None,
        limits: Limits = Limits(),
    ) -> None:
        self.place = layout
        self.pause: Callable[[], None] = lambda: None
        self._clock = clock
        self._files = files
        self._limits = limits
        self._open: OrderedDict[Path, Volume] = OrderedDict()
        self._replacing = Replacing(workshop or AtOnce(self._pause))
        self._distrusted = Distrusted(clock, files, self._pause)
        self._done: list[Done] = []
        self._opened_up = OpenedUp(clock)

    def volume(self, place: Place, kind: str, chosen: Sequence[Cells]) -> Volume | None:
        """Return the place's file with a dataset and column for everything in `chosen`, made or grown where needed.

        None where there is no file yet and nothing to put into one. Raises Refusal where the batches contradict the file, and where
        it isn't ready yet.
        """
        volume = self._existing(place)
        if volume is not None and not volume.joined:
            join(volume, volume.file.raw, self._told_beside)
        while volume is None or not all(volume.fits(cells.batch) for cells in chosen):
            wanted = spec_of(place, kind, chosen)
            if volume is None and not wanted.matrices:
                return None
            volume = self._roomier(place, volume, wanted)
        return volume

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
                self._distrust(volume.place, volume.file, error)
        return self._distrusted.told()

    # ---- what no window waits for

    def prepare(self, place: Place, following: Place) -> None:
        """Begin to make the file after a live one, where there is none, for the windows that will need it."""
        if not self.holds(following) and self._replacing.at(following.path) is None:
            making = CreateNextDay(following.path, place.path, (following.start, following.end), self._now(), self._files)
            self._replacing.begin(following, "made", making)

    def seal(self, place: Place) -> bool:
        """Begin to seal a live file; False where there is none, or something is done to it already. What was opened up is adopted."""
        if self._replacing.at(place.path) is not None or (volume := self._existing(place, unsealed=False)) is None:
            return False
        try:
            self._replacing.begin(place, "sealed", SealFile(volume.file, self._now()))
        except OSError as error:
            self._distrust(place, volume.file, error)
        return True

    def finish(self) -> list[Done]:
        """End what is over, and tell of all that was since; what failed is left for the window that waits for it."""
        for one in self._replacing.over():
            if not (one.awaited and one.has_failed):
                self._end(one)
        done, self._done = self._done, []
        return done

    def adopt(self, place: Place, used: float | None = None) -> None:
        """Take over a file that is to be sealed, by the mark that stands beside it, unless that is known.

        used: the clock's time at which the last window came for it, None for now.
        """
        self._opened_up.adopt(place, used)

    def miss(self, path: Path) -> None:
        """Trust a file no more that is not there; the next commit tells of it, if it was open."""
        if (volume := self._open.get(path)) is not None:
            self._distrust(volume.place, volume.file, FileLost("it was unlinked or renamed", path))

    def seal_quiet(self, quiet: float = QUIET) -> None:
        """Begin to seal one of the files that were opened up, once nothing has come for it for so many seconds."""
        for place in self._opened_up.quiet(quiet):
            if self._replacing.at(place.path) is None:
                self._opened_up.use(place)
                # A kill may have come between the mark and what it is for: then the file is sealed, still or again, or gone.
                if self.seal(place):
                    return
                self._opened_up.end(place.path)

    def seal_all(self) -> list[Done]:
        """Seal what was opened up, now."""
        done: list[Done] = []
        while self._opened_up.paths and not any(one.error for one in done):
            for path in self._opened_up.paths:
                if (ongoing := self._replacing.at(path)) is not None and ongoing.what != "sealed":
                    self._replacing.give_up(path)
            self.seal_quiet(0.0)
            for one in [ongoing for path in self._opened_up.paths if (ongoing := self._replacing.at(path)) is not None]:
                while not one.job.is_done(0.1):
                    self.pause()
            done += self.finish()
        return done

    def close(self) -> None:
        """Give up what is being done, and close all files."""
        self._replacing.close()
        while self._open:
            self._open.popitem()[1].file.close()

    # ----

    def _existing(self, place: Place, *, unsealed: bool = True) -> Volume | None:
        self._opened_up.use(place)
        if place.path in self._open:
            self._open.move_to_end(place.path)
            return self._open[place.path]
        self._distrusted.clear(place.path)
        if not place.path.exists():
            return None
        try:
            file = LiveFile.open(place.path, self._files)
        except NotLive as error:
            if not is_sealed(place.path):
                self._distrust(place, None, error)
                return None
            return self._opened(place) if unsealed else None
        return self._remember(Volume(place, file))

    def _told_beside(self, place: Place, way: int) -> Beside | None:
        """Return what the next (+1) or previous (-1) day tells, which stays sealed if it is."""
        if (volume := self.beside(place, way)) is not None:
            return volume
        neighbour = self.place(place.system, place.end if way > 0 else place.start - 1)
        try:
            return None if neighbour is None else SealedDay.read(neighbour.path)
        except (FileNotFoundError, NotLive):
            return None

    def _opened(self, place: Place) -> Volume | None:
        self._opened_up.begin(place)
        return self._ready(place, "opened", lambda: UnsealFile(place.path, self._now(), self._files))

    def _roomier(self, place: Place, volume: Volume | None, wanted: FileSpec) -> Volume | None:
        """Make a file or let one grow for what is wanted; it may have become one for what was wanted before."""
        try:
            spec = wanted if volume is None else volume.file.spec.merged(wanted)
        except ValueError as error:
            raise Refusal(f"{place.path}: {error}", "never") from error
        _check_columns(place.path, spec, self._limits.columns)
        if volume is None:
            return self._ready(place, "made", lambda: CreateFile(place.path, spec, self._now(), self._files))
        old = volume.file
        if (ongoing := self._replacing.at(place.path)) is not None and ongoing.what == "sealed":
            self._replacing.give_up(place.path)
        return self._ready(place, "grown", lambda: GrowFile(old, spec, self._now()))

    def _ready(self, place: Place, what: What, begin: Callable[[], Rewrite]) -> Volume | None:
        """Return the file that a window needs; or refuse the window until it is there."""
        ongoing = self._replacing.at(place.path) or self._replacing.begin(place, what, begin())
        if ongoing.job.is_done(0.0 if self._replacing.is_behind(ongoing) else PATIENCE):
            return self._ended(ongoing)
        ongoing.awaited = True
        raise Refusal(f"{place.path} is just being {what}", "busy")

    def _ended(self, ongoing: Ongoing) -> Volume | None:
        """Put what was made in its place; None for a sealed file."""
        place, before = ongoing.place, self._open.get(ongoing.place.path)
        try:
            file = self._replacing.end(ongoing)
        except FileLost as error:
            self._distrust(place, None if before is None else before.file, error)
            raise
        self._done.append(Done(ongoing.what, place.path))
        if file is None:
            self._open.pop(place.path, None)
            self._opened_up.end(place.path)
            return None
        volume = self._remember(Volume(place, file))
        known = {} if before is None else before.file.spec.matrices
        join(volume, [dataset for dataset, matrix in file.spec.matrices.items() if matrix != known.get(dataset)], self._told_beside)
        return volume

    def _end(self, ongoing: Ongoing) -> None:
        try:
            self._ended(ongoing)
        except OSError as error:
            self._done.append(Done(ongoing.what, ongoing.place.path, error))

    def _remember(self, volume: Volume) -> Volume:
        self._open[volume.place.path] = volume
        for path, old in list(self._open.items())[: -self._limits.keep_open]:
            if not old.file.dirty and self._replacing.at(path) is None:
                old.file.close()
                del self._open[path]
        return volume

    def _distrust(self, place: Place, file: LiveFile | None, error: Exception) -> None:
        """Never write to a file again: what has its name, if anything has, goes aside; a copy takes its place if only a sync failed."""
        self._replacing.give_up(place.path)
        self._open.pop(place.path, None)
        self._distrusted.add(place, file, error)

    def _pause(self) -> None:
        self.pause()

    def _now(self) -> int:
        return int(self._clock.time())


def _check_columns(path: Path, spec: FileSpec, most: int) -> None:
    for dataset, matrix in spec.matrices.items():
        if len(matrix.columns) > most:
            raise Refusal(
                f"{path}: {dataset} would have {len(matrix.columns)} columns, archive.max_columns allows {most}: "
                "raise it if the site is as large as that",
                "never",
            )
