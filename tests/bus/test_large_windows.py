"""Windows at the real limits, over a real connection: each crosses the bus whole or is refused for good; none is retried for ever."""

import asyncio
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest
import zmq

from tokiod.batch import Batch
from tokiod.bus import protocol
from tokiod.bus.protocol import Hello, Welcome
from tokiod.bus.receiver import Receiver
from tokiod.bus.sender import Sender, Stored
from tokiod.errors import Refusal
from tokiod.window import Window
from tokiod.window_data import Collected, WindowMeta

NOON = 1_517_184_000 + 12 * 3600


@contextmanager
def writer(endpoint):
    """Acknowledge windows in a thread of its own; yield those that arrived."""
    arrived, over = [], threading.Event()

    def work():
        with Receiver(endpoint, "this-run") as receiver:
            while not over.is_set():
                for one in receiver.poll(50):
                    arrived.append(one.collected)
                    receiver.ack(one, sum(len(batch) for batch in one.collected.batches), {})
                receiver.beat()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield arrived
    finally:
        over.set()
        thread.join()


def submitted(endpoint, *windows, seconds=60):
    """Return the answers to windows that are submitted one after the other."""

    async def main():
        async with Sender(endpoint, silence=20.0) as sender, asyncio.timeout(seconds):
            answers = [await sender.submit(one) for one in windows]
            return await asyncio.gather(*answers)

    return asyncio.run(main())


def matrix(width, height, datasets=1, name="c{:05d}", step=10):
    """Return a window of whole rows."""
    row = np.repeat(np.arange(height), width)
    column = np.tile(np.arange(width, dtype=np.uint32), height)
    time_, names, value = NOON + row * step, tuple(map(name.format, range(width))), (row * 7 + column).astype(float)
    batches = [Batch(f"datatargets/d{number}", "gauge", step, names, time_, column, value + number) for number in range(datasets)]
    return Collected(WindowMeta("es", "collectd_es", "fs", Window(NOON, NOON + height * step)), batches)


def plain(batch):
    arrays = [array.tobytes() for array in (batch.time, batch.column, batch.value)]
    return batch.dataset, batch.form, batch.step, batch.columns, arrays


@pytest.mark.parametrize(
    ("what", "window"),
    [
        ("48,000 columns x 1 h", lambda: matrix(48_000, 360)),
        ("26 datasets x 248 columns x 3 h", lambda: matrix(248, 2160, datasets=26, step=5)),
        ("names of 400 characters", lambda: matrix(6_000, 20, name="{:0400d}")),
        ("a row longer than a part", lambda: matrix(300_000, 3)),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
@pytest.mark.system
def test_a_window_of_any_shape_crosses_the_bus_and_arrives_as_it_was(endpoint, what, window):
    sent, small = window(), matrix(4, 12)
    with writer(endpoint) as arrived:
        answers = submitted(endpoint, sent, small)
    assert [type(one) for one in answers] == [Stored, Stored], what
    assert answers[0].cells == sum(len(batch) for batch in sent.batches)
    first, second = arrived
    assert [plain(batch) for batch in first.batches] == [plain(batch) for batch in sent.batches]
    assert [plain(batch) for batch in second.batches] == [plain(batch) for batch in small.batches]


@pytest.mark.system
def test_a_window_that_can_not_cross_is_refused_for_good_with_the_remedy_and_holds_up_no_other(endpoint):
    # The arrays of 26 batches share their memory: 585 MB are sent, 22 MB exist.
    large = matrix(248, 4536)
    (batch,) = large.batches
    large = Collected(large.meta, [Batch(f"g/d{n}", "gauge", 10, *list(plain_arrays(batch))) for n in range(26)])
    with writer(endpoint) as arrived:
        first, second = submitted(endpoint, large, matrix(4, 12))
    assert isinstance(first, Refusal)
    assert (first.when, first.message) == (
        "never",
        "source es: a window of 558 MiB or more, the limit is 512 MiB: set a shorter `window` in its section",
    )
    assert isinstance(second, Stored)
    assert len(arrived) == 1


def plain_arrays(batch):
    return batch.columns, batch.time, batch.column, batch.value


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("\x1b]0;owned\x07", r"columns: column 3, '\x1b]0;owned\x07': expected 1 to 400 printable characters"),
        ("x" * 401, f"columns: column 3, '{'x' * 40}'... of 401 characters: expected 1 to 400 printable characters"),
        ("two\nlines", r"columns: column 3, 'two\nlines': expected 1 to 400 printable characters"),
    ],
)
def test_a_name_that_the_other_side_would_not_decode_is_refused_for_good_with_its_place(endpoint, name, place):
    window = matrix(4, 2)
    (batch,) = window.batches
    odd = Collected(window.meta, [Batch("g/d", "gauge", 10, (*batch.columns[:3], name), *plain_arrays(batch)[1:])])
    with writer(endpoint) as arrived:
        first, second = submitted(endpoint, odd, window)
    assert (first.when, first.message) == ("never", f"source es: {place}")
    assert isinstance(second, Stored)
    assert len(arrived) == 1


def test_a_client_that_announces_a_frame_of_more_than_2_mib_is_disconnected_before_it_sends_it(endpoint, raw):
    with Receiver(endpoint, "this-run") as receiver:
        dealer = raw(zmq.DEALER, endpoint)
        dealer.send(protocol.encode(Hello("large", 1)))
        wait_for(receiver, lambda: dealer.poll(0))
        assert protocol.decode_from_writer(dealer.recv()) == Welcome("this-run")
        events = dealer.get_monitor_socket(zmq.EVENT_DISCONNECTED)
        try:
            dealer.send_multipart([b"x" * 100, b"y" * ((2 << 20) + 1)])
            wait_for(receiver, lambda: events.poll(0))
        finally:
            dealer.disable_monitor()
            events.close(0)


def wait_for(receiver, condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        receiver.poll(10)
