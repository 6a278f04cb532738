"""Draw an UMAMI with matplotlib: of each metric its values over time, and where the job is among the quartiles of the earlier ones."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from matplotlib import rc_context
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

    from tokiod.analysis.umami import Umami, UmamiMetric

INCHES, ROW_INCHES = 8.0, 1.1
POINTS = 9
LINE = "#853692"
COLOURS = {"best": "#2c69a9", "good": "#40a43a", "poor": "#fd6a07", "worst": "#da0017", None: "0.4"}


def save_figure(found: Umami, path: Path, title: str, zone: dt.tzinfo) -> None:
    """Draw to a file; its suffix is the format. Raises OSError where the file can't be written."""
    # Names are text: two dollars in the name of a job, as ${A}_${B}, would be a formula.
    with rc_context({"font.size": POINTS, "text.parse_math": False}):
        draw_figure(found, title, zone).savefig(path, dpi=120)


def draw_figure(found: Umami, title: str, zone: dt.tzinfo) -> Figure:
    """Draw a row of two panels for each metric. zone: of the axis of time."""
    count = len(found.metrics)
    figure = Figure(figsize=(INCHES, 1.2 + ROW_INCHES * count), layout="constrained")
    panels: Any = figure.subplots(count, 2, sharex="col", sharey="row", squeeze=False, width_ratios=(5, 1))
    for (over_time, box), metric in zip(panels, found.metrics.values(), strict=True):
        _draw_over_time(over_time, metric, zone)
        _draw_box(box, metric)
    if count:
        locator = AutoDateLocator(tz=zone)  # type: ignore[no-untyped-call]  # matplotlib's dates have no types
        panels[-1][0].xaxis.set_major_locator(locator)
        panels[-1][0].xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=zone))  # type: ignore[no-untyped-call]
        panels[-1][1].set_xticks([])
    figure.suptitle(title, fontsize=POINTS + 2)
    figure.supxlabel("star: this job; box: quartiles of the earlier jobs, whiskers: 5 % and 95 %", fontsize=POINTS)
    return figure


def _draw_over_time(axes: Axes, metric: UmamiMetric, zone: dt.tzinfo) -> None:
    known = [(time, value) for time, value in zip(metric.timestamps, metric.values, strict=True) if value is not None]
    dates: Any = [dt.datetime.fromtimestamp(time, zone) for time, _ in known]
    axes.plot(dates, [value for _, value in known], color=LINE, marker="x", linewidth=1)
    axes.plot(dates[-1:], [value for _, value in known[-1:]], color=COLOURS[metric.rating], marker="*", markersize=14, clip_on=False)
    axes.set_ylabel(metric.label.replace(" (", "\n("), rotation=0, ha="right", va="center")
    axes.grid(visible=True, linewidth=0.4)


def _draw_box(axes: Axes, metric: UmamiMetric) -> None:
    earlier = [value for value in metric.values[:-1] if value is not None]
    if earlier:
        axes.boxplot(earlier, widths=0.7, whis=(5, 95))
    if metric.value is not None:
        axes.axhline(metric.value, color=COLOURS[metric.rating], linestyle="--", linewidth=2)
