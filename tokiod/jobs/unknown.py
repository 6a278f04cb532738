"""Counts of the job table that a node did not report: UNKNOWN in the table, no part of a sum, and NaN or null for users.

A sum that no real job can have is unknown too, before it can overflow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokiod.increases import MOST
from tokiod.job_columns import UNKNOWN

if TYPE_CHECKING:
    from numpy.typing import NDArray


def sums_at(place: NDArray[np.int64], values: NDArray[Any], n: int) -> NDArray[Any]:
    """Return the sum of what is known at each of n places; UNKNOWN where nothing is, or the sum is above 2^62. place: i8[values]."""
    found: NDArray[Any] = np.zeros(n, values.dtype)
    if not (known := values >= 0).all():
        place, values = place[known], values[known]
        found[np.bincount(place, minlength=n) == 0] = UNKNOWN
    np.add.at(found, place, values)
    if _may_overflow(values, len(values)):
        found[np.bincount(place, values, n) > MOST] = UNKNOWN
    return found


def sums_from(firsts: NDArray[np.int64], values: NDArray[Any], weights: NDArray[np.float64] | None) -> NDArray[Any]:
    """Return the sum of what is known from each of `firsts` to before the next; UNKNOWN as in sums_at(). weights: of the values."""
    weighted = values if weights is None else values * weights
    if is_partly := not (known := values >= 0).all():
        weighted = np.where(known, weighted, 0)
    found: NDArray[Any] = np.add.reduceat(weighted, firsts)
    if is_partly:
        found[~np.logical_or.reduceat(known, firsts)] = UNKNOWN
    if _may_overflow(weighted, int(np.diff(firsts, append=len(values)).max(initial=0))):
        found[np.add.reduceat(weighted.astype(np.float64), firsts) > MOST] = UNKNOWN
    return found


def sum_of(values: NDArray[Any]) -> int | None:
    """Return the sum of what is known, None where nothing is, or it is above 2^62."""
    (found,) = sums_at(np.zeros(len(values), np.int64), values, 1).tolist()
    return int(found) if found >= 0 and (values >= 0).any() else None


def _may_overflow(values: NDArray[Any], n: int) -> bool:
    """Return whether a sum of n values may be above 2^62."""
    return bool(len(values)) and int(values.max()) > MOST // n


def with_nan(values: NDArray[Any]) -> NDArray[Any]:
    """Return values with NaN for those that are unknown: f8 if there are any, else as they are."""
    is_unknown = values < 0
    return np.where(is_unknown, np.nan, values) if is_unknown.any() else values
