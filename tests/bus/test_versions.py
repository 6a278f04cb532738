"""Two versions of the wire on the bus: each end works with one of the version before, in whichever order they are upgraded."""

import asyncio

import numpy as np
import pytest
import zmq
import zmq.asyncio

from tokiod.bus import protocol, wire
from tokiod.bus.protocol import TABLES, VERSION, VERSIONS, Ack, Hello, Welcome
from tokiod.bus.receiver import Receiver
from tokiod.bus.sender import Sender
from tokiod.errors import Malformed, Refusal
from tokiod.window import Window
from tokiod.window_data import Collected, TableRows, WindowMeta
from tokiod.window_result import Stored


def of_tables():
    rows = TableRows("jobs/operations", ("time", "job"), (np.arange(60, 63), np.array([b"1", b"2", b"3"])))
    return Collected(WindowMeta("fs-jobs", "lustre_jobstats", "fs", Window(60, 120)), [], [rows])


class Writer:
    """A writer of one version, which is silent at a Hello of another one."""

    def __init__(self, endpoint, version):
        self.version, self.offered, self.pieces = version, [], []
        self.context = zmq.asyncio.Context()
        self.socket = self.context.socket(zmq.ROUTER)
        self.socket.bind(endpoint)

    async def run(self):
        while True:
            peer, *frames = await self.socket.recv_multipart()
            if len(frames) > 1:
                piece = wire.decode_header(frames).piece
                self.pieces.append(piece)
                await self.send(peer, Ack("one", piece.source, piece.start, piece.end, piece.attempt, 3, {}))
                continue
            hello = protocol.decode_hello(frames[0])
            self.offered.append(hello.version)
            if hello.version == self.version:
                await self.send(peer, Welcome("one", 0, self.version))

    async def send(self, peer, message):
        await self.socket.send_multipart([peer, protocol.encode(message)])


def conversation(endpoint, version, play):
    async def main():
        writer = Writer(endpoint, version)
        running = asyncio.create_task(writer.run())
        try:
            async with Sender(endpoint, silence=30) as sender:
                await play(sender, writer)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            writer.context.destroy(linger=0)

    asyncio.run(main())


def test_collectors_speak_the_version_before_with_a_writer_that_knows_no_other(endpoint, window):
    async def play(sender, writer):
        answer = await sender.submit(window(1))
        assert isinstance(await asyncio.wait_for(answer, 20), Stored)
        assert writer.offered[:2] == [VERSION, VERSION - 1]

    conversation(endpoint, VERSION - 1, play)


def test_a_window_with_tables_waits_for_a_writer_that_knows_tables(endpoint):
    async def play(sender, writer):
        refusal = await asyncio.wait_for(await sender.submit(of_tables()), 20)
        assert isinstance(refusal, Refusal)
        assert (refusal.message, refusal.when) == (
            f"the writer speaks version {TABLES - 1} of the wire, without tables: upgrade it",
            "retry",
        )
        assert (writer.pieces, sender.state.in_flight) == ([], 0)

    conversation(endpoint, TABLES - 1, play)


def test_with_a_writer_of_this_version_the_first_hello_is_welcomed(endpoint):
    async def play(sender, writer):
        assert isinstance(await asyncio.wait_for(await sender.submit(of_tables()), 20), Stored)
        assert writer.offered == [VERSION]

    conversation(endpoint, VERSION, play)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_writer_welcomes_the_collectors_of_both_versions_in_theirs(endpoint, raw, version):
    with Receiver(endpoint, "one") as receiver:
        dealer = raw(zmq.DEALER, endpoint)
        dealer.send(protocol.encode(Hello("me", 1, version)))
        while not dealer.poll(0):
            receiver.poll(10)
        assert protocol.decode_from_writer(dealer.recv()) == Welcome("one", 0, version)


def test_the_welcome_of_a_writer_that_does_not_name_its_version_is_of_the_first():
    assert protocol.decode_from_writer(b'{"type":"welcome","epoch":"one","reloads":0}') == Welcome("one", 0, 1)


@pytest.mark.parametrize("version", [0, VERSION - 2, VERSION + 1])
def test_no_other_version_is_understood(version):
    with pytest.raises(Malformed, match=rf"a collector with version {version}, expected {VERSION - 1} or {VERSION}"):
        protocol.decode_hello(protocol.encode(Hello("me", 1, version)))
