"""The load of every component of a site: a function of (seed, component, step), in every process and at any time.

Counters are running sums over all steps since the site's epoch, so a process that starts in the middle walks through the blocks
before once, adding up increments. Nothing is read back from what was written: the writer of a database, one that was restarted, and a
comparer in another process come to the same numbers apart from each other.

Where Site.acts is set, bytes and the operations that jobs do are the sums of what jobs did (tokiod.simulator.jobs.work). The target has
counted an act for its job when it begins, and LMT's counters grow by it until the next one may begin.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tokiod.simulator.drawn import draw, power
from tokiod.simulator.faults import BLOCK, SPELL, SPELLS, absent_values, trouble
from tokiod.simulator.jobs.work import DATA, METADATA, Work
from tokiod.simulator.site import OPERATIONS, STEP, Site

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]

NULL = int(np.iinfo(np.int64).min)
"""The integer for NULL in the database; for floats it is NaN."""

HUGE = 2**53 + 1
"""float64 can't represent this number. Some counters start here."""

_IDLE, _PAUSE, _BURST, _DEAD = 0.35, 0.05, 0.97, 8
"""Shares of spells without I/O, steps without I/O, steps with eight times as much; every so many-th counter never moves."""

_PRIME = 997
"""So many acts after each other are divided by weights of their own."""

_QUIET = {"process_config", "connect", "reconnect", "disconnect", "llog_init", "notify", "quotactl", "link", "create", "destroy"}


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Rows of one of LMT's tables. present: bool[n, c], whether a component has a row at a step; fields: i8 or f8[n, c] by name."""

    present: NDArray[np.bool_]
    fields: dict[str, NDArray[Any]]

    def __getitem__(self, rows: slice | NDArray[np.intp]) -> Table:
        return Table(self.present[rows], {name: values[rows] for name, values in self.fields.items()})


