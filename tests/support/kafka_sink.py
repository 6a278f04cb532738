"""Sinks of kind kafka for a Kafka of the tests, and what a consumer folds from their topics."""

import asyncio
import math

import kafka_server

from sinks.kafka import sink
from sinks.kafka.config import Config
from tokiod.change_sink import SinkSite
from tokiod.consume import Consumer

PASSWORDS = {"file:kafka-password": kafka_server.LOGIN[1], "file:wrong": "battery staple"}


def new_sink(server, topic, **options):
    """Return a sink that writes to the plain listener, unless options name another."""
    config = Config(name="k", kind="kafka", topic=topic, **{"servers": (server.address,), "timeout": 10} | options)
    assert config.faults() == []
    return sink(config, SinkSite(PASSWORDS.__getitem__, None))


def secured(server, **options):
    """Return the options of the listener with TLS and SCRAM."""
    login = {"login": "SCRAM-SHA-512", "user": kafka_server.LOGIN[0], "password_file": "kafka-password"}
    return {"servers": (server.secured,), "tls": True, "tls_ca": server.ca} | login | options


def sent(sink, *spans):
    """Send the blocks of spans, one after the other; return what was acknowledged."""

    async def run():
        try:
            await sink.open()
            return [await sink.send(blocks) for blocks in spans]
        finally:
            await sink.close()
            # A connection that is closed with something to write waits for a server that reads no more, and would outlive its loop.
            for transport in list(asyncio.get_running_loop()._transports.values()):
                transport.abort()
            await asyncio.sleep(0)

    return asyncio.run(run())


def updates(server, topic):
    """Return the rows that a topic holds, oldest first."""
    with Consumer(server.address, [topic], follow=False) as consumer:
        found = list(consumer)
        assert consumer.fold.malformed == 0
    return found


def folded(found):
    """Return the cells of each row by system, dataset and epoch second, without missing ones, as updates in this order leave them."""
    rows = {}
    for one in found:
        for time in range(one.start, one.end):
            rows.pop((one.system, one.dataset, time), None)
        for time, row in zip(one.times.tolist(), one.values.tolist(), strict=True):
            if cells := {name: value for name, value in zip(one.batch.columns, row, strict=True) if not math.isnan(value)}:
                rows[one.system, one.dataset, time] = cells
    return rows
