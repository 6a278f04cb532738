"""Frames of pandas, which is imported when one is made: it takes 0.4 s."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokiod.reader.errors import NotInstalled

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray


def frame_of(times: NDArray[np.int64], columns: Sequence[str], values: NDArray[Any], zone: dt.tzinfo) -> Any:
    """Return a pandas.DataFrame of values [rows, columns], which it does not copy. times: UTC epoch seconds; zone: of the index."""
    try:
        import pandas as pd  # noqa: PLC0415 - optional
    except ModuleNotFoundError as error:
        raise NotInstalled("a frame", "pandas", "array() and reduce() return numpy's arrays") from error
    index = pd.DatetimeIndex(times.astype("datetime64[s]").astype("datetime64[ns]"), tz="UTC", name="time").tz_convert(zone)
    return pd.DataFrame(values, index=index, columns=pd.Index(columns), copy=False)
