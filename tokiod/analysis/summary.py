"""What was read and written in a span: the questions of pytokio's summarize_tts and summarize_h5lmt, with their keys.

A number that no cell has a value for is None. pytokio counts missing cells as zero in averages, and its ave_tibs are GiB; see
docs/fidelity.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokiod.reader.stitched import Stitched

Number = float | int | None

READ, WRITTEN = "datatargets/readbytes", "datatargets/writebytes"
BINNED = {READ: "ost_read", WRITTEN: "ost_write", "dataservers/cpuload": "oss_cpu", "mdservers/cpuload": "mds_cpu"}
"""The datasets of bins, and the names of their keys."""
_UNITS = {"bytes": 1, "kibs": 2**10, "mibs": 2**20, "gibs": 2**30, "tibs": 2**40}


@dataclass(frozen=True, slots=True)
class Total:
    """Bytes of all cells of a span; how many cells of readbytes there are and are missing; its first and last row with a value, or -1."""

    read_bytes: float | None
    write_bytes: float | None
    missing_pts: int
    total_pts: int
    missing_pct: float
    first_nonzero_idx: int
    last_nonzero_idx: int


@dataclass(frozen=True, slots=True)
class Bytes:
    """Bytes of a row or a column; null where no cell has a value or the dataset is not stored."""

    read_bytes: float | None
    write_bytes: float | None


@dataclass(frozen=True, slots=True)
class Sums:
    """The sums of a dataset, in one pass: of each row and each column, None where no cell has a value, and how many cells have one."""

    rows: NDArray[np.float64]
    columns: NDArray[np.float64]
    row_counts: NDArray[np.int64]

    @classmethod
    def of(cls, matrix: Stitched) -> Sums:
        """Read all cells."""
        rows, counts = np.zeros(matrix.rows), np.zeros(matrix.rows, np.int64)
        columns, filled = np.zeros(len(matrix.columns)), np.zeros(len(matrix.columns), np.int64)
        for block in matrix.blocks():
            known = ~np.isnan(block.values)
            cells = np.where(known, block.values, 0.0)
            part = slice(block.first, block.first + len(cells))
            rows[part], counts[part] = cells.sum(axis=1), known.sum(axis=1)
            columns[block.positions] += cells.sum(axis=0)
            filled[block.positions] += known.sum(axis=0)
        return cls(np.where(counts > 0, rows, np.nan), np.where(filled > 0, columns, np.nan), counts)

    @property
    def total(self) -> float | None:
        """The sum of all cells."""
        return number(np.nansum(self.rows)) if self.row_counts.any() else None


def total(read: Stitched, read_sums: Sums, write_sums: Sums | None) -> Total:
    """Summarize a span as summarize_tts does."""
    points, filled = read.rows * len(read.columns), int(read_sums.row_counts.sum())
    stored = np.flatnonzero(read_sums.row_counts)
    return Total(
        read_bytes=read_sums.total,
        write_bytes=None if write_sums is None else write_sums.total,
        missing_pts=points - filled,
        total_pts=points,
        missing_pct=100.0 * (points - filled) / points if points else 0.0,
        first_nonzero_idx=int(stored[0]) if stored.size else -1,
        last_nonzero_idx=int(stored[-1]) if stored.size else -1,
    )


def timesteps(datasets: dict[str, tuple[Stitched, Sums]]) -> dict[str, Bytes]:
    """Return the bytes of all columns by the epoch second of each row."""
    return _joined({name: dict(zip(matrix.times.tolist(), sums.rows, strict=True)) for name, (matrix, sums) in datasets.items()})


def columns(datasets: dict[str, tuple[Stitched, Sums]]) -> dict[str, Bytes]:
    """Return the bytes of all rows by column."""
    return _joined({name: dict(zip(matrix.columns, sums.columns, strict=True)) for name, (matrix, sums) in datasets.items()})


def _joined(found: dict[str, dict[Any, float]]) -> dict[str, Bytes]:
    read, written = (found.get(name, {}) for name in (READ, WRITTEN))
    return {str(key): Bytes(number(read.get(key)), number(written.get(key))) for key in {**read, **written}}


# The group of the CPU load may have another step than that of the bytes: a bin is a range of time, not of rows.
def bins(matrices: dict[str, Stitched], count: int) -> dict[str, dict[str, Number]]:
    """Divide the rows into `count` bins and summarize each as summarize_h5lmt does, by its epoch second; the last one may be shorter.

    matrices: of BINNED, of one span. The rows of the first one are divided; a row of another one is in the bin in which it begins.
    """
    result: dict[str, dict[str, Number]] = {}
    leading = next(iter(matrices.values()))
    firsts = [*range(0, leading.rows, -(-leading.rows // count)), leading.rows]
    inner = leading.times[firsts[1:-1]]
    rows = {dataset: [0, *np.searchsorted(matrix.times, inner).tolist(), matrix.rows] for dataset, matrix in matrices.items()}
    for i, (first, last) in enumerate(pairwise(firsts)):
        start, end = int(leading.times[first]), int(leading.times[last - 1])
        result[str(start)] = {"index0": first, "indexf": last, "tstart": start, "tend": end}
        for dataset, matrix in matrices.items():
            result[str(start)] |= _bin(matrix.read(*rows[dataset][i : i + 2]), BINNED[dataset])
    return result


def _bin(cells: NDArray[np.float64], key: str) -> dict[str, Number]:
    known = cells[~np.isnan(cells)]
    figures = {"max": known.max(), "min": known.min(), "sum": known.sum(), "ave": known.mean()} if known.size else {}
    found = {f"{how}_{key}": number(figures.get(how)) for how in ("max", "min", "sum", "ave")}
    if key.startswith("ost"):
        found |= {f"{name}_{unit}": _divided(value, size) for name, value in list(found.items()) for unit, size in _UNITS.items()}
    absent = cells.size - known.size
    return {**found, f"missing_{key}": absent, f"num_{key}": cells.size, f"frac_missing_{key}": absent / cells.size if cells.size else 1.0}


def summary(found: dict[str, dict[str, Number]]) -> dict[str, Number]:
    """Summarize bins as summarize_h5lmt does. Averages are of the cells that have a value."""
    every = list(found.values())
    rows = sum(int(one["indexf"] or 0) - int(one["index0"] or 0) for one in every)
    result: dict[str, Number] = {"n": rows}
    for key, direction in (("ost_read", "read"), ("ost_write", "write")):
        whole = _added([one.get(f"sum_{key}") for one in every])
        result |= {f"sum_{unit}_{direction}": _divided(whole, size) for unit, size in _UNITS.items()}
        result |= {f"ave_{unit}_{direction}_per_dt": _divided(whole, rows * _UNITS[unit]) for unit in ("bytes", "gibs", "tibs")}
    for server in ("oss", "mds"):
        key = f"{server}_cpu"
        sums = _added([one.get(f"sum_{key}") for one in every])
        known = sum((one.get(f"num_{key}") or 0) - (one.get(f"missing_{key}") or 0) for one in every)
        result[f"{server}_ave"] = _divided(sums, known)
        result[f"{server}_max"] = max((one[f"max_{key}"] for one in every if one.get(f"max_{key}") is not None), default=None)  # type: ignore[type-var]  # no None
    for key in BINNED.values():
        absent, points = (sum(one.get(f"{name}_{key}") or 0 for one in every) for name in ("missing", "num"))
        result |= {f"missing_{key}": absent, f"num_{key}": points, f"frac_missing_{key}": absent / points if points else 1.0}
    return result


def number(value: Any) -> float | None:
    """Return a number for JSON: None for NaN."""
    return None if value is None or np.isnan(value) else float(value)


def _divided(value: Number, by: float) -> Number:
    return None if value is None or not by else value / by


def _added(values: list[Number]) -> Number:
    known = [value for value in values if value is not None]
    return float(np.sum(known)) if known else None
