"""A heat map of a dataset: components over time, with sums over each; drawn by matplotlib, or with characters for a terminal."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.figure import Figure
    from numpy.typing import NDArray

SHADES = ".:-=+*#%@"
"""From zero to the largest value; a blank means missing."""
COLORS = ("#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#fde725")
MAX_PIXELS = 1600, 1000
MIN_CHARACTERS = 16
"""Least width of a map: a narrower terminal wraps its lines."""
_PREFIXES = ((1 << 50, "Pi"), (1 << 40, "Ti"), (1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki"))
_DECIMAL = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


@dataclass(frozen=True, slots=True, eq=False)
class HeatMap:
    """A dataset over a span: values f8[rows, columns], NaN where missing.

    start: UTC epoch seconds of the first row's left edge; step: seconds between rows; zone: time zone of the labels.
    is_amount: values are amounts per step (bytes, operations), which are summed over time; of all others the mean is shown.
    """

    title: str
    units: str
    start: int
    step: int
    columns: tuple[str, ...]
    values: NDArray[np.float64]
    zone: dt.tzinfo
    is_amount: bool

    @property
    def over_time(self) -> NDArray[np.float64]:
        """f8[rows]: the sum over all components, of percentages the mean; NaN where all are missing."""
        return _folded(self.values, 1, mean=self.units == "%")

    @property
    def of_columns(self) -> NDArray[np.float64]:
        """f8[columns]: the sum over time of amounts, the mean of all others; NaN where all are missing."""
        return _folded(self.values, 0, mean=not self.is_amount)

    @property
    def per_step(self) -> str:
        """The units of a cell: `bytes in 5 s`."""
        return f"{self.units} in {self.step} s" if self.is_amount else self.units

    def times(self, count: int) -> Iterator[tuple[float, str]]:
        """Yield about `count` labels: a place in rows and its local time, on round times of the day."""
        span = len(self.values) * self.step
        every = next((step for step in _TICKS if span / step <= count), 86400)
        local = dt.datetime.fromtimestamp(self.start, self.zone)
        first = self.start + -(local.hour * 3600 + local.minute * 60 + local.second) % every
        # Across a clock change the places stay even and the hours follow.
        for time in range(first, self.start + span + 1, every):
            text = dt.datetime.fromtimestamp(time, self.zone).strftime("%H:%M:%S" if every % 60 else "%H:%M")
            yield (time - self.start) / self.step, text


_TICKS = (5, 15, 30, 60, 300, 600, 900, 1800, 3600, 7200, 10_800, 14_400, 21_600, 43_200, 86_400)


def downsample(values: NDArray[np.float64], rows: int, columns: int) -> NDArray[np.float64]:
    """Return at most so many rows and columns, each the mean of several; NaN where all of them are missing."""
    for axis, most in ((0, rows), (1, columns)):
        size = values.shape[axis]
        if size > most:
            edges = np.arange(most) * size // most
            known = ~np.isnan(values)
            total, count = np.add.reduceat(np.where(known, values, 0.0), edges, axis), np.add.reduceat(known, edges, axis, dtype=np.int64)
            values = np.where(count > 0, total / np.maximum(count, 1), np.nan)
    return values


def format_amount(value: float, units: str) -> str:
    """Write a number with a prefix: `1.5 GiB`; `-` for NaN."""
    if np.isnan(value):
        return "-"
    word = units.replace("bytes", "B") if "bytes" in units else units
    if units == "KiB":
        value, word = value * 1024, "B"
    prefixes = _PREFIXES if "B" in word else _DECIMAL
    for size, prefix in prefixes:
        if abs(value) >= size:
            return f"{value / size:.3g} {prefix}{word}"
    return f"{value:.3g} {word}".rstrip()


def draw_figure(picture: HeatMap) -> Figure:
    """Draw with matplotlib. Raises ImportError if it is not installed."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - an extra, and slow to import

    figure = Figure(figsize=(11, 7), layout="constrained")
    grid = figure.add_gridspec(2, 3, width_ratios=(6, 1, 0.15), height_ratios=(1, 5))
    rows, count = len(picture.values), len(picture.columns)
    above, main = figure.add_subplot(grid[0, 0]), figure.add_subplot(grid[1, 0])
    right, scale = figure.add_subplot(grid[1, 1], sharey=main), figure.add_subplot(grid[1, 2])
    cells = np.ma.masked_invalid(downsample(picture.values, *MAX_PIXELS).T)
    # Missing cells are hatched, unlike any colour of the scale.
    main.set_facecolor("white")
    main.patch.set(hatch="////", edgecolor="0.8")
    image = main.imshow(cells, aspect="auto", origin="upper", interpolation="nearest", extent=(0, rows, count - 0.5, -0.5), cmap="viridis")
    ticks = list(picture.times(10))
    main.set_xticks([place for place, _ in ticks], [text for _, text in ticks])
    named = range(0, count, max(1, count // 30))
    main.set_yticks(list(named), [picture.columns[i] for i in named], fontsize=7)
    day = dt.datetime.fromtimestamp(picture.start, picture.zone)
    main.set_xlabel(f"{day:%Y-%m-%d} {day.tzname()}")
    figure.colorbar(image, cax=scale, label=picture.per_step)
    folded = downsample(picture.over_time[:, np.newaxis], MAX_PIXELS[0], 1)[:, 0]
    above.stairs(folded, np.linspace(0, rows, len(folded) + 1), color="#31688e")
    above.set(xlim=(0, rows), xticks=[], title=picture.title, ylabel=f"{'mean' if picture.units == '%' else 'sum'}\n{picture.per_step}")
    right.barh(range(count), np.nan_to_num(picture.of_columns), height=1.0, color="#31688e")
    right.tick_params(labelleft=False)
    right.set_xlabel(f"{'sum' if picture.is_amount else 'mean'}\n{picture.units}")
    return figure


def draw_text(picture: HeatMap, width: int, height: int) -> Text:
    """Draw with characters, in colour on a terminal that has it: `width` wide, at least MIN_CHARACTERS, and at most `height` bands."""
    shown = downsample(picture.values, len(picture.values), height)
    names = _labels(picture.columns, len(shown[0]))
    label = max(map(len, names), default=0)
    sums = [format_amount(value, picture.units) for value in _bands(picture, len(names))]
    folded = "sum" if picture.is_amount else "mean"
    side = max(map(len, [folded, *sums]))
    cells = downsample(shown, max(width - label - side - 2, MIN_CHARACTERS), height).T
    # The scale ends at the largest value of the map.
    most = float(np.nanmax(cells, initial=0.0)) or 1.0
    total = downsample(picture.over_time[:, np.newaxis], cells.shape[1], 1)[:, 0]
    text = Text(f"{picture.title}\n", no_wrap=True)
    text.append(f"{'mean' if picture.units == '%' else 'sum':>{label}} ").append_text(
        _line(total, float(np.nanmax(total, initial=0.0)) or 1.0)
    )
    text.append(f" {folded:>{side}}\n")
    for name, row, total_of_row in zip(names, cells, sums, strict=True):
        text.append(f"{name:<{label}} ").append_text(_line(row, most)).append(f" {total_of_row:>{side}}\n")
    text.append(" " * (label + 1)).append(_axis(picture, cells.shape[1]))
    return text.append(
        f"\n'.' {format_amount(0.0, picture.units)} to '@' {format_amount(most, picture.units)} {_in(picture)}, blank: missing"
    )


def _in(picture: HeatMap) -> str:
    return f"in {picture.step} s".strip() if picture.is_amount else "(mean)"


def _line(values: NDArray[np.float64], most: float) -> Text:
    line = Text()
    for value in values.tolist():
        if np.isnan(value):
            line.append(" ")
            continue
        shade = min(int(max(value, 0.0) / most * len(SHADES)), len(SHADES) - 1)
        line.append(SHADES[shade if value > 0 else 0], COLORS[shade])
    return line


def _axis(picture: HeatMap, width: int) -> str:
    line, end = [" "] * width, -1
    for place, text in picture.times(max(1, width // 12)):
        at = int(place / len(picture.values) * width)
        if at > end and at + len(text) <= width:
            line[at : at + len(text)] = text
            end = at + len(text)
    return "".join(line).rstrip() + f" {dt.datetime.fromtimestamp(picture.start, picture.zone).tzname()}"


def _labels(columns: tuple[str, ...], bands: int) -> list[str]:
    """Label each band of components: its first, and how many follow."""
    edges = [i * len(columns) // bands for i in range(bands)] + [len(columns)]
    more = [after - first - 1 for first, after in pairwise(edges)]
    return [columns[first][-16:] + (f" +{n}" if n else "") for first, n in zip(edges, more, strict=False)]


def _bands(picture: HeatMap, bands: int) -> list[float]:
    values = picture.of_columns
    edges = [i * len(values) // bands for i in range(bands)] + [len(values)]
    parts = (values[first:after] for first, after in pairwise(edges))
    return [float(_folded(part[np.newaxis], 1, mean=not picture.is_amount)[0]) for part in parts]


def _folded(values: NDArray[np.float64], axis: int, *, mean: bool) -> NDArray[np.float64]:
    known = ~np.isnan(values)
    count = known.sum(axis=axis)
    total = np.where(known, values, 0.0).sum(axis=axis)
    return np.where(count > 0, total / np.maximum(count, 1) if mean else total, np.nan)
