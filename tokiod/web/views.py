"""The answers of the API: the systems, the picture of a dataset, lines, gaps, days. They come from the files; no daemon is needed."""

from __future__ import annotations

import datetime as dt
import hashlib
import zlib
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING

import msgspec

from tokiod.errors import TokiodError
from tokiod.ledger.ledger import Ledger
from tokiod.ledger.published_copy import readable_ledger
from tokiod.path_template import fill
from tokiod.reader.derived import sources_of
from tokiod.reader.errors import NoData, NoSuchDataset, NoSuchSystem, NotTts, StepChanged
from tokiod.reader.files import Templates
from tokiod.reader.part import OpenParts
from tokiod.reader.stitched import stitch
from tokiod.reports import days as day_report
from tokiod.reports import gaps as gap_report
from tokiod.reports import status as status_report
from tokiod.tts.layout import is_counter
from tokiod.web.absence import Absence
from tokiod.web.job_lists import JobLists
from tokiod.web.kept_answers import KeptAnswers
from tokiod.web.lines import Line, Point, line_of, points_of
from tokiod.web.matrix import Header, encoded, pictured
from tokiod.web.query import MAX_CELLS, MAX_LEDGER_SPAN_SECONDS, MAX_READ_CELLS, picture, since, span
from tokiod.web.recorded_stages import RecordedStages
from tokiod.web.refusal import (
    NO_DATA,
    STEP_CHANGED,
    TOO_MANY_CELLS,
    UNKNOWN_DATASET,
    UNKNOWN_SOURCE,
    UNKNOWN_SYSTEM,
    Refused,
)
from tokiod.window import Window

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    from msgspec import Raw

    from tokiod.clock import Clock
    from tokiod.config.schema import Config
    from tokiod.reader.part import Part
    from tokiod.reader.span import Span
    from tokiod.reader.stitched import Stitched
    from tokiod.reports.gaps import Gap
    from tokiod.web.query import MatrixQuery
    from tokiod.web.recorded_stages import StageList

    Parameters = Mapping[str, str]

MAX_GAPS = 10_000
MAX_DAYS_BACK = 400
"""In which the newest file of a system is looked for: its past is shown while nothing is collected. 400 misses take 7 ms of a core."""
KEPT_BYTES = 16 << 20
"""Of deflated pictures that are kept for the next viewer: a month of one dataset takes some 0.2 MB, however it is divided."""


class DatasetLine(msgspec.Struct, frozen=True):
    """A dataset of the newest file of a system. step: seconds between rows; columns: how many."""

    name: str
    units: str
    step: int
    columns: int


class SystemLine(msgspec.Struct, frozen=True):
    """A system. datasets: of the newest file, none without one; day: that file's, as 2018-01-28, empty without one.

    fault: why the newest file can't be read; one of an earlier day is described then.
    """

    name: str
    datasets: list[DatasetLine]
    day: str
    fault: str = ""


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


class DayList(msgspec.Struct, frozen=True):
    """The days of a span, oldest first, one entry for each source. timezone: whose midnights they begin and end with."""

    time: float
    timezone: str
    days: list[day_report.SourceDay]


