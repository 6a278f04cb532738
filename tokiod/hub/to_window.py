"""What all nodes sent of a window, as its data."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from collectors.nodes.config import GROUP, STEP_SECONDS
from tokiod.batch import Batch
from tokiod.crossing.parts import check_size
from tokiod.hub.to_rows import JOB_FIELDS, JOB_METRICS, job_rows, key_of
from tokiod.window import SAMPLE_BYTES
from tokiod.window_data import WindowData

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from tokiod.hub.messages import JobRow, Row
    from tokiod.hub.nodes import Node
    from tokiod.window import Window

    Rows = Mapping[int, Mapping[str, tuple[Node, Row]]]
    """By the start of a row, and the name of a node."""


def window_data(source: str, rows: Rows, metrics: Sequence[str], nodes: tuple[str, ...], window: Window) -> WindowData:
    """Return a batch per metric, and the rows of the job table. nodes: the columns. Raises Refusal for more than a window may have."""
    jobs, states = jobs_of(rows, JOB_METRICS, nodes)
    job_bytes = 8 * len(states) + max(map(len, nodes), default=0) + max((len(key_of(job)) for job in jobs), default=0)
    # With all cells, as the configuration warns: the matrix has those that are missing, too.
    check_size(source, len(metrics) * len(rows) * len(nodes) * SAMPLE_BYTES + states.shape[1] * job_bytes)
    found = list(batches(values_of(rows, metrics, nodes), metrics, nodes, window.start))
    return WindowData(found, tables=[job_rows(states, jobs, nodes, window)])


def batches(values: NDArray[np.float64], metrics: Sequence[str], nodes: tuple[str, ...], start: int) -> Iterator[Batch]:
    """Yield a batch per metric with the cells that are there. values: f8[metric, row, node], NaN where a node has none.

    Most metrics have cells of the same nodes: their times and columns are the same arrays, which cross to another process once.
    """
    if not nodes:
        return
    places: dict[bytes, tuple[NDArray[np.int64], NDArray[np.uint32]]] = {}
    for name, rows in zip(metrics, values, strict=True):
        there = ~np.isnan(rows)
        if (key := np.packbits(there).tobytes()) not in places:
            row, column = np.nonzero(there)
            places[key] = start + STEP_SECONDS * row.astype(np.int64), column.astype(np.uint32)
        yield Batch(f"{GROUP}/{name}", "gauge", STEP_SECONDS, nodes, *places[key], rows[there] + 0.0)


def values_of(rows: Rows, metrics: Sequence[str], names: Sequence[str]) -> NDArray[np.float64]:
    """Return the values of all nodes, f8[metric, row, node]."""
    places = {name: place for place, name in enumerate(names)}
    values = np.full((len(metrics), len(rows), len(names)), np.nan)
    for index, of_row in enumerate(rows.values()):
        given = ((node.metrics, places[name], row.values or []) for name, (node, row) in of_row.items())
        for declared, columns, cells in _by_metrics(given):
            for row, name in enumerate(metrics):
                if name in declared:
                    values[row, index, columns] = cells[:, declared.index(name)]
    return values


def jobs_of(rows: Rows, metrics: Sequence[str], names: Sequence[str]) -> tuple[tuple[str, ...], NDArray[np.float64]]:
    """Return the names of all jobs, and their states, f8[JOB_FIELDS + metric, n]."""
    places = {name: place for place, name in enumerate(names)}
    found = [(node, name, job) for of_row in rows.values() for name, (node, row) in of_row.items() for job in row.jobs]
    known = {job: place for place, job in enumerate(sorted({job.job for _, _, job in found}))}
    values = np.full((JOB_FIELDS + len(metrics), len(found)), np.nan)
    if found:
        values[:JOB_FIELDS] = np.array([_fields(places[name], known[job.job], job) for _, name, job in found], np.float64).T
    given = ((node.job_metrics, at, job.values) for at, (node, _, job) in enumerate(found))
    for declared, columns, cells in _by_metrics(given):
        for row, name in enumerate(metrics):
            if name in declared:
                values[JOB_FIELDS + row, columns] = cells[:, declared.index(name)]
    return tuple(known), values


def _fields(node: int, name: int, job: JobRow) -> tuple[float | None, ...]:
    return node, name, job.begin, job.time, job.has_ended


def _by_metrics(
    given: Iterable[tuple[tuple[str, ...], int, Sequence[float | None]]],
) -> list[tuple[tuple[str, ...], NDArray[np.int64], NDArray[np.float64]]]:
    """Return, for each list of declared metrics, the columns and f8[column, metric]: one conversion, in which None becomes NaN."""
    groups: defaultdict[tuple[str, ...], list[tuple[int, Sequence[float | None]]]] = defaultdict(list)
    for declared, column, values in given:
        groups[declared].append((column, values))
    return [
        (declared, np.array([column for column, _ in group]), np.array([of for _, of in group], np.float64).reshape(len(group), -1))
        for declared, group in groups.items()
    ]
