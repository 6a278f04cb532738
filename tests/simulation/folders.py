"""A watched folder of a simulated site: programs put files into it, and the real intake collects them, with the kernel's inotify.

A file holds some rows of a source that can't be queried. The reader of a file is no process of its own here, which the tests of
tokiod.polling.watch.reader start; it dies with its collectors.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from tests.simulation.oracle import Wrong
from tests.simulation.sources import LATENCY_SECONDS, Source
from tokiod.errors import Fatal
from tokiod.ledger.found_file import FoundFile
from tokiod.polling.watch.beneath import REJECTED
from tokiod.window import Window

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from tests.simulation.clock import MachineClock
    from tests.simulation.sources import Column
    from tokiod.ledger.ledger import Ledger
    from tokiod.polling.watch.reader import Task
    from tokiod.window_data import WindowData

    Later = Callable[[float, Callable[[], object]], object]
    """Calls something after some seconds."""

NAME = "spool"
MAX_ROWS = 60
"""Rows in a file."""
SHORT_RETENTIONS = 1800, 7200
"""After how many seconds the record of a deleted file may be deleted. A day of that age that is lost is not filled again."""


@dataclass
class FolderSource(Source):
    """A source of which only the files in a folder tell. samples: those of the files so far; held: all that it ever has."""

    directory: Path = field(default_factory=Path)
    held: dict[str, dict[str, Column]] = field(default_factory=dict)
    contents: list[tuple[range, bytes]] = field(default_factory=list)
    settled: set[Path] = field(default_factory=set)
    malformed: set[str] = field(default_factory=set)
    written: int = 0
    held_files: dict[Path, int] = field(default_factory=dict)

    def fill(self, columns: int, faults: float) -> None:
        """Make all samples, of which no file has one yet."""
        super().fill(columns, faults)
        self.held, self.samples = self.samples, {dataset: {name: {} for name in found} for dataset, found in self.samples.items()}

    @property
    def wanted(self) -> list[Window]:
        """The days with samples: a file that was made before a midnight, without any, has the columns of the day before."""
        days, day = [], self.calendar.day(self.origin)
        while day.start < self.end:
            days += [Window(day.start, day.end)] if self.holds(Window(day.start, day.end)) else []
            day = self.calendar.day(day.end)
        return days

    def put(self, rng: random.Random, now: float) -> bool:
        """Put a file with rows that are over into the folder, or a copy of a file; return whether there are any."""
        if self.contents and rng.random() < 0.1:
            self._write(rng.choice(self.contents)[1], rng, now)
            return True
        if (content := self._rows(rng, now)) is None:
            return False
        self._write(content, rng, now)
        return True

    def put_slowly(self, rng: random.Random, now: float, later: Later) -> bool:
        """Write a file in parts, in a new directory, while another one is finished; return whether there are rows."""
        if (content := self._rows(rng, now)) is None:
            return False
        self.written += 1
        directory = self.directory / f"run-{self.written}"
        directory.mkdir()
        file = (directory / f"{self.written}.json").open("wb", buffering=0)
        file.write(content[: len(content) // 2])

        def finish() -> None:
            with file:
                file.write(content[len(content) // 2 :])
                os.utime(file.fileno(), (now, now))

        later(2.0, lambda: self.put(rng, now))
        later(3.0, finish)
        return True

    def put_held(self, rng: random.Random, now: float) -> bool:
        """Put a file that can't be opened, because another program has a lease on it; return whether there are rows.

        It is released when all others are collected, so that it must not stop them.
        """
        if (content := self._rows(rng, now)) is None:
            return False
        path = self._write(content, rng, now)
        self.held_files[path] = os.open(path, os.O_RDONLY)
        fcntl.fcntl(self.held_files[path], fcntl.F_SETLEASE, fcntl.F_WRLCK)
        return True

    def put_corrected(self, rng: random.Random, now: float) -> bool:
        """Put a file with other values of some rows than older files have: the newest counts, whenever the others are collected."""
        if not self.contents:
            return False
        rows = rng.choice(self.contents)[0]
        first = rng.choice(rows)
        rows = range(first, min(rows.stop, first + rng.randint(1, 10)))
        for columns in self.held.values():
            for column in columns.values():
                column.update({row: max(0, column[row] + rng.choice((-5, -1, 1, 3))) for row in rows if row in column})
        # The same content is not collected twice, so that of an older file is not put again.
        self.contents = [(of, content) for of, content in self.contents if of.stop <= rows.start or rows.stop <= of.start]
        if (content := self._content(rows)) is None:
            return False
        self._write(content, rng, now)
        return True

    def release(self) -> None:
        """Let held files be opened."""
        while self.held_files:
            os.close(self.held_files.popitem()[1])

    def _rows(self, rng: random.Random, now: float) -> bytes | None:
        """Return the content of a file with rows that are over, often the next ones, which count as put from now on."""
        over = min(self.rows, int((now - self.origin) // self.step))
        last = max((row for columns in self.samples.values() for column in columns.values() for row in column), default=-1)
        first = last + 1 if rng.random() < 0.6 else rng.randrange(max(1, over))
        return self._content(range(first, min(over, first + rng.randint(1, MAX_ROWS))))

    def _content(self, rows: range) -> bytes | None:
        """Return the content of a file with some rows, which count as put from now on; None if there are no samples."""
        found = {
            dataset: {name: {row: column[row] for row in rows if row in column} for name, column in columns.items()}
            for dataset, columns in self.held.items()
        }
        if not any(column for columns in found.values() for column in columns.values()):
            return None
        for dataset, columns in found.items():
            for name, column in columns.items():
                self.samples[dataset][name] |= column
        # Two files that were written at different times have different contents.
        content = json.dumps([rows.start, rows.stop, found, self.written]).encode()
        self.contents.append((rows, content))
        return content

    def put_malformed(self, rng: random.Random, now: float) -> None:
        """Put a file into the folder that nothing can read."""
        self.malformed.add(self._write(b"\x89HDF" + rng.randbytes(20), rng, now).name)

    def _write(self, content: bytes, rng: random.Random, now: float) -> Path:
        """Write a file into the folder, under its name or first under that of an unfinished one."""
        self.written += 1
        path = self.directory / f"{self.written}.json"
        part = path.with_suffix(".tmp") if rng.random() < 0.5 else path
        part.write_bytes(content)
        # The order in which files are collected, and which of two is older, must not depend on the real time.
        os.utime(part, (now, now))
        part.rename(path)
        return path

    def put_back(self) -> None:
        """Put back files whose collectors were killed three times, as an operator does. Raises Wrong for others that were rejected."""
        for path in (self.directory / REJECTED).glob("*.json"):
            if path.name not in self.malformed:
                reason = path.with_name(f"{path.name}.reason")
                # The collectors may have been killed before they wrote it.
                if reason.exists() and "never ended" not in (text := reason.read_text()):
                    raise Wrong(f"{path} was rejected: {text}")
                path.rename(self.directory / path.name)

    def settle(self, ledger: Ledger) -> None:
        """Note the files that are recorded: none of them is collected again, unless what it brought is lost or replaced."""
        received = ledger.received_files(self.name)
        self.settled = {one.path for one in self._found() if received.knows(one)}

    def _found(self) -> list[FoundFile]:
        paths = [path for path in self.directory.rglob("*.json") if path.parent.name != REJECTED]
        return [one for path in paths if (one := FoundFile.of(path, path.stat())) is not None]

    def is_collected(self, ledger: Ledger) -> bool:
        """Return whether all files are recorded, but for those that are held; those are released then."""
        received = ledger.received_files(self.name)
        if missing := {one.path for one in self._found() if not received.knows(one)}:
            if missing <= self.held_files.keys():
                self.release()
            return False
        return True

    def reader(self, task: Task, clock: MachineClock) -> FileCollector:
        """Return the collector of a file."""
        return FileCollector(self, task.path, clock)


class FileCollector:
    """The contract's SavedCollector over a file."""

    replayable: ClassVar[bool] = True
    needs_sample_at_end: ClassVar[bool] = False

    def __init__(self, source: FolderSource, path: Path, clock: MachineClock) -> None:
        self.step = source.step
        self._source = source
        self._path = path
        self._clock = clock
        self._part: Source | None = None

    async def spans(self) -> list[Window]:
        """Return the span of the rows."""
        await asyncio.sleep(LATENCY_SECONDS * self._source.rng.random())
        try:
            first, last, *_ = json.loads(self._path.read_bytes())
        except ValueError:
            raise Fatal("the file is not JSON") from None
        return [Window(self._source.origin + first * self.step, self._source.origin + last * self.step)]

    async def collect(self, window: Window) -> WindowData:
        """Return the samples of a window."""
        source = self._source
        await asyncio.sleep(LATENCY_SECONDS * source.rng.random())
        source.note_query(Window(source.live - 1, source.live))
        return self._read().data(window, self._source.end + self.step)

    async def count(self, window: Window) -> int | None:  # noqa: ARG002 - the contract's
        """Return None, as the reader of files does."""
        return None

    async def close(self) -> None:
        """Have nothing open."""

    def _read(self) -> Source:
        """Return a source with the samples of the file alone."""
        if self._part is None:
            source, (_, _, found, _) = self._source, json.loads(self._path.read_bytes())
            self._part = Source(
                source.name,
                source.system,
                source.datasets,
                source.calendar,
                source.origin,
                source.live,
                None,
                source.end,
                source.step,
                reports_progress=False,
                lag=0.0,
                seed=source.seed,
                born=source.born,
            )
            self._part.samples = {
                dataset: {name: {int(row): value for row, value in column.items()} for name, column in columns.items()}
                for dataset, columns in found.items()
            }
        return self._part
