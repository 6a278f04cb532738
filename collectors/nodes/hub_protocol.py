"""The messages between the hub and the processes of the daemon's user: a DEALER asks, the hub's ROUTER answers.

A request is one frame of JSON, an answer one or more: JSON, and of Collected the values f8[metric, row, node], and the jobs
f8[5 + job metric, n]: the place of the node and of the job among their names, begin, time and whether it ended, then the values. NaN is
missing.
"""

from __future__ import annotations

import msgspec

MAX_ROWS = 120
"""Of one request."""
JOB_FIELDS = 5
"""Of the jobs' frame, before the values."""


class Collect(msgspec.Struct, tag="collect", frozen=True):
    """Ask for the rows of [start, end), of `step` seconds each, of all nodes. seconds: how long the client waits for the answer."""

    id: int
    start: int
    end: int
    step: int
    metrics: tuple[str, ...]
    job_metrics: tuple[str, ...] = ()
    seconds: float = 60.0


class Cancel(msgspec.Struct, tag="cancel", frozen=True):
    """The client doesn't wait for the answer to its request `id` any more. It has no answer."""

    id: int


class Count(msgspec.Struct, tag="count", frozen=True):
    """Ask how many rows of [start, end) nodes have sent, or can send."""

    id: int
    start: int
    end: int
    step: int


class List(msgspec.Struct, tag="list", frozen=True):
    """Ask for the nodes."""

    id: int


class Collected(msgspec.Struct, tag="collected", frozen=True):
    """The rows of all nodes. records: rows that nodes have sent; dropped: rows that are missing, by reason; jobs: SCHEDULER:ID."""

    id: int
    nodes: tuple[str, ...]
    records: int
    dropped: dict[str, int]
    jobs: tuple[str, ...] = ()


class Counted(msgspec.Struct, tag="counted", frozen=True):
    """How many rows nodes have sent, or can send."""

    id: int
    records: int


class NodeState(msgspec.Struct, frozen=True):
    """A node that reported since the hub started.

    state: connected, silent, or refused for a reason. heard: seconds since its last message; row: begin of its last row, epoch seconds;
    clock: seconds that its clock is ahead, None before its first row; others: sessions of the same name that were superseded. dropped:
    messages of it that were refused, by reason; readings: what its agent could not read, by reason, and examples one of each.
    """

    node: str
    node_class: str
    state: str
    heard: float
    row: int | None
    clock: float | None
    version: str
    address: str
    others: int
    dropped: dict[str, int]
    readings: dict[str, int] = {}
    examples: dict[str, str] = {}


class Listed(msgspec.Struct, tag="listed", frozen=True):
    """All nodes, by name."""

    id: int
    nodes: tuple[NodeState, ...]


class Refused(msgspec.Struct, tag="refused", frozen=True):
    """No answer, for a reason. not_yet: the hub waits for the agents to connect."""

    id: int
    reason: str
    not_yet: bool = False


Request = Collect | Count | List | Cancel
Answer = Collected | Counted | Listed | Refused
