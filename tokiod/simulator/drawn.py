"""Numbers of a site that are the same on every machine: an archive that another machine wrote is compared cell by cell."""

from __future__ import annotations

import math
import zlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tokiod.simulator.site import Site

    Floats = NDArray[np.float64]


def draw(site: Site, stream: str, block: int, *shape: int) -> Floats:
    """Return uniform numbers in [0, 1), a pure function of seed, stream and block."""
    philox = np.random.Philox(key=[site.seed, zlib.crc32(stream.encode())], counter=[0, 0, 0, block])
    return np.random.Generator(philox).random(shape)


def power(base: float | Floats, exponent: float | Floats) -> Floats:
    """Return base ** exponent, element by element.

    numpy computes powers by the processor's vector instructions, whose last bit is another one with AVX-512 than without; the C library's
    pow() has one result. A loop over the elements: a block of an hour has some thousands.
    """
    bases, exponents = np.broadcast_arrays(np.asarray(base, float), np.asarray(exponent, float))
    return np.fromiter(map(math.pow, bases.ravel(), exponents.ravel()), float, bases.size).reshape(bases.shape)
