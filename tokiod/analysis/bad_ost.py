"""Which OSTs slow files down: how each file's rate goes with its use of each OST, over Darshan logs. This is pytokio's darshan_bad_ost.

A file's rate is its bytes by POSIX over the time of the slowest rank; its use of an OST is the share of its stripes there.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from tokiod.reader.errors import NotInstalled

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tokiod.analysis.darshan_log import DarshanLog

API = "posix"


class Correlation(msgspec.Struct, frozen=True):
    """How the rate of files goes with their use of an OST: -1 the more of it the slower, 1 the faster.

    p-value: the probability of such a coefficient by chance.
    """

    ost_name: str
    coefficient: float
    p_value: float = msgspec.field(name="p-value")


class StripedFile(msgspec.Struct, frozen=True):
    """A file: bytes per second, and its OSTs."""

    rate: float
    osts: list[int]


def striped_files(logs: Iterable[DarshanLog]) -> list[StripedFile]:
    """Return the files of logs of which Darshan has both the transfers and the OSTs; the same path in two logs is two files."""
    return [
        StripedFile((one.read_bytes + one.written_bytes) / one.seconds, log.osts[one.name])
        for log in logs
        for one in log.files
        if one.api == API and one.seconds > 0 and log.osts.get(one.name)
    ]


def correlations(files: list[StripedFile]) -> list[Correlation]:
    """Return the correlation of each OST, the lowest coefficient first.

    OSTs that all files use alike have none; if all rates are equal, or there are fewer than two files, there is none at all.
    Raises NotInstalled without scipy.
    """
    if find_spec("scipy") is None:
        raise NotInstalled("a correlation", "scipy", "there is no probability", "pip install '.[darshan]' in a checkout of tokiod")
    from scipy.stats import pearsonr  # noqa: PLC0415 - an extra, and slow to import

    rates = np.array([one.rate for one in files])
    if len(np.unique(rates)) < 2:  # noqa: PLR2004 - no variance, no correlation
        return []
    found = []
    for ost in sorted({ost for one in files for ost in one.osts}):
        shares = np.array([1 / len(one.osts) if ost in one.osts else 0.0 for one in files])
        if len(np.unique(shares)) > 1:
            coefficient, probability = pearsonr(rates, shares)
            found.append(Correlation(f"OST#{ost}", float(coefficient), float(probability)))
    return sorted(found, key=lambda one: one.coefficient)
