"""The data of a window: what a collector returns, and the one record of whose window it is that travels with it to the ledger."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tokiod.errors import Refusal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from tokiod.batch import Batch, Extent
    from tokiod.dropped import Why
    from tokiod.window import Window


JOB_TABLE = "jobs/operations"
"""The table of what jobs did: the counts that a target has of a job at one moment, in rows for the jobs whose counts changed."""
JOB_COLUMNS = ("time", "target", "job", "begin", "last", "ended")
"""Its first columns: i8 epoch seconds of the poll; S, the target or node; S, what job_key() returns; i8 epoch nanoseconds of the counts'
begin (-1 if unknown) and of the job's last operation; i8 0, or ENDED_ where the row is a summary of the job. The others are counts, i8."""
ENDED_REMOVED, ENDED_IDLE = 1, 2
"""Why a job ended on a target, which a row with its whole counts since `begin` states: the target removed it; it was idle for as long as
targets keep idle jobs, and is still listed. An idle job may return and count on: then the last summary of a target, job and begin counts.
"""
JOB_LOOKBACK_SECONDS = 3600
"""A row's counts differ from those of the row before it by what was done in between. That row is at most so much older, or the job began
later, or no poll was stored for half of that time: a source adds a row with the counts at the poll before to one that comes later. Such a
row is before its window, by at most so much; all others are in it."""
JOB_PARTS = ("job", "user", "command", "node", "id")
"""Of a job: what its format names, and the whole id, printable; stored is a keyed hash of that, which keeps ids apart."""
SEPARATOR = "\x1f"
_SCHEDULER_ID = re.compile(r"\d+(?:[_+-]\d+)?(?:\[[\d,-]*\])?(?:\.[A-Za-z][\w-]*)*", re.ASCII)


def job_key(*parts: str | None) -> bytes:
    """Return what identifies a job on a target, from its JOB_PARTS, the last of which may be left out: printable ASCII, joined."""
    given = [part or "" for part in parts]
    return SEPARATOR.join([*given, *[""] * (len(JOB_PARTS) - len(given))]).encode("ascii")


def job_parts(key: bytes) -> dict[str, str]:
    """Return the JOB_PARTS of a key; "" for those that are unknown."""
    return dict(zip(JOB_PARTS, key.decode("ascii").split(SEPARATOR), strict=True))


def is_scheduler_id(text: str) -> bool:
    """Return whether a text can only be the id of a scheduler's job: 4711, 40_3, 12+1, 7[2], 1234.server.site.

    A command that begins with a digit (7z) is not, and neither is a text that ends like COMMAND.UID (7z.1000, 123.0): decision 0032.
    """
    return _SCHEDULER_ID.fullmatch(text) is not None


@dataclass(frozen=True, slots=True, eq=False)
class TableRows:
    """Rows of a table, for data that is not a matrix: events and jobs, of which there are too many to be columns.

    table: logical name, `jobs/operations`; values: one array of n rows per name in columns, in their order. The first column is `time`,
    i8[n] UTC epoch seconds; the others are i8[n], or S[n] of printable ASCII. Raises ValueError for arrays that don't fit to the columns or
    to each other. polled: targets that certainly answered, also those without a row.
    """

    table: str
    columns: tuple[str, ...]
    values: tuple[NDArray[Any], ...]
    polled: tuple[bytes, ...] = ()

    def __post_init__(self) -> None:
        if self.columns[:1] != ("time",) or len(self.values) != len(self.columns):
            raise ValueError(f"{self.table}: {len(self.values)} arrays for the columns {', '.join(self.columns)}; the first must be time")
        if len({len(array) for array in self.values}) != 1:
            raise ValueError(f"{self.table}: columns of different lengths")

    def __len__(self) -> int:
        return len(self.values[0])

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays and names."""
        return sum(array.nbytes for array in self.values) + sum(map(len, self.polled))


@dataclass(frozen=True, slots=True, eq=False)
class WindowData:
    """All that a source has for a window.

    batches: at most one per dataset; no batch, or batches without cells, mean that the source is past this window and has no data.
    records: how many of the source's records were read, including the dropped ones, to be compared with Collector.count() later; None
    where the source can't count. dropped: records that gave no cell, by reason; why: an example and a remedy for some of these reasons
    (tokiod.dropped).
    tables: rows of the tables that the kind declares (SourceConfig.tables), one TableRows of each, also without rows.
    trouble: what is missing of it and why, in a sentence that status shows, while the rest is whole.
    """

    batches: Sequence[Batch] = ()
    records: int | None = None
    dropped: Mapping[str, int] = field(default_factory=dict)
    tables: Sequence[TableRows] = ()
    trouble: str = ""
    why: Mapping[str, Why] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WindowMeta:
    """Whose window it is and what is known of it, from the collector to the ledger.

    kind: the collector's, the `source` attribute of TTS groups; records, dropped: as in WindowData.
    extent: "whole"; "some" of the source's datasets on purpose; or the "seam" of a span: only counters that the differences of its
    neighbours need, for which no file is created. A window that is not whole does not count as stored.
    """

    source: str
    kind: str
    system: str
    window: Window
    records: int | None = None
    dropped: Mapping[str, int] = field(default_factory=dict)
    extent: Extent = "whole"

    @property
    def is_whole(self) -> bool:
        """Whether the window counts as stored once its data are."""
        return self.extent == "whole"


@dataclass(frozen=True, slots=True, eq=False)
class Collected:
    """One collected window of one source on its way into a sink. trouble, why: as in WindowData; they don't cross the bus."""

    meta: WindowMeta
    batches: Sequence[Batch]
    tables: Sequence[TableRows] = ()
    trouble: str = ""
    why: Mapping[str, Why] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of its samples and rows."""
        return sum(batch.nbytes for batch in self.batches) + sum(rows.nbytes for rows in self.tables)

    @property
    def is_empty(self) -> bool:
        """Whether the source had no sample for the window."""
        return not any(map(len, self.batches)) and not any(map(len, self.tables))

    @property
    def samples_end(self) -> int | None:
        """When the step of the newest sample ends, at most the window's end; None without a sample."""
        ends = [int(batch.time.max()) + batch.step for batch in self.batches if len(batch)]
        ends += [int(rows.values[0].max()) + 1 for rows in self.tables if len(rows)]
        return min(max(ends), self.meta.window.end) if ends else None


def tables_unstored(collected: Collected) -> Refusal:
    """Return the refusal of a window that has rows of tables, by a sink that stores only matrices."""
    names = ", ".join(sorted({rows.table for rows in collected.tables}))
    return Refusal(f"kind {collected.meta.kind!r} returned rows of a table ({names}), which TTS files don't hold", "never")
