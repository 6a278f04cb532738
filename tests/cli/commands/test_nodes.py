"""`tokioctl nodes`: what the hub says of its nodes, from a socket that answers as the hub does."""

import threading

import msgspec
import pytest
import zmq
from click.testing import CliRunner

from collectors.nodes.hub_protocol import Listed, NodeState
from tokiod.cli.commands import nodes

NODES = (
    NodeState("nid1", "compute", "connected", 3.4, 0, 0.04, "1.0", "10.0.0.1", 0, {}),
    NodeState(
        "nid2", "compute", "silent", 300.0, None, -3.0, "1.0", "10.0.0.2", 1, {"clock": 2},
        {"jobs: unknown scheduler cgroup": 4, "cpu: malformed": 1}, {"jobs: unknown scheduler cgroup": "lsf/\x1b[2Jx"},
    ),
)  # fmt: skip


@pytest.fixture
def listed(tmp_path, monkeypatch):
    endpoint = f"ipc://{tmp_path}/inner"
    context = zmq.Context()
    socket = context.socket(zmq.ROUTER)
    socket.bind(endpoint)

    def answer():
        client, _ = socket.recv_multipart()
        socket.send_multipart([client, msgspec.json.encode(Listed(1, NODES))])

    monkeypatch.setattr(nodes.configuration, "load", lambda _path: msgspec.defstruct("C", ["hub", "hub_inner"])(HUB, endpoint))
    thread = threading.Thread(target=answer)
    thread.start()
    yield lambda *options: CliRunner().invoke(nodes.nodes_command, [*options, "--config", "x"])
    thread.join()
    context.destroy(linger=0)


HUB = msgspec.defstruct("Hub", [("endpoint", str, "tcp://a:1")])()


def test_each_node_has_a_line_with_what_was_dropped_and_what_its_agent_could_not_read(listed):
    found = listed()
    assert (found.exit_code, found.stdout.splitlines()) == (0, [
        "nid1  connected, class compute, heard 3 s ago, tokiod 1.0",
        ("nid2  silent, class compute, heard 300 s ago, tokiod 1.0, clock -3.0 s, 1 older session, 2 dropped: clock, "
        "1 not read: cpu: malformed, 4 not read: jobs: unknown scheduler cgroup (lsf/\\x1b[2Jx)"),
    ])  # fmt: skip
    assert found.stderr == "2 nodes, 1 not connected\n"


def test_the_missing_nodes_are_those_that_are_not_connected(listed):
    found = listed("--missing", "--json")
    assert msgspec.json.decode(found.stdout, type=tuple[NodeState, ...]) == NODES[1:]
