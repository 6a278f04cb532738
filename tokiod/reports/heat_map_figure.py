"""Draw a heat map with matplotlib, light or dark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from tokiod.reports import time_axis
from tokiod.reports.heat_map import Scale, scale_of

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from tokiod.reports.heat_map import HeatMap
    from tokiod.reports.quantities import Quantity

INCHES = 11, 7.5
POINTS = 9
MOST_NAMES = 26
"""Names of components that fit next to the map in letters of 9 points."""
OUTLIER = 2.0
"""The axis above the map is clipped if the largest value is above so many times its clipped end."""
OUTLIER_COMPONENT = 10.0
"""The axis next to the map ends at the second component if the first one is above so many times that."""
LINE, SOME_MISSING = "#26828e", "#d55e00"
BACKGROUND, INK, HATCH = 0, 1, 2
COLOURS = {False: ("white", "black", "0.75"), True: ("#14161a", "0.9", "0.4")}
"""Background, text and hatch, by whether the picture is dark."""


def save_figure(heat_map: HeatMap, path: Path, clip: float, *, dark: bool) -> None:
    """Draw to a file; its suffix is the format. Raises OSError where the file can't be written."""
    with mpl.rc_context(_settings(dark=dark)):
        draw_figure(heat_map, clip, dark=dark).savefig(path, dpi=120)


def draw_figure(heat_map: HeatMap, clip: float, *, dark: bool = False) -> Figure:
    """Draw the map, all components above it, each component next to it. clip as in HeatMap.scale."""
    figure = Figure(figsize=INCHES, layout="constrained")
    grid = figure.add_gridspec(3, 3, width_ratios=(6, 1, 0.15), height_ratios=(1.2, 0.15, 5))
    above, strip, main = (figure.add_subplot(grid[row, 0]) for row in range(3))
    right, scale_axes = figure.add_subplot(grid[2, 1], sharey=main), figure.add_subplot(grid[2, 2])
    scale = heat_map.scale(clip)
    _draw_cells(main, heat_map, scale, dark=dark)
    _draw_missing(strip, heat_map)
    above_scale = _scale_of_all(heat_map, clip)
    _draw_over_time(above, heat_map, above_scale)
    _draw_columns(right, heat_map)
    units = heat_map.quantity.prefix(scale.end)[1]
    figure.colorbar(main.images[0], cax=scale_axes, extend="neither" if scale.clipped is None else "max").set_label(units)
    figure.suptitle(f"{heat_map.title}\n{time_axis.ends(heat_map.start, heat_map.end, heat_map.zone)}", fontsize=POINTS + 2)
    figure.supxlabel("\n".join(_caption(heat_map, scale, above_scale)), fontsize=POINTS, x=0.01, ha="left")
    _draw_legend(figure.add_subplot(grid[0, 1:]), dark=dark)
    return figure


def _settings(*, dark: bool) -> Any:
    background, ink, _ = COLOURS[dark]
    inked = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    sized = ("font.size", "axes.labelsize", "xtick.labelsize", "ytick.labelsize", "legend.fontsize")
    grounds = ("figure.facecolor", "axes.facecolor", "savefig.facecolor")
    # Names of files and components are text: two dollars in one would be a formula.
    plain = {"hatch.linewidth": 0.6, "text.parse_math": False}
    return plain | dict.fromkeys(inked, ink) | dict.fromkeys(sized, POINTS) | dict.fromkeys(grounds, background)


