"""The collectors' end, against a raw ROUTER that sends anything."""

import asyncio
from contextlib import asynccontextmanager, suppress

import pytest
import structlog
import zmq
import zmq.asyncio

from tokiod.bus import protocol
from tokiod.bus import sender as bus_sender
from tokiod.bus.protocol import Ack, Beat, Hello, Part, Refused, Reject, Welcome
from tokiod.bus.sender import ConnectionLost, Sender, Stored
from tokiod.crossing.dialogue import VERSION

FOREVER = 30.0
"""Seconds of silence that no test here lasts."""


class FakeWriter:
    """A ROUTER in the test's own loop, which reads and answers on demand."""

    def __init__(self, endpoint):
        self.context = zmq.asyncio.Context()
        self.socket = self.context.socket(zmq.ROUTER)
        self.socket.linger = 0
        self.socket.bind(endpoint)

    async def read(self):
        """Return (peer, Hello or Part)."""
        peer, head, *_ = await self.socket.recv_multipart()
        return peer, protocol.decode_from_collector(head)

    async def hello(self, other_than=None):
        """Return a connection's identity and Hello; skip parts, and all messages of one other connection."""
        async with asyncio.timeout(5):
            while True:
                peer, message = await self.read()
                if isinstance(message, Hello) and peer != other_than:
                    return peer, message

    async def parts(self, count):
        """Return the next parts; skip repeated Hellos."""
        found = []
        async with asyncio.timeout(5):
            while len(found) < count:
                _, message = await self.read()
                if isinstance(message, Part):
                    found.append(message)
        return found

    async def send(self, peer, message):
        await self.socket.send_multipart([peer, protocol.encode(message)])

    async def welcome(self, epoch="one", other_than=None):
        peer, hello = await self.hello(other_than)
        await self.send(peer, Welcome(epoch))
        return peer, hello

    async def ack(self, peer, part, epoch="one", cells=12):
        await self.send(peer, Ack(epoch, part.source, part.start, part.end, part.attempt, cells, {"outside": 1}))

    async def reads_no_part(self, seconds=0.1):
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while True:
                    assert isinstance((await self.read())[1], Hello)
        return True


@asynccontextmanager
async def conversation(endpoint, **options):
    writer = FakeWriter(endpoint)
    try:
        async with Sender(endpoint, **{"silence": FOREVER} | options) as sender:
            yield sender, writer
    finally:
        writer.context.destroy(linger=0)


def test_no_window_is_sent_before_the_welcome(endpoint, window):
    async def main():
        async with conversation(endpoint) as (sender, writer):
            await sender.submit(window(1))
            peer, hello = await writer.hello()
            assert hello.connection == 1
            assert await writer.reads_no_part()
            assert not sender.state.connected
            await writer.send(peer, Beat("one"))
            assert await writer.reads_no_part()
            await writer.send(peer, Welcome("one"))
            (part,) = await writer.parts(1)
            assert (part.meta(None, {}), part.part, part.parts) == (window(1).meta, 0, 1)
            assert (sender.state.connected, sender.state.epoch) == (True, "one")

    asyncio.run(main())


def test_hello_is_repeated(endpoint):
    async def main():
        async with conversation(endpoint, silence=0.05) as (_, writer):
            hellos = [(await writer.hello())[1] for _ in range(3)]
            assert hellos == [Hello(hellos[0].sender, 1, VERSION)] * 3

    asyncio.run(main())


def test_a_refusal_by_a_writer_of_another_version_is_logged_once_and_the_sender_asks_on_until_it_is_welcomed(endpoint, window):
    async def main():
        async with conversation(endpoint, silence=0.05) as (sender, writer):
            await sender.submit(window(1))
            for _ in range(3):
                peer, hello = await writer.hello()
                assert hello.connection == 1
                await writer.send(peer, Refused("one", "the collectors speak version 3 of the wire, the writer speaks 4"))
            assert await writer.reads_no_part()
            assert not sender.state.connected
            await writer.welcome("two")
            assert [part.meta(None, {}) for part in await writer.parts(1)] == [window(1).meta]

    with structlog.testing.capture_logs() as log:
        asyncio.run(main())
    reason = "the collectors speak version 3 of the wire, the writer speaks 4"
    assert log[0] == {"event": "bus.refused", "reason": reason, "times": 1, "log_level": "error"}
    assert [event["event"] for event in log] == ["bus.refused", "bus.connected"]


def test_a_connection_that_is_never_welcomed_is_replaced(endpoint):
    async def main():
        async with conversation(endpoint, silence=0.02) as (_, writer):
            first, one = await writer.hello()
            _, two = await writer.hello(other_than=first)
            assert (one.connection, two.connection) == (1, 2)

    asyncio.run(main())


