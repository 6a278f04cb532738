"""`tokiod.open`: a span of an archive, as a user sees it. Nothing is read before it is asked for."""

from __future__ import annotations

import datetime as dt
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from tokiod.jobs.one_file import one_file
from tokiod.reader.completeness import completeness
from tokiod.reader.dask_array import dask_array
from tokiod.reader.derived import derivable, sources_of
from tokiod.reader.errors import NoData, NoSuchDataset, NotInstalled, StepChanged, UnclearTime
from tokiod.reader.files import Templates
from tokiod.reader.frame import frame_of
from tokiod.reader.jobs import history, totals
from tokiod.reader.part import OpenParts
from tokiod.reader.reduce import reduced
from tokiod.reader.span import Span, Time, epoch, zone_of
from tokiod.reader.stitched import Stitched, stitch
from tokiod.reader.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tokiod.config.schema import Config
    from tokiod.jobs.groups import By
    from tokiod.jobs.one_file import OneFile
    from tokiod.jobs.span import Days
    from tokiod.reader.completeness import CoverageSpan
    from tokiod.reader.jobs import JobFigures
    from tokiod.reader.reduce import How

WHOLE = "pip install . in a checkout"
CONFIG_PATH, CONFIG_VARIABLE = "/etc/tokiod/tokiod.toml", "TOKIOD_CONFIG"


def open_archive(  # noqa: PLR0913 - what a span is named by
    system: str,
    start: Time | None = None,
    end: Time | None = None,
    *,
    timezone: str | dt.tzinfo | None = None,
    path: str | Path | Iterable[str | Path] | None = None,
    config: str | Path | None = None,
) -> Archive:
    """Open the span [start, end) of a system, or of one file of the job table, by its path. No cell is read.

    start, end: a date (its midnight), a datetime, ISO 8601, epoch seconds, "-1h" or "now". timezone: of times without one, which are
    refused
    otherwise, and of frames; dates without it are those of the site, if the configuration is known. path: the template of the day files,
    such
    as "/data/tts/%Y-%m-%d/{system}.hdf5", or a list of templates: the first one that has a day's file counts. Without it, config is the
    daemon's configuration ($TOKIOD_CONFIG, else /etc/tokiod/tokiod.toml), which needs the whole of tokiod installed.

    Raises UnclearTime, NoSuchSystem, ConfigError, and PermissionError for an archive that the user may not search.
    """
    if path is None and config is None and (alone := one_file(Path(system))) is not None:
        return _of_file(alone, start, end, timezone)
    if start is None:
        raise UnclearTime('give a start, such as "-1h": only a file of the job table is opened whole')
    end = "now" if end is None else end
    site = _configured(config) if path is None else None
    zone = None if timezone is None else zone_of(timezone)
    own = zone or (None if site is None else zone_of(site.timezone))
    now = dt.datetime.now(dt.UTC).timestamp()
    span = Span(*(epoch(time, zone, now=now, site=own) for time in (start, end)))
    templates = Templates(_templates(path) if site is None else site.templates)
    paths = templates.paths(system, span, None if site is None else site.calendar)
    return Archive(system, span, paths, zone=own or dt.UTC, config=site, templates=templates)


def _of_file(alone: OneFile, start: Time | None, end: Time | None, timezone: str | dt.tzinfo | None) -> Archive:
    """Return the job table of one file, by default whole."""
    zone, now = None if timezone is None else zone_of(timezone), dt.datetime.now(dt.UTC).timestamp()
    first, last = (own if given is None else epoch(given, zone, now=now) for given, own in ((start, alone.start), (end, alone.end)))
    return Archive(alone.system, Span(first, last), (), zone=zone or dt.UTC, jobs=alone)


