"""Endpoints short enough for a Unix socket, keys, raw sockets that are always closed, and windows to send."""

import tempfile
from pathlib import Path

import numpy as np
import pytest
import zmq
from keyed import Keyring

from tokiod.batch import Batch
from tokiod.bus.curve import ClientKeys
from tokiod.simulator.sources import free_port
from tokiod.window import Window
from tokiod.window_data import Collected, WindowMeta


@pytest.fixture
def endpoint():
    with tempfile.TemporaryDirectory(prefix="bus") as directory:
        yield f"ipc://{Path(directory) / 's'}"


@pytest.fixture
def raw():
    """Make raw ZeroMQ sockets."""
    context, sockets = zmq.Context(), []

    def socket(kind, endpoint, **options):
        made = context.socket(kind)
        made.linger = 0
        made.rcvtimeo = 5000
        for name, value in options.items():
            setattr(made, name, value)
        made.connect(endpoint)
        sockets.append(made)
        return made

    yield socket
    for made in sockets:
        made.close(0)
    context.term()


@pytest.fixture
def keyring(tmp_path):
    return Keyring(tmp_path / "keys")


@pytest.fixture
def tcp():
    return f"tcp://127.0.0.1:{free_port()}"


@pytest.fixture
def subscriber(raw, tcp):
    """Make subscribers to everything, with keys or without, at the endpoint or elsewhere."""

    def make(keys: ClientKeys | None = None, endpoint: str = tcp, **options):
        socket = raw(zmq.SUB, "inproc://nowhere", subscribe="", **options)
        socket.disconnect("inproc://nowhere")
        if keys is not None:
            keys.secure(socket)
        socket.connect(endpoint)
        return socket

    return make


@pytest.fixture
def window():
    """Make the number-th window of a source: `parts` datasets of `cells` cells that no other window has."""

    def make(number, parts=1, cells=12, source="cscratch-lmt"):
        start = 1_517_126_400 + 60 * number
        time = start + np.arange(cells, dtype=np.int64) * 60 // max(cells, 1)
        batches = [
            Batch(
                f"datatargets/d{part}",
                "counter",
                5,
                ("OST0000",),
                time,
                np.zeros(cells, np.uint32),
                np.arange(cells) + number * 10**9 + part * 10**6,
            )
            for part in range(parts)
        ]
        return Collected(WindowMeta(source, "lmt", "cscratch", Window(start, start + 60)), batches)

    return make
