"""Frames of pandas, which is imported when one is made: it takes 0.4 s."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokiod.reader.errors import NotInstalled

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Collection, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray


def frame_of(times: NDArray[np.int64], columns: Sequence[str], values: NDArray[Any], zone: dt.tzinfo) -> Any:
    """Return a pandas.DataFrame of values [rows, columns], which it does not copy. times: UTC epoch seconds; zone: of the index."""
    pd = _pandas("array() and reduce() return numpy's arrays")
    return pd.DataFrame(values, index=_index(pd, times, zone, "time"), columns=pd.Index(columns), copy=False)


def table_frame(columns: Mapping[str, NDArray[Any]], times: Collection[str], zone: dt.tzinfo, index: str = "") -> Any:
    """Return a pandas.DataFrame of columns of one length. times: names of those that are UTC epoch seconds; index: one of the columns."""
    pd = _pandas("job_figures() returns numpy's arrays")
    made = {name: _index(pd, values, zone, name) if name in times else values for name, values in columns.items()}
    return pd.DataFrame({name: values for name, values in made.items() if name != index}, index=made.get(index), copy=False)


def _index(pd: Any, times: NDArray[np.int64], zone: dt.tzinfo, name: str) -> Any:
    return pd.DatetimeIndex(times.astype("datetime64[s]").astype("datetime64[ns]"), tz="UTC", name=name).tz_convert(zone)


def _pandas(otherwise: str) -> Any:
    try:
        import pandas as pd  # noqa: PLC0415 - optional
    except ModuleNotFoundError as error:
        raise NotInstalled("a frame", "pandas", otherwise) from error
    return pd
