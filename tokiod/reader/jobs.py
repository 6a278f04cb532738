"""Frames of what jobs did: `tokiod.open(...).jobs()` and `.job(id)`, from the job table. Each figure is exact for the polls of the span."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokiod.job_columns import BYTES, figure_of, is_of_nodes
from tokiod.jobs.groups import grouped, shown
from tokiod.jobs.rows import Wanted
from tokiod.jobs.span import series, span_rows
from tokiod.jobs.unknown import with_nan
from tokiod.reader.errors import NoData, NoJobTable
from tokiod.reader.frame import table_frame

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from tokiod.jobs.groups import By
    from tokiod.jobs.identity import Users
    from tokiod.jobs.span import Days
    from tokiod.reader.span import Span

TIMES = ("time", "since", "until")
"""Columns of UTC epoch seconds, which are times with a zone in frames."""


@dataclass(frozen=True, slots=True, eq=False)
class JobFigures:
    """What jobs did, in columns of n rows for numpy: text O[n], times i8[n] UTC epoch seconds, figures i8[n].

    A figure that a compute node did not report is NaN, and its column f8[n].
    zone: of times in frame(); index: the column that is its index, "" for none.
    """

    columns: Mapping[str, NDArray[Any]]
    zone: dt.tzinfo
    index: str = ""

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.columns[name]

    def frame(self) -> Any:
        """Return a pandas.DataFrame. Raises NotInstalled without pandas."""
        return table_frame(self.columns, TIMES, self.zone, self.index)


def totals(days: Days, span: Span, by: By, users: Users, zone: dt.tzinfo) -> JobFigures:
    """Return what each job did in a span, or each user, or each job on each target. Raises NoJobTable, NoData, NotAJobTable."""
    check(days, span)
    found = series(days, span.start, span.end)
    if by == "target":
        keys, targets = _parts(found.jobs, users, found.job), _texts(found.targets)[found.target]
        return JobFigures(
            {**keys, "target": targets, "since": found.since, "until": found.until, **_figures(found.counts, len(found))}, zone
        )
    groups = grouped(found, by, users)
    names = dict(zip(("job", "user", "command", "id"), np.array(groups.names, object).reshape(-1, 4).T, strict=True))
    who = {"user": names["user"], "jobs": groups.jobs} if by == "user" else names
    numbers = {"nodes": groups.nodes, "targets": groups.targets, "since": groups.since, "until": groups.until}
    return JobFigures({**who, **numbers, **_figures(groups.counts, len(groups.names))}, zone)


def history(days: Days, span: Span, job: str, users: Users, zone: dt.tzinfo) -> JobFigures:
    """Return what a job did on each target between one poll and the next, by time. Raises as totals()."""
    check(days, span)
    found = span_rows(days, span.start, span.end, Wanted.of_job(job))
    rows, done = found.rows, found.activity
    order = np.lexsort((rows.target, rows.columns["time"]))
    keys = _parts(rows.jobs, users, rows.job[order])
    columns = {
        "time": rows.columns["time"][order],
        "since": done.since[order],
        "target": _texts(rows.targets)[rows.target[order]],
        **{name: keys[name] for name in ("user", "command", "node")},
        **_figures({name: values[order] for name, values in done.counts.items()}, len(rows)),
    }
    return JobFigures(columns, zone, index="time")


def check(days: Days, span: Span) -> None:
    """Raise NoJobTable for a system without job table, NoData for a span in which it has no day."""
    dates = [*days.dates()]
    if not dates:
        raise NoJobTable(days.system, days.roots)
    if not days.of(span.start, span.end):
        raise NoData(span, (), f"; the job table of {days.system} has days of {dates[0]} to {dates[-1]}")


def _texts(names: NDArray[np.bytes_]) -> NDArray[Any]:
    return np.array([name.decode("ascii") for name in names.tolist()], object)


def _parts(keys: NDArray[np.bytes_], users: Users, place: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
    found = shown(keys, users)
    return {name: np.array([one[name] for one in found], object)[place] for name in ("job", "user", "command", "node", "id")}


def _figures(counts: Mapping[str, NDArray[Any]], n: int) -> dict[str, NDArray[Any]]:
    """Return the bytes of servers first, then the others by name."""
    found = {figure_of(name): with_nan(values) for name, values in counts.items()}
    if is_of_nodes(counts):
        return dict(sorted(found.items()))
    whole = {name: found.pop(name, np.zeros(n, np.int64)) for name in BYTES.values()}
    return whole | dict(sorted(found.items()))
