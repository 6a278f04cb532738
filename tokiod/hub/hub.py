"""What is asked of which node, and what is answered to the source of kind `nodes`. No sockets: messages in, messages out."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import structlog

from collectors.nodes.config import GROUP, STEP_SECONDS
from collectors.nodes.hub_protocol import MAX_ROWS, Answer, List, Listed, Request
from tokiod.crossing.codec import MAX_DATASETS
from tokiod.crossing.dialogue import Cancel, Collect, Count, Counted, Data, Failed
from tokiod.crossing.parts import PART_BYTES, encoded
from tokiod.errors import Refusal
from tokiod.hub import messages
from tokiod.hub.messages import Hello, Row
from tokiod.hub.nodes import CLASS, CLOCK, MALFORMED, METRICS, NO_HELLO, SENTENCES, UNASKED, VERSION, Node, Nodes
from tokiod.hub.to_window import window_data
from tokiod.metrics import catalogue
from tokiod.runtime.log import Repeats
from tokiod.times import LATEST
from tokiod.window import Window

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tokiod.clock import Clock
    from tokiod.config.sections import HubConfig
    from tokiod.crossing.codec import Frame
    from tokiod.hub.classes import NodeClasses

log = structlog.get_logger()

MAX_CLOCK_SECONDS = 2.0
"""Difference of an agent's clock to the hub's, above which its rows are refused: they are aligned to its clock."""
GRACE_SECONDS = 20.0
"""For the last answers, after the time over which they are spread; at most GRACE_SHARE of what the client waits, as for the way back."""
GRACE_SHARE = 0.25
MIN_SPREAD_SECONDS = 0.5
KEPT_SECONDS = 3700
"""How long the hub remembers which nodes have sent a row: agents keep an hour."""
QUERY_SECONDS = 160
"""Before the end of that hour, in which a row can no longer be asked in time."""
MISSING, NO_ROW = "no answer", "row not in memory"
PREFIX = f"{GROUP}/"
"""Of the names of datasets of nodes."""


@dataclass(slots=True)
class Query:
    """A window that is asked of all nodes.

    rows: the row of each node, by its start. waiting: (node, start) without an answer.
    """

    client: bytes
    request: Collect
    deadline: float
    rows: dict[int, dict[str, tuple[Node, Row]]]
    waiting: set[tuple[str, int]] = field(default_factory=set)
    dropped: Counter[str] = field(default_factory=Counter)


class Hub:
    """The nodes, the windows that are asked of them, and what they have sent.

    send: sends a message to an agent and returns False where its connection has ended; reply: answers a client of the inner socket,
    and returns False where that has gone or does not read.
    """

    def __init__(
        self,
        config: HubConfig,
        classes: NodeClasses,
        clock: Clock,
        send: Callable[[bytes, bytes], bool],
        reply: Callable[[bytes, Answer, Sequence[Frame]], bool],
    ) -> None:
        self.refused: Counter[str] = Counter()
        self._config, self._classes, self._clock = config, classes, clock
        self._send, self._reply = send, reply
        self._queries: list[Query] = []
        self._sent: defaultdict[int, set[str]] = defaultdict(set)
        self._unknown: defaultdict[int, set[str]] = defaultdict(set)
        self._repeats = Repeats(clock)
        self.nodes = Nodes(config.max_nodes, self._repeats)
        self._ready_at = clock.monotonic() + config.gather

    def reload(self, config: HubConfig, classes: NodeClasses) -> None:
        """Use another configuration. Nodes whose names their keys may no longer use are refused from now on."""
        self._config, self._classes = config, classes
        self.nodes.max_nodes = config.max_nodes
        for node in self.nodes.by_name.values():
            # Without a class the key was revoked, which ends the connection.
            if (node_class := classes.of(node.key)) is not None and not classes.allows(node_class, node.name):
                node.refused = CLASS
                self.nodes.lost(node.route)
                self._refuse(CLASS, node.address, f"{node.name} is connected, and is a name of class {node_class} no more")
                self._send(node.route, messages.refuse(node.wire, f"{CLASS}: the class {node_class} may not use the name {node.name}"))

    def disconnected(self) -> None:
        """Note that all connections were ended; the agents connect again within a minute."""
        self.nodes.all_lost()
        self._ready_at = self._clock.monotonic() + self._config.gather

    def receive(self, route: bytes, key: bytes, address: str, frame: bytes) -> None:
        """Take a message of an agent."""
        try:
            if (node := self.nodes.at(route)) is not None and node.asked:
                if (whole := node.parts.joined(frame)) is None:
                    return
                frame = whole
            version, message = messages.decode(frame)
        except (ValueError, *messages.UNDECODABLE) as error:
            self._refuse(MALFORMED, address, str(error))
            return
        if message is None:
            self._refuse(VERSION, address, f"version {version} of the wire, this hub understands {messages.VERSIONS}")
            self._send(route, messages.refuse(version, f"{VERSION}: this hub understands {messages.VERSIONS}"))
        elif isinstance(message, Hello):
            self._greet(message, version, route, key, address)
        else:
            self._row(message, route, address)

    def request(self, client: bytes, request: Request) -> None:
        """Take a request of the inner socket."""
        now = self._clock.monotonic()
        match request:
            case Cancel():
                self._queries = [one for one in self._queries if (one.client, one.request.id) != (client, request.id)]
            case List():
                self._reply(client, Listed(request.id, tuple(node.state(now) for _, node in sorted(self.nodes.by_name.items()))), ())
            case Collect() | Count() if fault := _fault(request):
                self._reply(client, Failed(request.id, "fatal", fault), ())
            case Collect() | Count() if now < self._ready_at:
                waits = f"the hub started less than {self._config.gather} s ago and waits for the agents to connect"
                self._reply(client, Failed(request.id, "not_yet", waits), ())
            case Count():
                self._reply(client, Counted(request.id, self._count(request, now)), ())
            case Collect() if nodes := self.nodes.connected(now):
                self._ask(client, request, nodes, now)
            case Collect():
                self._reply(client, Failed(request.id, "transient", "no agent is connected to the hub"), ())

    def turn(self) -> float:
        """Answer the requests that are complete or out of time; return the seconds until the next of them is."""
        now = self._clock.monotonic()
        for query in [query for query in self._queries if not query.waiting or now >= query.deadline]:
            self._queries.remove(query)
            self._finish(query)
        catalogue.HUB_NODES.set(len(self.nodes.connected(now)))
        return min((query.deadline - now for query in self._queries), default=60.0)

    def _greet(self, hello: Hello, version: int, route: bytes, key: bytes, address: str) -> None:
        node_class = self._classes.of(key)
        if node_class is None or not self._classes.allows(node_class, hello.node):
            self._refuse(CLASS, address, f"a node of class {node_class} greeted as {hello.node}")
            self._send(route, messages.refuse(version, f"{CLASS}: the class {node_class} may not use the name {hello.node}"))
            return
        node = self.nodes.greet(hello, node_class, version, route, address, self._clock.monotonic())
        if isinstance(node, str):
            self._refuse(node, address, hello.node)
            self._send(route, messages.refuse(version, f"{node}: {SENTENCES[node]}"))
            return
        node.key = key
        # A node that connects while a window is asked is asked too.
        for query in self._queries:
            self._ask_node(query, node, self._clock.monotonic(), self._within(query, 1))

    def _row(self, row: Row, route: bytes, address: str) -> None:
        node = self.nodes.at(route)
        if node is None or row.node != node.name or row.session != node.session:
            self._refuse(NO_HELLO, address, f"a row of {row.node} on a connection of {node.name if node else 'an agent without a hello'}")
            return
        node.heard = self._clock.monotonic()
        queries = [query for query in self._queries if (node.name, row.start) in query.waiting]
        for query in queries:
            query.waiting.discard((node.name, row.start))
        # An answer to a request that was given up may come late, and is no fault of the node.
        was_asked = node.asked.pop(row.start, None) is not None
        reason = self._reason_against(row, node) or ("" if was_asked else UNASKED)
        if reason:
            node.dropped[reason] += 1
            self._refuse(reason, address, f"a row of {node.name}: its clock is {node.clock:+.1f} s ahead" if reason == CLOCK else node.name)
        elif row.values is None:
            self._unknown[row.start].add(node.name)
        else:
            node.row = max(row.start, node.row or 0)
            if node.name not in self._sent[row.start]:
                node.count_readings(row)
            self._sent[row.start].add(node.name)
            self._unknown[row.start].discard(node.name)
            catalogue.HUB_ROWS.inc()
        for query in queries:
            if reason or row.values is None:
                query.dropped[reason or NO_ROW] += 1
            else:
                query.rows[row.start][node.name] = node, row

    def _reason_against(self, row: Row, node: Node) -> str:
        """Return why a row is refused. The way to and from the agent makes the one bound larger and the other smaller, never wrong."""
        least, most = row.time - self._clock.time(), row.ahead
        node.clock = least if least > 0 else most if most < 0 else 0.0
        node.refused = CLOCK if abs(node.clock) > MAX_CLOCK_SECONDS else ""
        if node.refused:
            # It is asked again: its clock may be set.
            node.refused = ""
            return CLOCK
        fits = row.values is None or len(row.values) == len(node.metrics)
        return "" if fits and all(len(job.values) == len(node.job_metrics) for job in row.jobs) else METRICS

    def _ask(self, client: bytes, request: Collect, nodes: list[Node], now: float) -> None:
        query = Query(client, request, now, {start: {} for start in _starts(request)})
        within = self._within(query, len(nodes))
        query.deadline = now + within + _grace(request)
        self._queries.append(query)
        for node in nodes:
            self._ask_node(query, node, now, within)

    def _ask_node(self, query: Query, node: Node, now: float, within: float) -> None:
        """Ask one node for the rows of a query, but for those that it was asked for just now, by a request that was given up."""
        if node.step != STEP_SECONDS:
            query.dropped[MISSING] += len(query.rows)
            return
        node.asked = {start: until for start, until in node.asked.items() if until > now}
        waiting = [start for start in query.rows if node.name not in query.rows[start]]
        unasked = [start for start in waiting if start not in node.asked]
        if unasked:
            if not self._send(node.route, messages.ask(node.wire, unasked[0], unasked[-1] + STEP_SECONDS, self._clock.time(), within)):
                self.nodes.lost(node.route)
                return
            until = now + within + _grace(query.request)
            node.asked.update((start, until) for start in range(unasked[0], unasked[-1] + STEP_SECONDS, STEP_SECONDS))
        query.waiting |= {(node.name, start) for start in waiting}

    def _within(self, query: Query, nodes: int) -> float:
        """Return the seconds over which nodes answer: by the configured rate, but no longer than the client waits."""
        at_rate = nodes * len(query.rows) / self._config.rows_per_second
        return max(MIN_SPREAD_SECONDS, min(at_rate, query.request.seconds - 2 * _grace(query.request)))

    def _finish(self, query: Query) -> None:
        """Answer a request with what has come."""
        request = query.request
        self.nodes.forget(self._clock.monotonic())
        query.dropped[MISSING] += len(query.waiting)
        absent = [name for name in sorted(self.nodes.by_name) if all(name not in rows for rows in query.rows.values())]
        catalogue.HUB_MISSING.set(len(absent))
        # A name is a column from its first row on: a key can greet as every name of its class.
        known = tuple(sorted(node.name for node in self.nodes.by_name.values() if node.row is not None))
        metrics = [name.removeprefix(PREFIX) for name in request.datasets or ()]
        records = sum(len(self._sent[start]) for start in query.rows)
        if absent and self._repeats("missing"):
            log.info(
                "hub.missing", nodes=len(absent), known=len(self.nodes.by_name), window=f"{request.start} to {request.end}",
                some=", ".join(absent[:3]),
            )  # fmt: skip
        self._forget()
        try:
            data = window_data(request.source, query.rows, metrics, known, Window(request.start, request.end))
            parts = encoded(request.source, replace(data, records=records, dropped=dict(+query.dropped)), PART_BYTES)
        except Refusal as never:
            self._reply(query.client, Failed(request.id, "rejected", str(never)), ())
            return
        for number, frames in enumerate(parts):
            if not self._reply(query.client, Data(request.id, number, len(parts)), frames):
                return

    def _count(self, request: Count, now: float) -> int:
        """Return how many nodes have sent each row, or have it in memory."""
        nodes, found = self.nodes.connected(now), 0
        for start in _starts(request):
            sent, unknown = self._sent.get(start, set()), self._unknown.get(start, set())
            if start > self._clock.time() - KEPT_SECONDS + QUERY_SECONDS:
                sent = sent | {node.name for node in nodes if node.since <= start and node.name not in unknown}
            found += len(sent)
        return found

    def _forget(self) -> None:
        oldest = self._clock.time() - KEPT_SECONDS
        for kept in (self._sent, self._unknown):
            for start in [start for start in kept if start < oldest]:
                del kept[start]

    def _refuse(self, reason: str, address: str, detail: str) -> None:
        self.refused[reason] += 1
        catalogue.HUB_REFUSED.inc(reason)
        if times := self._repeats(reason):
            log.warning("hub.refused", reason=reason, address=address, detail=detail, times=times)


def _grace(request: Collect) -> float:
    return min(GRACE_SECONDS, GRACE_SHARE * request.seconds)


def _starts(request: Collect | Count) -> range:
    return range(request.start, request.end, STEP_SECONDS)


def _fault(request: Collect | Count) -> str:
    start, end = request.start, request.end
    if not 0 <= start < end < LATEST or start % STEP_SECONDS or end - start > MAX_ROWS * STEP_SECONDS:
        return f"a request for other times than 1 to {MAX_ROWS} whole rows of {STEP_SECONDS} s"
    if isinstance(request, Count):
        return ""
    names = request.datasets
    if names is None or len(names) > MAX_DATASETS or not all(name.startswith(PREFIX) for name in names):
        what = "all" if names is None else len(names)
        return f"a request for {what} datasets: expected at most {MAX_DATASETS} names that begin with {PREFIX}"
    return ""
