"""`tokioctl nodes`: the nodes that the hub knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec
import zmq

from collectors.nodes.hub_protocol import Answer, List, Listed, NodeState
from tokiod.cli.common.base import config_option
from tokiod.cli.common.examples import examples
from tokiod.cli.common.output import echo, echo_json
from tokiod.config import load as configuration
from tokiod.errors import TokiodError

if TYPE_CHECKING:
    from pathlib import Path

ANSWER_TIMEOUT_MS = 10_000
CONNECTED = "connected"


@click.command("nodes", epilog=examples("tokioctl nodes", "tokioctl nodes --missing", "tokioctl nodes --json"))
@click.option("--missing", "only_missing", is_flag=True, help="Only the nodes that do not answer, or that are refused.")
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
@config_option
def nodes_command(config_path: Path, *, only_missing: bool, as_json: bool) -> None:
    """List compute nodes, and whether they answer.

    These are the nodes that have greeted the hub since it started. dropped: rows and messages that were refused, by reason; not read: what
    the agent could not read or understand, with an example (docs/sensors.md); a clock is shown where it differs by more than 0.1 s. Only
    the daemon's user may ask the hub. Exit 0 listed, 2 no hub answers.
    """
    config = configuration.load(config_path)
    if config.hub.endpoint is None:
        raise TokiodError("hub.endpoint is missing: this configuration has no hub, so no nodes report to it (docs/nodes.md)")
    found = [node for node in _listed(config.hub_inner) if not only_missing or node.state != CONNECTED]
    if as_json:
        echo_json(found)
        return
    width = max((len(node.node) for node in found), default=0)
    for node in found:
        echo(f"{node.node:<{width}}  {_line(node)}")
    silent = sum(node.state != CONNECTED for node in found)
    echo(f"{len(found)} node{'' if len(found) == 1 else 's'}, {silent} not connected", err=True)


def _listed(endpoint: str) -> tuple[NodeState, ...]:
    context = zmq.Context()
    try:
        socket = context.socket(zmq.DEALER)
        socket.connect(endpoint)
        socket.send(msgspec.json.encode(List(1)))
        if not socket.poll(ANSWER_TIMEOUT_MS):
            raise TokiodError("no hub answers: is the daemon running with this configuration, and does this user run it?")
        answer = msgspec.json.decode(socket.recv_multipart()[0], type=Answer)
    finally:
        context.destroy(linger=0)
    return answer.nodes if isinstance(answer, Listed) else ()


def _line(node: NodeState) -> str:
    others = f", {node.others} older session{'' if node.others == 1 else 's'}" if node.others else ""
    dropped = "".join(f", {count} dropped: {reason}" for reason, count in sorted(node.dropped.items()))
    clock = f", clock {node.clock:+.1f} s" if node.clock is not None and abs(node.clock) > 0.1 else ""  # noqa: PLR2004 - noise
    readings = "".join(f", {count} not read: {reason}{_example(node, reason)}" for reason, count in sorted(node.readings.items()))
    return f"{node.state}, class {node.node_class}, heard {node.heard:.0f} s ago, tokiod {node.version}{clock}{others}{dropped}{readings}"


def _example(node: NodeState, reason: str) -> str:
    example = node.examples.get(reason)
    return f" ({example})" if example else ""
