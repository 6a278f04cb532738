"""The file system during a job: pytokio's summarize_job, with its keys, in milliseconds.

Rates of bytes are those of the sum over all OSTs, per row. Operations of pytokio are those of each MDT: `fs_ave_open_ops_per_sec` is the
mean
over MDTs. The keys `fs_sys_*` hold those of all MDTs together. Rows in which no OST has a value are left out; pytokio counts them as zero.
A job during which the step of a file changed has the rows of the longest step that divides both: figures are those of equal times.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tokiod.analysis.summary import READ, WRITTEN, Number, number
from tokiod.reader.errors import NoData, NoSuchDataset
from tokiod.tts.schema import UNITS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from tokiod.reader.archive import Archive
    from tokiod.reader.stitched import Stitched

    Cells = NDArray[np.float64]
    Matrix: TypeAlias = "Stitched | _Even"

OPERATIONS = ("open", "close", "mknod", "link", "unlink", "mkdir", "rmdir", "rename", "getxattr", "statfs", "setattr", "getattr")
_OF_OPERATIONS = {operation: f"mdtargets/{operation}s" for operation in OPERATIONS}
_SERVERS = {"dataservers": "oss", "mdservers": "mds"}
GIB = 2**30
MAX_CELLS = 2**20
"""Of datasets that are computed at once."""


def summarize_job(archive: Archive) -> dict[str, Number]:
    """Return the keys `fs_*` of a span of a system. Datasets that are not stored, or have no row in the span, have no keys.

    Raises NoData if none of them has a row, NotTts.
    """
    found, known = dict[str, "Number"](), _known(archive)
    for dataset, key in ((READ, "read"), (WRITTEN, "written")):
        if matrix := known.get(dataset):
            found |= _transfer(matrix[...], matrix.step, key)
    for server, key in _SERVERS.items():
        if matrix := known.get(f"{server}/cpuload"):
            found |= _load(matrix[...], key)
    matrices = {operation: known[dataset] for operation, dataset in _OF_OPERATIONS.items() if dataset in known}
    for step, alike in _alike(matrices):
        found |= _operations(np.stack([matrices[operation][...] for operation in alike]), step, alike)
    return found


def _alike(matrices: dict[str, Matrix]) -> Iterator[tuple[int, list[str]]]:
    """Yield a step, and the names of matrices of it and of one shape, few enough that their cells fit into MAX_CELLS: at least one."""
    groups: dict[tuple[int, int, int], list[str]] = {}
    for name, matrix in matrices.items():
        groups.setdefault((matrix.rows, len(matrix.columns), matrix.step), []).append(name)
    for (rows, columns, step), names in groups.items():
        many = max(1, MAX_CELLS // max(1, rows * columns))
        yield from ((step, names[first : first + many]) for first in range(0, len(names), many))


# The groups of a file may have different steps: a job of 40 s has rows of 5 s, and perhaps none of 60 s.
def _known(archive: Archive) -> dict[str, Matrix]:
    """Return the datasets that are stored and have rows in the span. Raises NoData if all that are stored have none."""
    stored = frozenset(archive.datasets())
    found, empty = dict[str, "Matrix"](), list[NoData]()
    for dataset in stored.intersection((READ, WRITTEN, *(f"{server}/cpuload" for server in _SERVERS), *_OF_OPERATIONS.values())):
        try:
            found[dataset] = _matrix(archive, dataset)
        except NoSuchDataset:  # only files of the days around have it
            continue
        except NoData as error:
            empty.append(error)
    if empty and not found:
        raise empty[0]
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Even:
    """Cells f8[rows, columns] that were read, in rows of `step` seconds."""

    cells: Cells
    columns: tuple[str, ...]
    step: int

    @property
    def rows(self) -> int:
        return len(self.cells)

    def __getitem__(self, key: Any) -> Cells:
        cells: Cells = self.cells[key]
        return cells


def _matrix(archive: Archive, dataset: str) -> Matrix:
    """Return a dataset; rows of several steps are cut into even ones, and what they count with them. Raises as Archive.array()."""
    parts = [part.array(dataset) for part in archive.by_step(dataset)]
    if len(parts) == 1:
        return parts[0]
    step, columns = gcd(*(part.step for part in parts)), tuple(dict.fromkeys(name for part in parts for name in part.columns))
    cells = np.full((sum(part.rows * part.step // step for part in parts), len(columns)), np.nan)
    first, place = 0, {name: i for i, name in enumerate(columns)}
    for part in parts:
        times = part.step // step
        rows = np.repeat(part[...] / (1 if UNITS[dataset] == "%" else times), times, axis=0)
        cells[first : first + len(rows), [place[name] for name in part.columns]] = rows
        first += len(rows)
    return _Even(cells, columns, step)


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
    average = float(_means_of_columns(known, cells)) if known.any() else None
    found: dict[str, Number] = {f"fs_ave_{key}_cpu": average, f"fs_max_{key}_cpu": highest}
    if key == "oss":
        found["fs_frac_missing"] = (cells.size - int(np.count_nonzero(known))) / cells.size if cells.size else None
    return found


def _operations(cells: Cells, step: int, operations: Sequence[str]) -> dict[str, Number]:
    """Return the keys of operations, all of them computed at once: a call of numpy takes longer than the cells of an hour.

    cells: f8[operations, rows, MDTs], which are changed.
    """
    known = _zeroed(cells)
    is_row: NDArray[np.bool_] = np.logical_or.reduce(known, axis=2)
    rows: Cells = cells.sum(axis=2)
    totals: Cells = rows.sum(axis=1)
    counts = np.count_nonzero(is_row, axis=1)
    of_each = {"ave": _means_of_columns(known, cells), **_extremes(known, cells, (1, 2))}
    of_all = {"ave": totals / np.maximum(counts, 1), **_extremes(is_row, rows, 1)}
    found = dict[str, "Number"]()
    for i, operation in enumerate(operations):
        keys = {f"fs_tot_{operation}_ops": float(totals[i])}
        keys |= {f"fs_{how}_{operation}_ops_per_sec": float(values[i]) / step for how, values in of_each.items()}
        keys |= {f"fs_sys_{how}_{operation}_ops_per_sec": float(values[i]) / step for how, values in of_all.items()}
        found |= keys if counts[i] else dict.fromkeys(keys)
    return found


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


def _extremes(known: NDArray[np.bool_], cells: Cells, axis: int | tuple[int, int]) -> dict[str, Cells]:
    """Return the most and the least of the known cells over axes; the infinities where none is."""
    return {
        "max": np.where(known, cells, -np.inf).max(axis=axis, initial=-np.inf),
        "min": np.where(known, cells, np.inf).min(axis=axis, initial=np.inf),
    }


def _means_of_columns(known: NDArray[np.bool_], cells: Cells) -> Cells:
    """Return the mean of the means of the columns of cells [..., rows, columns], as pytokio does; 0 where no cell is known.

    cells: 0 where one is not known.
    """
    counts = np.add.reduce(known, axis=-2, dtype=np.int32)  # a third of the time of known.sum()
    sums: Cells = (cells.sum(axis=-2) / np.maximum(counts, 1)).sum(axis=-1)
    means: Cells = sums / np.maximum(np.count_nonzero(counts, axis=-1), 1)
    return means
