"""The answers of the API: the systems, the picture of a dataset, the gaps. They come from the files; no daemon is needed."""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from tokiod.errors import TokiodError
from tokiod.ledger.ledger import Ledger
from tokiod.ledger.published_copy import readable_ledger
from tokiod.reader.errors import NoData, NoSuchDataset, NoSuchSystem, NotTts, StepChanged
from tokiod.reader.files import Templates
from tokiod.reader.part import OpenParts
from tokiod.reader.stitched import stitch
from tokiod.reports import gaps as gap_report
from tokiod.reports import status as status_report
from tokiod.tts.layout import is_counter
from tokiod.web.absence import Absence
from tokiod.web.matrix import Header, encoded, pictured
from tokiod.web.query import MAX_CELLS, MAX_READ_CELLS, refused
from tokiod.window import Calendar

if TYPE_CHECKING:
    from pathlib import Path

    from tokiod.clock import Clock
    from tokiod.config.load import Config
    from tokiod.reader.part import Part
    from tokiod.reader.span import Span
    from tokiod.reader.stitched import Stitched
    from tokiod.reports.gaps import Gap
    from tokiod.web.query import GapsQuery, LineQuery, MatrixQuery

MAX_GAPS = 10_000
DAY_SECONDS = 86400


class DatasetLine(msgspec.Struct, frozen=True):
    """A dataset of the newest file of a system. step: seconds between rows; columns: how many."""

    name: str
    units: str
    step: int
    columns: int


class SystemLine(msgspec.Struct, frozen=True):
    """A system. datasets: of the newest file, none without one; day: that file's, as 2018-01-28, empty without one."""

    name: str
    datasets: list[DatasetLine]
    day: str


class Systems(msgspec.Struct, frozen=True):
    """What the archive holds, and the status of its sources. time: UTC epoch seconds; writer: whether one has the archive's lock."""

    time: float
    timezone: str
    health: str
    writer: bool
    systems: list[SystemLine]
    sources: list[status_report.SourceLine]


class GapList(msgspec.Struct, frozen=True):
    """The gaps of a span, by source and time. left_off: how many older ones are not in the list."""

    time: float
    gaps: list[gap_report.Gap]
    left_off: int = 0


class Line(msgspec.Struct, frozen=True):
    """One column. start: UTC epoch seconds of the first value; seconds: between two; values: the largest of their rows, None without."""

    column: str
    units: str
    start: int
    seconds: int
    values: list[float | None]


