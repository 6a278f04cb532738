"""Reads the rows of a span from the day files: a block for each dataset, in pieces that fit into memory.

A span of which the file is missing, or no longer has a dataset, is read as rows that are all missing: of the datasets and columns that the
sink has sent of the system before. So are the rows of a day that were sent with another step than the file has now.
"""

from __future__ import annotations

import datetime as dt
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from tokiod.change_sink import Block
from tokiod.errors import Fatal, Transient
from tokiod.path_template import files_of, fill, root_of
from tokiod.reader.errors import NotTts
from tokiod.reader.part import OpenParts
from tokiod.tts.live.files import exists, replace_file
from tokiod.tts.schema import group_of, natural_key
from tokiod.window import Window

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from tokiod.reader.part import Part, Shape
    from tokiod.window import Calendar, Day

PIECE_BYTES = 8 << 20
"""Of the cells of all datasets that are passed to a sink at once. It has them in its own form as well, and the process 100 MB."""
MAX_OPEN_FILES = 8
CELL_BYTES = 8
FIRST_YEAR = 2000
KNOWN_FILE = "datasets.json"
MAX_STEPS = 8
"""Of a group, that are remembered."""


class DamagedFile(Exception):  # noqa: N818 - a state, not a fault
    """A day file can't be read any more, and waiting does not help."""


class KnownDataset(msgspec.Struct, frozen=True):
    """A dataset that was sent. step: seconds."""

    step: int
    units: str


class Sent(msgspec.Struct, frozen=True):
    """The days of which rows of a group were sent with a step: from the first to the last, epoch seconds. step: seconds."""

    step: int
    start: int
    end: int


class KnownSystem(msgspec.Struct, frozen=True):
    """What was sent of a system: its datasets, and the columns and days of each group. A file of an earlier version has no days."""

    datasets: dict[str, KnownDataset] = {}
    columns: dict[str, tuple[str, ...]] = {}
    sent: dict[str, tuple[Sent, ...]] = {}

    def former(self, group: str, step: int, window: Window) -> list[int]:
        """Return the other steps than the present one with which rows of a group may have been sent in a window."""
        return [one.step for one in self.sent.get(group, ()) if one.step != step and one.start < window.end and window.start < one.end]

    def step(self, group: str) -> int:
        """Return the step of a group where no file has it. Of datasets that were last sent with others, the finest: its rows have most."""
        return min(one.step for name, one in self.datasets.items() if group_of(name) == group)

    def with_block(self, block: Block, day: Day) -> KnownSystem:
        """Return what is known once a block of a day was sent; itself if that is nothing new."""
        group, dataset = group_of(block.dataset), KnownDataset(block.step, block.units)
        before, sent = self.columns.get(group, ()), self.sent.get(group, ())
        is_known = block.columns == before or set(block.columns) <= set(before)
        if is_known and self.datasets.get(block.dataset) == dataset and _with_day(sent, block.step, day) == sent:
            return self
        columns = before if is_known else tuple(sorted({*before, *block.columns}, key=natural_key))
        return KnownSystem(
            self.datasets | {block.dataset: dataset},
            self.columns | {group: columns},
            self.sent | {group: _with_day(sent, block.step, day)},
        )


def _with_day(sent: tuple[Sent, ...], step: int, day: Day) -> tuple[Sent, ...]:
    """Return the days of a group with another one, sorted by their ends."""
    same = [one for one in sent if one.step == step]
    start, end = min([day.start, *(one.start for one in same)]), max([day.end, *(one.end for one in same)])
    others = [one for one in sent if one.step != step]
    return tuple(sorted([*others, Sent(step, start, end)], key=lambda one: (one.end, one.step))[-MAX_STEPS:])


