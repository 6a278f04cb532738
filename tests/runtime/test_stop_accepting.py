"""A listener that closes right after a connection was accepted."""

import asyncio
import socket
from contextlib import suppress

import pytest

from tokiod.runtime.http_server import stop_accepting


@pytest.mark.parametrize("turns", range(4))
def test_a_connection_that_was_just_accepted_is_not_leaked(turns):
    """Its client reads an end, at whatever turn of the event loop the listener closes."""

    async def scenario():
        made = []

        class Noted(asyncio.Protocol):
            def connection_made(self, transport):
                made.append(transport)

        listener = await asyncio.get_running_loop().create_server(Noted, "127.0.0.1", 0)
        client = socket.create_connection(listener.sockets[0].getsockname())
        for _ in range(turns):
            await asyncio.sleep(0)
        await stop_accepting(listener)
        listener.close()
        for transport in made:
            transport.abort()
        await listener.wait_closed()
        client.settimeout(10)
        return client, made

    client, made = asyncio.run(scenario())
    with client, suppress(ConnectionResetError):
        assert client.recv(1) == b""
    assert len(made) <= 1
