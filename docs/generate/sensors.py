"""Write what the sensors declare where it is read: in the tables of docs/sensors.md and docs/sensors, and tokiod/tts/node_metrics.py."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from tokiod.agent.sensors import SENSORS
from tokiod.agent.sensors.jobs import Jobs

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ROOT = Path(__file__).parents[2]
_MODULE = '''\
"""What compute nodes measure, as the sensors of tokiod.agent declare it: `make docs` writes this file.

Units are looked up here, because importing all sensors takes tens of milliseconds, and the reader alone has no agent.
"""

COUNTERS = {{
{}
}}  # fmt: skip
"""Datasets of the group `nodes` with their units. A cell holds the increase within its row."""
GAUGES = {{
{}
}}  # fmt: skip
"""Datasets whose cells hold the mean of their row, or the largest value."""
OF_JOBS = {{
{}
}}  # fmt: skip
"""Metrics of jobs, by their cgroups: unit and kind. They are columns of the job table (tokiod.job_columns)."""
'''


def files() -> dict[Path, str]:
    """Return the text of each file by its path."""
    pages = {ROOT / "docs" / "sensors" / f"{sensor.name}.md": sensor for sensor in SENSORS}
    found = {
        page: _with_rows(page.read_text(), "metric", ((f"`{of.name}`", of.unit, of.kind, of.combine, of.about) for of in sensor.metrics))
        for page, sensor in pages.items()
    }
    overview = ROOT / "docs" / "sensors.md"
    rows = ((f"[{page.stem}](sensors/{page.name})", *_summary(text)) for page, text in found.items())
    return {**found, overview: _with_rows(overview.read_text(), "sensor", rows), ROOT / "tokiod" / "tts" / "node_metrics.py": _module()}


def _with_rows(text: str, first: str, rows: Iterable[tuple[str, ...]]) -> str:
    """Return a page with other rows in its table, whose first column has this name."""
    lines = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    return re.sub(rf"^(\| {first} \|.*\n\| --- .*\n)(?:\|.*\n)*", lambda table: table[1] + lines, text, flags=re.MULTILINE)


def _summary(page: str) -> tuple[str, str, str]:
    """Return what a page states in the list above its first paragraph, the rights and the period without their reasons."""
    reads, rights, period = (" ".join(item.split()) for item in re.split(r"^- \w+: ", page.split("\n\n")[1], flags=re.MULTILINE)[1:])
    return reads, re.split("[:;]", rights)[0], period.partition(";")[0]


def _module() -> str:
    counters, gauges = map(_units, ("counter", "gauge"))
    return _MODULE.format(_items(counters), _items(gauges), _items({metric.name: (metric.unit, metric.kind) for metric in Jobs.metrics}))


def _units(kind: str) -> dict[str, str]:
    """Return the unit of each metric of nodes, those of one unit together."""
    metrics = [metric for sensor in SENSORS for metric in sensor.metrics if metric.kind == kind and not metric.is_of_job]
    units = [metric.unit for metric in metrics]
    return {metric.name: metric.unit for metric in sorted(metrics, key=lambda metric: units.index(metric.unit))}


def _items(found: Mapping[str, object]) -> str:
    """Return the items of a dict as lines of source; none is divided."""
    items = (f"{name!r}: {value!r},".replace("'", '"').replace(" ", "\0") for name, value in found.items())
    return textwrap.indent(textwrap.fill(" ".join(items), 136, break_on_hyphens=False), " " * 4).replace("\0", " ")


if __name__ == "__main__":
    for path, text in files().items():
        path.write_text(text)