class Known:
    """What was sent of each system, in a file of the sink's state directory."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / KNOWN_FILE
        try:
            self.systems = msgspec.json.decode(self._path.read_bytes(), type=dict[str, KnownSystem])
        except (OSError, msgspec.DecodeError, ValueError):
            self.systems = {}

    def note(self, blocks: list[Block], day: Day) -> None:
        """Record the blocks of a day before they are sent, durably where they are new. Raises Transient; then nothing is recorded."""
        systems = dict(self.systems)
        for block in blocks:
            systems[block.system] = systems.get(block.system, KnownSystem()).with_block(block, day)
        if systems != self.systems:
            try:
                replace_file(self._path, msgspec.json.encode(systems))
            except OSError as error:
                raise Transient(f"{self._path} can't be written: {error.strerror}") from error
            self.systems = systems


@dataclass(frozen=True, slots=True)
class Piece:
    """A span of one site day of a system."""

    system: str
    day: Day
    window: Window


class FileRows:
    """The day files of an archive, as blocks. Its methods block. They raise Transient for what can't be read now, Fatal without rights.

    templates: of the files, those of the archive first; window: the seconds of which a piece is a whole number.
    """

    def __init__(self, templates: Sequence[str], calendar: Calendar, known: Known, window: int) -> None:
        self._templates, self._calendar, self._known, self._window = templates, calendar, known, window
        self._parts = OpenParts(MAX_OPEN_FILES)
        self.piece_bytes, self.divisor = PIECE_BYTES, 1

    def close(self) -> None:
        """Close the files."""
        self._parts.close()

    def days(self, system: str, last: dt.date) -> list[Day]:
        """Return the site days of which a system has a file, oldest first, up to a date."""
        if exists(root := root_of(self._templates[0])) and not os.access(root, os.R_OK | os.X_OK):
            raise _denied(root)
        found = {path for template in self._templates for path in files_of(template)}
        date, days = dt.date(FIRST_YEAR, 1, 1), list["Day"]()
        while found and date <= last:
            if any(fill(template, date, system) in found for template in self._templates):
                days.append(self._calendar.day_of_date(date))
            date += dt.timedelta(days=1)
        return days

    def path(self, system: str, day: Day) -> Path | None:
        """Return the file of a day, None while it is missing."""
        ways = (fill(template, day.date, system) for template in self._templates)
        try:
            return next((path for path in ways if exists(path)), None)
        except PermissionError as error:
            raise _denied(error.filename) from None
        except OSError as error:
            raise Transient(f"the archive can't be read: {error}") from error

    def part(self, path: Path) -> Part | None:
        """Return a file, None if it is gone. Raises DamagedFile."""
        try:
            return self._parts.part(path)
        except FileNotFoundError:
            return None
        except PermissionError as error:
            raise _denied(error.filename) from None
        except NotTts as error:
            raise DamagedFile(str(error)) from None
        except OSError as error:
            raise Transient(f"{path} can't be read: {error.strerror or error}") from error

    def sent(self, system: str) -> Window | None:
        """Return the span from the first to the last day of which rows of a system were sent, None without any."""
        days = [one for sent in self._known.systems.get(system, KnownSystem()).sent.values() for one in sent]
        return Window(min(one.start for one in days), max(one.end for one in days)) if days else None

    def pieces(self, system: str, window: Window) -> Iterator[Piece]:
        """Cut a span into pieces of at most `piece_bytes / divisor`, oldest first.

        Each is a whole number of the sink's windows within a site day.
        """
        start = window.start
        while start < window.end:
            day = self._calendar.day(start)
            seconds = self._seconds(system, day)
            first = max(day.start, start - start % self._window)
            end = min(day.end, (first + seconds) // self._window * self._window)
            yield Piece(system, day, Window(first, min(end, _up(window.end, self._window))))
            start = end

    def _seconds(self, system: str, day: Day) -> int:
        """Return how many seconds of a day fit into a piece; at least a window of the sink."""
        rate = self._cells_per_second(system, day)
        seconds = int(self.piece_bytes / (self.divisor * CELL_BYTES * rate)) if rate else day.end - day.start
        return max(self._window, seconds // self._window * self._window)

    def _cells_per_second(self, system: str, day: Day) -> float:
        """Return how many cells a second of a day has: by its file, and by what was sent of the system before."""
        path, shapes = self.path(system, day), dict[str, "Shape"]()
        try:
            part = None if path is None else self.part(path)
            shapes = {} if part is None else {name: part.shape(name) for name in part.names}
        except (DamagedFile, NotTts, FileNotFoundError):
            pass
        known, window = self._known.systems.get(system, KnownSystem()), Window(day.start, day.end)
        rate = sum(len(shape.columns) / max(1, shape.step) for shape in shapes.values())
        steps = {group_of(name): max(1, shape.step) for name, shape in shapes.items()}
        for name in known.datasets:
            group = group_of(name)
            step = steps.get(group) or known.step(group)
            missing = [*known.former(group, step, window), *([] if name in shapes else [step])]
            rate += sum(len(known.columns[group]) / one for one in missing)
        return rate

    def blocks(self, piece: Piece, revision: int, epoch: int) -> list[list[Block]]:
        """Read all datasets of a piece, for one call of the sink after another. Raises DamagedFile.

        The last call has the rows of the present step. Those before have the missing rows of former steps, whose revision is lower by one:
        it covers all earlier changes, and the present rows win in any receiver.
        """
        path = self.path(piece.system, piece.day)
        part = None if path is None else self.part(path)
        try:
            found = [] if part is None else [self._block(part, name, piece, revision, epoch) for name in part.names]
        except FileNotFoundError:
            found = []
        except NotTts as error:
            raise DamagedFile(str(error)) from None
        except OSError as error:
            raise Transient(f"{path} can't be read: {error.strerror or error}") from error
        blocks = [one for one in found if one is not None]
        self._known.note(blocks, piece.day)
        blocks += list(self._missing(piece, blocks, revision, epoch))
        return [*self._former(piece, blocks, revision - 1, epoch), blocks]

    def _block(self, part: Part, name: str, piece: Piece, revision: int, epoch: int) -> Block | None:
        shape = part.shape(name)
        step = shape.step or piece.day.end - piece.day.start
        first, last = _rows(piece.window, shape.start, step, self._window)
        last = min(last, shape.rows)
        if first >= last:
            return None
        values = part.read(name, first, last)
        return Block(piece.system, name, shape.start + first * step, step, shape.columns, values, part.units(name), revision, epoch)

    def _missing(self, piece: Piece, present: list[Block], revision: int, epoch: int) -> Iterator[Block]:
        """Yield rows without values of the datasets that were sent of the system and are not in the file."""
        known = self._known.systems.get(piece.system, KnownSystem())
        rows = {group_of(one.dataset): (one.start, one.step, one.rows) for one in present}
        names = {one.dataset for one in present}
        for name, dataset in known.datasets.items():
            if name not in names:
                # All datasets of a group have the same rows: those of the file, whatever step its source had before.
                start, step, count = rows.get(group_of(name)) or self._rows_of(piece, known.step(group_of(name)))
                columns = known.columns[group_of(name)]
                if count:
                    yield Block(piece.system, name, start, step, columns, _no_values(count, columns), dataset.units, revision, epoch)

    def _former(self, piece: Piece, present: list[Block], revision: int, epoch: int) -> list[list[Block]]:
        """Return the rows without values of the steps that datasets had before, as far as they are not rows of the present step."""
        known = self._known.systems.get(piece.system, KnownSystem())
        calls: list[list[Block]] = []
        for one in present:
            group = group_of(one.dataset)
            is_from_midnight = (one.start - piece.day.start) % one.step == 0
            steps = [step for step in known.former(group, one.step, piece.window) if step % one.step or not is_from_midnight]
            for number, former in enumerate(steps):
                start, step, count = self._rows_of(piece, former)
                columns = known.columns[group]
                block = Block(piece.system, one.dataset, start, step, columns, _no_values(count, columns), one.units, revision, epoch)
                calls += [[]] if number == len(calls) else []
                calls[number] += [block] if count else []
        return calls

    def _rows_of(self, piece: Piece, step: int) -> tuple[int, int, int]:
        """Return the start, step and number of the rows that a file of the day would have in a piece."""
        day = piece.day
        first, last = _rows(piece.window, day.start, step, self._window)
        return day.start + first * step, step, max(0, last - first)


def _no_values(rows: int, columns: tuple[str, ...]) -> NDArray[np.float64]:
    return np.full((rows, len(columns)), np.nan)


def _rows(window: Window, start: int, step: int, unit: int) -> tuple[int, int]:
    """Return the rows [first, last) of a file that overlap a window, from the beginning of the unit in which the first of them begins.

    start: of the file, which may have fewer rows; unit: seconds of the sink's windows. A row longer than these begins in one of them and
    belongs to it.
    """
    first = max(0, (window.start - start) // step)
    begins = start + first * step
    if begins < window.start:
        first = max(0, -(-(begins - begins % unit - start) // step))
    return first, max(0, -(-(window.end - start) // step))


def _up(time: int, unit: int) -> int:
    return -(-time // unit) * unit


def _denied(path: object) -> Fatal:
    return Fatal(f"no permission to read the archive: {path}; add the user of this process to the group tokiod-readers")
