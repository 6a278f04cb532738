"""Which jobs or users load a file system: rates of a span, the largest first, from the job table."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np

from tokiod.errors import TokiodError, nearest
from tokiod.increases import IMPLAUSIBLE, OLDER
from tokiod.job_columns import (
    BYTES,
    CPU,
    DISK_READ,
    DISK_WRITTEN,
    MEMORY,
    USECS,
    column_of,
    figure_of,
    is_of_nodes,
    is_state,
)
from tokiod.jobs.groups import grouped
from tokiod.jobs.span import DAY_SECONDS, count_names, series, target_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

    from tokiod.jobs.groups import Groups
    from tokiod.jobs.identity import Users
    from tokiod.jobs.span import Days, Series
    from tokiod.reader.span import Span

SUMS = {"bytes": ("read_bytes.sum", "write_bytes.sum"), "read": ("read_bytes.sum",), "write": ("write_bytes.sum",)}
"""What `by` may name besides operations, as columns of the job table."""
NODE_SUMS = {"cpu": (CPU,), "memory": (MEMORY,), "disk": (DISK_READ, DISK_WRITTEN), "read": (DISK_READ,), "write": (DISK_WRITTEN,)}
"""The same for a table of compute nodes."""
METADATA = "metadata"
"""What `by` may name for all operations of metadata targets together."""
UNITS = {"bytes": "bytes/s", "read": "bytes/s", "write": "bytes/s", "disk": "bytes/s", "cpu": "cores", "memory": "bytes"}
_UNITS_OF = {"samples": "operations/s", "sum": "microseconds/s", "bytes": "bytes/s"}
"""By the last part of a column."""
MAX_TARGETS = 5
"""That a line names."""
_MDT = b"-MDT"


class TopTarget(msgspec.Struct, frozen=True):
    """A target that a job loads. share: of what the job did in the span, by what the list is sorted by."""

    target: str
    share: float


class TopLine(msgspec.Struct, frozen=True):
    """A job, or a user. rates: per second, by the names of figures; those that are zero are left out.

    A state, such as mem_bytes of compute nodes, is the largest of each node, added up. read_bytes, write_bytes: of nodes, from and to their
    own disks. targets: of compute nodes, these.
    job, user, command, id: "" where job ids don't name it, or the site does not show it; id is a hash, of those that nothing else names;
    name: of the job, and account: of the user, as the scheduler or this machine has them; jobs, nodes, targets: how many; nodes: 0 where
    job ids name none.
    rate: what the list is sorted by, per second; share: of all jobs together; targets: where it did that; busiest: up to five of
    them. since, until: UTC epoch seconds, from when to when the counts are; since may be before the span.
    """

    job: str
    user: str
    command: str
    id: str
    jobs: int
    nodes: int
    targets: int
    rate: float
    share: float
    read_bytes: float
    write_bytes: float
    metadata: float
    rates: dict[str, float]
    busiest: list[TopTarget]
    since: int
    until: int
    name: str = ""
    account: str = ""


class Top(msgspec.Struct, frozen=True):
    """The jobs or users of a system in [start, end), UTC epoch seconds. newest: the end of the newest window of the job table.

    by, units: of rate; of: what the targets are; total: rate of all; read_bytes, write_bytes, metadata: per second, of all; lines: the
    largest ones; left_off: how many more have a rate; known: what a list may be sorted by; note: what is missing of it, "" if nothing is.
    """

    system: str
    start: int
    end: int
    newest: int
    by: str
    units: str
    total: float
    read_bytes: float
    write_bytes: float
    metadata: float
    lines: list[TopLine]
    left_off: int
    known: list[str]
    of: Literal["servers", "nodes"] = "servers"
    note: str = ""


class NoSuchOperation(TokiodError, LookupError):  # noqa: N818 - a state, not a fault
    """Jobs have no operation of this name in a span."""


class NoSuchTarget(TokiodError, LookupError):  # noqa: N818 - a state, not a fault
    """No target of a span, or of the day before, matches a pattern."""


def top(  # noqa: PLR0913 - what a list is made of
    days: Days, span: Span, by: str, users: Users, *, of: Literal["job", "user"] = "job", limit: int = 20, targets: str = ""
) -> Top:
    """Return the jobs, or users, with the largest rates.

    by: a key of SUMS, METADATA or an operation; of compute nodes a key of NODE_SUMS or a figure; "" for the first of these. targets: a
    pattern of their names.

    What was done before the span, but became known in it, is left out as far as that can be estimated (series with spread). Raises
    NoSuchOperation, NoSuchTarget, OSError, NotAJobTable.
    """
    found = series(days, span.start, span.end, spread=True)
    of_nodes = is_of_nodes(found.counts or count_names(days, span.start, span.end))
    by = by or next(iter(NODE_SUMS if of_nodes else SUMS))
    if targets:
        found = _of_targets(found, targets, days, span)
    ranking = _Ranking(found, grouped(found, of, users), by, span.end - span.start, of_nodes=of_nodes)
    order = ranking.order
    return Top(
        system=days.system,
        start=span.start,
        end=span.end,
        newest=days.newest() or 0,
        by=by,
        units=units_of(by),
        total=ranking.total,
        read_bytes=ranking.rate_of("read"),
        write_bytes=ranking.rate_of("write"),
        metadata=ranking.rate_of(METADATA),
        lines=[ranking.line(i) for i in order[:limit]],
        left_off=max(0, len(order) - limit),
        known=operations(found.counts, of_nodes=of_nodes),
        of="nodes" if of_nodes else "servers",
        note=_left_out(found.odd),
    )


def _left_out(odd: Mapping[str, int]) -> str:
    parts = [f"{odd[reason]} x {reason}" for reason in (OLDER, IMPLAUSIBLE) if reason in odd]
    return f"left out: {', '.join(parts)}" if parts else ""


def units_of(by: str) -> str:
    """Return the units of what a list is sorted by, "" for a number."""
    name, _, part = column_of(by).rpartition(".")
    return UNITS.get(by) or _UNITS_OF.get(part) or ("bytes" if name.endswith("_bytes") else "")


class _Ranking:
    """Groups by their rates."""

    def __init__(self, found: Series, groups: Groups, by: str, seconds: int, *, of_nodes: bool) -> None:
        self._found, self._groups, self._seconds, self._of_nodes = found, groups, seconds, of_nodes
        self._amounts = self._rates_by(by)
        self._rates = self._of_groups(self._amounts)
        self._metadata = self._of_groups(self._rates_by(METADATA))
        self.total = float(self._rates.sum())

    @property
    def order(self) -> list[int]:
        """The groups that have a rate, the largest first."""
        order = np.argsort(-self._rates, kind="stable")
        return [int(i) for i in order[self._rates[order] > 0]]

    def rate_of(self, by: str) -> float:
        """Return the rate of all groups together."""
        return float(self._rates_by(by).sum())

    def _rates_by(self, by: str) -> NDArray[np.float64]:
        """Return f8[series], what each did per second. Raises NoSuchOperation."""
        columns = _columns(self._found, by, of_nodes=self._of_nodes)
        whole = _amounts(self._found, by, columns)
        return whole / (USECS if by == "cpu" else 1) / (1 if any(map(is_state, columns)) else self._seconds)

    def line(self, i: int) -> TopLine:
        """Return the line of a group."""
        groups, rate = self._groups, float(self._rates[i])
        by_name = {
            figure_of(name): float(values[i]) / (1 if is_state(name) else self._seconds)
            for name, values in groups.counts.items()
            if values[i] > 0
        }
        read, written = ("disk_read_bytes", "disk_written_bytes") if self._of_nodes else BYTES.values()
        job, user, command, identity = groups.names[i]
        targets, busiest = self._targets(i)
        return TopLine(
            job=job,
            user=user,
            command=command,
            id=identity,
            jobs=int(groups.jobs[i]),
            nodes=int(groups.nodes[i]),
            targets=targets,
            rate=rate,
            share=rate / self.total,
            read_bytes=by_name.pop(read, 0.0),
            write_bytes=by_name.pop(written, 0.0),
            metadata=float(self._metadata[i]),
            rates=dict(sorted(by_name.items())),
            busiest=busiest,
            since=int(groups.since[i]),
            until=int(groups.until[i]),
        )

    def _targets(self, i: int) -> tuple[int, list[TopTarget]]:
        chosen, names = self._groups.place == i, self._found.targets
        of_targets = np.bincount(self._found.target[chosen], self._amounts[chosen], len(names))
        count, whole = int(np.count_nonzero(of_targets > 0)), of_targets.sum()
        order = np.argsort(-of_targets, kind="stable")[: min(MAX_TARGETS, count)]
        return count, [TopTarget(names[place].decode("ascii"), float(of_targets[place] / whole)) for place in order]

    def _of_groups(self, amounts: NDArray[np.float64]) -> NDArray[Any]:
        return np.bincount(self._groups.place, amounts, len(self._groups.names))


def _of_targets(found: Series, pattern: str, days: Days, span: Span) -> Series:
    """Return what was done on some targets. Raises NoSuchTarget for a pattern that none of the span and the day before matches."""
    matching = np.array([_matches(name.decode("ascii"), pattern) for name in found.targets.tolist()], bool)
    if not matching.any():
        # In two minutes a target may well have no row; who watches it waits for the next one.
        names = target_names(days, span.start - DAY_SECONDS, span.end)
        if names and not any(_matches(name, pattern) for name in names):
            raise NoSuchTarget(f"no target of the span matches {pattern!r}; it has {', '.join(names[:20])}")
    return found.where(matching[found.target])


def _matches(name: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(name, pattern) or name.rpartition("-")[2] == pattern


def _columns(found: Series, by: str, *, of_nodes: bool) -> list[str]:
    """Return the columns of what a list is sorted by. Raises NoSuchOperation."""
    if by == METADATA:
        return [] if of_nodes else [name for name in found.counts if name.endswith(".samples")]
    sums = NODE_SUMS if of_nodes else SUMS
    columns = [*(sums.get(by) or (column_of(by),))]
    if by not in sums and len(found) and columns[0] not in found.counts:
        known = operations(found.counts, of_nodes=of_nodes)
        similar = nearest(by, known) or f"; known: {', '.join(known)}"
        raise NoSuchOperation(f"no job has counts of {by!r} in the span{similar}")
    return [name for name in columns if name in found.counts]


def _amounts(found: Series, by: str, columns: list[str]) -> NDArray[np.float64]:
    """Return f8[series], the sum of columns; of METADATA on metadata targets."""
    whole = np.zeros(len(found))
    for name in columns:
        whole += np.maximum(found.counts[name], 0)
    if by == METADATA:
        whole *= np.array([_MDT in name for name in found.targets.tolist()], bool)[found.target]
    return whole


def operations(columns: Iterable[str], *, of_nodes: bool = False) -> list[str]:
    """Return what a list may be sorted by, where the table has these columns."""
    if of_nodes:
        return [*NODE_SUMS, *sorted(map(figure_of, columns))]
    return [*SUMS, METADATA, *sorted(figure_of(name) for name in columns if name.endswith(".samples"))]
