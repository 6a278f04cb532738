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

if TYPE_CHECKING:
    from collections.abc import Iterable

BYTES = {"read_bytes.sum": "read_bytes", "write_bytes.sum": "write_bytes"}
"""Columns of servers that are bytes."""
_NAMES = {**BYTES, "read_bytes.samples": "reads", "write_bytes.samples": "writes"}
_OWN = {name: column for column, name in _NAMES.items()}
STATE = ".max"
NODES_SUFFIX = ".nodes"
"""Of a system of compute nodes: they have files of their own."""

CPU = "cpu.sum"
MEMORY = "mem_bytes.max"
DISK_READ, DISK_WRITTEN = "disk_read.bytes", "disk_written.bytes"
OF_NODES = {
    "job_cpu": CPU, "job_cpu_user": "cpu_user.sum", "job_cpu_system": "cpu_system.sum", "job_cpu_throttled": "cpu_throttled.sum",
    "job_mem": MEMORY, "job_mem_peak": "mem_peak_bytes.max", "job_mem_anon": "mem_anon_bytes.max", "job_mem_cache": "mem_cache_bytes.max",
    "job_page_faults": "page_faults.samples", "job_major_page_faults": "major_page_faults.samples", "job_oom_kills": "oom_kills.samples",
    "job_disk_read": DISK_READ, "job_disk_written": DISK_WRITTEN, "job_disk_reads": "disk_reads.samples",
    "job_disk_writes": "disk_writes.samples", "job_processes": "processes.max", "job_cpu_stalled": "cpu_stalled.sum",
    "job_memory_stalled": "memory_stalled.sum", "job_io_stalled": "io_stalled.sum",
    "job_perf_cycles": "perf_cycles.samples", "job_perf_instructions": "perf_instructions.samples",
    "job_perf_cache_references": "perf_cache_references.samples", "job_perf_cache_misses": "perf_cache_misses.samples",
    "job_perf_branches": "perf_branches.samples", "job_perf_branch_misses": "perf_branch_misses.samples",
    "job_perf_ref_cycles": "perf_ref_cycles.samples", "job_perf_task_clock": "perf_task_clock.sum",
    "job_perf_page_faults": "perf_page_faults.samples", "job_perf_context_switches": "perf_context_switches.samples",
    "job_perf_cpu_migrations": "perf_cpu_migrations.samples",
}  # fmt: skip
"""The columns of a table of compute nodes, by the metrics of tokiod.agent.sensors.jobs, as a test compares."""
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
