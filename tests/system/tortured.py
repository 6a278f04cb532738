"""What is tortured: a scene with its disk, and what its archive must hold, whatever is done to it."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from torture_past import Past

from tests.support.waiting import wait_for
from tokiod.errors import TokiodError
from tokiod.ledger.ledger import Ledger
from tokiod.polling.recount import CLOCK_TOLERANCE_SECONDS, RECOUNT_CHECK_SECONDS
from tokiod.ranges import Ranges
from tokiod.window import Calendar, iso

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator

    from torture_disk import Disk

    from tests.support.faulty_scene import FaultyScene
    from tokiod.simulator.sources import Source
    from tokiod.window import Window

WAIT_SECONDS = 600
"""Real seconds for what takes a few on a machine that is not busy."""


BELIEVED = ("ledger.rebuilt", "ledger.set_aside", "ledger.lost")
"""What a writer logs that does not believe a ledger."""


@dataclass(slots=True)
class Tortured:
    """A scene, the disk of its archive if there is one of its own, and all that its ledger ever called stored.

    A cell that was there must be there for ever, also while a ledger that was lost tells less, but for what a fault destroyed.
    past: the files of days before those that sources are asked for.
    is_kept_up: a daemon that ends by itself is started again, restarts: how often; copied: the simulated time of the ledger's copy.
    is_doubtful: there is garbage in the ledger that was not noticed, believed: how often a writer has set one aside or rebuilt it before.
    """

    scene: FaultyScene
    rng: random.Random
    disk: Disk | None = None
    is_kept_up: bool = False
    restarts: int = 0
    copied: float = 0.0
    is_doubtful: bool = False
    believed: int = 0
    past: Past = field(default_factory=Past)
    _kept: dict[str, Ranges] = field(default_factory=dict)

    def learn(self) -> None:
        """See what is stored now.

        Of garbage in the write-ahead log SQLite may find the end of it only when all processes that had it open are gone: then the ledger
        is an older one, until the next writer is ready. So its word counts once a writer that is ready has looked at it.
        """
        if self.is_doubtful and not self.is_ready("writer"):
            return
        self.is_doubtful = self.is_doubtful and self.said(*BELIEVED) == self.believed
        for source in self.scene.sources:
            kept = self._kept.setdefault(source.name, Ranges())
            for window in self.scene.stored(source):
                kept.add(window.start, window.end)

    def kept(self, source: Source) -> list[Window]:
        """Return what must be in the files of a source."""
        return [*self._kept.get(source.name, Ranges()).within(0, 2**40)]

    def unacknowledged(self, source: Source) -> list[Window]:
        """Return the lost windows of a source that were never called stored: of one that a kill tore, a part may be in the file."""
        kept = self._kept.get(source.name, Ranges())
        with Ledger.open_readonly(self.scene.config.archive.ledger) as ledger:
            lost = [one.window for one in ledger.unstored(source.name) if one.state == "lost"]
        return [hole for window in lost for hole in kept.holes(window.start, window.end)]

    def destroyed(self, source: Source, path: Path) -> None:
        """Note that the file of a day is no more: what can be asked again will be stored again."""
        zone = self.scene.site.timezone
        noon = datetime.fromisoformat(f"{path.parent.name}T12:00").replace(tzinfo=ZoneInfo(zone))
        day = Calendar(zone).day(int(noon.timestamp()))
        self._kept.setdefault(source.name, Ranges()).remove(day.start, day.end)

    def unexplained(self, end: int) -> list[str]:
        """Return what up to a time is neither stored nor lost for a reason, of sources that can't be asked again."""
        found: list[str] = []
        with Ledger.open_readonly(self.scene.config.archive.ledger) as ledger:
            for source in (source for source in self.scene.sources if not source.replayable):
                known = ledger.stored(source.name)
                first = max(min((start for start, _ in known), default=0), end - self.scene.retention)
                for one in ledger.unstored(source.name):
                    if one.state == "lost" and one.error:
                        known.add(one.window.start, one.window.end)
                found += [f"{source.name} {hole}" for hole in known.holes(first, end)]
        return found

    def written_off(self) -> list[str]:
        """Return the spans that are lost of sources that can be asked again, as far back as these had anything."""
        with Ledger.open_readonly(self.scene.config.archive.ledger) as ledger:
            names = [source.name for source in self.scene.sources if source.replayable]
            lost = [one for name in names for one in ledger.unstored(name) if one.state == "lost"]
        return [f"{one.source} {one.window}" for one in lost if one.window.end > self.scene.site.epoch]

    def losses(self) -> str:
        """Return a sentence on what is stored and lost of sources that can't be queried again."""
        sentences = []
        with Ledger.open_readonly(self.scene.config.archive.ledger) as ledger:
            for source in (source for source in self.scene.sources if not source.replayable):
                lost = sum(one.window.seconds for one in ledger.unstored(source.name) if one.state == "lost")
                stored = sum(end - start for start, end in ledger.stored(source.name))
                sentences.append(f"{source.name}: windows stored {stored // self.scene.window} lost {lost // self.scene.window}")
        return ", ".join([*sentences, f"the daemon ended by itself {self.restarts} times"])

    def down(self) -> None:
        """Kill the daemon, and wait until none of its processes is left."""
        self.scene.kill_daemon()
        wait_for(lambda: not survivors(self.scene.directory), WAIT_SECONDS, "processes outlived their supervisor")

    def outlive_a_fast_clock(self) -> None:
        """Wait until all is over that the ledger says is stored, and what then turned out to be more was collected again."""
        scene, path = self.scene, self.scene.config.archive.ledger
        self.wait(self.has_ledger, "no ledger")
        with Ledger.open_readonly(path) as ledger:
            far = max((end for source in scene.sources for _, end in ledger.stored(source.name)), default=0)

        def is_over() -> bool:
            if scene.clock.time() < far + scene.config.source[0].settle + 3 * RECOUNT_CHECK_SECONDS:
                return False
            with Ledger.open_readonly(path) as ledger:
                return not _is_due(ledger, scene) and not _is_ahead(ledger, scene) and all(job.finished for job in ledger.jobs.all())

        self.wait(is_over, "what a fast clock had stored is not collected again")

    def wait(self, condition: Callable[[], bool], message: str) -> None:
        """Wait, and meanwhile start a daemon that has ended, as a service manager does: on a broken disk it may end."""

        def is_so() -> bool:
            if condition():
                return True
            if self.is_kept_up and self.scene.has_ended:
                self.restarts += 1
                self.scene.start_daemon()
            return False

        wait_for(is_so, WAIT_SECONDS, f"{message}; see {self.scene.log}")

    def pause(self, shortest: float, longest: float) -> None:
        """Let some seconds pass."""
        time.sleep(self.rng.uniform(shortest, longest))

    def note(self, what: str) -> None:
        """Write what is done into the daemon's log, among what it says."""
        with self.scene.log.open("a") as log:
            log.write(json.dumps({"timestamp": iso(self.scene.clock.time()), "torture": what}) + "\n")

    def said(self, *events: str) -> int:
        """Return how often the daemon has logged something."""
        text = self.scene.log.read_bytes()
        return sum(text.count(f'"{event}"'.encode()) for event in events)

    def said_of(self, path: Path, *events: str) -> int:
        """Return how often the daemon has logged something about a file."""
        lines = [line for line in self.scene.log.read_bytes().splitlines() if f'"path": "{path}"'.encode() in line]
        return sum(f'"event": "{event}"'.encode() in line for line in lines for event in events)

    def said_last(self, *events: str) -> str:
        """Return which of some events the daemon has logged last; the first of them if it has logged none."""
        text = self.scene.log.read_bytes()
        return max(events, key=lambda event: text.rfind(f'"{event}"'.encode()))

    def is_ready(self, child: str) -> bool:
        """Whether the child that runs now has logged that it is ready."""
        text, started = self.scene.log.read_bytes(), f'{{"child": "{child}", "pid": {self.scene.pid(child)}, "event": "child.started"'
        return text.rfind(f'"{child}.ready"'.encode()) > text.rfind(started.encode()) >= 0

    def has_open(self, path: Path) -> bool:
        """Whether the writer has a file open to fill it; to see what it is, it opens each for a moment."""
        pid = self.scene.pid("writer")
        try:
            return pid is not None and path.stat().st_ino in set(_filled(pid))
        except OSError:
            return False

    def has_ledger(self) -> bool:
        """Whether there is a ledger that can be read and knows every source."""
        try:
            with Ledger.open_readonly(self.scene.config.archive.ledger) as ledger:
                return {status.name for status in ledger.sources()} >= {source.name for source in self.scene.sources}
        except (TokiodError, sqlite3.Error):
            return False


def _is_due(ledger: Ledger, scene: FaultyScene) -> bool:
    """Whether any window is still to be counted again for the first time that could be by now."""
    now = scene.clock.time()
    due = (ledger.counts(source.name).due(now, tuple(map(int, source.recount))) for source in scene.config.source)
    return any(one.stage == 0 for some in due for one in some)


def _is_ahead(ledger: Ledger, scene: FaultyScene) -> bool:
    """Whether a window has a storing time in the future: the recount has not begun with what a fast clock stored."""
    return any(ledger.counts(source.name).newest() > scene.clock.time() + CLOCK_TOLERANCE_SECONDS for source in scene.sources)


def survivors(directory: Path) -> list[str]:
    """Return the processes that still work on a scene."""
    commands = (_command(path) for path in Path("/proc").glob("[0-9]*/cmdline") if path.parent.name != str(os.getpid()))
    return [command.decode() for command in commands if f"{directory}/tokiod.toml".encode() in command]


def _filled(pid: int) -> Iterator[int]:
    """Yield the inodes of what a process may write to."""
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        if entry.lstat().st_mode & stat.S_IWUSR:
            yield entry.stat().st_ino


def _command(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
