"""What a writer does for its archive beside storing windows: tomorrow's files, sealing the days that are over, an eye on disk and files.

A file that somebody took away is missed: what the sources still have of its day is collected again.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import structlog

from sinks.tts.reopened import MARK
from tokiod.ledger.database import LedgerError
from tokiod.ledger.known_files import KnownFile
from tokiod.window import Window
from tokiod.writer.disk_room import Room
from tokiod.writer.file_scan import FilesSeen
from tokiod.writer.seal_policy import Due

if TYPE_CHECKING:
    from pathlib import Path

    from sinks.tts.day_files import Shelf
    from tokiod.archive.layout import Place
    from tokiod.clock import Clock
    from tokiod.config.load import Config
    from tokiod.ledger.ledger import Ledger
    from tokiod.tts.live.files import Files
    from tokiod.writer.file_scan import Seen

log = structlog.get_logger()

LOOK = 10.0
"""Seconds between two looks at what is due."""
AGAIN = 300.0
"""Seconds after which a day is tried again that could not be sealed: until then it holds up none of the others."""
LEAD = 3600
"""Seconds before midnight at which tomorrow's files are made."""


class Upkeep:
    """Looks after the files of an archive."""

    def __init__(self, config: Config, shelf: Shelf, ledger: Ledger, clock: Clock, files: Files) -> None:
        self._config = config
        self._shelf = shelf
        self._ledger = ledger
        self._clock = clock
        self._seen = FilesSeen(self._place_of)
        self._looked = float("-inf")
        self._is_looking = False
        self._begun: dict[Path, float] = {}
        self._room = Room(config.archive.root, files)
        self._known_files = ledger.known_files(config.archive.root)

    def reconfigure(self, config: Config) -> None:
        """Look after the files of other sources from now on; the archive is the same."""
        self._config = config
        self._seen.clear()

    def adopt(self, used: float | None = None) -> None:
        """Take over what a predecessor had opened up, and what somebody wants to have sealed; used: see Shelf.adopt()."""
        for mark in self._config.archive.root.rglob(f".*{MARK}"):
            path = mark.with_name(mark.name[1 : -len(MARK)])
            known = self._seen.look_at(path, 0.0)
            if known is None or known.place is None:
                mark.unlink()
            else:
                self._shelf.adopt(known.place, used)

    def turn(self) -> bool:
        """Begin what is due; that it can't be begun (a full disk, a corrupt file) is told and stops nothing.

        Returns whether the ledger says less than it did.
        """
        try:
            if not self._has_looked():
                return False
            self._look(self._clock.time())
            return self._miss(self._clock.time())
        except (OSError, LedgerError) as error:
            log.warning("upkeep.failed", path=getattr(error, "filename", None) or "", error=str(error))
            return False

    def _has_looked(self) -> bool:
        """Go on looking at the files, where it is time to; return whether that came to its end just now."""
        now = self._clock.monotonic()
        if not self._is_looking:
            if now - self._looked < LOOK:
                return False
            self._looked = now
            self._seen.look(self._config.archive.files(), self._clock.time())
            self._is_looking = True
        self._is_looking = not self._seen.read(self._clock.time())
        return not self._is_looking

    def _look(self, now: float) -> None:
        self.adopt(used=float("-inf"))  # nobody waits for more windows
        known = [one for _, one in self._seen.items() if one.is_live and one.place is not None]
        live = [one.place for one in known if one.place is not None]
        current = [place for place in live if place.start <= now < place.end]
        scarce = self._room.is_scarce(current, now)
        for place in current:
            if place.end - now <= LEAD and (following := self._shelf.place(place.system, place.end)) is not None:
                self._shelf.prepare(place, following)
        self._seal([one for one in known if one.place and one.place.end <= now], now, scarce=scarce)

    def _seal(self, over: list[Seen], now: float, *, scarce: bool) -> None:
        """Begin to seal the oldest day that is due, of those that are over; not one that was begun lately, which would only fail again."""
        passed = self._clock.monotonic()
        self._begun = {path: begun for path, begun in self._begun.items() if passed - begun < AGAIN}
        due = Due(self._config, self._ledger, now, scarce=scarce) if over else None
        for one in sorted(over, key=lambda one: one.start):
            if not due or one.place is None or one.place.path in self._begun or not due(one.place, one.changed_at):
                continue
            if self._shelf.seal(one.place):
                self._begun[one.place.path] = passed
                return

    def _miss(self, now: float) -> bool:
        """Forget what was stored in files that are gone; of days that no source reaches back to, only the files."""
        self._known_files.add(
            KnownFile(path, known.place.system, Window(known.place.start, known.place.end))
            for path, known in self._seen.items()
            if known.place is not None
        )
        gone = self._known_files.missing()
        if gone and not self._ledger.path.exists():
            # An archive whose file system is not mounted has lost nothing.
            raise FileNotFoundError(errno.ENOENT, "the archive is not there", str(self._config.archive.root))
        missed = False
        for one in gone:
            retention = max((int(source.retention) for source in self._config.source if source.system == one.system), default=0)
            if one.window.end <= now - retention:
                self._known_files.remove(one)
                continue
            log.error("file.gone", path=str(one.path), reason="it is no longer there; its windows are collected again")
            self._shelf.miss(one.path)
            self._ledger.forget(one.system, one.window)
            self._known_files.remove(one)
            missed = True
        return missed

    def _place_of(self, path: Path, start: int) -> Place | None:
        systems = sorted({source.system for source in self._config.source})
        places = (self._shelf.place(system, start) for system in systems)
        return next((place for place in places if place is not None and place.path == path), None)
