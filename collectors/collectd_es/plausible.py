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
MANY_RISES = 20
"""So many values that are whole numbers and above the one before are counters, however small."""
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
        jiffies = samples.measure == IN_JIFFIES
        found += [(COUNTER, bad & jiffies, PERCENTAGE), (IMPLAUSIBLE, bad & ~jiffies, _remedy(rules))]
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


def _remedy(rules: Rules) -> str:
    return "" if rules.counters else "raise max_rate if a disk is that fast; " + USE_COUNTERS


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
    counting = suspect & _grown(samples.of(where[suspect[host]]), hosts, len(suspect))
    found = np.zeros(len(samples.value), bool)
    found[where] = counting[host]
    if counting.any() and (counting == busy).all():
        shown = _shown(samples, int(np.argmax(np.where(found, samples.value, -1))), series)
        raise Fatal(f"all rates of the window are counters, whole numbers that never fall, such as {shown}: {USE_COUNTERS}")
    return found if counting.any() else None


# A host whose counters began again falls once on each disk. A window may have one sample of each series, which can't rise.
def _grown(samples: Measured, hosts: NDArray[np.uint32], count: int) -> NDArray[np.bool_]:
    """Return the hosts, bool[count], of which no value falls and one is above what a device can do, or many rise and few fall."""
    order = np.lexsort((samples.value, samples.time, samples.series))
    series, value, measure = samples.series[order], samples.value[order], samples.measure[order]
    host = hosts.take(series)
    most = np.array([DEVICE_RATES[BYTES_RATE], DEVICE_RATES[OPS_RATE]]).take(measure)
    is_pair = np.diff(series) == 0
    step = np.where(is_pair, np.diff(value), 0.0)
    pairs, rises, falls = (np.bincount(host[1:][some], minlength=count) for some in (is_pair, step > 0, step < 0))
    busy, above = (np.bincount(host[some], minlength=count) for some in (value > 0, value > most))
    grown = (falls == 0) & (above > 0) & ((rises > 0) | ((pairs == 0) & (busy >= SEVERAL)))
    counting: NDArray[np.bool_] = grown | ((rises >= MANY_RISES) & (4 * falls <= rises))
    return counting