def test_a_window_goes_out_part_by_part_and_its_answer_comes_back(endpoint, window, monkeypatch):
    monkeypatch.setattr(bus_sender, "PART_BYTES", 200)

    async def main():
        async with conversation(endpoint) as (sender, writer):
            peer, _ = await writer.welcome()
            answer = await sender.submit(window(1, parts=3))
            parts = await writer.parts(3)
            assert [(p.part, p.parts) for p in parts] == [(0, 3), (1, 3), (2, 3)]
            assert len({p.attempt for p in parts}) == 1
            assert not answer.done()
            await writer.ack(peer, parts[0])
            assert await answer == Stored(12, {"outside": 1})

    asyncio.run(main())


def test_a_window_without_data_goes_out_too(endpoint, window):
    async def main():
        async with conversation(endpoint) as (sender, writer):
            peer, _ = await writer.welcome()
            answer = await sender.submit(window(1, parts=0))
            (part,) = await writer.parts(1)
            await writer.ack(peer, part, cells=0)
            assert await answer == Stored(0, {"outside": 1})

    asyncio.run(main())


@pytest.mark.parametrize("retry", [True, False])
def test_a_rejected_window_is_answered_and_makes_room(endpoint, window, retry):
    async def main():
        async with conversation(endpoint, max_windows=1) as (sender, writer):
            peer, _ = await writer.welcome()
            answer = await sender.submit(window(1))
            (p,) = await writer.parts(1)
            await writer.send(peer, Reject("one", p.source, p.start, p.end, p.attempt, "disk full", retry))
            assert ((refusal := await answer).message, refusal.when) == ("disk full", "retry" if retry else "never")
            await sender.submit(window(2))
            assert (await writer.parts(1))[0].start == window(2).meta.window.start

    asyncio.run(main())


def test_the_rest_of_a_window_is_not_sent_once_it_is_rejected(endpoint, window, monkeypatch):
    monkeypatch.setattr(bus_sender, "PART_BYTES", 16 << 10)

    async def main():
        async with conversation(endpoint) as (sender, writer):
            peer, _ = await writer.welcome()
            answer = await sender.submit(window(1, parts=900, cells=2000))
            (p,) = await writer.parts(1)
            await writer.send(peer, Reject("one", p.source, p.start, p.end, p.attempt, "no", retry=False))
            await sender.submit(window(2))
            parts = []
            while not parts or parts[-1].start == window(1).meta.window.start:
                parts += await writer.parts(1)
            assert len(parts) < p.parts
            assert ((refusal := await answer).message, refusal.when) == ("no", "never")

    asyncio.run(main())


def test_an_answer_to_an_older_attempt_is_ignored(endpoint, window):
    async def main():
        async with conversation(endpoint) as (sender, writer):
            first, _ = await writer.welcome()
            answer = await sender.submit(window(1))
            (old,) = await writer.parts(1)
            await send_welcome_again(writer, first)
            peer, _ = await writer.welcome(other_than=first)
            (new,) = await writer.parts(1)
            await writer.ack(peer, old)
            await writer.send(peer, Beat("one"))
            await asyncio.sleep(0.05)
            assert not answer.done()
            await writer.ack(peer, new)
            assert (await answer).cells == 12
            assert new.attempt > old.attempt

    asyncio.run(main())


async def quiet(_writer, _peer):
    """Be silent for longer than the sender's limit."""


async def send_another_epoch(writer, peer):
    await writer.send(peer, Beat("two"))


async def send_welcome_again(writer, peer):
    await writer.send(peer, Welcome("one"))


async def send_junk(writer, peer):
    await writer.socket.send_multipart([peer, b"junk"])


@pytest.mark.parametrize("trouble", [quiet, send_another_epoch, send_welcome_again, send_junk])
def test_in_doubt_the_connection_is_replaced_and_all_windows_in_flight_are_sent_again(endpoint, window, monkeypatch, trouble):
    monkeypatch.setattr(bus_sender, "PART_BYTES", 200)

    async def main():
        async with conversation(endpoint, silence=0.5 if trouble is quiet else FOREVER) as (sender, writer):
            peer, first = await writer.welcome()
            answers = [await sender.submit(window(n, parts=2)) for n in range(3)]
            old = await writer.parts(6)
            await writer.ack(peer, old[0])
            await answers[0]
            await trouble(writer, peer)
            again, second = await writer.hello(other_than=peer)
            assert (second.sender, second.connection) == (first.sender, first.connection + 1)
            await writer.send(again, Welcome("one"))
            new = await writer.parts(4)
            assert [(p.start, p.end, p.part) for p in new] == [(p.start, p.end, p.part) for p in old[2:]]
            assert min(p.attempt for p in new) > max(p.attempt for p in old)
            assert sender.state.resent == 2
            for part in (new[0], new[2]):
                await writer.ack(again, part)
            assert [a.cells for a in await asyncio.gather(*answers)] == [12, 12, 12]
            assert (sender.state.in_flight, sender.state.in_flight_bytes) == (0, 0)

    asyncio.run(main())


