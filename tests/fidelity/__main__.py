"""`make fidelity`: random LMT databases through tokiod and through pytokio 0.13.0, every cell compared.

    python -m tests.fidelity --pytokio PYTHON [--cases N] [--seed X]

Spans off the grid, steps that LMT does not have, zeros, gaps, falls, implausible values, midnights. Each cell that differs is explained by
a row of docs/fidelity.md, or it is an error. PYTHON: of an environment with pytokio. Prints one line with the number of equal cells and
of differences by reason; exits 1 if one is unexplained, or pytokio's or tokiod's file is not what its rule says.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import h5py
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import lmt_database

from collectors import lmt
from sinks.tts.sink import TtsSink
from tests.fidelity.lmt_cases import MIDNIGHT, Case, Difference, pytokio_cells, right_cells
from tokiod.archive.layout import daily
from tokiod.cli.commands.archive import archive_command
from tokiod.collector import Site, SourceConfig, collect_window
from tokiod.testing.clock import FakeClock
from tokiod.tts.live.files import UNSYNCED
from tokiod.tts.schema import missing
from tokiod.window import Calendar, Window, iso

CALENDAR = Calendar(lmt_database.ZONE)
DAY = 86400
Cells = dict[tuple[str, str], dict[int, float]]
"""By dataset and column: values by epoch second of their row."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pytokio", required=True)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=None)
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(10**6)
    begun, rng, counts, wrong = time.monotonic(), random.Random(seed), Counter(), []
    with tempfile.TemporaryDirectory(prefix="fidelity-") as name:
        cases = [Case.made(rng, number) for number in range(arguments.cases)]
        for case in cases:
            lmt_database.save(Path(name, f"{case.number}.sqlite3"), case.tables)
        their_files(Path(name), cases, arguments.pytokio)
        for case in cases:
            found, errors = compare(case, Path(name))
            counts += found
            wrong += [f"case {case.number} from {iso(case.start)}, step {case.step}: {error}" for error in errors]
    for error in wrong[:20]:
        print(error, file=sys.stderr)
    equal = counts.pop("equal", 0)
    reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(counts.items()))
    print(f"fidelity cases {len(cases)} equal {equal} explained {counts.total()} ({reasons}) unexplained {len(wrong)} "
          f"seconds {time.monotonic() - begun:.0f} seed {seed}")  # fmt: skip
    return int(bool(wrong))


def spans(case: Case) -> list[Window]:
    """Return the spans of pytokio's files: it archives each day by itself."""
    if not case.is_over_midnight:
        return [Window(case.start, case.end)]
    return [Window(case.start, MIDNIGHT), Window(MIDNIGHT, case.end)]


def their_files(directory: Path, cases: list[Case], python: str) -> None:
    """Archive all cases with pytokio, in one process."""
    lines = []
    for case in cases:
        for part, span in enumerate(spans(case)):
            out = str(directory / f"{case.number}-{part}.theirs")
            times = [lmt_database.local(time).replace(" ", "T") for time in (span.start, span.end)]
            lines.append(json.dumps(["-i", str(directory / f"{case.number}.sqlite3"), "-o", out, "--timestep", str(case.step), *times]))
    program = str(Path(__file__).with_name("pytokio_archive.py"))
    environment = {**os.environ, "TZ": lmt_database.ZONE, "PYTHONPATH": ""}
    subprocess.run([python, program], input="\n".join(lines), text=True, check=True, env=environment)


def our_cells(case: Case, directory: Path) -> Cells:
    """Archive a case with `tokioctl archive`, or, over a midnight, window by window into an archive of days."""
    database = directory / f"{case.number}.sqlite3"
    if not case.is_over_midnight:
        out = directory / f"{case.number}.ours"
        given = ["lmt", str(database), "--output", str(out), "--start", iso(case.start), "--end", iso(case.end)]
        given += ["--step", str(case.step), "--mdt-names", "host", "--timezone", lmt_database.ZONE, "--json"]
        with open(os.devnull, "w") as nowhere:  # noqa: PTH123 - not a file
            stdout, sys.stdout = sys.stdout, nowhere
            try:
                archive_command.main(given, standalone_mode=False)
            finally:
                sys.stdout = stdout
        return read(out)
    root = directory / f"{case.number}"
    root.mkdir()
    asyncio.run(_filled(case, database, root))
    merged: Cells = {}
    for path in sorted(root.iterdir()):
        for column, cells in read(path).items():
            merged.setdefault(column, {}).update(cells)
    return merged


