"""xarray: lazy DataArrays, and `xarray.open_dataset(path, engine="tts", group="datatargets")`.

Cells stay f8 with NaN where missing. They are never decoded by xarray: CF's `_FillValue` compares -0.0 and +0.0 as equal. A Dataset holds
one group, because the steps of groups differ. Times are UTC, as xarray has no time zones.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from tokiod.reader.errors import NoSuchDataset, NotInstalled
from tokiod.reader.part import OpenParts
from tokiod.reader.stitched import Stitched, stitch
from tokiod.tts.schema import COMPONENTS

try:
    import xarray as xr
    from xarray.backends import BackendArray, BackendEntrypoint
    from xarray.core import indexing
except ModuleNotFoundError as error:
    raise NotInstalled("a DataArray", "xarray", "array() returns a lazy array for numpy") from error

if TYPE_CHECKING:
    from collections.abc import Iterable


def data_array(matrix: Stitched, system: str) -> xr.DataArray:
    """Return a matrix as a lazy DataArray with the dimensions time and, for example, datatarget."""
    dimension = _dimension(matrix.dataset)
    present = [one for one in matrix.stretches if one.path is not None]
    share = sum(one.rows for one in present) / max(1, matrix.rows)
    attributes = {"system": system, "units": matrix.units, "step": matrix.step, "files": len(present), "completeness": share}
    coordinates = {"time": _times(matrix), dimension: list(matrix.columns)}
    return xr.DataArray(_variable(matrix, attributes), coords=coordinates, name=matrix.dataset)


class TtsBackend(BackendEntrypoint):
    """The engine `tts` of xarray.open_dataset: one group of one file of a day."""

    description = "TOKIO Time Series (TTS) files of tokiod and pytokio"
    open_dataset_parameters: ClassVar[Any] = ("filename_or_obj", "group", "drop_variables")
    url = "https://github.com/NERSC/pytokio"

    def open_dataset(
        self, filename_or_obj: Any, *, group: str = "datatargets", drop_variables: str | Iterable[str] | None = None
    ) -> xr.Dataset:
        """Open a group of a file; its datasets are lazy. Raises FileNotFoundError, NotTts, NoSuchDataset."""
        path, parts = Path(filename_or_obj), OpenParts()
        part = parts.part(path)
        dropped = {drop_variables} if isinstance(drop_variables, str) else set(drop_variables or ())
        names = [name for name in part.names if name.startswith(f"{group}/") and name.partition("/")[2] not in dropped]
        if not names:
            raise NoSuchDataset(group, {name.partition("/")[0] for name in part.names}, f"{path} has no group")
        span, found = part.span(), {}
        for name in names:
            matrix = stitch([path], name, span, parts)
            variable = _variable(matrix, {"units": matrix.units, "step": matrix.step})
            found[name.partition("/")[2]] = xr.DataArray(variable, coords={"time": _times(matrix), _dimension(name): list(matrix.columns)})
        return xr.Dataset(found, attrs={"group": group})

    def guess_can_open(self, filename_or_obj: Any) -> bool:  # noqa: ARG002 - of the interface
        """Return False: any HDF5 file may have these suffixes, so the engine is named."""
        return False


class _LazyCells(BackendArray):
    """A matrix for xarray's lazy indexing."""

    def __init__(self, matrix: Stitched) -> None:
        self.matrix, self.shape, self.dtype = matrix, matrix.shape, matrix.dtype

    def __getitem__(self, key: Any) -> Any:
        return indexing.explicit_indexing_adapter(key, self.shape, indexing.IndexingSupport.OUTER, self.matrix.__getitem__)


def _variable(matrix: Stitched, attributes: dict[str, Any]) -> xr.Variable:
    cells = indexing.LazilyIndexedArray(_LazyCells(matrix))
    return xr.Variable(("time", _dimension(matrix.dataset)), cells, attributes)


def _dimension(dataset: str) -> str:
    group, name = dataset.split("/")[:2]
    # The columns of fullness are OSTs; those of failover are what the dataset is named after.
    return COMPONENTS.get(name) or COMPONENTS["datatargets" if group == "fullness" else group]


def _times(matrix: Stitched) -> xr.Variable:
    stamps = matrix.times.astype("datetime64[s]").astype("datetime64[ns]")
    return xr.Variable("time", stamps, {"long_name": "left edge of the row, UTC"})
