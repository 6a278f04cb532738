"""Which samples can be true: rates that a device can have, percentages of a core; and counters that were stored as rates.

collectd's write_http sends counters as they are unless StoreRates is true; its plugin network, which Logstash's codec reads, always does.
A counter in the place of a rate is as large as all that a disk has ever done. collectd divides by times in nanoseconds, so nearly all rates
have a fraction, and they fall as often as they rise; counters are whole numbers, and never fall.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from collectors.collectd_es.series import BYTES_RATE, IN_JIFFIES, OPS_RATE, PERCENT, PERCENTAGE, SIZE
from tokiod.bounds import IMPLAUSIBLE, LARGEST, ROUNDING, example
from tokiod.errors import Fatal

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from collectors.collectd_es.series import Series
    from tokiod.dropped import Dropped

FULL = 100.0
JITTER = 1.0
"""Percent by which a core seems busier than it can be, because collectd's clock and the kernel's are read at different moments."""
COUNTER = "counter instead of a rate"
FRACTION = "rate instead of a counter"
USE_COUNTERS = 'set values = "counters" (--values counters), or StoreRates true in collectd'
USE_RATES = 'set values = "rates" (--values rates)'
DEVICE_RATES = {BYTES_RATE: 1.6e10, OPS_RATE: 1e7}
"""No device does more in a second: four lanes of PCIe 5.0 carry 15.75 GB."""
MANY_RISES, SOME_RISES = 20, 4
"""So many values that are whole numbers and above the one before are counters, however small; or if one is above what a device can do."""
SMALL_STEP = 0.25
"""Of the mean: a counter is larger than what is added to it, where a load that begins rises from zero."""
SEVERAL = 4
"""So many rates of a host that have no fraction are no coincidence."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What a source's values are, and the largest plausible bytes and operations per second of a disk."""

    counters: bool = False
    bytes: float = 5e10
    operations: float = 1e7

    def highest(self, rounding: float, jitter: float) -> NDArray[np.float64]:
        """Return the largest value of each measure; rounding, jitter: by how much shares may be above 100 %."""
        found = np.full(SIZE + 1, LARGEST)
        found[[PERCENT, IN_JIFFIES]] = FULL + rounding, FULL + jitter
        if not self.counters:
            found[[BYTES_RATE, OPS_RATE]] = self.bytes, self.operations
        return found


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """Samples of a window: time i8[n], series u4[n], value f8[n] as collectd sent it, measure u1[n]."""

    time: NDArray[np.int64]
    series: NDArray[np.uint32]
    value: NDArray[np.float64]
    measure: NDArray[np.uint8]

    def of(self, places: NDArray[np.int64]) -> Measured:
        """Return the samples at some places."""
        return Measured(self.time[places], self.series[places], self.value[places], self.measure[places])


# In nearly all windows every sample is within its limits, and four passes show it.
def plausible(samples: Measured, rules: Rules, series: Series, dropped: Dropped) -> Measured:
    """Return the samples that can be true, shares at most 100 %, and count the others.

    Raises Fatal where all rates of a window are counters.
    """
    found: list[tuple[str, NDArray[np.bool_], str]] = []
    if rules.counters:
        found.append((FRACTION, (samples.measure <= OPS_RATE) & (samples.value != np.floor(samples.value)), USE_RATES))
    elif (counters := _counters(samples, series)) is not None:
        found.append((COUNTER, counters, USE_COUNTERS))
    if samples.value.min(initial=0) < 0 or (samples.value > rules.highest(0, 0).take(samples.measure)).any():
        bad = (samples.value < 0) | (samples.value > rules.highest(ROUNDING, JITTER).take(samples.measure))
        jiffies, rate = samples.measure == IN_JIFFIES, (samples.measure <= OPS_RATE) & (samples.value > 0) & (not rules.counters)
        found += [
            (COUNTER, (bad & jiffies) | _with_counted(bad & jiffies, samples, series), PERCENTAGE),
            (IMPLAUSIBLE, bad & rate, "raise max_rate (--max-rate) if a disk is that fast; " + USE_COUNTERS),
            (IMPLAUSIBLE, bad, ""),
        ]
    if not found:
        return samples
    good = np.ones(len(samples.value), bool)
    for reason, where, remedy in found:
        lost = where & good
        good &= ~lost
        if lost.any():
            dropped.add(reason, int(np.count_nonzero(lost)), _shown(samples, int(np.argmax(lost)), series), remedy)
    some = samples.of(np.flatnonzero(good))
    is_share = (some.measure == PERCENT) | (some.measure == IN_JIFFIES)
    return replace(some, value=np.where(is_share, np.minimum(some.value, FULL), some.value))


