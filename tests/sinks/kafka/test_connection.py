"""What errors of connections mean, and a sink's options, without a broker; tests/system/test_kafka_sink.py has a real one."""

import asyncio
import errno
import socket
import ssl

import pytest
from aiokafka.errors import KafkaError

from sinks.kafka import sink
from sinks.kafka.config import Config
from sinks.kafka.connection import client_options
from sinks.kafka.errors import of_connection
from tokiod.change_sink import SinkSite
from tokiod.errors import ConfigError, Fatal, Transient

SERVER = "broker1:9092"


def refused(answer):
    """Return the error of a handshake with a server that answers this."""
    received = ssl.MemoryBIO()
    connection = ssl.create_default_context().wrap_bio(received, ssl.MemoryBIO(), server_hostname="broker1")
    received.write(answer)
    with pytest.raises(ssl.SSLError) as caught:
        connection.do_handshake()
    return caught.value


@pytest.mark.parametrize(
    ("error", "kind", "sentence"),
    [
        (refused(b"HTTP/1.1 400 Bad Request\r\n\r\n"), Fatal, "refuses TLS: WRONG_VERSION_NUMBER; check the port"),
        (TimeoutError(), Transient, "does not answer; check tls"),
        (ConnectionResetError(errno.ECONNRESET, "reset"), Transient, "closes the connection; check tls"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused"), Transient, "can't be reached: Connection refused"),
        (socket.gaierror(socket.EAI_AGAIN, "try again"), Transient, "the host of Kafka broker1:9092 is unknown: try again"),
        (socket.gaierror(socket.EAI_NONAME, "not known"), Fatal, "the host of Kafka broker1:9092 is unknown: not known"),
        (AssertionError("gssapi library required"), Fatal, 'gssapi library required: pip install "tokiod[kerberos]"'),
        (KafkaError("no"), Transient, "closes the connection: "),
    ],
)
def test_an_error_of_a_connection_is_a_sentence(error, kind, sentence):
    found = of_connection(error, SERVER, "collector")
    assert type(found) is kind
    assert sentence in str(found)
    assert SERVER in str(found)


def test_a_missing_secret_is_fatal():
    def secret(_reference):
        raise ConfigError(["kafka-password: no such file"])

    config = Config(name="k", kind="kafka", servers=(SERVER,), tls=True, login="PLAIN", user="me", password_file="kafka-password")
    with pytest.raises(Fatal, match="kafka-password: no such file"):
        client_options(config, secret)


def test_a_sink_that_is_not_open_sends_nothing():
    made = sink(Config(name="k", kind="kafka", servers=(SERVER,)), SinkSite(str, None))
    with pytest.raises(Transient, match="not connected"):
        asyncio.run(made.send([]))
