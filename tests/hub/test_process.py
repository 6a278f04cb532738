"""The hub with real sockets and keys: what agents send reaches the collector, wrong and revoked keys receive nothing."""

import asyncio
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import zmq
from keyed import wait
from node_agents import METRICS, link, value
from node_hub import HubOutside

from collectors.nodes.collector import Nodes
from collectors.nodes.config import Config
from tokiod.agent.keys import AgentKeys, read_keys
from tokiod.agent.wire import MAX_FRAME_BYTES
from tokiod.bus.zap import UNREAD
from tokiod.clock import SystemClock
from tokiod.collector import Site
from tokiod.crossing.dialogue import Collect, encode
from tokiod.errors import Transient
from tokiod.window import Calendar, Window

NAMES = tuple(metric.name for metric in METRICS)
MIB = 1 << 20
LONG_MESSAGE = """
import sys, zmq
endpoint, server, public, secret = sys.argv[1:]
with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
    socket.curve_serverkey, socket.curve_publickey, socket.curve_secretkey = server.encode(), public.encode(), secret.encode()
    socket.connect(endpoint)
    socket.send_multipart([bytes(60_000)] * 8000, copy=False)
"""
"""A client with a key that sends a message of 460 MiB."""
CLASSES = {"compute": ["nid*"], "login": ["login*"]}


class Running:
    """A hub in a thread of this process, and agents in another one."""

    def __init__(self, directory):
        self.hub = HubOutside(directory, CLASSES, NAMES)
        self.ring, self.config, self.process = self.hub.ring, self.hub.config, self.hub.process
        self.clock, self.links, self.context, self.stopping = SystemClock(), [], zmq.Context(), threading.Event()
        self.thread = threading.Thread(target=self._turn)
        self.thread.start()

    def _turn(self):
        while not self.stopping.is_set():
            for one in list(self.links):
                one.turn()
            time.sleep(0.01)

    def keys(self, name):
        directory = self.ring.directory
        return read_keys(str(directory / "server.key"), str(directory / f"{name}.key_secret"))

    def agent(self, node, keys="compute", **options):
        keys = self.keys(keys) if isinstance(keys, str) else keys
        self.links.append(one := link(self.context, f"tcp://127.0.0.1:{self.hub.port}", keys, node, self.clock, **options))
        return one

    def collect(self, window):
        return self.hub.asked(window)

    def close(self):
        self.stopping.set()
        self.thread.join()
        self.hub.close()
        for one in self.links:
            one.close()
        self.context.destroy(0)


@pytest.fixture
def running(tmp_path):
    made = Running(tmp_path)
    yield made
    made.close()


def last_window():
    end = int(time.time()) // 60 * 60
    return Window(end - 120, end)


def test_a_window_of_all_nodes_reaches_the_collector_in_every_cell(running, monkeypatch):
    monkeypatch.setattr("tokiod.hub.hub.PART_BYTES", 1000)
    nodes = [f"nid{number:03}" for number in range(40)]
    for node in nodes:
        running.agent(node)
    running.agent("login1", "login")
    wait(lambda: len(running.process.hub.nodes.by_name) == 41, 60)
    window = last_window()
    data, counted = running.collect(window)
    assert (data.records, counted, dict(data.dropped)) == (82, 82, {})
    for batch in data.batches:
        name = batch.dataset.removeprefix("nodes/")
        assert batch.columns == ("login1", *nodes)
        found = {(batch.columns[column], start): cell for start, column, cell in zip(batch.time, batch.column, batch.value, strict=True)}
        expected = {(node, start): value(node, start, name) for node in batch.columns for start in (window.start, window.start + 60)}
        assert found == {key: cell for key, cell in expected.items() if cell is not None}
    assert {batch.dataset for batch in data.batches} == running.config.source[0].datasets()
    assert all(batch.value.dtype == np.float64 for batch in data.batches)


def test_a_frame_that_is_longer_than_a_part_ends_the_connection_of_its_sender_alone(running):
    """Before its key is known, too: two MiB of each of many connections were more memory than the hub may use."""
    running.agent("nid1")
    wait(lambda: "nid1" in running.process.hub.nodes.by_name)
    keys = running.keys("compute")
    with running.context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        socket.curve_serverkey, socket.curve_publickey, socket.curve_secretkey = keys.hub, keys.public, keys.secret
        monitor = socket.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        socket.connect(f"tcp://127.0.0.1:{running.hub.port}")
        socket.send(bytes(MAX_FRAME_BYTES + 1))
        assert monitor.poll(20_000)
        socket.disable_monitor()
        monitor.close(0)
    assert running.collect(last_window())[0].records == 2