class Load:
    """The measurements of a site as LMT's tables. Components are numbered as in the site; MDS_OPS_DATA groups the operations by MDT."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self._work = Work(site)
        self._jobs = lru_cache(maxsize=4)(self._sums_of_jobs)
        self.trouble = lru_cache(maxsize=64)(lambda block: trouble(site, block))
        self._builders = {"OST_DATA": self._ost, "OSS_DATA": self._oss, "MDS_DATA": self._mds, "MDS_OPS_DATA": self._ops}
        self._block = lru_cache(maxsize=32)(lambda name, block: self._builders[name](block))
        self._bytes = _Sum(_first_bytes(site), self._more_bytes, lambda b: np.tile(self.trouble(b).ost_reset, 2))
        self._operations = _Sum(
            _first_operations(site), self._more_operations, lambda b: self.trouble(b).mdt_reset.repeat(len(OPERATIONS), axis=1)
        )
        self._ticks = [0]

    def table(self, name: str, first: int, last: int) -> Table:
        """Return a table's rows of the steps [first, last), 0 <= first < last."""
        parts = [self._block(name, block)[_within(first, last, block)] for block in _blocks(first, last)]
        fields = {field: np.concatenate([part.fields[field] for part in parts]) for field in parts[0].fields}
        return Table(np.concatenate([part.present for part in parts]), fields)

    def ticks(self, first: int, last: int) -> tuple[Ints, Ints]:
        """Return the number of TS_IDs before each of the steps [first, last), and of the step itself: 0, 1 or 2."""
        blocks = _blocks(first, last)
        counts = np.concatenate([self._counts(block) for block in blocks])
        before = self._ticks_before(blocks[0]) + counts.cumsum() - counts
        cut = slice(first - blocks[0] * BLOCK, last - blocks[0] * BLOCK)
        return before[cut], counts[cut]

    def step_of(self, tick: int) -> int:
        """Return the step of the tick-th TS_ID, counted from 0."""
        while self._ticks[-1] <= tick:
            self._ticks_before(len(self._ticks))
        block = bisect_right(self._ticks, tick) - 1
        before, count = self.ticks(block * BLOCK, (block + 1) * BLOCK)
        return block * BLOCK + int(np.searchsorted(before + count, tick, side="right"))

    def _counts(self, block: int) -> Ints:
        now = self.trouble(block)
        return np.where(now.missing, 0, np.where(now.twice, 2, 1))[:, 0].astype(np.int64)

    def _ticks_before(self, block: int) -> int:
        while len(self._ticks) <= block:
            self._ticks.append(self._ticks[-1] + int(self._counts(len(self._ticks) - 1).sum()))
        return self._ticks[block]

    def _ost(self, block: int) -> Table:
        site, now = self.site, self.trouble(block)
        counters = self._bytes.block(block)
        read, written = (
            np.where(now.ost_zero, 0, np.where(now.ost_dip, values * 2 // 3, values)) for values in np.hsplit(counters, [site.osts])
        )
        steps = block * BLOCK + np.arange(BLOCK)[:, np.newaxis]
        fields = {"READ_BYTES": read, "WRITE_BYTES": written, "PCT_CPU": np.zeros(read.shape), **self._space(block, "ost", site.osts)}
        return Table(~now.ost_absent & (steps >= site.appears), self._with_nulls("OST_DATA", block, fields))

    def _oss(self, block: int) -> Table:
        width = self.site.osss
        fields = {field: _percent(self.site, f"oss {field}", block, width) for field in ("PCT_CPU", "PCT_MEMORY")}
        return Table(~self.trouble(block).oss_absent, self._with_nulls("OSS_DATA", block, fields))

    def _mds(self, block: int) -> Table:
        site = self.site
        cpu = self._with_nulls("MDS_DATA", block, {"PCT_CPU": _percent(site, "mds", block, len(site.mds_names))})
        fields = {"PCT_CPU": cpu["PCT_CPU"][:, site.mds_of_mdt], **self._space(block, "mdt", site.mdts)}
        return Table(~self.trouble(block).mds_absent[:, site.mds_of_mdt], fields)

    def _ops(self, block: int) -> Table:
        present = ~self.trouble(block).mds_absent[:, self.site.mds_of_mdt]
        fields = self._with_nulls("MDS_OPS_DATA", block, {"SAMPLES": self._operations.block(block)})
        return Table(present.repeat(len(OPERATIONS), axis=1), fields)

    def _with_nulls(self, table: str, block: int, fields: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        for field, values in fields.items():
            nothing = absent_values(self.site, block, table, field, values.shape[1]) & ~self.trouble(block).twice
            fields[field] = np.where(nothing, NULL if values.dtype.kind == "i" else np.nan, values)
        return fields

    def _space(self, block: int, stream: str, width: int) -> dict[str, Ints]:
        fields = {}
        for unit, size in (("KBYTES", 90_767_651_352), ("INODES", 88_668_544)):
            begin, name = draw(self.site, f"{stream} {unit} begin", 0, width), f"{stream} {unit}"
            used = (size * (0.2 + 0.7 * begin + 0.01 * _levels(self.site, name, block, width))).astype(np.int64)
            changing = (1000 * draw(self.site, name + " step", block, 2, BLOCK, width)).astype(np.int64)
            fields[f"{unit}_FREE"] = size - used - changing[0]
            fields[f"{unit}_USED"] = used + changing[1]
        return fields

    def _more_bytes(self, block: int) -> Ints:
        if not self.site.acts:
            return self._drawn_bytes(block)
        return np.hstack([self._by_jobs(block, "ost", operation, 1) for operation in ("read_bytes", "write_bytes")])

    def _drawn_bytes(self, block: int) -> Ints:
        site, width = self.site, 2 * self.site.osts
        level = _levels(site, "bytes", block, width)
        rate = np.where((level > _IDLE) & (np.arange(width) % _DEAD), power(10, 9.5 * level), 0)
        noise = draw(site, "bytes step", block, BLOCK, width)
        burst = np.where(noise > _BURST, 8, np.where(noise < _PAUSE, 0, 1))
        return (rate * burst * (0.5 + noise)).astype(np.int64)

    def _by_jobs(self, block: int, targets: str, operation: str, part: int) -> Ints:
        """Return what jobs did on each OST or MDT in the steps of a block, i8[BLOCK, targets]. part: 0 the samples, 1 their sum."""
        return self._jobs(block)[targets, operation][:, :, part]

    def _sums_of_jobs(self, block: int) -> dict[tuple[str, str], Ints]:
        """Return what jobs did, i8[BLOCK, targets, 2], by the sort of targets and the operation.

        Each act is divided over the steps that follow it by weights of its own, the rest in the last of them.
        """
        site, steps = self.site, max(self._work.step // STEP, 1)
        names = {**{("ost", name): site.osts for name in DATA[:2]}, **{("mdt", name): site.mdts for name in METADATA}}
        found = {key: np.zeros((BLOCK, width, 2), np.int64) for key, width in names.items()}
        first, begin = block * BLOCK, site.epoch + block * BLOCK * STEP
        places = {name: ("ost", number) for number, name in enumerate(site.ost_names)}
        places |= {name: ("mdt", number) for number, name in enumerate(site.mdt_names)}
        for acts in self._work.acts(begin - steps * STEP, begin + BLOCK * STEP):
            sort, number = places[acts.target]
            next_step = (acts.times - site.epoch) // STEP + 1 - first
            near = (next_step > -steps) & (next_step < BLOCK)
            spread = _spread(acts.done[near], steps, acts.times[near])
            at = next_step[near][:, np.newaxis] + np.arange(steps)
            inside = (at >= 0) & (at < BLOCK)
            for place, name in enumerate(acts.operations):
                if (sort, name) in found:
                    np.add.at(found[sort, name][:, number], at[inside], spread[:, :, place][inside])
        return found

    def _more_operations(self, block: int) -> Ints:
        site, width = self.site, self.site.mdts * len(OPERATIONS)
        busy = np.array([0 if name in _QUIET else 300 / number for name, number in OPERATIONS.items()])
        rate = np.outer(1 / (1 + np.arange(site.mdts)) ** 2, busy).ravel()
        more = (rate * (_levels(site, "ops", block, width) + draw(site, "ops step", block, BLOCK, width))).astype(np.int64)
        for number, name in enumerate(OPERATIONS):
            if site.acts and name in METADATA:
                more[:, number :: len(OPERATIONS)] = self._by_jobs(block, "mdt", name, 0)
        return more


class _Sum:
    """Running sums over all blocks: the first values plus the additions of each step, minus the sum at the latest reset."""

    def __init__(self, first: Ints, more: Callable[[int], Ints], reset: Callable[[int], NDArray[np.bool_]]) -> None:
        self._more = more
        self._reset = reset
        self._carried = [(first, np.zeros_like(first))]

    def block(self, block: int) -> Ints:
        while len(self._carried) <= block:
            total, floor = self._sums(len(self._carried) - 1)
            self._carried.append((total[-1].copy(), floor[-1].copy()))
        total, floor = self._sums(block)
        return total - floor

    def _sums(self, block: int) -> tuple[Ints, Ints]:
        before, floor = self._carried[block]
        more = self._more(block)
        total = before + more.cumsum(axis=0)
        return total, np.maximum.accumulate(np.maximum(floor, np.where(self._reset(block), total - more, 0)), axis=0)


def _spread(done: Ints, steps: int, times: Ints) -> Ints:
    """Return i8[n, steps, ...] whose sums over the steps are `done`, i8[n, ...]; some steps have nothing, some most of it."""
    share = _shares(steps)[times % _PRIME]
    parts = (share[:, :, np.newaxis, np.newaxis] * done[:, np.newaxis]).astype(np.int64)
    parts[:, -1] += done - parts.sum(axis=1)
    return parts


@lru_cache(maxsize=8)
def _shares(steps: int) -> Floats:
    """Return f8[_PRIME, steps] of which each row adds up to a little less than 1."""
    noise = np.random.Generator(np.random.Philox(0)).random((_PRIME, steps))
    weight = np.where(noise > _BURST, 8.0, np.where(noise < _PAUSE, 0.0, 0.5 + noise))
    found: Floats = weight / np.maximum(weight.sum(axis=1, keepdims=True), 0.5) * (1 - 2**-40)
    return found


def _first_bytes(site: Site) -> Ints:
    first = (1e13 * draw(site, "bytes begin", 0, 2 * site.osts)).astype(np.int64)
    kind = np.arange(2 * site.osts) % 7
    return np.where(kind == 0, HUGE + first, np.where(kind == 1, 0, first))


def _first_operations(site: Site) -> Ints:
    first = (4e9 * draw(site, "ops begin", 0, site.mdts, len(OPERATIONS))).astype(np.int64)
    first[:, [name in _QUIET for name in OPERATIONS]] = 0
    first[0, 0] += HUGE
    return first.ravel()


def _levels(site: Site, stream: str, block: int, width: int) -> Floats:
    """Return a level in [0, 1) that changes from spell to spell."""
    return draw(site, stream, block, SPELLS, width).repeat(SPELL, axis=0)


def _percent(site: Site, stream: str, block: int, width: int) -> Floats:
    """Return percentages, some of them exactly 0 or 100, with the digits of a MySQL FLOAT."""
    level, noise = _levels(site, stream, block, width), draw(site, stream + " step", block, BLOCK, width)
    return np.clip(np.round(120 * level + 20 * noise - 20, 3), 0.0, 100.0) + 0.0  # no -0.0


def _blocks(first: int, last: int) -> range:
    return range(first // BLOCK, -(-last // BLOCK))


def _within(first: int, last: int, block: int) -> slice:
    return slice(max(0, first - block * BLOCK), min(BLOCK, last - block * BLOCK))
