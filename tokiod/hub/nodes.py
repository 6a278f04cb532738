"""The nodes that have greeted the hub, and which session of each name counts."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from collectors.nodes.hub_protocol import NodeState
from tokiod.hub.messages import Parts
from tokiod.metrics import catalogue

if TYPE_CHECKING:
    from tokiod.hub.messages import Hello, Row
    from tokiod.runtime.log import Repeats

log = structlog.get_logger()

SILENT_SECONDS = 150.0
"""Silence after which a node is no longer expected to answer: agents greet each 90 s at the latest."""
FORGET_SECONDS = 86_400.0
"""Silence after which a name is forgotten: the node was renamed or removed."""
MAX_SUPERSEDED = 8
MAX_LISTS = 64
"""Of metrics, that the nodes of a class declare: one for each kind of node, and one of its jobs."""
MAX_REASONS = 64
"""Of one node, for which it could not read something: an agent has some twenty."""
OTHER = catalogue.HUB_READINGS[-1]
CLOCK, CLASS, VERSION, NAMES, MALFORMED, NO_HELLO, METRICS, UNASKED, SUPERSEDED, SECOND_NAME = catalogue.HUB_REFUSALS
"""Why messages of agents are refused."""
SENTENCES = {
    NAMES: "hub.max_nodes names of its class are known",
    METRICS: f"the nodes of its class declare {MAX_LISTS} other lists of metrics; use one configuration of the agents, or another class",
    SUPERSEDED: "another agent of this name came later",
    SECOND_NAME: "this connection has another name",
}
"""Sent to an agent with the reason why its hello is refused."""


@dataclass(slots=True)
class Node:
    """A name, with the session that counts. Times are of the monotonic clock.

    asked: rows that it was asked for, by their start, and until when it answers; parts: of a row that comes. key: of its agent. refused:
    why it gets no windows. superseded: sessions of the same name that came before this one. dropped: its messages that were refused;
    readings, examples: what its agent could not read, by reason, and one of each.
    """

    name: str
    node_class: str
    session: str
    route: bytes
    address: str
    wire: int
    version: str
    step: int
    since: int
    metrics: tuple[str, ...]
    job_metrics: tuple[str, ...]
    heard: float
    row: int | None = None
    clock: float | None = None
    key: bytes = b""
    refused: str = ""
    asked: dict[int, float] = field(default_factory=dict)
    parts: Parts = field(default_factory=Parts)
    superseded: list[str] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    readings: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def count_readings(self, row: Row) -> None:
        """Count what the agent could not read in a row."""
        for reason, count in row.dropped.items():
            if reason in self.readings or len(self.readings) < MAX_REASONS:
                self.readings[reason] += count
                self.examples[reason] = row.examples.get(reason) or self.examples.get(reason, "")
            word = next((word for word in catalogue.HUB_READINGS if reason.startswith(f"jobs: {word}")), OTHER)
            catalogue.HUB_DROPPED_READINGS.inc(word, by=count)

    def state(self, now: float) -> NodeState:
        """Return it as the hub reports it."""
        silent = round(now - self.heard, 1)
        word = f"refused: {self.refused}" if self.refused else "silent" if silent > SILENT_SECONDS else "connected"
        clock = None if self.clock is None else round(self.clock, 3)
        return NodeState(
            self.name,
            self.node_class,
            word,
            silent,
            self.row,
            clock,
            self.version,
            self.address,
            len(self.superseded),
            dict(self.dropped),
            dict(self.readings),
            dict(self.examples),
        )


class Nodes:
    """All nodes, by name and by route: the connection on which a message comes.

    max_nodes: names of each class. Most nodes of a class declare the same metrics, so there is one tuple for all of them.
    """

    def __init__(self, max_nodes: int, repeats: Repeats) -> None:
        self.max_nodes = max_nodes
        self.by_name: dict[str, Node] = {}
        self._by_route: dict[bytes, Node] = {}
        self._names: Counter[str] = Counter()
        self._lists: defaultdict[str, Counter[tuple[str, ...]]] = defaultdict(Counter)
        self._repeats = repeats

    def at(self, route: bytes) -> Node | None:
        """Return the node of a connection."""
        return self._by_route.get(route)

    def connected(self, now: float) -> list[Node]:
        """Return the nodes that can be asked."""
        return [node for node in self._by_route.values() if not node.refused and now - node.heard < SILENT_SECONDS]

    def greet(self, hello: Hello, node_class: str, wire: int, route: bytes, address: str, now: float) -> Node | str:  # noqa: PLR0913, PLR0917
        """Note a hello; return the node, or why it is refused."""
        known = self.by_name.get(hello.node)
        if (other := self._by_route.get(route)) is not None and other.name != hello.node:
            return SECOND_NAME
        if known is None and self._names[node_class] >= self.max_nodes:
            self.forget(now)
            if self._names[node_class] >= self.max_nodes:
                return NAMES
        # The older of two agents of one name greets again and again: that must not make it the newer one.
        if known is not None and hello.session in known.superseded and now - known.heard < SILENT_SECONDS:
            known.dropped[SUPERSEDED] += 1
            return SUPERSEDED
        node = self._made(hello, node_class, wire, route, address, now)
        self._drop_lists(known)
        if not self._take_lists(node):
            self._take_lists(known)
            return METRICS
        if known is not None:
            self._names[known.node_class] -= 1
            self._by_route.pop(known.route, None)
            if known.session != hello.session:
                self._supersede(known, hello, address, now)
            node.superseded, node.dropped, node.row, node.clock = known.superseded, known.dropped, known.row, known.clock
            node.readings, node.examples = known.readings, known.examples
        self._names[node_class] += 1
        self.by_name[node.name] = self._by_route[route] = node
        return node

    def lost(self, route: bytes) -> None:
        """Note that a connection has ended."""
        self._by_route.pop(route, None)

    def all_lost(self) -> None:
        """Note that all connections have ended."""
        self._by_route.clear()

    def forget(self, now: float) -> None:
        """Forget the names that were silent for FORGET_SECONDS."""
        for node in [node for node in self.by_name.values() if now - node.heard > FORGET_SECONDS]:
            del self.by_name[node.name]
            self._by_route.pop(node.route, None)
            self._names[node.node_class] -= 1
            self._drop_lists(node)

    def _supersede(self, known: Node, hello: Hello, address: str, now: float) -> None:
        if hello.session in known.superseded:
            known.superseded.remove(hello.session)
        known.superseded.append(known.session)
        del known.superseded[:-MAX_SUPERSEDED]
        # After a start of the agent or of the node, the older session is silent; two that live are a mistake of the site.
        if times := self._repeats(("session", known.node_class)):
            log.info(
                "hub.session", node=hello.node, newer=address, older=known.address, session=hello.session,
                silent_for=round(now - known.heard, 1), times=times,
            )  # fmt: skip

    def _made(self, hello: Hello, node_class: str, wire: int, route: bytes, address: str, now: float) -> Node:  # noqa: PLR0913, PLR0917 - of greet()
        metrics, job_metrics = (tuple(name for name, _, _ in of) for of in (hello.metrics, hello.job_metrics))
        return Node(
            hello.node, node_class, hello.session, route, address, wire, hello.tokiod, hello.step, hello.since, metrics, job_metrics, now
        )  # fmt: skip

    def _take_lists(self, node: Node | None) -> bool:
        """Let a node use the lists of its class; return False where it has others than MAX_LISTS."""
        if node is None:
            return True
        used = self._lists[node.node_class]
        if len(used.keys() | {node.metrics, node.job_metrics}) > MAX_LISTS:
            return False
        for of in (node.metrics, node.job_metrics):
            used[of] += 1
        shared = {of: of for of in used if of in {node.metrics, node.job_metrics}}
        node.metrics, node.job_metrics = shared[node.metrics], shared[node.job_metrics]
        return True

    def _drop_lists(self, node: Node | None) -> None:
        if node is None:
            return
        used = self._lists[node.node_class]
        for of in (node.metrics, node.job_metrics):
            used[of] -= 1
            if not used[of]:
                del used[of]
