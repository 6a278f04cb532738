"""Whether the job table and LMT's counters say the same of a site's load: what jobs did is what their targets did.

Both are read from the archive. At a site with one act of a job in a moment, each poll in a moment sees all that was done until its end,
and the increases of the job table since the poll before are those of LMT's cells. Where LMT itself is wrong (a server away, a counter that
fell) or a target forgot what no poll had seen, there is nothing to compare.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from tokiod.jobs.rows import table_files
from tokiod.jobs.span import span_rows
from tokiod.jobs.table_file import opened, polled
from tokiod.simulator.faults import BLOCK, trouble
from tokiod.simulator.load import Load
from tokiod.simulator.site import STEP
from tokiod.window import Window

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tokiod.jobs.span import Days
    from tokiod.reader.archive import Archive
    from tokiod.simulator.jobs.work import Work
    from tokiod.simulator.site import Site

DATASETS = {"datatargets/readbytes": ("READ_BYTES", "read_bytes.sum"), "datatargets/writebytes": ("WRITE_BYTES", "write_bytes.sum")}
"""The field of LMT, and the count of the job table."""


@dataclass(slots=True)
class Agreement:
    """sums: how many sums of a target over the time between two polls were compared, with nbytes in them; different: sentences."""

    sums: int
    nbytes: int
    different: list[str]


def compare_load(work: Work, days: Days, archive: Archive) -> Agreement:
    """Compare the bytes of each OST in an open archive, between each two polls that its server answered, with the sums over its jobs."""
    found, span = Agreement(0, 0, []), Window(int(archive.span.start), int(archive.span.end))
    done = span_rows(days, span.start, span.end)
    answered, right = polls(days, span, work.site.moment), right_cells(work.site, span)
    time = done.rows.columns["time"]
    for dataset, (_, count) in DATASETS.items():
        cells = archive.array(dataset)[:, :]
        for number, target in enumerate(archive.columns(dataset)):
            ours = done.rows.targets[done.rows.target] == target.encode()
            for window in _between(work, target, answered, span):
                rows = slice((window.start - span.start) // STEP, (window.end - span.start) // STEP)
                counted = cells[rows, number]
                if not right[dataset][rows, number].all() or np.isnan(counted).any():
                    continue
                by_jobs = int(done.activity.counts[count][ours & (time >= window.start) & (time < window.end)].sum())
                found.sums, found.nbytes = found.sums + 1, found.nbytes + by_jobs
                if by_jobs != int(counted.sum()):
                    found.different.append(f"{dataset} {target} {window}: {by_jobs} by jobs, {int(counted.sum())} by LMT")
    return found


def polls(days: Days, span: Window, moment: int) -> set[tuple[str, int]]:
    """Return in which stored moments of a span each target certainly answered.

    A row does not prove it: a window brings what one before it had that was not stored, of targets that answer no more, too.
    """
    found = set()
    for directory in days.of(span.start, span.end):
        for file in table_files(directory):
            with opened(file.path) as (content, index):
                for (_, start, end), answered in zip(index.windows, polled(content, index), strict=True):
                    names = [name.decode() for name in index.targets[answered].tolist()]
                    found |= {(name, time) for name in names for time in range(start, end, moment)}
    return found


def _between(work: Work, target: str, answered: set[tuple[str, int]], span: Window) -> Iterator[Window]:
    """Yield the time from the end of each moment in which a target answered to the end of the next such moment."""
    moment = work.site.moment
    seen = [start for start in range(span.start, span.end, moment) if (target, start) in answered]
    for before, after in pairwise(seen):
        # What a target forgot when it began again, no later poll could see.
        if after - before == moment or not any(before < time <= after for time in work.restarts(target, before, after)):
            yield Window(before + moment, after + moment)


def right_cells(site: Site, span: Window) -> dict[str, NDArray[np.bool_]]:
    """Return bool[rows, OSTs] of each dataset: whether LMT's samples at both ends of each cell are what was measured.

    A zero is not used: most come from a server that is away. So what is read or written first after a restart is counted from the value
    before the restart, however long the counter stayed zero.
    """
    first, last = (span.start - site.epoch) // STEP, (span.end - site.epoch) // STEP
    table = Load(site).table("OST_DATA", first, last + 1)
    faults = _faults(site, first, last + 1)
    right = {}
    for dataset, (field, _) in DATASETS.items():
        wrong = faults | ~table.present | (table.fields[field] <= 0)
        # After zeros and a fall the rule of differences looks further back than one sample.
        for _ in range(3):
            wrong[1:] |= wrong[:-1]
        right[dataset] = ~(wrong[:-1] | wrong[1:])
    return right


def _faults(site: Site, first: int, last: int) -> NDArray[np.bool_]:
    """Return bool[steps, OSTs]: at which of the steps [first, last) a counter fell, or was read twice."""
    begin = first // BLOCK
    blocks = [trouble(site, block) for block in range(begin, last // BLOCK + 1)]
    found = np.concatenate([now.ost_reset | now.ost_dip | now.twice for now in blocks])
    return found[first - begin * BLOCK : last - begin * BLOCK]