def _draw_cells(axes: Axes, heat_map: HeatMap, scale: Scale, *, dark: bool) -> None:
    size = heat_map.quantity.prefix(scale.end)[0]
    cells = np.ma.masked_invalid(heat_map.cells.values.T / size)
    count = len(cells)
    # Cells without a value are hatched, unlike any colour of the scale.
    axes.set_facecolor(COLOURS[dark][BACKGROUND])
    axes.patch.set(hatch="////", edgecolor=COLOURS[dark][HATCH])
    extent = (0, 1, count - 0.5, -0.5)
    axes.imshow(cells, aspect="auto", origin="upper", interpolation="nearest", extent=extent, cmap="viridis", vmin=0, vmax=scale.end / size)
    ticks = list(time_axis.labels(heat_map.start, heat_map.end, heat_map.zone, 10))
    axes.set_xticks([place for place, _ in ticks], [text for _, text in ticks])
    named = range(0, count, -(-count // MOST_NAMES))
    axes.set_yticks(list(named), [heat_map.columns[band * len(heat_map.columns) // count] for band in named])


def _draw_missing(axes: Axes, heat_map: HeatMap) -> None:
    """Mark each pixel of time in which cells are missing: one row of a thousand is visible, too."""
    edges = np.linspace(0, 1, len(heat_map.missing) + 1)
    heights = np.where(heat_map.missing > 0, 0.3 + 0.7 * heat_map.missing, 0.0)
    axes.stairs(heights, edges, fill=True, color=SOME_MISSING)
    axes.set(xlim=(0, 1), ylim=(0, 1), xticks=[], yticks=[])
    axes.set_ylabel("missing", rotation=0, ha="right", va="center")


def _scale_of_all(heat_map: HeatMap, clip: float) -> Scale:
    """Return the scale of the line above the map: clipped only where an outlier would flatten the rest."""
    whole, clipped = (scale_of(heat_map.of_all.values, heat_map.quantity, percent) for percent in (100.0, clip))
    return clipped if whole.end > OUTLIER * clipped.end else whole


def _draw_over_time(axes: Axes, heat_map: HeatMap, scale: Scale) -> None:
    values, measured = heat_map.of_all.values, heat_map.quantity
    size, units = measured.prefix(scale.end)
    axes.stairs(values / size, np.linspace(0, 1, len(values) + 1), color=LINE, baseline=None)
    axes.set(xlim=(0, 1), ylim=(0, _top(scale, measured) / size), xticks=[], ylabel=f"{measured.of_all}\n{units}")
    if scale.clipped is not None:
        axes.text(_place_of_largest(values), 1, f"▲ {measured.text(scale.largest)}", transform=axes.transAxes, ha="center", va="bottom")
    if not np.isfinite(values).any():
        axes.text(0.5, 0.5, "no row is complete", transform=axes.transAxes, ha="center", va="center")


def _place_of_largest(values: NDArray[np.float64]) -> float:
    """Return it as a fraction of the axis, away from both ends, where a text would be cut off."""
    return min(max((float(np.nanargmax(values)) + 0.5) / len(values), 0.05), 0.95)


def _draw_columns(axes: Axes, heat_map: HeatMap) -> None:
    values, measured = heat_map.of_columns.values, heat_map.quantity
    own = _scale_of_columns(values, measured)
    size, units = measured.prefix(own.end)
    edges = np.arange(len(values) + 1) - 0.5
    axes.stairs(np.nan_to_num(values) / size, edges, orientation="horizontal", fill=True, color=LINE)
    axes.set(xlim=(0, _top(own, measured) / size), xlabel=f"{heat_map.cells.how} of each\n{units}")
    axes.tick_params(labelleft=False)
    if own.clipped is not None:
        name = heat_map.columns[int(np.nanargmax(values)) * len(heat_map.columns) // len(values)]
        axes.text(1, 1, f"{name} ▶ {measured.text(own.largest)}", transform=axes.transAxes, ha="right", va="bottom")


def _scale_of_columns(values: NDArray[np.float64], measured: Quantity) -> Scale:
    """Return the scale of the bars: all of them, or up to the second where the first would flatten the rest."""
    whole = scale_of(values, measured, 100.0)
    if np.count_nonzero(values > 0) < 3 or measured.is_percentage:  # noqa: PLR2004 - of two, none is the rest
        return whole
    second = float(np.sort(values[values > 0])[-2])
    return Scale(second, whole.largest, 100.0) if whole.end > OUTLIER_COMPONENT * second else whole


def _top(scale: Scale, measured: Quantity) -> float:
    return scale.end if measured.is_percentage else 1.05 * scale.end


def _draw_legend(axes: Axes, *, dark: bool) -> None:
    background, _, hatch = COLOURS[dark]
    axes.set_axis_off()
    missing = Patch(facecolor=background, edgecolor=hatch, hatch="////", label="no value")
    some = Patch(color=SOME_MISSING, label="cells missing")
    axes.legend(handles=[missing, some], loc="upper left", frameon=False, borderaxespad=0)


def _caption(heat_map: HeatMap, scale: Scale, above: Scale) -> list[str]:
    measured = heat_map.quantity
    return [f"colours end at {scale.words(measured)}; {measured.of_all}: axis ends at {above.words(measured)}", *heat_map.words()]
