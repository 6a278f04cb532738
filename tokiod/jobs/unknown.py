"""Counts of the job table that a node did not report: UNKNOWN in the table, no part of a sum, and NaN or null for users."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tokiod.job_columns import UNKNOWN

if TYPE_CHECKING:
    from numpy.typing import NDArray


def sums_at(place: NDArray[np.int64], values: NDArray[Any], n: int) -> NDArray[Any]:
    """Return the sum of what is known at each of n places; UNKNOWN where nothing is. place: i8[values], the place of each."""
    found: NDArray[Any] = np.zeros(n, values.dtype)
    known = values >= 0
    if known.all():
        np.add.at(found, place, values)
        return found
    np.add.at(found, place[known], values[known])
    found[np.bincount(place[known], minlength=n) == 0] = UNKNOWN
    return found


def sums_from(firsts: NDArray[np.int64], values: NDArray[Any], weights: NDArray[np.float64] | None) -> NDArray[Any]:
    """Return the sum of what is known from each of `firsts` to before the next; UNKNOWN where nothing is. weights: of the values."""
    known = values >= 0
    weighted = values if weights is None else values * weights
    if known.all():
        return np.add.reduceat(weighted, firsts)
    found: NDArray[Any] = np.add.reduceat(np.where(known, weighted, 0), firsts)
    found[~np.logical_or.reduceat(known, firsts)] = UNKNOWN
    return found


def sum_of(values: NDArray[Any]) -> int | None:
    """Return the sum of what is known, None where nothing is."""
    known = values[values >= 0]
    return int(known.sum()) if len(known) else None


def with_nan(values: NDArray[Any]) -> NDArray[Any]:
    """Return values with NaN for those that are unknown: f8 if there are any, else as they are."""
    is_unknown = values < 0
    return np.where(is_unknown, np.nan, values) if is_unknown.any() else values