class Views:
    """The answers about one archive, for several threads. config: may be replaced at any time."""

    def __init__(self, config: Config, clock: Clock) -> None:
        self.config, self._clock = config, clock
        self._parts, self._kept, self._stages = OpenParts(), KeptAnswers(KEPT_BYTES), RecordedStages()
        self._jobs = JobLists()

    def now(self) -> float:
        """Return the time, in UTC epoch seconds."""
        return self._clock.time()

    def systems(self) -> Systems:
        """Describe all systems. Raises TokiodError where the ledger can't be read."""
        config, now = self.config, self.now()
        found = status_report.read(config, now)
        lines = [self._system(name, now) for name in sorted(config.systems)]
        return Systems(now, config.timezone, found.health, found.writer is not None, lines, found.sources)

    def gaps(self, given: Parameters) -> GapList:
        """Return the gaps of all sources, or of one. Raises Refused, TokiodError, LedgerError."""
        config, now, wanted = self.config, self.now(), span(given, self.now(), MAX_LEDGER_SPAN_SECONDS)
        source, path = self._source(given, {one.name for one in config.source if one.polled}), self._ledger()
        found = [] if path is None else [gap for gap in self._gaps(path, source, now) if _overlap(gap, wanted)]
        # The newest ones of all sources, in the order of the list.
        newest = sorted(sorted(range(len(found)), key=lambda i: found[i].end)[max(0, len(found) - MAX_GAPS) :])
        return GapList(now, [found[i] for i in newest], len(found) - len(newest))

    def days(self, given: Parameters) -> DayList:
        """Return the days of a span. Raises Refused, TokiodError, LedgerError."""
        config, now, wanted = self.config, self.now(), span(given, self.now(), MAX_LEDGER_SPAN_SECONDS)
        if given["system"]:
            self._check_system(given["system"])
        if (path := self._ledger()) is None:
            return DayList(now, config.timezone, [])
        sources = [one for one in config.source if given["system"] in {"", one.system}]
        with Ledger.open_readonly(path, checked=False) as ledger:
            days = day_report.days(sources, ledger, config.calendar, Window(wanted.start, wanted.end), now)
            return DayList(now, config.timezone, days)

    def stages(self, given: Parameters) -> StageList:
        """Return where the time of windows and files went, of a source with the files of its system.

        Raises Refused, TokiodError, OSError.
        """
        systems = {source.name: source.system for source in self.config.source}
        source = self._source(given, systems.keys())
        names = {source, systems[source]} if source else set()
        return self._stages.since(self.config.stages, names, since(given, self._stages.now()), int(given["slowest"]))

    def jobs(self, given: Parameters) -> Raw:
        """Return a JobList, encoded. Raises Refused, TokiodError, OSError."""
        self._check_system(given["system"])
        days, users = Templates(self.config.templates).jobs(given["system"]), self.config.jobs.users_of("page")
        return self._jobs.of(days, users, given, self.now())

    def matrix(self, given: Parameters, known_tag: str) -> tuple[str, bytes | None]:
        """Return the ETag of a picture, and its bytes, deflated by zlib; None in their place if the tag is the known one.

        Raises Refused, TokiodError, LedgerError.
        """
        query = picture(given, self.now())
        try:
            return self._matrix(query, known_tag)
        except (FileNotFoundError, NotTts):  # the file was grown or sealed meanwhile: the path has the new one
            return self._matrix(query, known_tag)

    def line(self, given: Parameters) -> Line:
        """Return the values of one column as doubles, or of all columns; of several datasets their sum. Raises as matrix()."""
        try:
            return self._line(given)
        except (FileNotFoundError, NotTts):  # as above
            return self._line(given)

    def points(self, given: Parameters) -> list[Point]:
        """Return a line as points. Raises as matrix()."""
        return points_of(self.line(given))

    def _line(self, given: Parameters) -> Line:
        now = self.now()
        query, column = picture(given, now), given["column"]
        paths, names = self._paths(query), query.dataset.split(",")
        # Before the cells: of windows that are stored meanwhile, cells are not due rather than missing.
        absences = self._absences(query.system, names, query.span, now)
        matrices = [self._stitched(replace(query, dataset=name), paths) for name in names]
        if not column:
            _check_read(sum(matrix.rows * len(matrix.columns) for matrix in matrices))
        return line_of(list(zip(matrices, absences, strict=True)), self._is_counter, column, given["across"], query.width)

    def _matrix(self, query: MatrixQuery, known_tag: str) -> tuple[str, bytes | None]:
        paths = self._paths(query)
        (absence,) = self._absences(query.system, [query.dataset], query.span, self.now())
        tag = _tag(query, paths, absence)
        if tag == known_tag:
            return tag, None
        return tag, self._kept.get(tag, lambda: zlib.compress(self._encoded(query, paths, absence)))

    def _encoded(self, query: MatrixQuery, paths: list[Path], absence: Absence) -> bytes:
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
        return encoded(header, levels, flags)

    def _absences(self, system: str, datasets: list[str], wanted: Span, now: float) -> list[Absence]:
        """Return the absence of the sources of each dataset; the same sources are looked up once."""
        found: dict[tuple[str, ...], Absence] = {}
        names = []
        for dataset in datasets:
            sources = sources_of(dataset, system, self.config.source)
            names.append(tuple(source.name for source in sources))
            if names[-1] not in found:
                found[names[-1]] = Absence.read(self._ledger(), sources, self.config.calendar, wanted, now)
        return [found[name] for name in names]

    def _gaps(self, path: Path, source: str, now: float) -> list[Gap]:
        with Ledger.open_readonly(path, checked=False) as ledger:
            sources = [one for one in self.config.source if source in {"", one.name}]
            return gap_report.gaps(sources, ledger, self.config.calendar, now)

    def _ledger(self) -> Path | None:
        return readable_ledger(self.config.archive)

    def _system(self, name: str, now: float) -> SystemLine:
        fault, today = "", self.config.calendar.day(int(now)).date
        newest = (today - dt.timedelta(days=number) for number in range(MAX_DAYS_BACK))
        for date in chain(newest, self._last_day(name)):
            for path in (fill(template, date, name) for template in self.config.templates):
                try:
                    part = self._parts.part(path)
                except FileNotFoundError:
                    continue
                except TokiodError as error:
                    fault = fault or str(error)
                    continue
                return SystemLine(name, [_dataset_line(part, dataset) for dataset in part.names], f"{date}", fault)
        return SystemLine(name, [], "", fault)

    def _last_day(self, system: str) -> Iterator[dt.date]:
        """Yield the last day of a system whose files are old, as those of [site] archives may be: found among all files."""
        if self.config.site.archives and (days := Templates(self.config.templates).days(system)):
            yield days[1]

    def _source(self, given: Parameters, known: Collection[str]) -> str:
        if (source := given["source"]) and source not in known:
            raise Refused(UNKNOWN_SOURCE, f"no source is named so; known: {', '.join(sorted(known)) or 'none'}", "source")
        return source

    def _check_system(self, name: str) -> None:
        if name not in self.config.systems:
            raise Refused(UNKNOWN_SYSTEM, f"no system is named so; known: {', '.join(sorted(self.config.systems))}", "system")

    def _paths(self, query: MatrixQuery) -> list[Path]:
        self._check_system(query.system)
        try:
            return Templates(self.config.templates).paths(query.system, query.span, self.config.calendar)
        except NoSuchSystem:
            raise Refused(NO_DATA, f"the archive has no file of {query.system} yet", "system") from None

    def _stitched(self, query: MatrixQuery, paths: list[Path]) -> Stitched:
        try:
            return stitch(paths, query.dataset, query.span, self._parts)
        except NoSuchDataset as error:
            raise Refused(UNKNOWN_DATASET, f"no file of the span has it; known: {', '.join(error.known)}", "dataset") from None
        except NoData:
            raise Refused(NO_DATA, f"no file of {query.system} has rows in {query.span}", "start") from None
        except StepChanged as error:
            raise Refused(STEP_CHANGED, str(error), "start") from None

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
        raise Refused(TOO_MANY_CELLS, f"{pixels} x {width} cells; at most {MAX_CELLS}: ask for a smaller width", "width")
    _check_read(matrix.rows * width)


def _check_read(cells: int) -> None:
    if cells > MAX_READ_CELLS:
        raise Refused(TOO_MANY_CELLS, f"the span has {cells} cells; at most {MAX_READ_CELLS}", "end")
