"""The file system during a job: pytokio's summarize_job, with its keys, in milliseconds.

Rates of bytes are those of the sum over all OSTs, per row. Operations of pytokio are those of each MDT: `fs_ave_open_ops_per_sec` is the
mean
over MDTs. The keys `fs_sys_*` hold those of all MDTs together. Rows in which no OST has a value are left out; pytokio counts them as zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokiod.analysis.summary import Number, number
from tokiod.reader.errors import NoSuchDataset

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokiod.reader.archive import Archive
    from tokiod.reader.stitched import Stitched

    Cells = NDArray[np.float64]

OPERATIONS = ("open", "close", "mknod", "link", "unlink", "mkdir", "rmdir", "rename", "getxattr", "statfs", "setattr", "getattr")
GIB = 2**30


def summarize_job(archive: Archive) -> dict[str, Number]:
    """Return the keys `fs_*` of a span of a system. Datasets that are not stored have no keys. Raises NoData, StepChanged, NotTts."""
    found, stored = dict[str, "Number"](), frozenset(archive.datasets())
    for dataset, key in (("datatargets/readbytes", "read"), ("datatargets/writebytes", "written")):
        if matrix := _array(archive, stored, dataset):
            found |= _transfer(matrix[...], matrix.step, key)
    for server, key in (("dataservers", "oss"), ("mdservers", "mds")):
        if matrix := _array(archive, stored, f"{server}/cpuload"):
            cells = matrix[...]
            found |= {f"fs_ave_{key}_cpu": _mean_of_columns(cells), f"fs_max_{key}_cpu": _extreme(cells, "fmax")}
            if key == "oss":
                found["fs_frac_missing"] = float(np.isnan(cells).mean()) if cells.size else None
    for operation in OPERATIONS:
        if matrix := _array(archive, stored, f"mdtargets/{operation}s"):
            found |= _operations(matrix[...], matrix.step, operation)
    return found


def _array(archive: Archive, stored: frozenset[str], dataset: str) -> Stitched | None:
    if dataset not in stored:
        return None
    try:
        return archive.array(dataset)
    except NoSuchDataset:  # only files of the days around have it
        return None


def _transfer(cells: Cells, step: int, key: str) -> dict[str, Number]:
    missing = np.isnan(cells)
    counts = missing.sum(axis=1)
    zeros = int(np.count_nonzero(cells == 0))
    cells[missing] = 0.0
    rates = np.where(counts < cells.shape[1], cells.sum(axis=1), np.nan) / step
    figures = {"ave": _mean(rates), "max": _extreme(rates, "fmax"), "min": _extreme(rates, "fmin")}
    whole = float(cells.sum()) if counts.sum() < cells.size else None
    found = {f"fs_tot_bytes_{key}": whole, f"fs_tot_gibs_{key}": None if whole is None else whole / GIB}
    for how, value in figures.items():
        found[f"fs_{how}_bytes_{key}_per_sec"] = value
        found[f"fs_{how}_gibs_{key}_per_sec"] = None if value is None else value / GIB
    return {**found, f"fs_frac_zero_{key}": zeros / cells.size if cells.size else None}


def _operations(cells: Cells, step: int, operation: str) -> dict[str, Number]:
    rates, rows = cells / step, _row_sums(cells) / step
    of_each: dict[str, Number] = {"ave": _mean_of_columns(rates), "max": _extreme(rates, "fmax"), "min": _extreme(rates, "fmin")}
    of_all: dict[str, Number] = {"ave": _mean(rows), "max": _extreme(rows, "fmax"), "min": _extreme(rows, "fmin")}
    found = {f"fs_tot_{operation}_ops": _sum(cells)}
    found |= {f"fs_{how}_{operation}_ops_per_sec": value for how, value in of_each.items()}
    return found | {f"fs_sys_{how}_{operation}_ops_per_sec": value for how, value in of_all.items()}


def _sum(cells: Cells) -> Number:
    return None if np.isnan(cells).all() else float(np.nansum(cells))


def _mean(cells: Cells) -> Number:
    known = cells[~np.isnan(cells)]
    return float(known.mean()) if known.size else None


def _extreme(cells: Cells, how: str) -> Number:
    return number(getattr(np, how).reduce(cells, axis=None)) if cells.size else None


def _row_sums(cells: Cells) -> Cells:
    known = ~np.isnan(cells)
    sums: Cells = np.where(known.any(axis=1), np.where(known, cells, 0.0).sum(axis=1), np.nan)
    return sums


def _mean_of_columns(cells: Cells) -> Number:
    """Return the mean of the means of the columns, as pytokio does."""
    known = ~np.isnan(cells)
    counts = known.sum(axis=0)
    filled = counts > 0
    return _mean(np.where(known, cells, 0.0).sum(axis=0)[filled] / counts[filled])