async def _filled(case: Case, database: Path, root: Path) -> None:
    collector = lmt.saved([database], lmt.Saved(mdt_names="host"), Site(CALENDAR, FakeClock()))
    source = SourceConfig(name="lmt", kind="lmt", system="fs")
    rates = {"fs": lmt.Saved().max_rates()}
    with closing(TtsSink(daily(CALENDAR, lambda day, _: root / f"{day.date}"), FakeClock(), UNSYNCED, max_rates=rates)) as sink:
        windows = list(CALENDAR.split(Window(case.start, case.end + case.step), 60))
        for window in random.Random(case.number).sample(windows, len(windows)):  # in any order
            sink.apply(await collect_window(collector, source, window))
        sink.commit()
    await collector.close()


def read(path: Path) -> Cells:
    """Return the cells of a file that are not missing."""
    found: Cells = {}
    with h5py.File(path, "r") as file:
        for group in (group for group in file if not group.startswith("_")):
            stamps = file[f"{group}/timestamps"][...].tolist()
            for dataset in (f"{group}/{name}" for name in file[group] if name != "timestamps"):
                values = file[dataset][...].astype(np.float64)
                for place, column in enumerate(file[dataset].attrs["columns"]):
                    rows = np.flatnonzero(~missing(np.ascontiguousarray(values[:, place])))
                    found[dataset, column.decode()] = {stamps[row]: float(values[row, place]) for row in rows.tolist()}
    return found


def compare(case: Case, directory: Path) -> tuple[Counter[str], list[str]]:
    """Return how many cells are equal, and different by reason; and what is not explained."""
    ours, counts, errors = our_cells(case, directory), Counter[str](), []
    for part, span in enumerate(spans(case)):
        theirs = read(directory / f"{case.number}-{part}.theirs")
        for dataset, column in sorted(ours.keys() | theirs.keys()):
            here, there = (_within(span, side.get((dataset, column), {})) for side in (ours, theirs))
            counts["equal"] += sum(1 for time, value in there.items() if here.get(time) == value)
            if dataset.startswith(("datatargets/", "mdtargets/")):
                errors += _explained(case, span, (dataset, column), here, there, counts)
            elif here != there:
                errors.append(f"{dataset} {column}: {sorted(here.items() ^ there.items())[:3]}")
    return counts, errors


def _within(span: Window, cells: dict[int, float]) -> dict[int, float]:
    return {time: value for time, value in cells.items() if span.start <= time < span.end}


def _explained(
    case: Case, span: Window, name: tuple[str, str], here: dict[int, float], there: dict[int, float], counts: Counter[str]
) -> list[str]:
    """Count a counter's different cells by reason; return those without one, and those that are not what the two rules say."""
    dataset, column = name
    samples = case.columns(dataset, case.start).get(column, {})
    rows_before, rows = (span.start - case.start) // case.step, (span.end - span.start) // case.step
    right, implausible = right_cells(samples, dataset, case.step)
    their_samples = {row - rows_before: value for row, value in samples.items() if rows_before <= row <= rows_before + rows}
    theirs = pytokio_cells(their_samples, rows)
    errors = []
    for row in range(rows):
        time, at = span.start + row * case.step, row + rows_before
        mine, other = here.get(time), there.get(time)
        if (mine, other) != (right.get(at), theirs.get(row)):
            errors.append(
                f"{dataset} {column} {iso(time)}: tokiod {mine}, its rule {right.get(at)}; pytokio {other}, its rule {theirs.get(row)}"
            )
        elif mine != other:
            reason = Difference(samples, at, mine, other, at in implausible, rows_before).reason()
            if reason is None:
                errors.append(f"{dataset} {column} {iso(time)}: tokiod {mine}, pytokio {other}: unexplained")
            else:
                counts[reason] += 1
    return errors


if __name__ == "__main__":
    sys.exit(main())
