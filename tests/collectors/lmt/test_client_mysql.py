"""What a server may ask for at a login without TLS, played by a server of the protocol's first packets."""

import asyncio
import struct

import pytest

from collectors.lmt.client_mysql import Mysql, Server
from tokiod.errors import Fatal

PASSWORD = "PlantedPassword"
PLUGIN_AUTH, LOW_CAPABILITIES = 0x0008, 0xA209


def packet(number, data):
    return struct.pack("<I", len(data))[:3] + bytes([number]) + data


def handshake():
    return packet(
        0,
        b"\x0a8.0.0\0"
        + struct.pack("<I", 1)
        + b"saltsalt\0"
        + struct.pack("<HBHHB", LOW_CAPABILITIES, 45, 2, PLUGIN_AUTH, 21)
        + bytes(10)
        + b"saltsaltsalt\0mysql_native_password\0",
    )


def logged_in(*asked):
    """Log in to a server that sends each packet after an answer; return the error, and what the server received after the first answer."""
    received, served = [], asyncio.Event()

    async def serve(reader, writer):
        writer.write(handshake())
        number = (await answer(reader))[0]
        for data in asked:
            writer.write(packet(number + 1, data))
            try:
                number, answered = await answer(reader)
            except asyncio.IncompleteReadError:
                break
            received.append(answered)
        writer.close()
        await writer.wait_closed()
        served.set()

    async def answer(reader):
        header = await reader.readexactly(4)
        return header[3], await reader.readexactly(int.from_bytes(header[:3], "little"))

    async def scenario():
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
            port = listening.sockets[0].getsockname()[1]
            database = Mysql(Server("127.0.0.1", port, "tokiod", "lmt", 5, password=lambda: PASSWORD, tls=lambda: None))
            with pytest.raises(Fatal) as error:
                await database.schema()
            await database.close()
            await served.wait()
            return str(error.value)

    return asyncio.run(scenario()), received


@pytest.mark.parametrize(
    "request_of_server",
    [
        b"\xfemysql_clear_password\0",
        b"\xfedialog\0\4Password: ",
        b"\xfesha256_password\0saltsaltsaltsaltsalt\0",
        b"\xfemysql_old_password\0saltsalt\0",
    ],
)
def test_no_password_is_sent_without_tls(request_of_server):
    sentence, received = logged_in(request_of_server, b"\xff\x15\x04#28000denied")
    assert received == []
    assert sentence.endswith(
        "asks for the password of tokiod in a form that is safe with TLS only (its method of login sends the password): set tls = true"
    )


def test_no_password_is_encrypted_for_the_key_of_whatever_answers():
    sentence, received = logged_in(b"\xfecaching_sha2_password\0saltsaltsaltsaltsalt\0", b"\1\4", b"\1-----BEGIN PUBLIC KEY-----")
    assert len(received) == 1  # the first step, a hash with a salt
    assert "safe with TLS only" in sentence