class Views:
    """The answers about one archive, for several threads. config: may be replaced at any time."""

    def __init__(self, config: Config, clock: Clock) -> None:
        self.config, self._clock = config, clock
        self._parts = OpenParts()

    def now(self) -> float:
        """Return the time, in UTC epoch seconds."""
        return self._clock.time()

    def systems(self) -> Systems:
        """Describe all systems. Raises TokiodError where the ledger can't be read."""
        config, now = self.config, self.now()
        found = status_report.read(config, now)
        lines = [self._system(name, now) for name in sorted(config.systems)]
        return Systems(now, config.timezone, found.health, found.writer is not None, lines, found.sources)

    def gaps(self, query: GapsQuery) -> GapList:
        """Return the gaps of all sources, or of one. Raises Refused, TokiodError, LedgerError."""
        config, now = self.config, self.now()
        known = {source.name for source in config.source if source.polled}
        if query.source and query.source not in known:
            raise refused(404, "unknown_source", f"no source is named so; known: {', '.join(sorted(known)) or 'none'}", "source")
        path = self._ledger()
        found = [] if path is None else [gap for gap in self._gaps(path, query.source, now) if _overlap(gap, query.span)]
        return GapList(now, found[-MAX_GAPS:], max(0, len(found) - MAX_GAPS))

    def matrix(self, query: MatrixQuery, known_tag: str) -> tuple[str, bytes | None]:
        """Return the ETag of a picture, and its bytes; None in their place if the tag is the known one.

        Raises Refused, TokiodError, LedgerError.
        """
        try:
            return self._matrix(query, known_tag)
        except (FileNotFoundError, NotTts):  # the file was grown or sealed meanwhile: the path has the new one
            return self._matrix(query, known_tag)

    def line(self, query: LineQuery) -> Line:
        """Return the values of one column as doubles. Raises as matrix()."""
        matrix = self._stitched(query.matrix, self._paths(query.matrix))
        if query.column not in matrix.places:
            raise refused(404, "unknown_column", f"{query.matrix.dataset} has no column {query.column} in the span", "column")
        values = matrix.read(0, matrix.rows, np.array([matrix.number(query.column)]))[:, 0]
        rows_per_value = -(-matrix.rows // query.matrix.width)
        largest = np.fmax.reduceat(values, np.arange(0, matrix.rows, rows_per_value))
        found = [None if math.isnan(value) else value for value in largest.tolist()]
        return Line(query.column, matrix.units, matrix.start, rows_per_value * matrix.step, found)

    def _matrix(self, query: MatrixQuery, known_tag: str) -> tuple[str, bytes | None]:
        config, now = self.config, self.now()
        paths = self._paths(query)
        sources = [one for one in config.source if one.system == query.system and query.dataset in one.datasets()]
        absence = Absence.read(config, self._ledger(), sources[0] if sources else None, query.span, now)
        tag = _tag(query, paths, absence)
        if tag == known_tag:
            return tag, None
        matrix = self._stitched(query, paths)
        rows_per_pixel = -(-matrix.rows // query.width)
        pixels = -(-matrix.rows // rows_per_pixel)
        _check_size(matrix, pixels)
        why = absence.flags(matrix.times, matrix.step, is_counter=self._is_counter(matrix))
        levels, flags = pictured(matrix, rows_per_pixel, why)
        header = Header(
            system=query.system,
            dataset=query.dataset,
            units=matrix.units,
            pixels=pixels,
            start=matrix.start,
            seconds=rows_per_pixel * matrix.step,
            step=matrix.step,
            columns=matrix.columns,
            due=absence.due,
            why=absence.why,
        )
        return tag, encoded(header, levels, flags)

    def _gaps(self, path: Path, source: str, now: float) -> list[Gap]:
        with Ledger.open_readonly(path, checked=False) as ledger:
            return gap_report.gaps(self.config, ledger, now, (source,) if source else ())

    def _ledger(self) -> Path | None:
        return readable_ledger(self.config.archive)

    def _system(self, name: str, now: float) -> SystemLine:
        for time in (now, now - DAY_SECONDS):
            day = Calendar(self.config.timezone).day(int(time))
            try:
                part = self._parts.part(self.config.archive.file(day, name))
            except (FileNotFoundError, TokiodError):
                continue
            return SystemLine(name, [_dataset_line(part, dataset) for dataset in part.names], f"{day.date}")
        return SystemLine(name, [], "")

    def _paths(self, query: MatrixQuery) -> list[Path]:
        if query.system not in self.config.systems:
            raise refused(404, "unknown_system", f"no system is named so; known: {', '.join(sorted(self.config.systems))}", "system")
        try:
            return Templates(self.config.templates).paths(query.system, query.span, Calendar(self.config.timezone))
        except NoSuchSystem:
            raise refused(404, "no_data", f"the archive has no file of {query.system} yet", "system") from None

    def _stitched(self, query: MatrixQuery, paths: list[Path]) -> Stitched:
        try:
            return stitch(paths, query.dataset, query.span, self._parts)
        except NoSuchDataset as error:
            raise refused(404, "unknown_dataset", f"no file of the span has it; known: {', '.join(error.known)}", "dataset") from None
        except NoData:
            raise refused(404, "no_data", f"no file of {query.system} has rows in {query.span}", "start") from None
        except StepChanged as error:
            raise refused(400, "step_changed", str(error), "start") from None

    def _is_counter(self, matrix: Stitched) -> bool:
        newest = next((one for one in reversed(matrix.stretches) if one.path is not None), None)
        if newest is None or newest.path is None:
            return False
        part, _, _, names = matrix.located(newest)
        with part.opened() as file:
            return is_counter(file, names[0])


def _overlap(gap: Gap, span: Span) -> bool:
    return gap.start < span.end and span.start < gap.end


def _dataset_line(part: Part, name: str) -> DatasetLine:
    shape = part.shape(name)
    return DatasetLine(name, part.units(name), shape.step, len(shape.columns))


def _tag(query: MatrixQuery, paths: list[Path], absence: Absence) -> str:
    """Return what changes with every change of an answer, and with few others."""
    files = []
    for path in paths:
        try:
            state = path.stat()
        except FileNotFoundError:
            continue
        files.append((state.st_ino, state.st_size, state.st_mtime_ns))
    return f'"{hashlib.blake2b(repr((query, files, absence)).encode(), digest_size=16).hexdigest()}"'


def _check_size(matrix: Stitched, pixels: int) -> None:
    width = len(matrix.columns)
    if pixels * width > MAX_CELLS:
        raise refused(400, "too_many_cells", f"{pixels} x {width} cells; at most {MAX_CELLS}: ask for a smaller width", "width")
    if matrix.rows * width > MAX_READ_CELLS:
        raise refused(400, "too_many_cells", f"the span has {matrix.rows * width} cells; at most {MAX_READ_CELLS}", "end")
