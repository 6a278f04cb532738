"""A dataset as a picture: two bytes per cell instead of a double, and why cells are missing.

    answer  = "TKM1" length header levels flags
    length  = u32, little-endian: bytes of the header
    header  = JSON, see Header
    levels  = u8[pixels, columns]    0 no value, 1 zero or less, 2 to 255 the largest value of the pixel, see level_of()
    flags   = u8[pixels, columns]    of the rows that have no value: MISSING, LOST, NOT_DUE, added; 0 if all rows have one

The scale of levels is the same in all answers. So the levels of a pixel are merged from those of its rows by the maximum, in one pass over
the cells, and a page can add columns of pixels to a picture that it has.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from tokiod.reader.stitched import CHUNK_ROWS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from tokiod.reader.stitched import Stitched

    Bytes = NDArray[np.uint8]

MAGIC = b"TKM1"
MISSING, LOST, NOT_DUE = 1, 2, 4
"""Flags of a pixel: rows without a value that can still come or that the source did not have, that are lost, that are not due yet."""
EMPTY_LEVEL, ZERO_LEVEL, FIRST_LEVEL, LAST_LEVEL = 0, 1, 2, 255
LEVELS_PER_OCTAVE, LOWEST_LOG2 = 4, -11
"""Four levels each time a value doubles, from 2^-11 to 2^52: a percent of a core and a petabyte are both on it."""
STRIP_BYTES = 16 << 20
"""Of the cells that are in memory at once."""


class Scale(msgspec.Struct, frozen=True):
    """Level n >= first stands for values from 2^(lowest_log2 + (n - first) / per_octave) on; the first and the last one have no bound."""

    lowest_log2: int = LOWEST_LOG2
    per_octave: int = LEVELS_PER_OCTAVE
    first: int = FIRST_LEVEL


class Reason(msgspec.Struct, frozen=True):
    """Why nothing is stored in [start, end), UTC epoch seconds. state: as in Gap of tokiod.reports.gaps; reason: of the last attempt."""

    start: int
    end: int
    state: str
    reason: str = ""


class Header(msgspec.Struct, frozen=True):
    """What the bytes stand for.

    pixels: how many; start: UTC epoch seconds of the first pixel's left edge; seconds: of a pixel; step: seconds between rows of the file;
    columns: names, in natural order; due: UTC epoch seconds before which the source should have answered; why: spans that are not stored.
    """

    system: str
    dataset: str
    units: str
    pixels: int
    start: int
    seconds: int
    step: int
    columns: tuple[str, ...]
    due: int
    why: tuple[Reason, ...]
    scale: Scale = Scale()
    version: int = 1


def encoded(header: Header, levels: Bytes, flags: Bytes) -> bytes:
    """Return the answer."""
    text = msgspec.json.encode(header)
    return b"".join((MAGIC, struct.pack("<I", len(text)), text, levels.tobytes(), flags.tobytes()))


def pictured(matrix: Stitched, rows_per_pixel: int, why: Bytes) -> tuple[Bytes, Bytes]:
    """Read all cells and return levels and flags u8[pixels, columns]. why: u8[rows], the flag of a row's missing cells."""
    shape = -(-matrix.rows // rows_per_pixel), len(matrix.columns)
    levels, flags = np.zeros(shape, np.uint8), np.zeros(shape, np.uint8)
    for first, last in strips(matrix):
        values = matrix.read(first, last)
        pixels = np.arange(first, last) // rows_per_pixel
        edges = np.flatnonzero(np.diff(pixels, prepend=-1))
        here = slice(int(pixels[0]), int(pixels[-1]) + 1)
        np.maximum(levels[here], level_of(np.fmax.reduceat(values, edges, axis=0)), out=levels[here])
        missing = np.isnan(values)
        if missing.any():
            flags[here] |= np.bitwise_or.reduceat(missing * why[first:last, np.newaxis], edges, axis=0)
    return levels, flags


def level_of(values: NDArray[np.float64]) -> Bytes:
    """Return the level of each value, NaN where there is none."""
    with np.errstate(divide="ignore", invalid="ignore"):
        levels = np.floor((np.log2(values) - LOWEST_LOG2) * LEVELS_PER_OCTAVE) + FIRST_LEVEL
    levels = np.clip(levels, FIRST_LEVEL, LAST_LEVEL)
    levels[values <= 0] = ZERO_LEVEL
    levels[np.isnan(values)] = EMPTY_LEVEL
    result: Bytes = levels.astype(np.uint8)
    return result


def strips(matrix: Stitched) -> Iterator[tuple[int, int]]:
    """Yield ranges of rows [first, last) of one file each, which end with chunks of a sealed one where they begin with its first row."""
    rows = max(1, min(CHUNK_ROWS, STRIP_BYTES // (8 * max(1, len(matrix.columns)))))
    for one in matrix.stretches:
        for first in range(one.first, one.first + one.rows, rows):
            yield first, min(first + rows, one.first + one.rows)
