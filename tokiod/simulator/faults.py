"""The faults of a site: late and missing samples, decreasing counters, irregular clocks. All of them are known beforehand.

Two kinds of trouble: single steps drawn by chance, 40 times as likely within two steps of a site's midnight, where the rules of deltas
have their own exceptions; and spells, which begin and end within a minute's SPELL of steps so that no block needs to know its neighbours.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import numpy as np

from tokiod.simulator.drawn import draw
from tokiod.simulator.site import STEP, Site

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Mask = NDArray[np.bool_]
    """bool[BLOCK, components]"""

SPELL = 60
SPELLS = 12
BLOCK = SPELL * SPELLS
"""Steps of one block of random numbers: an hour."""

_NEAR_MIDNIGHT = 40


@dataclass(frozen=True, slots=True, eq=False)
class Trouble:
    """The faults of one block of steps.

    missing: LMT itself stood still, bool[BLOCK, 1]; twice: two TS_IDs for one time, bool[BLOCK, 1];
    the rest per component: absent rows by server, and what happens to counters by target.
    """

    missing: Mask
    twice: Mask
    oss_absent: Mask
    ost_absent: Mask
    mds_absent: Mask
    ost_reset: Mask
    ost_zero: Mask
    ost_dip: Mask
    mdt_reset: Mask


def trouble(site: Site, block: int) -> Trouble:
    """Return the faults of a block."""
    osss, mdss = len(site.oss_names), len(site.mds_names)
    chance = _Chance(site, block)
    outage, _ = chance.spell("outage", osss, 1 / 80)
    stopped, _ = chance.spell("stopped", 1, 1 / 30)
    zero, mounted = chance.spell("failover", site.osts, 1 / 40)
    missing = stopped | chance.step("missing", 1, 1 / 200)
    twice = chance.step("twice", 1, 1 / 150) & ~missing
    if block == 0:
        twice[0] = False  # the first of two repeats what was measured a step before
    return Trouble(
        missing=missing,
        twice=twice,
        oss_absent=missing | outage | chance.step("oss late", osss, 1 / 250),
        ost_absent=(missing | outage | chance.step("ost late", osss, 1 / 200))[:, site.oss_of_ost],
        mds_absent=missing | chance.step("mds late", mdss, 1 / 200),
        ost_reset=chance.step("reset", site.osts, 1 / 1500) | (mounted & (chance.draw("restarted", site.osts) < 1 / 2)),
        ost_zero=zero,
        ost_dip=chance.step("dip", site.osts, 1 / 1000),
        mdt_reset=chance.step("mds reset", mdss, 1 / 200)[:, site.mds_of_mdt],
    )


def absent_values(site: Site, block: int, table: str, field: str, width: int) -> Mask:
    """Return which rows hold NULL in one of their fields."""
    return _Chance(site, block).step(f"null {table} {field}", width, 1 / 1500)


class _Chance:
    def __init__(self, site: Site, block: int) -> None:
        self.site = site
        self.block = block
        self.weight = np.where(_near_midnight(site, block), _NEAR_MIDNIGHT, 1) if site.trouble else np.zeros((BLOCK, 1))

    def draw(self, stream: str, width: int) -> NDArray[np.float64]:
        return draw(self.site, stream, self.block, BLOCK, width)

    def step(self, stream: str, width: int, probability: float) -> Mask:
        return self.draw(stream, width) < probability * self.weight

    def spell(self, stream: str, width: int, probability: float) -> tuple[Mask, Mask]:
        """Return the steps inside spells of 3 to 17 steps, and the first step after each."""
        happens, begin, length = draw(self.site, stream, self.block, 3, SPELLS, 1, width)
        begin, end = (begin * 40).astype(int), (begin * 40).astype(int) + 3 + (length * 15).astype(int)
        offset = np.arange(SPELL)[:, np.newaxis]
        happens = happens < probability * self.site.trouble
        inside, after = happens & (begin <= offset) & (offset < end), happens & (offset == end)
        return inside.reshape(BLOCK, width), after.reshape(BLOCK, width)


def _near_midnight(site: Site, block: int) -> Mask:
    zone = ZoneInfo(site.timezone)
    start = site.epoch + block * BLOCK * STEP
    date = dt.datetime.fromtimestamp(start, zone).date()
    midnights = [dt.datetime(d.year, d.month, d.day, tzinfo=zone).timestamp() for d in (date, date + dt.timedelta(days=1))]
    times = start + STEP * np.arange(BLOCK)[:, np.newaxis]
    distance = np.minimum(*(np.abs(times - midnight) for midnight in midnights))
    return np.asarray(distance <= 2 * STEP)
