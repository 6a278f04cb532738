"""Datasets that are computed from stored ones, by one rule each.

rate = count / step, in both directions, for every pair of names that TTS defines: readbytes and readrates, opens and openrates. The load
of a CPU is user + system, or 100 - idle, where only its parts are stored, and idle is 100 - load. A cell is missing where any of its
sources is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Literal

from tokiod.tts.schema import UNITS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from tokiod.collector import SourceConfig

Form = Literal["same", "rate", "count", "sum", "complement"]

_RATES = ("bytes/sec", "ops/sec")
_COUNTS = ("bytes", "s")
"""How names of counts end where those of rates end with `rates`."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a dataset's cells follow from those of `sources`, datasets of the same group with the same rows."""

    form: Form
    sources: tuple[str, ...]

    def cells(self, sources: Sequence[NDArray[np.float64]], step: int) -> NDArray[np.float64]:
        """Compute the cells from those of the sources, NaN or -0.0 where missing. It may change the first one in place."""
        first = sources[0]
        if self.form == "rate":
            first /= step
        elif self.form == "count":
            first *= step
        elif self.form == "complement":
            first[...] = 100.0 - first
        elif self.form == "sum":
            return reduce(_add, sources)
        return first

    @property
    def keeps_missing(self) -> bool:
        """Return whether a missing cell may be computed like any other: -0.0 stays -0.0."""
        return self.form in ("same", "rate", "count")


def _add(one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
    one += other
    return one


def _pairs() -> dict[str, str]:
    """Return the count of each rate that TTS defines."""
    rates = [name for name, units in UNITS.items() if units in _RATES and name.endswith("rates")]
    counts = {rate: rate.removesuffix("rates") for rate in rates}
    return {rate: stem + end for rate, stem in counts.items() for end in _COUNTS if stem + end in UNITS}


COUNT_OF = _pairs()
RATE_OF = {count: rate for rate, count in COUNT_OF.items()}


def recipes(dataset: str) -> list[Recipe]:
    """Return the ways to get a dataset, the best first."""
    found = [Recipe("same", (dataset,))]
    if dataset in COUNT_OF:
        found.append(Recipe("rate", (COUNT_OF[dataset],)))
    if dataset in RATE_OF:
        found.append(Recipe("count", (RATE_OF[dataset],)))
    group, _, name = dataset.partition("/")
    if name == "cpuload":
        found += [Recipe("complement", (f"{group}/cpuidle",)), Recipe("sum", (f"{group}/cpuuser", f"{group}/cpusys"))]
    if name == "cpuidle":
        found += [Recipe("complement", (f"{group}/cpuload",))]
    return found


def sources_of(dataset: str, system: str, sources: Iterable[SourceConfig]) -> list[SourceConfig]:
    """Return the sources that fill a dataset of a system: what it is stored as or, if none fills that, what it is computed from.

    Of DATASET/missing they are those of DATASET.
    """
    ours = [source for source in sources if source.system == system]
    filled = {name for source in ours for name in source.datasets()}
    way = next((one for one in recipes(dataset.removesuffix("/missing")) if filled.issuperset(one.sources)), None)
    return [] if way is None else [source for source in ours if source.datasets() & set(way.sources)]


def derivable(stored: Iterable[str]) -> set[str]:
    """Return the names of what can be computed from stored datasets, without these."""
    names = set(stored)
    found = {COUNT_OF.get(name) or RATE_OF.get(name) or name for name in names}
    for group in ("dataservers", "mdservers"):
        if any(set(recipe.sources) <= names for recipe in recipes(f"{group}/cpuload")):
            found.add(f"{group}/cpuload")
        if f"{group}/cpuload" in names:
            found.add(f"{group}/cpuidle")
    return found - names