class Archive:
    """A span of a system's files. It is a context manager: closing it closes the files that it keeps open.

    system: its name; span: [start, end) in UTC epoch seconds; paths: of all days that may have rows in it, existing or not;
    templates: of its files, for errors.
    """

    def __init__(  # noqa: PLR0913 - what a span is named by
        self,
        system: str,
        span: Span,
        paths: Iterable[Path],
        *,
        zone: dt.tzinfo = dt.UTC,
        config: Config | None = None,
        parts: OpenParts | None = None,
        templates: Templates | None = None,
        jobs: Days | None = None,
    ) -> None:
        self.system, self.span, self.paths, self.zone = system, span, tuple(paths), zone
        self._config, self._parts, self._templates, self._jobs = config, parts or OpenParts(), templates, jobs
        self._stitched: dict[str, Stitched] = {}

    def __repr__(self) -> str:
        return f"<tokiod archive of {self.system} in {self.span}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files. A later read opens them again."""
        self._parts.close()

    def datasets(self) -> tuple[str, ...]:
        """Return the names of the datasets that any file of the span has, and those that can be computed from them, sorted."""
        stored = self._stored()
        return tuple(sorted(stored | derivable(stored)))

    def is_stored(self, dataset: str) -> bool:
        """Return whether a file of the span has the dataset itself. Raises NoData."""
        return dataset in self._stored()

    def with_rows(self, datasets: Iterable[str]) -> list[str]:
        """Return those of some datasets of which a row begins in the span, sorted: a short one may have rows of 5 s and none of 60 s.

        Raises as array(), but for NoData and StepChanged.
        """
        found = []
        for dataset in sorted(datasets):
            with suppress(NoData):
                self.by_step(dataset)
                found.append(dataset)
        return found

    def columns(self, name: str) -> tuple[str, ...]:
        """Return the columns of a dataset, or those of all datasets of a group, in natural order. Raises as array()."""
        if "/" in name:
            return self.array(name).columns
        members = [dataset for dataset in self._stored() if dataset.startswith(f"{name}/")]
        if not members:
            known = {dataset.partition("/")[0] for dataset in self._stored()}
            raise NoSuchDataset(name, known, f"{self.system} has no group")
        return tuple(dict.fromkeys(column for dataset in members for column in self.array(dataset).columns))

    def array(self, dataset: str) -> Stitched:
        """Return a dataset as a lazy array for numpy: f8[rows, columns], NaN where missing.

        The shape is that of the first call; open the span again for days and columns that came since. Raises NoSuchDataset, NoData,
        StepChanged, NotTts.
        """
        if dataset not in self._stitched:
            try:
                self._stitched[dataset] = stitch(self.paths, dataset, self.span, self._parts)
            except NoData as error:
                raise self._no_data(error.paths, error.instead) from None
        return self._stitched[dataset]

    def by_step(self, dataset: str) -> list[Archive]:
        """Return the span cut where the step of a dataset changes: each part has an array of it. Raises as array(), but for StepChanged."""
        try:
            self.array(dataset)
        except StepChanged as change:
            found = list[Archive]()
            for span in (Span(self.span.start, change.time), Span(change.time, self.span.end)):
                part = Archive(self.system, span, self.paths, zone=self.zone, parts=self._parts, templates=self._templates)
                with suppress(NoData):  # a row may begin before its span
                    found += part.by_step(dataset)
            return found
        return [self]

    def __getitem__(self, dataset: str) -> Any:
        """Return a dataset as a lazy xarray.DataArray. Raises as array(), and NotInstalled without xarray.

        attrs: system, units, step (seconds), files, completeness: the share of the span that its sources stored by the ledger, if the
        archive was opened by a configuration, else of the rows that are in a file.
        """
        from tokiod.reader.xarray_backend import data_array  # noqa: PLC0415 - optional, or slow to import

        found = data_array(self.array(dataset), self.system)
        if (share := self._stored_share(dataset)) is not None:
            found.attrs["completeness"] = share
        return found

    def _stored_share(self, dataset: str) -> float | None:
        """Return the share of the span that the sources of a dataset stored, None if no ledger knows it."""
        if self._config is None:
            return None
        from tokiod.errors import TokiodError  # noqa: PLC0415 - what the reader alone does not need

        names = {source.name for source in sources_of(dataset, self.system, self._config.source)}
        try:
            spans = [one for one in self.completeness() if one.source in names]
        except (TokiodError, OSError):
            return None
        due = sum(one.end - one.start for one in spans if one.state != "not yet")
        return sum(one.end - one.start for one in spans if one.state == "stored") / due if due else None

    def dask(self, dataset: str) -> Any:
        """Return a dataset as a dask.array.Array f8[rows, columns], NaN where missing; chunks are rows of one file.

        For more cores or hosts than one: workers open the files by the same paths. Raises as array(), and NotInstalled without dask.
        """
        return dask_array(self.array(dataset))

    def frame(self, dataset: str, timezone: str | dt.tzinfo | None = None, columns: Iterable[str] | None = None) -> Any:
        """Return a dataset as a pandas.DataFrame with an aware index, in `timezone` (by default that of the span), NaN where missing.

        columns: names; all by default. Raises as array(), NoSuchColumn, and NotInstalled without pandas.
        """
        found = self.array(dataset)
        names = found.columns if columns is None else tuple(columns)
        values = found[:, slice(None) if columns is None else list(names)]
        return frame_of(found.times, names, values, self.zone if timezone is None else zone_of(timezone))

    def jobs(self, by: By = "job", timezone: str | dt.tzinfo | None = None) -> Any:
        """Return what each job did in the span as a pandas.DataFrame, from the job table.

        by: "job", "user", or "target" for a row per job id and target. Columns: who it was; since, until: of the polls; read_bytes,
        write_bytes, reads, writes, and operations as Lustre names them, OPERATION_usecs: the servers' time. A poll belongs to the span
        that has its time, with all that was done since the poll before it, so spans next to each other add up. What job ids don't name,
        or the site does not show, is "". Raises NoJobTable, NoData, and NotInstalled without pandas.
        """
        return self.job_figures(by=by, timezone=timezone).frame()

    def job(self, jobid: str | int, timezone: str | dt.tzinfo | None = None) -> Any:
        """Return what a job did on each target between one poll and the next, as a pandas.DataFrame by time. Raises as jobs().

        jobid: as the scheduler numbers it; the task of an array has a number of its own. since: the time of the poll before; the other
        columns are those of jobs(). A job that did nothing in the span has no rows.
        """
        return self.job_figures(str(jobid), timezone=timezone).frame()

    def job_figures(self, jobid: str | None = None, by: By = "job", timezone: str | dt.tzinfo | None = None) -> JobFigures:
        """Return the columns of job(), or of jobs() without a jobid, as arrays of numpy: times are UTC epoch seconds. Raises as jobs()."""
        zone = self.zone if timezone is None else zone_of(timezone)
        users = "names" if self._config is None else self._config.jobs.users
        if jobid is not None:
            return history(self._days(), self.span, jobid, users, zone)
        return totals(self._days(), self.span, by, users, zone)

    def _days(self) -> Days:
        return self._jobs or (self._templates or Templates(())).jobs(self.system)

    def missing(self, dataset: str) -> Table:
        """Return which cells of a dataset are missing: a table of bools. Raises as array()."""
        found = self.array(dataset)
        return Table(found.times, found.columns, np.isnan(found[...]))

    def reduce(
        self, dataset: str, every: str | float | None = None, how: How = "mean", *, over: Literal["time", "columns"] = "time"
    ) -> Table:
        """Reduce a dataset to rows of `every` (1h, 60, None: one row), or with over="columns" to one column.

        Memory does not grow with the span. how: sum, mean, max, min, count, missing, or p0 to p100; of the cells that are not missing, NaN
        without one. Rows are counted from the first one of the span. Raises as array(), and UnclearTime for a malformed `every`.
        """
        return reduced(self.array(dataset), every, how, over, self.zone)

    def completeness(self, dataset: str | None = None) -> tuple[CoverageSpan, ...]:
        """Return what is stored and what is not, and why, by source and time.

        The ledger of the daemon answers, if the archive was opened by its configuration and no dataset is given. Otherwise the cells do,
        of the dataset or of all stored ones: rows with a value are stored, rows without one are missing.
        """
        if self._config is not None and dataset is None:
            from tokiod.reader.ledger_completeness import ledger_completeness  # noqa: PLC0415 - optional, or slow to import

            config, now = self._config, dt.datetime.now(dt.UTC).timestamp()
            sources = [one for one in config.source if one.system == self.system]
            return ledger_completeness(config.archive, sources, config.calendar, self.span, now)
        names = (self.with_rows(self._stored()) or sorted(self._stored())) if dataset is None else [dataset]
        return tuple(one for name in names for part in self.by_step(name) for one in completeness(part.array(name), part.span))

    def _no_data(self, absent: Sequence[Path], held: str = "") -> NoData:
        days = None if self._templates is None else self._templates.days(self.system)
        instead = held if days is None else f"; {self.system} has files of {days[0]} to {days[1]}"
        return NoData(self.span, absent, instead)

    def _stored(self) -> set[str]:
        parts = []
        for path in self.paths:
            try:
                parts.append(self._parts.part(path))
            except FileNotFoundError:
                continue
        if not parts:
            raise self._no_data(self.paths)
        reached = [part for part in parts if any(part.may_reach(group, self.span) for group in part.groups)]
        return {name for part in reached or parts for name in part.names}


def _templates(path: str | Path | Iterable[str | Path] | None) -> tuple[str, ...]:
    paths = (path,) if isinstance(path, (str, Path)) else tuple(path or ())
    if not paths:
        raise ValueError("path has no template; write one such as /data/tts/%Y-%m-%d/{system}.hdf5")
    return tuple(str(Path(one).expanduser()) for one in paths)


def _configured(config: str | Path | None) -> Config:
    try:
        from tokiod.config import load  # noqa: PLC0415 - optional, or slow to import
    except ModuleNotFoundError as error:
        raise NotInstalled("a configuration", "the whole of tokiod", "give path=, the template of the day files", WHOLE) from error
    return load.load(Path(config or os.environ.get(CONFIG_VARIABLE) or CONFIG_PATH))
