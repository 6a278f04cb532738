"""The rule of differences for one column, slow and obvious. Tests compare tokiod.tts.counters.deltas with it."""

from __future__ import annotations


def cells(samples: dict[int, int], rows: int, day_before: int | None = None, next_first: int | None = None) -> dict[int, float]:
    """Return the cells of a day that are not missing, by row.

    samples: the counter by row of the day, 0 to rows - 1; day_before: last sample of the day before; next_first: sample in row 0 of the
    next day. The difference of two samples stands in the row before the later one.
    """
    found: dict[int, float] = {}
    base: int | None = None
    last: int | None = None
    trusted = False
    for row in range(rows + 1):
        value = samples.get(row) if row < rows else next_first
        if value is None:
            trusted = False
            continue
        earlier = last if last is not None or row in (0, rows) else day_before
        if value != 0 and base is not None and value >= base:
            found[row - 1] = float(value - base)
        elif earlier is not None and value >= earlier:
            found[row - 1] = float(value - earlier)
        base, trusted = _follow(value, base, trusted)
        last = value
    return found


def _follow(value: int, base: int | None, trusted: bool) -> tuple[int | None, bool]:  # noqa: FBT001 - a state, not an option
    if value == 0:  # failed over, until it is mounted again
        return base, False
    if base is None:
        return value, False
    if value >= base:
        return value, True
    if trusted:  # a possible dip
        return base, False
    return value, False  # a reset
