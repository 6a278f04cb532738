"""`make bench`: a table of what, floor in the same run, ours, ratio; the same as JSON in bench.json. Never a test.

bench.json has the rows so far after each part; a part that fails stops no other. Exits 1 where one failed.

python -m tests.bench [--quick] [--only
storage|beside|healing|lmt|mariadb|collectd|elasticsearch|mmperfmon|esnet|lustre|jobstats|jobs|memory|parquet|sinks|engines|reading|year|day|growth|tenfold|peers|stages|web|page]
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import sys
import tempfile
import time
import timeit
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table

from tests.bench import (
    beside,
    collectd,
    collectd_live,
    day,
    engines,
    esnet,
    growth,
    healing,
    jobs,
    jobstats,
    lmt,
    lustre,
    mariadb,
    memory,
    mmperfmon,
    page,
    parquet,
    peers,
    reading,
    sinks,
    stages,
    storage,
    tenfold,
    web,
    year,
)
from tests.bench.measure import wide_console

if TYPE_CHECKING:
    from tests.bench.measure import Row

PARTS = {
    "storage": storage.rows,
    "beside": beside.rows,
    "healing": healing.rows,
    "lmt": lmt.rows,
    "mariadb": mariadb.rows,
    "collectd": collectd.rows,
    "elasticsearch": collectd_live.rows,
    "mmperfmon": mmperfmon.rows,
    "esnet": esnet.rows,
    "lustre": lustre.rows,
    "jobstats": jobstats.rows,
    "jobs": jobs.rows,
    "memory": memory.rows,
    "parquet": parquet.rows,
    "sinks": sinks.rows,
    "engines": engines.rows,
    "reading": reading.rows,
    "year": year.rows,
    "day": day.rows,
    "growth": growth.rows,
    "tenfold": tenfold.rows,
    "peers": peers.rows,
    "stages": stages.rows,
    "web": web.rows,
    "page": page.rows,
}


EMPTY_LOOP = "an empty loop of 3 million turns"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer cases, smaller input")
    parser.add_argument("--only", choices=PARTS, action="append")
    arguments = parser.parse_args()
    console, found, failed, loops = wide_console(), [], [], list[float]()
    start = time.monotonic()
    for name in arguments.only or PARTS:
        begun = time.monotonic()
        loops.append(empty_loop())
        try:
            with console.status(f"measuring {name}"):
                measure(name, found, quick=arguments.quick)
        except Exception:  # noqa: BLE001 - an hour of figures is not lost with one part
            traceback.print_exc()
            failed.append(name)
        Path("bench.json").write_text(json.dumps([row.as_dict() for row in found], indent=2) + "\n")
        print(f"{name}, {time.monotonic() - begun:.0f} s; {EMPTY_LOOP}: {loops[-1]:.3f} s", file=sys.stderr, flush=True)
    machine = f"{platform.processor() or platform.machine()}, {EMPTY_LOOP} takes {min(loops):.3f} to {max(loops):.3f} s"
    console.print(table(found), f"{machine}, {time.monotonic() - start:.0f} s in all")
    if failed:
        console.print(f"failed, see above: {', '.join(failed)}", style="red")
    return int(bool(failed))


def measure(name: str, found: list[Row], *, quick: bool) -> None:
    """Add the rows of a part, each as soon as it is measured."""
    directory = Path(tempfile.mkdtemp(prefix="tokiod-bench-"))
    try:
        for row in PARTS[name](directory, quick=quick):
            found.append(row)  # noqa: PERF402 - a part that fails keeps its rows
    finally:
        shutil.rmtree(directory)


def empty_loop() -> float:
    """Return the seconds of an EMPTY_LOOP. Shared machines differ twofold from minute to minute, and figures without a floor with them."""
    return min(timeit.repeat("for _ in range(3_000_000): pass", number=1, repeat=5))


def table(found: list[Row]) -> Table:
    shown = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("what", "unit", "floor", "ours", "ratio", "target", ""):
        shown.add_column(
            name, justify="right" if name in {"floor", "ours", "ratio"} else "left", no_wrap=name in {"floor", "ours", "ratio"}
        )
    for row in found:
        figures = ["-" if figure is None else f"{figure:.3g}" for figure in (row.floor, row.ours, row.ratio)]
        shown.add_row(row.what, row.unit, *figures, row.target, row.note)
    return shown


if __name__ == "__main__":
    sys.exit(main())
