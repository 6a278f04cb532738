"""A table in memory: what a reduction or a question about a dataset returns, for numpy, with pandas where it is installed."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tokiod.reader.frame import frame_of
from tokiod.reader.span import zone_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """values [rows, columns]; times i8[rows]: UTC epoch seconds of the left edges; columns: names; zone: of frame()."""

    times: NDArray[np.int64]
    columns: tuple[str, ...]
    values: NDArray[Any]
    zone: dt.tzinfo = dt.UTC

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of rows and columns."""
        return self.values.shape

    def __len__(self) -> int:
        return len(self.values)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:  # noqa: FBT001 - of numpy's protocol
        values = self.values if dtype is None else self.values.astype(dtype, copy=False)
        return values.copy() if copy else values

    def column(self, name: str) -> NDArray[Any]:
        """Return the values of a column. Raises ValueError for an unknown one."""
        return self.values[:, self.columns.index(name)]

    def frame(self, timezone: str | dt.tzinfo | None = None) -> Any:
        """Return a pandas.DataFrame with an aware index. Raises NotInstalled without pandas."""
        return frame_of(self.times, self.columns, self.values, self.zone if timezone is None else zone_of(timezone))
