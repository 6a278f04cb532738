"""Endpoints and raw sockets, as for the bus."""

import tempfile
from pathlib import Path

import pytest
import zmq
from keyed import Keyring

from tokiod.simulator.sources import free_port


@pytest.fixture
def sockets():
    with tempfile.TemporaryDirectory(prefix="feed") as directory:
        yield Path(directory)


@pytest.fixture
def tcp():
    return f"tcp://127.0.0.1:{free_port()}"


@pytest.fixture
def keyring(tmp_path):
    return Keyring(tmp_path / "keys")


@pytest.fixture
def raw():
    """Make raw ZeroMQ sockets; subscriptions are made before they connect."""
    context, made = zmq.Context(), []

    def socket(kind, endpoint, *topics, keys=None, **options):
        one = context.socket(kind)
        one.linger, one.rcvtimeo = 0, 5000
        for name, value in options.items():
            setattr(one, name, value)
        for topic in topics:
            one.subscribe(topic)
        if keys is not None:
            keys.secure(one)
        one.connect(endpoint)
        made.append(one)
        return one

    yield socket
    for one in made:
        one.close(0)
    context.term()
