"""Draw a heat map with characters, for a terminal."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from rich.text import Text

from tokiod.reports import time_axis
from tokiod.reports.heat_map import Scale, scale_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from tokiod.reports.heat_map import HeatMap

SHADES = ".:-=+*#%@"
"""From zero to the end of the scale; a blank means missing."""
STYLES = tuple(
    f"{text} on {back}"
    for text, back in zip(
        ("white",) * 5 + ("black",) * 4,
        ("#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#fde725"),
        strict=True,
    )
)
"""Colours of the shades, with their own background: they are readable on light and dark terminals."""
SOME_MISSING, ALL_MISSING = "-", "x"
MIN_CHARACTERS = 16
"""Least width of a map: a narrower terminal wraps its lines."""
LABEL_CHARACTERS = 16


def draw_text(heat_map: HeatMap, width: int, height: int, clip: float) -> Text:
    """Draw a map `width` wide, at least MIN_CHARACTERS, and at most `height` bands; clip as in HeatMap.scale."""
    shown = heat_map.cells.to(height, axis=1)
    columns = heat_map.of_columns.to(height)
    names = _labels(heat_map.columns, len(columns.values))
    numbers = [heat_map.quantity.text(value) for value in columns.values]
    total = heat_map.of_all.to(1).values[0]
    of_all, how = heat_map.quantity.of_all, heat_map.cells.how
    label = max(map(len, [of_all, "missing", *names]))
    side = max(map(len, [how, heat_map.quantity.text(total), *numbers]))
    shown = shown.to(max(width - label - side - 2, MIN_CHARACTERS))
    over_time = heat_map.of_all.to(len(shown.values)).values
    scale, scale_of_all = heat_map.scale(clip), scale_of(heat_map.of_all.values, heat_map.quantity, clip)
    text = Text(f"{heat_map.title}\n{time_axis.ends(heat_map.start, heat_map.end, heat_map.zone)}\n", no_wrap=True)
    text.append(f"{'':<{label}} {'':<{len(shown.values)}} {how:>{side}}\n")
    text.append(_row(f"{of_all:<{label}}", over_time, scale_of_all, f"{heat_map.quantity.text(total):>{side}}"))
    for name, values, number in zip(names, shown.values.T, numbers, strict=True):
        text.append(_row(f"{name:<{label}}", values, scale, f"{number:>{side}}"))
    if heat_map.missing.any():
        text.append(f"{'missing':<{label}} {_missing(heat_map.missing, len(shown.values))}\n")
    text.append(" " * (label + 1)).append(_axis(heat_map, len(shown.values))).append("\n")
    return text.append("\n".join(_legend(heat_map, scale, scale_of_all)))


def _legend(heat_map: HeatMap, scale: Scale, scale_of_all: Scale) -> list[str]:
    measured = heat_map.quantity
    zero = f"'{SHADES[0]}' {measured.text(0.0)} to '{SHADES[-1]}'"
    missing = f"; missing: {SOME_MISSING} some cells, {ALL_MISSING} all" if heat_map.missing.any() else ""
    scales = [f"{name}: {zero} {one.words(measured)}" for name, one in (("cells", scale), (measured.of_all, scale_of_all))]
    return [*scales, *heat_map.words(), f"blank: no value{missing}"]


def _row(label: str, values: NDArray[np.float64], scale: Scale, number: str) -> Text:
    return Text.assemble(f"{label} ", _line(values, scale.end), f" {number}\n")


def _line(values: NDArray[np.float64], end: float) -> Text:
    line = Text()
    for value in values.tolist():
        if np.isnan(value):
            line.append(" ")
            continue
        shade = min(int(max(value, 0.0) / end * len(SHADES)), len(SHADES) - 1)
        line.append(SHADES[shade], STYLES[shade])
    return line


def _missing(shares: NDArray[np.float64], width: int) -> str:
    edges = [i * len(shares) // width for i in range(width)] + [len(shares)]
    parts = [shares[first:after] for first, after in pairwise(edges)]
    return "".join(ALL_MISSING if part.min() == 1 else SOME_MISSING if part.max() > 0 else " " for part in parts).rstrip()


def _axis(heat_map: HeatMap, width: int) -> str:
    line, end = [" "] * width, -1
    for place, text in time_axis.labels(heat_map.start, heat_map.end, heat_map.zone, max(1, width // 12)):
        at = int(place * width)
        if at > end and at + len(text) <= width:
            line[at : at + len(text)] = text
            end = at + len(text)
    return "".join(line).rstrip()


def _labels(columns: Sequence[str], bands: int) -> list[str]:
    """Label each band of components: its first, and how many follow."""
    edges = [i * len(columns) // bands for i in range(bands)] + [len(columns)]
    more = [after - first - 1 for first, after in pairwise(edges)]
    return [columns[first][-LABEL_CHARACTERS:] + (f" +{n}" if n else "") for first, n in zip(edges, more, strict=False)]
