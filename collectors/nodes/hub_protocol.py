"""The messages between the hub and the processes of the daemon's user: a DEALER asks, the hub's ROUTER answers.

They are those of tokiod.crossing.dialogue, which ask for windows of all nodes, and a list of the nodes.
"""

from __future__ import annotations

import msgspec

from tokiod.crossing import dialogue

MAX_ROWS = 120
"""Of one request."""


class List(msgspec.Struct, tag="list", frozen=True):
    """Ask for the nodes."""

    id: int


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


Request = dialogue.Asked | List
Answer = dialogue.Answer | Listed
