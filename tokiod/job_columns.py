"""The columns of the job table that are counts or states, and their names for users.

    NAME.samples   how often it was done                       NAME; of read_bytes and write_bytes: reads, writes
    NAME.sum       what it came to                             NAME_usecs, microseconds; of the two: read_bytes, write_bytes
    NAME.bytes     bytes                                       NAME_bytes
    NAME.max       a state: the largest since the row before   NAME

Servers of Lustre count the first two, agents of compute nodes all four. A row has a count since its begin, and of a state what it was; or
UNKNOWN, where a node did not report it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tokiod.tts.node_metrics import OF_JOBS

if TYPE_CHECKING:
    from collections.abc import Iterable

BYTES = {"read_bytes.sum": "read_bytes", "write_bytes.sum": "write_bytes"}
"""Columns of servers that are bytes."""
_NAMES = {**BYTES, "read_bytes.samples": "reads", "write_bytes.samples": "writes"}
_OWN = {name: column for column, name in _NAMES.items()}
STATE = ".max"
NODES_SUFFIX = ".nodes"
"""Of a system of compute nodes: they have files of their own."""

_ENDS = {
    ("1", "counter"): ".samples", ("s", "counter"): ".sum", ("B", "counter"): ".bytes",
    ("1", "gauge"): STATE, ("B", "gauge"): f"_bytes{STATE}",
}  # fmt: skip
OF_NODES = {metric: metric.removeprefix("job_") + _ENDS[declared] for metric, declared in OF_JOBS.items()}
"""The columns of a table of compute nodes, by the metrics of tokiod.agent.sensors.jobs."""
CPU, MEMORY = OF_NODES["job_cpu"], OF_NODES["job_mem"]
DISK_READ, DISK_WRITTEN = OF_NODES["job_disk_read"], OF_NODES["job_disk_written"]
_NODE_COLUMNS = frozenset(OF_NODES.values())
UNKNOWN = -1
"""In a column of compute nodes: the node did not report this value of the job."""
USECS = 10**6
"""Per second, in which agents measure times."""


def is_state(column: str) -> bool:
    """Return whether a column is a state: of several values the largest counts, not their sum or difference."""
    return column.endswith(STATE)


def falls_alone(column: str) -> bool:
    """Return whether a count begins again without the others: perf events are counted since the agent met the job, or started."""
    return column.startswith("perf_")


def is_of_parts(column: str) -> bool:
    """Return whether a column is a sum over parts that may go away, as devices and processes of a node do."""
    return column in _NODE_COLUMNS


def absent(column: str) -> int:
    """Return what rows have in a column that their file, or another part of the table, has not.

    Of a node the value is unknown; an operation that a server does not list was not done.
    """
    return UNKNOWN if column in _NODE_COLUMNS else 0


def scale_of(column: str) -> int:
    """Return by what a node's value is multiplied for its column."""
    return USECS if column.endswith(".sum") else 1


def is_of_nodes(columns: Iterable[str]) -> bool:
    """Return whether a table with these columns is one of compute nodes."""
    return CPU in columns


def kind_for(system: str) -> str:
    """Return the kind of a source that fills the job table of a system."""
    return "nodes" if system.endswith(NODES_SUFFIX) else "lustre_jobstats"


def figure_of(column: str) -> str:
    """Return the name of a column for users."""
    name, _, part = column.partition(".")
    return _NAMES.get(column) or {"sum": f"{name}_usecs", "bytes": f"{name}_bytes"}.get(part, name)


_OF_NODES = {figure_of(column): column for column in _NODE_COLUMNS}


def column_of(figure: str) -> str:
    """Return the column of the table that has a figure; it may be in no file."""
    if column := _OWN.get(figure) or _OF_NODES.get(figure):
        return column
    return f"{figure.removesuffix('_usecs')}.sum" if figure.endswith("_usecs") else f"{figure}.samples"
