"""That the ledger records less reaches the collectors, also while a connection is lost: the real ends against each other."""

import asyncio

import pytest

from tokiod.bus.receiver import Receiver
from tokiod.bus.sender import Sender


async def until(condition, poll):
    async with asyncio.timeout(50):
        while not condition():
            poll()
            await asyncio.sleep(0.001)


@pytest.mark.parametrize("times", [1, 2])
def test_a_reload_that_was_sent_on_a_connection_that_is_lost_is_asked_for_on_the_next(endpoint, times):
    """A writer that stands still is silent; the collectors connect again, which it does not know when it asks."""

    async def main():
        reloads = []
        with Receiver(endpoint, "epoch") as writer:
            async with Sender(endpoint, silence=0.2, on_reload=lambda: reloads.append(1)) as sender:
                await until(lambda: sender.state.connected, lambda: writer.poll(0))
                assert len(reloads) == 1
                await until(lambda: not sender.state.connected, lambda: None)
                for _ in range(times):
                    writer.reload()
                await until(lambda: sender.state.connected, lambda: (writer.poll(0), writer.beat()))
                await until(lambda: len(reloads) > 1, lambda: (writer.poll(0), writer.beat()))
                for _ in range(20):
                    writer.poll(0)
                    writer.beat()
                    await asyncio.sleep(0.001)
                assert len(reloads) == 2

    asyncio.run(main())
