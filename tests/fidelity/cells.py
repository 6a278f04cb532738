"""The cells of two programs and of their rules, compared; the files that they are in."""

from __future__ import annotations

import math
import os
import sys
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import h5py
import lmt_database
import numpy as np

from tokiod.cli.commands.archive import archive_command
from tokiod.tts.layout import dataset_names
from tokiod.tts.schema import missing
from tokiod.window import iso

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

Column = tuple[str, str]
"""Dataset and component."""
Cells = dict[Column, dict[int, float]]
"""By column: values by epoch second of their row."""

RELATIVE_ERROR = 1e-12
"""Between sums of the same numbers in another order."""


@dataclass
class SpanCase:
    """A random case, and the span [start, end) of a file of it, epoch seconds. step: seconds between the file's rows."""

    number: int
    start: int
    end: int
    step: int


def read(path: Path) -> Cells:
    """Return the cells of a file that are not missing; columns without a name are left out."""
    found: Cells = {}
    with h5py.File(path, "r") as file:
        for group in (group for group in file if not group.startswith("_")):
            stamps = file[f"{group}/timestamps"][...].tolist()
            for dataset in (f"{group}/{name}" for name in dataset_names(file[group])):
                values = file[dataset][...].astype(np.float64)
                for place, column in enumerate(file[dataset].attrs["columns"]):
                    rows = np.flatnonzero(~missing(np.ascontiguousarray(values[:, place])))
                    if column and len(rows):
                        found[dataset, column.decode()] = {stamps[row]: float(values[row, place]) for row in rows.tolist()}
    return found


def archived(kind: str, inputs: Sequence[Path], out: Path, *options: str) -> Cells:
    """Run `tokioctl archive` and return the cells of its file; none where it makes no file."""
    given = [kind, *map(str, inputs), "--output", str(out), *options, "--timezone", lmt_database.ZONE, "--json"]
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123 - not a file
        streams = sys.stdout, sys.stderr
        sys.stdout = sys.stderr = nowhere
        try:
            archive_command.main(given, standalone_mode=False)
        except Exception as error:
            if "no data between" not in str(getattr(error, "message", error)):
                raise
            return {}
        finally:
            sys.stdout, sys.stderr = streams
    return read(out)


def span_options(start: int, end: int) -> list[str]:
    """Return the options of `tokioctl archive` for a span."""
    return ["--start", iso(start), "--end", iso(end)]


def local_span(start: int, end: int) -> list[str]:
    """Return a span as pytokio's programs take it."""
    return [lmt_database.local(time).replace(" ", "T") for time in (start, end)]


def same(one: float | None, other: float | None) -> bool:
    """Return whether two cells are the same, None for a missing one."""
    if one is None or other is None:
        return one is other
    return (math.isnan(one) and math.isnan(other)) or math.isclose(one, other, rel_tol=RELATIVE_ERROR, abs_tol=0.0)


def compared(
    ours: Cells, theirs: Cells, rules: tuple[Cells, Cells], reason: Callable[[Column, int], str | None]
) -> tuple[Counter[str], list[str]]:
    """Count the equal cells, and the different ones by reason; return also what is not explained, and what is not as the rules say.

    rules: what tokiod's and pytokio's rule give. reason: the row of docs/fidelity.md that explains a difference in a cell, None if none
    does.
    """
    counts, errors = Counter[str](), []
    for column in sorted({*ours, *theirs, *rules[0], *rules[1]}):
        sides = [cells.get(column, {}) for cells in (ours, theirs, *rules)]
        for time in sorted(set().union(*sides)):
            mine, other, right, their_rule = (side.get(time) for side in sides)
            where = f"{column[0]} {column[1]} {iso(time)}: tokiod {mine}, its rule {right}; pytokio {other}, its rule {their_rule}"
            if not (same(mine, right) and same(other, their_rule)):
                errors.append(where)
            elif same(mine, other):
                counts["equal"] += 1
            elif (why := reason(column, time)) is None:
                errors.append(f"{where}: unexplained")
            else:
                counts[why] += 1
    return counts, errors
