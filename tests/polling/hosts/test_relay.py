"""The relay as a process of its own, under attack: hosts keep their connections, and the collectors' process notices nothing."""

import asyncio
import os
import signal
import socket as plain
import struct
import subprocess
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from many_hosts import ManyHosts, in_loop, until

from tokiod.polling.hosts.host_protocol import MAX_FRAME_BYTES

GREETING = b"\xff" + b"\0" * 8 + b"\x7f\x03\0CURVE" + b"\0" * 47
MIB = 1 << 20


@pytest.fixture
def many(tmp_path):
    return ManyHosts(tmp_path, kind="lmt", own='url = "sqlite:////tmp/none"\n')


class Relay:
    """`tokiod relay` on a configuration."""

    def __init__(self, many, descriptors=16384):
        self.log = many.directory / "relay.log"
        limited = ["prlimit", f"--nofile={descriptors}", sys.executable]
        self._command = [*limited, "-m", "tokiod.cli.tokiod", "relay", "--config", str(many.path), "--log-format", "json"]
        self.start()

    def start(self):
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(self._command, stderr=log, stdout=log)

    @property
    def resident(self):
        """Bytes."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.process.wait(100)


@asynccontextmanager
async def connected(many):
    """The relay, the collectors' end of it, and host zone-b, whose connection there is."""
    links, relay = many.links(), Relay(many)
    tasks = [asyncio.create_task(links.run()), asyncio.create_task(many.host("zone-b").run())]
    try:
        await until(lambda: links.hosts["zone-b"].route, 60)
        yield links.hosts["zone-b"], relay
    finally:
        for task in reversed(tasks):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        relay.end()


def half_a_frame(port):
    """Connect, and send half of the longest frame that a handshake may have."""
    client = plain.create_connection(("127.0.0.1", port), 10)
    client.sendall(GREETING + struct.pack(">BQ", 6, MAX_FRAME_BYTES - 100) + bytes(MAX_FRAME_BYTES // 2))
    return client


@in_loop
async def test_clients_without_a_key_cost_no_host_its_connection_and_the_collectors_nothing(many):
    async with connected(many) as (host, relay):
        route, before, clients = host.route, relay.resident, []
        for _ in range(400):
            with suppress(OSError):
                clients.append(await asyncio.to_thread(half_a_frame, many.port))
        heard = host.state().contact
        await until(lambda: host.state().contact > heard)
        assert host.route == route
        assert relay.resident - before < 100 * MIB
        for client in clients:
            client.close()


@in_loop
async def test_hosts_connect_again_where_the_relay_was_killed_and_it_ends_by_itself_at_sigterm(many):
    async with connected(many) as (host, relay):
        assert relay.end(signal.SIGKILL) < 0
        relay.start()
        route = host.route
        await until(lambda: host.route not in {None, route}, 60)
        assert host.refused == {}
        assert relay.end() == 0
        relay.start()
        assert "Traceback" not in relay.log.read_text()


@in_loop
async def test_without_descriptors_it_waits_for_new_collectors_and_hosts_connect_again(many):
    relay, clients = Relay(many, descriptors=120), []
    for restarted in (False, True):
        links = many.links()
        tasks = [asyncio.create_task(links.run()), asyncio.create_task(many.host("zone-b").run())]
        if restarted:
            await asyncio.sleep(1)
            for client in clients:
                client.close()
        await until(lambda links=links: links.hosts["zone-b"].route, 60)
        with suppress(OSError):
            clients = [await asyncio.to_thread(half_a_frame, many.port) for _ in range(200)]
        for task in reversed(tasks):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    assert relay.end() == 0
    for client in clients:
        client.close()
