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
            found |= _load(matrix[...], key)
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
    zeros, known = int(np.count_nonzero(cells == 0)), _zeroed(cells)
    rates = cells.sum(axis=1)[known.any(axis=1)] / step
    whole = float(cells.sum()) if rates.size else None
    found: dict[str, Number] = {f"fs_tot_bytes_{key}": whole, f"fs_tot_gibs_{key}": None if whole is None else whole / GIB}
    for how, value in _figures(rates).items():
        found[f"fs_{how}_bytes_{key}_per_sec"] = value
        found[f"fs_{how}_gibs_{key}_per_sec"] = None if value is None else value / GIB
    return {**found, f"fs_frac_zero_{key}": zeros / cells.size if cells.size else None}


def _load(cells: Cells, key: str) -> dict[str, Number]:
    highest = number(np.fmax.reduce(cells, axis=None)) if cells.size else None
    known = _zeroed(cells)
    found: dict[str, Number] = {f"fs_ave_{key}_cpu": _mean_of_columns(known, cells), f"fs_max_{key}_cpu": highest}
    if key == "oss":
        found["fs_frac_missing"] = (cells.size - int(np.count_nonzero(known))) / cells.size if cells.size else None
    return found


def _operations(cells: Cells, step: int, operation: str) -> dict[str, Number]:
    known = _zeroed(cells)
    of_each = _figures(cells[known] / step) | {"ave": _mean_of_columns(known, cells / step)}
    of_all = _figures(cells.sum(axis=1)[known.any(axis=1)] / step)
    found: dict[str, Number] = {f"fs_tot_{operation}_ops": float(cells.sum()) if known.any() else None}
    found |= {f"fs_{how}_{operation}_ops_per_sec": value for how, value in of_each.items()}
    return found | {f"fs_sys_{how}_{operation}_ops_per_sec": value for how, value in of_all.items()}


def _zeroed(cells: Cells) -> NDArray[np.bool_]:
    """Set the missing cells to 0, in place, and return which are known."""
    missing = np.isnan(cells)
    np.copyto(cells, 0.0, where=missing)
    return np.logical_not(missing, out=missing)


def _figures(rates: Cells) -> dict[str, Number]:
    """Return the mean, the most and the least of rates, none of which is missing."""
    if not rates.size:
        return dict.fromkeys(("ave", "max", "min"))
    return {"ave": float(rates.mean()), "max": float(rates.max()), "min": float(rates.min())}


def _mean_of_columns(known: NDArray[np.bool_], cells: Cells) -> Number:
    """Return the mean of the means of the columns, as pytokio does. cells: 0 where one is not known."""
    counts = np.add.reduce(known, axis=0, dtype=np.int32)  # a third of the time of known.sum()
    some = counts > 0
    return float((cells.sum(axis=0)[some] / counts[some]).mean()) if some.any() else None