def test_a_writer_that_closes_is_noticed_at_once_and_the_next_one_receives_everything(endpoint, window):
    async def main():
        async with Sender(endpoint, silence=FOREVER) as sender:
            one = FakeWriter(endpoint)
            await one.welcome("one")
            answer = await sender.submit(window(1))
            await one.parts(1)
            one.context.destroy(linger=0)
            two = FakeWriter(endpoint)
            peer, hello = await two.welcome("two")
            (part,) = await two.parts(1)
            await two.ack(peer, part, "two")
            assert (await answer).cells == 12
            assert (hello.connection, sender.state.epoch, sender.state.resent) == (2, "two", 1)
            two.context.destroy(linger=0)

    asyncio.run(main())


def test_beats_keep_a_connection(endpoint, window):
    async def main():
        async with conversation(endpoint, silence=0.6) as (sender, writer):
            peer, _ = await writer.welcome()
            for _ in range(16):
                await writer.send(peer, Beat("one"))
                await asyncio.sleep(0.05)
            await sender.submit(window(1))
            assert (await writer.parts(1))[0].attempt == 1
            assert sender.state.resent == 0

    asyncio.run(main())


def test_a_writer_that_was_only_slow_gets_more_time_until_another_one_starts(endpoint):
    async def main():
        async with conversation(endpoint, silence=0.05) as (sender, writer):
            limits, peer = [], None
            for epoch in ("one", "one", "one", "two"):
                peer, _ = await writer.welcome(epoch, other_than=peer)
                await sender.welcomed()
                limits.append(sender._silence_limit)
                while sender.state.connected:
                    await asyncio.sleep(0.001)
            assert limits == [0.05, 0.1, 0.2, 0.05]

    asyncio.run(main())


def test_the_ledger_is_reloaded_at_each_new_epoch_and_when_the_writer_asks(endpoint):
    async def main():
        reloads = []
        async with conversation(endpoint, on_reload=lambda: reloads.append("again")) as (sender, writer):
            for epoch, trouble, expected in (("one", Welcome("one"), 1), ("one", Beat("two"), 1), ("two", Beat("two", 1), 2)):
                peer, _ = await writer.welcome(epoch)
                await sender.welcomed()
                assert len(reloads) == expected
                await writer.send(peer, trouble)
                while trouble != Beat("two", 1) and sender.state.connected:
                    await asyncio.sleep(0.001)
            while len(reloads) < 3:
                await asyncio.sleep(0.001)
            await writer.send(peer, Beat("two", 1))
            await asyncio.sleep(0.05)
            assert len(reloads) == 3

    asyncio.run(main())


def test_a_slow_writer_delays_submissions_and_windows_in_flight_are_bounded(endpoint, window):
    async def main():
        async with conversation(endpoint, max_windows=4) as (sender, writer):
            peer, _ = await writer.welcome()
            submits = [asyncio.create_task(sender.submit(window(n))) for n in range(10)]
            for done in range(10):
                (part,) = await writer.parts(1)
                assert sender.state.in_flight <= 4
                assert sum(task.done() for task in submits) <= done + 4
                await writer.ack(peer, part)
            assert [(await (await task)).cells for task in submits] == [12] * 10

    asyncio.run(main())


def test_leaving_cancels_unanswered_windows_and_closes_every_socket(endpoint, window):
    async def main():
        async with conversation(endpoint) as (sender, writer):
            await writer.welcome()
            answer = await sender.submit(window(1))
        with pytest.raises(asyncio.CancelledError):
            await answer

    asyncio.run(main())


def test_leaving_does_not_wait_for_a_writer_that_never_came(endpoint, window):
    async def main():
        async with Sender(endpoint) as sender:
            answer = await sender.submit(window(1))
            assert not sender.state.connected
        assert answer.cancelled()

    asyncio.run(main())


@pytest.mark.parametrize("turns", range(6))
def test_a_cancellation_together_with_the_loss_of_the_connection_is_not_forgotten(tmp_path, monkeypatch, turns):
    """Before Python 3.13 a TaskGroup swallows it: a process outlived its killed supervisor (seen under torture)."""

    async def scene() -> None:
        sender = Sender(f"ipc://{tmp_path}/bus")
        running = asyncio.create_task(sender.run())
        lost = asyncio.get_running_loop().create_future()

        async def listen(_: object) -> None:
            await lost
            raise ConnectionLost("silent")

        monkeypatch.setattr(sender, "_receive", listen)
        await asyncio.sleep(0.05)
        lost.set_result(None)
        for _ in range(turns):
            await asyncio.sleep(0)
        running.cancel()
        done, _ = await asyncio.wait({running}, timeout=5)
        assert done == {running}
        assert running.cancelled()

    asyncio.run(scene())
