"""Draw where the time of windows and files went with matplotlib: a stacked bar for each, oldest first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from tokiod.reports.stages import ORDER
from tokiod.window import iso

if TYPE_CHECKING:
    from pathlib import Path

    from tokiod.reports.stages import StagedWork

WIDTH, BAR_HEIGHT, MARGIN = 11, 0.28, 1.6
"""Inches."""
POINTS = 9
COLOURS = dict(zip(ORDER, (
    "#bbbbbb", "#999999", "#0072b2", "#56b4e9", "#f0e442", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#ddaa77", "#777777",
    "#332288", "#88ccee", "#44aa99", "#ddcc77", "#aa4499",
), strict=True))  # fmt: skip
"""Okabe and Ito's for windows, Tol's for files, which colour-blind users can tell apart."""


def save_stages(works: list[StagedWork], path: Path) -> None:
    """Draw to a file; its suffix is the format. Open stages are hatched. Raises OSError."""
    with mpl.rc_context({"font.size": POINTS, "hatch.linewidth": 0.6}):
        figure = Figure(figsize=(WIDTH, MARGIN + BAR_HEIGHT * len(works)), layout="constrained")
        axes = figure.add_subplot()
        for row, work in enumerate(works):
            for span in work.stages:
                hatch = "////" if span.open else None
                left = max(0.0, span.start - work.began - work.healing)
                seconds = span.seconds - (work.healing if span.stage == "due" else 0.0)
                axes.barh(row, seconds, left=left, color=COLOURS[span.stage], hatch=hatch)
        axes.set_yticks(range(len(works)), [f"{work.name} {iso(work.start)}" for work in works])
        axes.invert_yaxis()
        axes.set_xlabel("seconds; hatched: open; of a healed window's waiting, as much as the window is long")
        drawn = {span.stage for work in works for span in work.stages}
        patches = [Patch(color=COLOURS[stage], label=stage) for stage in ORDER if stage in drawn]
        figure.legend(handles=patches, loc="outside lower center", ncols=8, frameon=False)
        figure.savefig(path, dpi=120)