def test_an_agent_whose_message_has_no_end_is_ended_alone_and_what_it_cost_is_freed(running, monkeypatch):
    agent, process, seen = running.agent("nid1"), running.process, []
    wait(lambda: "nid1" in process.hub.nodes.by_name)
    del process._memory.nbytes  # the one of HubOutside
    before, socket, keys = process._memory.nbytes(), process._agents.socket, running.keys("compute")
    monkeypatch.setattr("tokiod.hub.process.MAX_RESIDENT_BYTES", 2 * (before + 48 * MIB))
    given = f"tcp://127.0.0.1:{running.hub.port}", keys.hub.decode(), keys.public.decode(), keys.secret.decode()
    with subprocess.Popen([sys.executable, "-c", LONG_MESSAGE, *given]) as client:
        wait(lambda: seen.append(process._memory.nbytes()) or process._agents.refused[UNREAD] >= 1, 60)
        # It would connect again, and send the next part of the message as one of another.
        client.kill()
    assert running.collect(last_window())[0].records == 2
    wait(lambda: process._memory.nbytes() < before + 48 * MIB)
    assert max(seen) < before + 48 * MIB + 200 * MIB
    assert (agent.dials, process._agents.socket) == (1, socket)


def test_wrong_and_unknown_keys_receive_nothing_and_are_counted(running):
    public, secret = zmq.curve_keypair()
    known = running.keys("compute")
    unknown = running.agent("nid1", AgentKeys(known.hub, public, secret))
    other = running.agent("nid2", AgentKeys(zmq.curve_keypair()[0], known.public, known.secret))
    foreign = running.agent("nid3", "login")
    running.agent("nid4")
    refused = running.process._agents.refused
    wait(lambda: refused["unknown key"] and refused["wrong server key"] and running.process.hub.refused["class"], 60)
    wait(lambda: "nid4" in running.process.hub.nodes.by_name, 60)
    data, _ = running.collect(last_window())
    assert (data.records, data.batches[0].columns) == (2, ("nid4",))
    assert [one.answered for one in (unknown, other, foreign)] == [0, 0, 0]
    wait(lambda: foreign.state.startswith("refused: class"), 60)


def test_an_agent_whose_rows_are_others_greets_again_at_once(running):
    """Its clock was set; else it greets each minute."""
    agent = running.agent("nid1")
    nodes = running.process.hub.nodes.by_name
    wait(lambda: "nid1" in nodes, 60)
    since = nodes["nid1"].since
    agent._rows._began = began = running.clock.time() - 120
    agent.greet_again()
    wait(lambda: nodes["nid1"].since != since, 20)
    assert nodes["nid1"].since == -(-int(began) // 60) * 60


def test_a_revoked_key_ends_its_connections_and_others_connect_again(running):
    running.agent("nid1")
    login = running.agent("login1", "login")
    wait(lambda: len(running.process.hub.nodes.connected(time.monotonic())) == 2, 60)
    running.ring.revoke("login")
    before = login.dials
    running.hub.service.request_reload()
    hub = running.process.hub
    wait(lambda: login.dials > before and running.process._agents.refused["unknown key"], 60)
    wait(lambda: [node.name for node in hub.nodes.connected(time.monotonic())] == ["nid1"], 60)
    data, _ = running.collect(last_window())
    assert data.records == 2


def test_a_message_that_is_not_utf_8_ends_nothing_on_either_socket(running):
    running.agent("nid1")
    keys = running.keys("compute")
    with running.context.socket(zmq.DEALER) as agent, running.context.socket(zmq.DEALER) as client:
        agent.curve_serverkey, agent.curve_publickey, agent.curve_secretkey = keys.hub, keys.public, keys.secret
        agent.connect(f"tcp://127.0.0.1:{running.hub.port}")
        agent.send(b'[1,{"type":"hello","node":"nid2","session":"s","tokiod":"1\xff","step":60,"since":0,"metrics":[]}]')
        client.connect(running.config.hub_inner)
        client.send(b'{"type":"count","id":1,"source":"\xff","lane":1,"start":0,"end":60,"seconds":60}')
        client.send(b'{"type":"count","id":2,"later":' + 100_000 * b"[")
        # A field that this version does not know is ignored.
        client.send(b'{"type":"count","id":3,"source":"n","lane":1,"start":0,"end":60,"seconds":60,"later":[{}]}')
        assert client.poll(20_000)
        assert client.recv() == b'{"type":"counted","id":3,"records":0}'
        wait(lambda: running.process.hub.refused["malformed"] == 1, 60)
    wait(lambda: "nid1" in running.process.hub.nodes.by_name, 60)
    assert running.collect(last_window())[0].records == 2


def test_a_window_whose_client_has_gone_is_nobodys_and_others_have_theirs(running):
    running.agent("nid1")
    wait(lambda: "nid1" in running.process.hub.nodes.by_name, 60)
    window = last_window()
    request = Collect(1, "n", 1, window.start, window.end, 60.0, "nodes", "c.nodes", ("nodes/load_1min",))
    with running.context.socket(zmq.DEALER) as client:
        client.linger = 20_000
        client.connect(running.config.hub_inner)
        client.send(encode(request))
    assert running.collect(window)[0].records == 2
    wait(lambda: not running.process.hub._queries, 20)


def test_without_a_hub_the_source_is_down_and_says_why(tmp_path):
    async def run():
        collector = Nodes(
            Config(name="n", kind="nodes", system="a.nodes"), Site(Calendar("UTC"), SystemClock(), hub=f"ipc://{tmp_path}/hub")
        )
        with pytest.raises(Transient, match="no hub at"):
            await collector.collect(last_window())
        await collector.close()

    asyncio.run(run())
