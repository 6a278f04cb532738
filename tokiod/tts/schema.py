"""Names, units and order of TOKIO Time Series (TTS, version "1"), and the bit pattern of a missing cell.

    /                        version "1", start, end            epoch seconds, end exclusive
    /GROUP                   source
    /GROUP/timestamps        i8[rows]                           left edge of each row; a dimension scale
    /GROUP/COMPONENT         S[columns]                         names of columns as a dimension scale; COMPONENT_2 where they differ
    /GROUP/DATASET           f8[rows, columns]                  columns, units, version, updated; step, missing, dimension scales
    /_tokiod                 form "live 2" or "sealed"; raw_sealed: 0
    /_tokiod/raw/...         i8[rows + 1, columns]   live       counters: the day's rows, the next day's first one
    /_tokiod/span/...        i8[2, columns]                     rows of raw: the day's first nonzero sample, its last sample; -1 without one
    /_tokiod/begin/...       i8[5, columns]          both       state of the rule of differences before the day; max_step: its limit
    /_tokiod/end/...         i8[5, columns]          sealed     state after the day
    /_tokiod/kept/...        i8[3, n]                           kept samples of raw: row, column, value of n samples; proved: of each column

A missing cell holds -0.0, an absent raw value the same 64 bits. A measured zero is +0.0.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from tokiod.tts import node_metrics

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

VERSION = "1"
MISSING = -0.0
ABSENT = -(1 << 63)
NO_ROW = -1

TIMESTAMPS = "timestamps"
COMPONENTS = {
    "datatargets": "datatarget",
    "mdtargets": "mdtarget",
    "dataservers": "dataserver",
    "mdservers": "mdserver",
    "fullness": "target",
    "failover": "target",
    "nodes": "node",
}
"""What the columns of each group's datasets are: the name of their dimension scale."""
GROUPS = tuple(COMPONENTS)

_TRANSFER = {
    "readbytes": "bytes",
    "writebytes": "bytes",
    "readrates": "bytes/sec",
    "writerates": "bytes/sec",
    "readops": "ops",
    "writeops": "ops",
    "readoprates": "ops/sec",
    "writeoprates": "ops/sec",
    **dict.fromkeys(("readwaits", "writewaits", "readqueuewaits", "writequeuewaits"), "sec"),
}
_METADATA = ("open", "close", "mknod", "link", "unlink", "mkdir", "rmdir", "rename", "getxattr", "statfs", "setattr", "getattr")
_SERVER = {
    **dict.fromkeys(("cpuuser", "cpusys", "cpuidle", "cpuload", "cpuiowait"), "%"),
    **dict.fromkeys(("memfree", "memused", "memcached", "membuffered", "memslab", "memslab_unrecl", "memtotal"), "bytes"),
    **dict.fromkeys(("netinbytes", "netoutbytes"), "bytes"),
}
_UNITS_OF_GROUP = {
    "datatargets": _TRANSFER,
    "mdtargets": {**_TRANSFER, **{f"{op}s": "ops" for op in _METADATA}, **{f"{op}rates": "ops/sec" for op in _METADATA}},
    "dataservers": _SERVER,
    "mdservers": _SERVER,
    "fullness": {"bytes": "KiB", "bytestotal": "KiB", "inodes": "inodes", "inodestotal": "inodes"},
    "failover": {"datatargets": "", "mdtargets": "", "dataservers": ""},
    "nodes": node_metrics.COUNTERS | node_metrics.GAUGES,
}
UNITS = {f"{group}/{name}": unit for group, units in _UNITS_OF_GROUP.items() for name, unit in units.items()}
DATASETS = tuple(UNITS)


def units(dataset: str) -> str:
    """Return the standard units of a logical dataset; a kind of source that measures in others declares them.

    Raises ValueError for an unknown dataset.
    """
    if dataset not in UNITS:
        raise ValueError(f"unknown TTS dataset {dataset!r}")
    return UNITS[dataset]


def group_of(dataset: str) -> str:
    """Return the group of a logical dataset: `fullness` of `fullness/bytes`."""
    return dataset.partition("/")[0]


def missing(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return where f8 cells are missing or i8 raw values absent; +0.0 and 0 are measured values."""
    # By name: processes that only read names and units don't import numpy.
    absent: NDArray[np.bool_] = values.view("i8") == ABSENT
    return absent


_NUMBER = re.compile(r"(?:(?<=OST|MDT)([0-9a-fA-F]{4})(?![0-9a-zA-Z])|([0-9]{1,18}))")


# Several datasets sort the same names.
@lru_cache(maxsize=4096)
def natural_key(name: str) -> tuple[tuple[str | int, ...], str]:
    """Return the sort key of a column name: numbers by value, the four hexadecimal digits of an OST or MDT too.

    OST0009 < OST000a < OST0010, bb2 < bb10.
    """
    text, *rest = _NUMBER.split(name)
    key: list[str | int] = [text]
    for hexadecimal, decimal, following in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
        key += [int(hexadecimal, 16) if hexadecimal else int(decimal), following]
    return tuple(key), name
