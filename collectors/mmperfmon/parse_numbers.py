"""Right-aligned decimal numbers in a text of many lines, thousands at once.

Eight characters are one integer of 64 bits, and a few operations on it do the same to all of them: tell digits from blanks, remove a point,
and add up the digits in pairs. A number of less than 2**53 over a power of ten is the float that float() reads of the same text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from collectors.mmperfmon.parse_legend import UNITS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words = NDArray[np.uint64]
    Flags = NDArray[np.bool_]
    Places = NDArray[np.int64]

WORD = 8
"""Characters of a word."""
PADDING = 64
"""Bytes before and behind a text, so that a word begins anywhere."""
MAX_EXACT = np.uint64(2**53)
BLANK, POINT, LAST_OF_NULL, LAST_OF_UNIT = b" .lB"
EVERY = np.uint64(0x0101010101010101)
BLANKS, POINTS, SIXES = EVERY * np.uint64(BLANK), EVERY * np.uint64(POINT), EVERY * np.uint64(6)
HIGH, LOW_BITS, ALL = EVERY * np.uint64(0xF0), EVERY * np.uint64(0x7F), ~np.uint64(0)
NULL, NULL_BYTES = np.uint64(int.from_bytes(b"null")), np.uint64(0xFFFFFFFF)
ZERO = np.uint64(int.from_bytes(b"   0"))
ONE, FOUR, SEVEN, EIGHT, FIFTY_SIX, BYTE = (np.uint64(number) for number in (1, 4, 7, 8, 56, 255))
MASKS = np.array([(1 << WORD * kept) - 1 for kept in range(WORD + 1)], np.uint64)
"""By the number of characters: the bits of the last ones of a word."""
STEPS = tuple(
    (np.uint64(mask), np.uint64(shift), np.uint64(factor))
    for mask, shift, factor in ((0x00FF00FF00FF00FF, 8, 10), (0x0000FFFF0000FFFF, 16, 100), (0x00000000FFFFFFFF, 32, 10_000))
)
"""Digits to numbers of two digits, these to numbers of four, and of eight."""

SCALES = np.full(256, np.nan)
UNIT_BYTES = np.zeros(256, np.int64)
"""By the byte before the B of a unit: its factor, and how many characters follow the number, the blank before it included."""
for _unit, _scale in UNITS.items():
    SCALES[_unit.rjust(2)[0]], UNIT_BYTES[_unit.rjust(2)[0]] = _scale, 1 + len(_unit)


class Numbers(NamedTuple):
    """Numbers, NaN for null, and which of them are well-formed; the others mean nothing. Both are [columns, lines]."""

    value: NDArray[np.float64]
    is_valid: Flags


def right_aligned(memory: NDArray[np.uint8], lines: Places, starts: Places, ends: Places) -> Numbers:
    """Parse the numbers of some lines, with a unit or without: blanks, digits with at most one point among them, or null.

    lines: where they begin in memory; starts, ends: where columns do, from the beginning of a line. Each is preceded by a blank.
    """
    at, room = ends[:, np.newaxis] + lines, (ends - starts)[:, np.newaxis]
    ending, is_valid, scale = memory[at - 1], True, None
    has_unit = ending == LAST_OF_UNIT
    if has_unit.any():
        prefix = memory[at - 2]
        size = np.where(has_unit, UNIT_BYTES[prefix], 0)
        # The character before the number's last is the blank of its unit, or belongs to the number.
        is_valid = ~has_unit | ((size > 0) & (memory[at - np.maximum(size, 1)] == BLANK))
        at, room, scale = at - size, room - size, np.where(has_unit, SCALES[prefix], 1.0)
    low, is_null = _word(memory, at, room), None
    if (ending == LAST_OF_NULL).any():
        is_null = low & NULL_BYTES == NULL
        low[is_null] = low[is_null] & ~NULL_BYTES | ZERO
    high = _word(memory, at - WORD, room - WORD) if room.max() > WORD else None
    if room.max() > 2 * WORD and not _begin_blank(memory, starts[:, np.newaxis] + lines, room):
        for more in range(2 * WORD, int(room.max()), WORD):
            is_valid = is_valid & (_word(memory, at - more, room - more) == BLANKS)
    value, is_number = _decimal(low, high)
    if scale is not None:
        value *= scale
    if is_null is not None:
        value[is_null] = np.nan
    return Numbers(value, is_number & is_valid)


def _begin_blank(memory: NDArray[np.uint8], begin: Places, room: Places) -> bool:
    """Return whether all columns are known to have blanks before their last sixteen characters: those from the beginning on."""
    return room.min() >= WORD and room.max() <= 3 * WORD and bool((_view(memory)[begin] == BLANKS).all())


def _word(memory: NDArray[np.uint8], at: Places, room: Places) -> Words:
    """Return the eight characters before each place, the last one in the lowest bits; blanks where there is no room for so many."""
    word = _view(memory)[at - WORD].byteswap(inplace=True)
    if room.min() < WORD:
        mask = MASKS[np.clip(room, 0, WORD)]
        word &= mask
        word |= BLANKS & ~mask
    return word


def _view(memory: NDArray[np.uint8]) -> Words:
    """Return the eight characters from each place on, the first one in the lowest bits."""
    return np.ndarray((len(memory) - WORD + 1,), "<u8", memory, strides=(1,)).view(np.uint64)


def _decimal(low: Words, high: Words | None) -> tuple[NDArray[np.float64], Flags]:
    """Return numbers of up to sixteen characters, and which are well-formed. high: those before the last eight, None if all are blank."""
    if high is not None and (high == BLANKS).all():
        high = None
    point = _points(low)
    has_point = point.any()
    if has_point:
        # The digits behind the point stay, those before it move by one. Without a point all stay.
        behind = point - ONE
        low = ((low >> EIGHT | (BLANKS if high is None else high) << FIFTY_SIX) & ~behind) | (low & behind)
        if high is not None:
            high = np.where(point == 0, high, high >> EIGHT | np.uint64(BLANK) << FIFTY_SIX)
    number, digits, is_valid = _integer(low)
    if high is not None:
        more, more_digits, is_valid_too = _integer(high)
        number = more * np.uint64(10**WORD) + number
        is_valid = is_valid & is_valid_too & ((more_digits == 0) | (digits == ALL)) & (number < MAX_EXACT)
    is_valid &= digits != 0
    value = number.astype(np.float64)
    if has_point:
        # One point, not the last character, and a digit before it.
        is_valid &= (point & behind == 0) & (point != ONE) & (digits & point == point)
        _divide(value, point)
    return value, is_valid


def _points(word: Words) -> Words:
    """Return the lowest bit of each byte that is a point."""
    other = word ^ POINTS
    return ~(((other & LOW_BITS) + LOW_BITS) | other | LOW_BITS) >> SEVEN


def _integer(word: Words) -> tuple[Words, Words, Flags]:
    """Return a word's number, the bytes of its digits, all bits set, and whether only blanks are before them."""
    digit = word >> FOUR & EVERY
    digits = digit * BYTE
    is_valid = digits & (digits + ONE) == 0
    # What is left of a blank is 0, of a digit its number, and of anything else more than that.
    left = word ^ BLANKS ^ digit << FOUR
    is_valid &= ((left + SIXES | left) & HIGH | left & ~digits) == 0
    for mask, shift, factor in STEPS:
        left = (left & mask) + (left >> shift & mask) * factor
    return left, digits, is_valid


def _divide(value: NDArray[np.float64], point: Words) -> None:
    """Divide by the power of ten that the place of the point means."""
    if (point == point.flat[0]).all():
        value /= 10.0 ** ((int(point.flat[0]).bit_length() - 1) // WORD)
        return
    for decimals in range(1, WORD):
        has_so_many = point == ONE << np.uint64(WORD * decimals)
        if has_so_many.any():
            value[has_so_many] /= 10.0**decimals
