"""What a right archive holds: every cell of a TTS file over the simulated LMT database, from the site alone.

Nothing here is read from the database, and the delta rule is the oracle's, column by column, so that neither the collector's reading nor
tokiod.tts has a part in the compared files. Where two rows have the same time the later TS_ID counts, and the simulator ensures
that this is what was measured then.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tokiod.simulator.load import NULL, Load
from tokiod.simulator.oracle import cells
from tokiod.simulator.site import OPERATIONS, STEP, Site
from tokiod.window import Calendar, Window

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    Mask = NDArray[np.bool_]
    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

_METADATA = ("open", "close", "mknod", "link", "unlink", "mkdir", "rmdir", "rename", "getxattr", "statfs", "setattr", "getattr")

COUNTERS = {
    "datatargets/readbytes": "READ_BYTES",
    "datatargets/writebytes": "WRITE_BYTES",
    **{f"mdtargets/{operation}s": operation for operation in _METADATA},
}
GAUGES = {
    "dataservers/cpuload": ("OSS_DATA", ("PCT_CPU",)),
    "dataservers/memused": ("OSS_DATA", ("PCT_MEMORY",)),
    "mdservers/cpuload": ("MDS_DATA", ("PCT_CPU",)),
    "fullness/bytes": ("OST_DATA", ("KBYTES_USED",)),
    "fullness/bytestotal": ("OST_DATA", ("KBYTES_USED", "KBYTES_FREE")),
    "fullness/inodes": ("OST_DATA", ("INODES_USED",)),
    "fullness/inodestotal": ("OST_DATA", ("INODES_USED", "INODES_FREE")),
}
"""The datasets, each with the field or operation it is made of, or the fields that are added up."""


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """A dataset of a file: columns; timestamps i8[n]; values f8[n, c], NaN where missing.

    determined: bool[n, c], where no window that is stored later, of whatever time, can change the cell any more.
    exact: whether each value is one double and no other; sums may be added up in any order, and differ by 1e-12 of their size.
    """

    columns: tuple[str, ...]
    timestamps: Ints
    values: Floats
    determined: Mask
    exact: bool = True


class Answers:
    """What the files of a site hold once the windows `stored` are in the archive, and no others.

    since: nothing before it is ever collected (the site's epoch if not given).
    A watermark W is the one window (since, W).
    """

    def __init__(self, site: Site, stored: Iterable[Window], since: int | None = None) -> None:
        self.site = site
        self.since = site.epoch if since is None else since
        self.stored = tuple(stored)
        self._table = lru_cache(maxsize=8)(_load(site).table)
        self._calendar = Calendar(site.timezone)

    def of(self, file: Window) -> dict[str, Answer]:
        """Return the answer for every dataset of a file that spans `file`, usually one of the site's days.

        Raises ValueError for edges that don't lie on the site's steps.
        """
        if file.start % STEP or file.end % STEP:
            raise ValueError(f"{file} does not lie on steps of {STEP} s")
        return {name: self._gauge(name, file) for name in GAUGES} | {name: self._counter(name, file) for name in COUNTERS}

    def _in_archive(self, times: Ints) -> Mask:
        there = np.zeros(len(times), bool)
        for window in self.stored:
            there |= (window.start <= times) & (times < window.end)
        return there

    def _known(self, times: Ints) -> Mask:
        """Return for which times nothing will come any more."""
        return np.asarray(self._in_archive(times) | (times < self.since))

    def _gauge(self, name: str, file: Window) -> Answer:
        times, (table, fields) = _times(file.start, file.end), GAUGES[name]
        values = np.add.reduce([_with_nan(self._field(table, field, times)) for field in fields])
        if table == "MDS_DATA":
            values = values[:, ::2]  # both MDTs of a server tell the same
        return Answer(self._columns(name), times, values, self._known(times)[:, np.newaxis].repeat(values.shape[1], axis=1))

    def _counter(self, name: str, file: Window) -> Answer:
        """Go through the columns of a day: `samples` are its rows and row 0 of the next day."""
        times = _times(file.start, file.end + STEP)
        before = self._day_before(name, file.start)
        samples = self._samples(name, times)
        values = np.full((len(times) - 1, samples.shape[1]), np.nan)
        clean = _clean(samples)
        values[:, clean] = np.diff(samples[:, clean], axis=0)
        for column in (~clean).nonzero()[0].tolist():
            found = cells(*_for_oracle(samples[:, column], before[column]))
            values[list(found), column] = list(found.values())
        return Answer(self._columns(name), times[:-1], values, self._determined(samples, times))

    def _determined(self, samples: Ints, times: Ints) -> Mask:
        """Return the cells whose later sample is held, and whose state before it no unknown sample can change.

        That state is known where all before is held, or since an anchor (a nonzero sample not below its two nonzero predecessors)
        if all after the first of its three samples is held. A cell depends on nothing that is later than its later sample.
        """
        held = self._known(times)
        rows = np.arange(len(times))
        hole = np.maximum.accumulate(np.where(held, -1, rows))
        first, second, third = samples[:-2], samples[1:-1], samples[2:]
        anchor = np.zeros(samples.shape, bool)
        anchor[2:] = (first > 0) & (second > 0) & (third >= first) & (third >= second)
        newest = np.maximum.accumulate(np.where(anchor, rows[:, np.newaxis], -1), axis=0)
        all_before = bool(self._known(_times(self._day_before_start(int(times[0])), int(times[0]))).all())
        seen = np.logical_or.accumulate(samples != NULL, axis=0)
        from_start = (hole == -1)[:, np.newaxis] & (all_before | seen)
        return np.asarray((from_start | (newest - 2 > hole[:, np.newaxis]))[:-1] & held[1:, np.newaxis])

    def _day_before(self, name: str, start: int) -> Ints:
        """Return the last sample of each column in the day before, NULL if it has none."""
        samples = self._samples(name, _times(max(self._day_before_start(start), min(start, self.since)), start))
        there = samples != NULL
        last = np.where(there, np.arange(len(samples))[:, np.newaxis], -1).max(axis=0, initial=-1)
        return np.array([samples[row, column] if row >= 0 else NULL for column, row in enumerate(last.tolist())], np.int64)

    def _day_before_start(self, start: int) -> int:
        return self._calendar.day(start - 1).start

    def _samples(self, name: str, times: Ints) -> Ints:
        """Return a counter's samples, i8[n, c], NULL for samples that are not in the archive."""
        field = COUNTERS[name]
        if field not in OPERATIONS:
            return self._field("OST_DATA", field, times)
        return self._field("MDS_OPS_DATA", "SAMPLES", times)[:, list(OPERATIONS).index(field) :: len(OPERATIONS)]

    def _field(self, table: str, field: str, times: Ints) -> NDArray[Any]:
        """Return a field at the times, [n, c], NULL or NaN where the archive has no row of it."""
        there = self._in_archive(times) & (times >= self.site.epoch)
        steps = (times[there] - self.site.epoch) // STEP
        begin, end = (int(steps[0]), int(steps[-1]) + 1) if len(steps) else (0, 1)
        rows = self._table(table, begin, end)
        known, nothing = rows.fields[field], NULL if rows.fields[field].dtype.kind == "i" else np.nan
        values = np.full((len(times), known.shape[1]), nothing, known.dtype)
        values[there] = np.where(rows.present, known, nothing)[steps - begin]
        return values

    def _columns(self, name: str) -> tuple[str, ...]:
        site, group = self.site, name.partition("/")[0]
        return {"dataservers": site.oss_names, "mdservers": site.mds_names, "mdtargets": site.mdt_names}.get(group, site.ost_names)


_load = lru_cache(maxsize=2)(Load)
"""A site's load, kept from one look at its archive to the next."""


def _times(start: int, end: int) -> Ints:
    return np.arange(start, end, STEP)


def _with_nan(values: NDArray[Any]) -> Floats:
    return np.where(values == NULL, np.nan, values) if values.dtype.kind == "i" else values


def _clean(samples: Ints) -> Mask:
    """Return the columns without an absent sample, a zero and a fall: their cells are plain differences."""
    return np.asarray((samples > 0).all(axis=0) & (np.diff(samples, axis=0) >= 0).all(axis=0))


def _for_oracle(samples: Ints, before: int) -> tuple[dict[int, int], int, int | None, int | None]:
    rows = (samples != NULL).nonzero()[0]
    known, next_day = dict(zip(rows.tolist(), samples[rows].tolist(), strict=True)), len(samples) - 1
    next_first = known.pop(next_day, None)
    day = next_day if next_first is not None else max(known, default=-1) + 1  # nothing follows the last sample
    return known, day, None if before == NULL else int(before), next_first
