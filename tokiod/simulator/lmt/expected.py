"""What a right archive holds: every cell of a TTS file over the simulated LMT database, from the site alone.

Nothing here is read from the database, and the delta rule is the oracle's, column by column, so that neither the collector's reading nor
tokiod.tts has a part in the compared files. Where two rows have the same time the later TS_ID counts, and the simulator ensures
that this is what was measured then.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tokiod.simulator.expected import Answer, Expected, steps
from tokiod.simulator.load import NULL, Load
from tokiod.simulator.oracle import REACH_SECONDS, cells
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

MAX_STEP = {"datatargets": 5e10 * STEP, "mdtargets": 1e7 * STEP}
"""The largest plausible difference of two consecutive samples, by group: the default of LMT's `max_rate`."""
REACH = REACH_SECONDS // STEP


class Answers(Expected):
    """What the files of a site hold. A watermark W is the one window (since, W)."""

    def __init__(self, site: Site, stored: Iterable[Window], since: int | None = None) -> None:
        super().__init__(site, stored, since)
        self._table = lru_cache(maxsize=8)(_load(site).table)
        self._calendar = Calendar(site.timezone)

    def of(self, file: Window) -> dict[str, Answer]:
        """Return the answer for every dataset of a file, usually one of the site's days."""
        times = steps(file, STEP)
        return {name: self._gauge(name, times) for name in GAUGES} | {name: self._counter(name, file) for name in COUNTERS}

    def _gauge(self, name: str, times: Ints) -> Answer:
        table, fields = GAUGES[name]
        values = np.add.reduce([_with_nan(self._field(table, field, times)) for field in fields])
        if table == "MDS_DATA":
            values = values[:, ::2]  # both MDTs of a server tell the same
        return self.answer(self._columns(name), times, values)

    def _counter(self, name: str, file: Window) -> Answer:
        """Go through the columns of a day, with the samples before it that its cells depend on, and the next day's first row."""
        times, samples = self._with_past(name, file)
        past = int(np.searchsorted(times, file.start))
        values = np.full(samples[past:-1].shape, np.nan)
        max_step = MAX_STEP[name.partition("/")[0]]
        clean, anchors = _clean(samples[max(past - 1, 0) :], max_step), _newest_anchors(samples[:past])
        values[:, clean] = np.diff(samples[past:, clean], axis=0)
        for column in (~clean).nonzero()[0].tolist():
            first = max(int(anchors[column]), 0)
            rows = (samples[first:, column] != NULL).nonzero()[0] + first
            found = cells(dict(zip((rows - past).tolist(), samples[rows, column].tolist(), strict=True)), max_step, REACH)
            of_file = {row: value for row, value in found.items() if row >= 0}
            values[list(of_file), column] = list(of_file.values())
        return Answer(self._columns(name), times[past:-1], values, self._determined(samples, times)[past:])

    def _with_past(self, name: str, file: Window) -> tuple[Ints, Ints]:
        """Return the times of a file and the next day's first step, and a counter's samples, with those before that the file depends on.

        The day before is enough if each column has an anchor there, or no nonzero sample there: it is longer than the rule's reach.
        """
        day_before = self._calendar.day(file.start - 1).start
        times = _times(day_before, file.end + STEP)
        samples = self._samples(name, times)
        past = samples[: (file.start - day_before) // STEP]
        if ((_newest_anchors(past) >= 0) | (past <= 0).all(axis=0)).all() or day_before <= self.site.epoch:
            return times, samples
        times = _times(self.site.epoch, file.end + STEP)
        return times, self._samples(name, times)

    def _determined(self, samples: Ints, times: Ints) -> Mask:
        """Return the cells between two times whose later sample is held, and whose state before it no unknown sample can change.

        That state is known if all samples before it are held, or since an anchor (a nonzero sample that is not below its nonzero
        predecessor) if all are held from that predecessor on. A cell depends on no sample after its later one.
        """
        held = self.known(times)
        hole = np.maximum.accumulate(np.where(held, -1, np.arange(len(times))))
        known_since = np.maximum.accumulate(np.where(_is_anchor(samples), _predecessors(samples), -1), axis=0)
        is_known = (hole == -1)[:, np.newaxis] | (known_since > hole[:, np.newaxis])
        return np.asarray(is_known[:-1] & held[1:, np.newaxis])

    def _samples(self, name: str, times: Ints) -> Ints:
        """Return a counter's samples, i8[n, c], NULL for samples that are not in the archive."""
        field = COUNTERS[name]
        if field not in OPERATIONS:
            return self._field("OST_DATA", field, times)
        return self._field("MDS_OPS_DATA", "SAMPLES", times)[:, list(OPERATIONS).index(field) :: len(OPERATIONS)]

    def _field(self, table: str, field: str, times: Ints) -> NDArray[Any]:
        """Return a field at the times, [n, c], NULL or NaN where the archive has no row of it."""
        there = self.in_archive(times) & (times >= self.site.epoch)
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


def _clean(samples: Ints, max_step: float) -> Mask:
    """Return the columns without an absent sample, a zero, a fall and an implausible difference: their cells are plain differences."""
    steps = np.diff(samples, axis=0)
    return np.asarray((samples > 0).all(axis=0) & (steps >= 0).all(axis=0) & (steps <= max_step).all(axis=0))


def _predecessors(samples: Ints) -> Ints:
    """Return for each sample the row of the nonzero sample before it, -1 without one."""
    rows = np.where(samples > 0, np.arange(len(samples))[:, np.newaxis], -1)
    before = np.full_like(rows, -1)
    np.maximum.accumulate(rows[:-1], axis=0, out=before[1:])
    return before


def _is_anchor(samples: Ints) -> Mask:
    """Return which samples are nonzero and not below the nonzero sample before them: after it, the state is this sample alone."""
    before = _predecessors(samples)
    earlier = np.take_along_axis(samples, np.maximum(before, 0), axis=0) if len(samples) else samples
    return np.asarray((before >= 0) & (samples > 0) & (samples >= earlier))


def _newest_anchors(samples: Ints) -> Ints:
    """Return the row of each column's last anchor, -1 without one."""
    return np.asarray(np.where(_is_anchor(samples), np.arange(len(samples))[:, np.newaxis], -1).max(axis=0, initial=-1))
