"""The quantity that the cells of a dataset measure, in units that people read: bytes in 5 s become GiB/s."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tokiod.tts import node_metrics

_BINARY = ((1 << 60, "Ei"), (1 << 50, "Pi"), (1 << 40, "Ti"), (1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki"))
_DECIMAL = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_UNITS = {"bytes": ("B", 1), "KiB": ("B", 1024), "bytes/sec": ("B/s", 1), "ops/sec": ("ops/s", 1), "1": ("", 1)}
"""Units and factor of cells that are no amounts per step."""
_AMOUNTS = {"bytes": "B/s", "ops": "ops/s"}
_AMOUNTS_OF_NODES = {"B": "B/s", "1": "/s", "J": "W", "s": "s/s"}
_INTENSIVE = frozenset({"%", "degC", "MHz", "1/min"})
"""Units of states that add up to nothing: their mean describes all components."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """units: without a prefix; factor: a cell times it has these units. Percentages and temperatures have means over components."""

    units: str
    factor: float

    @property
    def is_percentage(self) -> bool:
        """Return whether values are shares from 0 to 100 %."""
        return self.units == "%"

    @property
    def has_mean(self) -> bool:
        """Return whether the mean of all components describes them, and not their sum."""
        return self.units in _INTENSIVE

    @property
    def of_all(self) -> str:
        """The name of what combines all components: mean or sum."""
        return "mean" if self.has_mean else "sum"

    def prefix(self, value: float) -> tuple[float, str]:
        """Return the size of the prefix in which a value has one to four digits, and the units with it: (2**30, "GiB/s")."""
        if self.has_mean or not self.units:
            return 1.0, self.units
        sizes = _BINARY if self.units.startswith("B") else _DECIMAL
        size, prefix = next(((size, prefix) for size, prefix in sizes if abs(value) >= size), (1, ""))
        return float(size), f"{prefix}{self.units}"

    def text(self, value: float) -> str:
        """Write a value with its prefix: `1.5 GiB/s`; `-` for NaN."""
        if np.isnan(value):
            return "-"
        size, units = self.prefix(value)
        return f"{_digits(value / size)} {units}".rstrip()


def quantity(dataset: str, units: str, step: int) -> Quantity:
    """Return the quantity of a dataset whose cells have these units, in rows of `step` seconds.

    Bytes and operations are amounts per step and become rates; bytes of memory are amounts at an instant.
    """
    group, _, name = dataset.partition("/")
    if group == "nodes" and name in node_metrics.COUNTERS and units in _AMOUNTS_OF_NODES:
        return Quantity(_AMOUNTS_OF_NODES[units], 1 / step)
    if units in _AMOUNTS and not name.startswith("mem"):
        return Quantity(_AMOUNTS[units], 1 / step)
    shown, factor = _UNITS.get(units, (units, 1))
    return Quantity(shown, float(factor))


def _digits(value: float) -> str:
    """Write three digits, and all digits before the point."""
    return f"{value:.0f}" if abs(value) >= 999.5 else f"{value:.3g}"  # noqa: PLR2004 - three digits