def _with_counted(bad: NDArray[np.bool_], samples: Measured, series: Series) -> NDArray[np.bool_]:
    """Return which jiffies are of hosts of which at least half are no rates: a core that was hardly ever used has a small counter."""
    jiffies, hosts = samples.measure == IN_JIFFIES, series.layout().host.take(samples.series)
    counted, all_of = (np.bincount(hosts[some], minlength=int(hosts.max(initial=0)) + 1) for some in (bad, jiffies))
    found: NDArray[np.bool_] = jiffies & ((counted > 0) & (2 * counted >= all_of)).take(hosts)
    return found


def _shown(samples: Measured, place: int, series: Series) -> str:
    dataset, column, core = series.names()[samples.series[place]]
    moment = np.datetime64(int(samples.time[place]) // 1000, "s")
    return f"{example(float(samples.value[place]), dataset, column)}{core and f', core {core}'}, {moment}Z"


# Hosts are judged one by one: StoreRates is set on each.
def _counters(samples: Measured, series: Series) -> NDArray[np.bool_] | None:
    """Return which samples are counters of hosts whose rates all are, None for none. Raises Fatal if all rates of the window are."""
    where, hosts = np.flatnonzero(samples.measure <= OPS_RATE), series.layout().host
    if not len(where):
        return None
    value, host = samples.value[where], hosts.take(samples.series[where])
    # Two writes at the places of few samples: hosts with a fraction are most, and hosts without any traffic the rest.
    whole, busy = np.ones(int(host.max()) + 1, bool), np.zeros(int(host.max()) + 1, bool)
    whole[host[value != np.floor(value)]] = False
    busy[host[value > 0]] = True
    suspect = whole & busy
    if not suspect.any():
        return None
    grown, falling = _grown(samples.of(where[suspect[host]]), hosts, len(suspect))
    # Next to hosts with counters, one whose values never fall has them too: an idle one, or one that was seen once.
    counting = suspect & (grown | ~falling) if (suspect & grown).any() else suspect & grown
    found = np.zeros(len(samples.value), bool)
    found[where] = counting[host]
    if counting.any() and (counting == busy).all():
        shown = _shown(samples, int(np.argmax(np.where(found, samples.value, -1))), series)
        raise Fatal(f"all rates of the window are counters, whole numbers that never fall, such as {shown}: {USE_COUNTERS}")
    return found if counting.any() else None


# A host whose counters began again falls once on each disk. A window may have one sample of each series, which can't rise.
def _grown(samples: Measured, hosts: NDArray[np.uint32], count: int) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return the hosts, bool[count], whose values rise as counters do, of which one is too large or many rise; and those with a fall."""
    order = np.lexsort((samples.value, samples.time, samples.series))
    series, value, measure = samples.series[order], samples.value[order], samples.measure[order]
    host = hosts.take(series)
    most = np.array([DEVICE_RATES[BYTES_RATE], DEVICE_RATES[OPS_RATE]]).take(measure)
    is_pair = np.diff(series) == 0
    step = np.where(is_pair, np.diff(value), 0.0)
    pairs, rises, falls = (np.bincount(host[1:][some], minlength=count) for some in (is_pair, step > 0, step < 0))
    busy, above = (np.bincount(host[some], minlength=count) for some in (value > 0, value > most))
    whole, added = (np.bincount(of, some, minlength=count) for of, some in ((host, value), (host[1:], np.maximum(step, 0.0))))
    is_small = added * busy <= SMALL_STEP * whole * np.maximum(rises, 1)
    grown = (falls == 0) & (above > 0) & ((rises > 0) | ((pairs == 0) & (busy >= SEVERAL)))
    many = (rises >= np.where(above > 0, SOME_RISES, MANY_RISES)) & (4 * falls <= rises) & ((above > 0) | is_small)
    return grown | many, falls > 0
