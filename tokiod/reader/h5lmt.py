"""H5LMT, the format of pylmt before TOKIO Time Series, read as pytokio's Hdf5 reads it.

    /FSStepsGroup/FSStepsDataSet        [rows]              epoch seconds; a row holds what happened in the step before it
    /OSTReadGroup/OSTBulkReadDataSet    [OSTs, rows]        bytes/s, named by OSTNames; OSTWriteGroup/OSTBulkWriteDataSet alike
    /OSSCPUGroup/OSSCPUDataSet          [OSSs, rows]        %, named by OSSNames
    /MDSCPUGroup/MDSCPUDataSet          [rows]              %, of a server without a name
    /MDSOpsGroup/MDSOpsDataSet          [operations, rows]  operations/s, named by OpNames
    /FSMissingGroup/FSMissingDataSet    [servers, rows]     1 where a server was silent

Counts follow from rates as in any file (tokiod.reader.derived). A matrix may have more rows than there are time stamps: they were not
filled. A cell of a silent server is missing, unless it has a number; pytokio gives 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tokiod.tts.schema import MISSING, UNITS

if TYPE_CHECKING:
    from numpy.typing import NDArray

STEPS = "FSStepsGroup/FSStepsDataSet"
_SILENT = "FSMissingGroup/FSMissingDataSet"
_OPERATIONS = "MDSOpsGroup/MDSOpsDataSet"
_NAMES = {
    "datatargets/readrates": ("OSTReadGroup/OSTBulkReadDataSet", "OSTNames"),
    "datatargets/writerates": ("OSTWriteGroup/OSTBulkWriteDataSet", "OSTNames"),
    "dataservers/cpuload": ("OSSCPUGroup/OSSCPUDataSet", "OSSNames"),
}
_LOAD = "mdservers/cpuload", "MDSCPUGroup/MDSCPUDataSet"
ROWS_AT_ONCE = 4096
UNNAMED = "_unknown"
"""pytokio's name of the metadata server."""


@dataclass(frozen=True, slots=True, eq=False)
class H5lmtMatrix:
    """A matrix as a dataset of TTS, which it resembles as far as readers need: [rows, columns], -0.0 where missing.

    node: of h5py; operation: its only row that counts, None for all; silent: which cells are, where the file knows it.
    """

    node: Any
    columns: tuple[str, ...]
    rows: int
    units: str
    operation: int | None = None
    silent: Any = None

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.rows, len(self.columns)

    def __getitem__(self, key: tuple[slice, slice]) -> NDArray[np.float64]:
        rows, columns = key[0], slice(self.operation, self.operation + 1) if self.operation is not None else key[1]
        cells: NDArray[np.float64] = self.node[rows][:, np.newaxis] if self.node.ndim == 1 else self.node[columns, rows].T
        cells = cells.astype(np.float64) + 0.0  # a negative zero was measured, too
        if self.silent is not None:
            cells[(self.silent[columns, rows].T != 0) & (cells == 0)] = MISSING
        return cells


def matrices(file: Any) -> dict[str, H5lmtMatrix]:
    """Return the matrices of an H5LMT file of h5py by their names in TTS, none of any other file. Raises what h5py does, and ValueError."""
    if STEPS not in file:
        return {}
    rows, silent, found = len(file[STEPS]), file.get(_SILENT), dict[str, H5lmtMatrix]()
    for name, (path, attribute) in _NAMES.items():
        if path in file:
            node = file[path]
            flags = silent if silent is not None and silent.shape == node.shape else None
            found[name] = H5lmtMatrix(node, _text(node.attrs[attribute]), rows, UNITS[name], silent=flags)
    if _LOAD[1] in file:
        found[_LOAD[0]] = H5lmtMatrix(file[_LOAD[1]], (UNNAMED,), rows, UNITS[_LOAD[0]])
    if _OPERATIONS in file:
        node = file[_OPERATIONS]
        for place, operation in enumerate(_text(node.attrs["OpNames"])):
            if (name := f"mdtargets/{operation}rates") in UNITS:
                found[name] = H5lmtMatrix(node, (operation,), rows, UNITS[name], place)
    for name, matrix in found.items():
        _check(name, matrix)
    return found


def _check(name: str, matrix: H5lmtMatrix) -> None:
    """Raise ValueError for a matrix without a number for each time stamp, or with numbers after the last one."""
    height = matrix.node.shape[-1]
    if height < matrix.rows:
        raise ValueError(f"{matrix.node.name} has {height} rows, and there are {matrix.rows} time stamps")
    for first in range(matrix.rows, height, ROWS_AT_ONCE):
        if matrix[first : first + ROWS_AT_ONCE, 0 : len(matrix.columns)].any():
            raise ValueError(f"{matrix.node.name} has numbers of {name} after the last of {matrix.rows} time stamps")


def _text(names: NDArray[np.bytes_]) -> tuple[str, ...]:
    return tuple(name.decode(errors="replace") for name in names.tolist())
