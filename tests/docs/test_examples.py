"""The programs in docs/examples do what they say: the C one is compiled and run, the frame is held against a dictionary."""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokiod.batch import Batch
from tokiod.bus.feed import Feed

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
EPOCH = 1_517_184_000
READ = "datatargets/readbytes"
CONFIG = """\
timezone = "UTC"
[archive]
path = "{directory}/tts/%Y-%m-%d/{{system}}.hdf5"
[bus]
endpoint = "ipc://{directory}/bus"
[feed]
endpoint = "ipc://{directory}/feed"
"""


def batch(cells, columns=("OST0000", "OST0001")):
    """A batch of {(row, column): value}."""
    rows, indices = (np.array(side) for side in zip(*cells, strict=True))
    return Batch(READ, "gauge", 60, columns, EPOCH + 60 * rows, indices.astype(np.uint32), np.array(list(cells.values()), float))


def absent(reason):
    pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)


@pytest.fixture
def directory():
    with tempfile.TemporaryDirectory(prefix="feed") as directory:
        (Path(directory) / "tokiod.toml").write_text(CONFIG.format(directory=directory))
        yield Path(directory)


def until_known(feed):
    deadline = time.monotonic() + 30
    while not feed.poll():
        assert time.monotonic() < deadline, "no subscription"
        time.sleep(0.001)


# ---- subscriber.c


def test_the_subscriber_in_c_has_no_more_than_sixty_lines():
    assert len((EXAMPLES / "subscriber.c").read_text().splitlines()) <= 60


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    if shutil.which("gcc") is None or not Path("/usr/include/zmq.h").exists():
        absent("gcc or libzmq's headers are not installed: apt-get install gcc libc6-dev libzmq3-dev")
    made = tmp_path_factory.mktemp("c") / "subscriber"
    command = [
        "gcc",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-fsanitize=address,undefined",
        str(EXAMPLES / "subscriber.c"),
        "-lzmq",
        "-o",
        str(made),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stderr
    return made


@pytest.mark.system
def test_the_subscriber_in_c_prints_every_cell_and_a_new_writer_and_has_missed_nothing_when_it_is_new(program, directory):
    endpoint = f"ipc://{directory}/feed"
    with Feed(endpoint, "one") as feed:
        feed.publish("fs", batch({(0, 0): 1.0}), EPOCH)
        # Lines and not blocks: what it prints in a pipe is flushed, message by message.
        with subprocess.Popen([program, endpoint, "fs/"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            try:
                until_known(feed)
                feed.publish("elsewhere", batch({(0, 0): 7.0}), EPOCH)
                feed.publish("fs", batch({(1, 0): 0.1, (1, 1): np.nan, (2, 1): 2.0**60}), EPOCH + 60)
                assert [process.stdout.readline() for _ in range(3)] == [
                    f"{EPOCH + 60},fs/{READ},OST0000,0.10000000000000001\n",
                    f"{EPOCH + 60},fs/{READ},OST0001,nan\n",
                    f"{EPOCH + 120},fs/{READ},OST0001,1.152921504606847e+18\n",
                ]
                feed.close()
                with Feed(endpoint, "two") as another:
                    until_known(another)
                    another.publish("fs", batch({(3, 2): 5.0}, ("OST0000", "OST0001", "OST0002")), EPOCH + 240)
                    assert process.stdout.readline() == f"{EPOCH + 180},fs/{READ},OST0002,5\n"
                    assert process.stderr.readline() == f"fs/{READ}: a new writer: read the file\n"
            finally:
                process.kill()


@pytest.mark.system
def test_the_subscriber_in_c_reports_what_it_missed(program, directory, raw_publisher):
    socket = raw_publisher(f"ipc://{directory}/feed")
    with subprocess.Popen([program, f"ipc://{directory}/feed"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert socket.recv() == b"\x01"
            for sequence in (5, 6, 9):
                header = f'{{"stored":{{"epoch":"one","sequence":{sequence},"watermark":0}}}}'.encode()
                socket.send_multipart([b"fs/a/b", header, b"x", bytes(8), bytes(4), bytes(8)])
            socket.send_multipart([b"fs/a/b", header.replace(b":9,", b":10,")])
            assert [process.stderr.readline() for _ in range(2)] == ["fs/a/b: missed 2\n", "fs/a/b: missed 1\n"]
        finally:
            process.kill()


@pytest.mark.system
def test_malformed_messages_neither_end_the_subscriber_in_c_nor_are_told(program, directory, raw_publisher):
    socket = raw_publisher(f"ipc://{directory}/feed")
    with subprocess.Popen([program, f"ipc://{directory}/feed"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert socket.recv() == b"\x01"
            header = b'{"stored":{"epoch":"one","sequence":1,"watermark":0}}'
            for frames in (
                [b"fs/a/b"],
                [b"fs/a/b", b"{"],
                [b"fs/a/b", header, b"x", b"1234", b"1", b"12"],
                [b"fs/a/b", header, b"x", bytes(8), (7).to_bytes(4, "little"), bytes(8)],
                [b"y" * 2000, b'{"epoch":"' + b"z" * 2000],
                [b"fs/a/b", header, b"x", bytes(8), bytes(4), bytes(8)],
            ):
                socket.send_multipart(frames)
            assert process.stdout.readline() == "0,fs/a/b,x,0\n"
        finally:
            process.kill()


@pytest.fixture
def raw_publisher():
    import zmq  # noqa: PLC0415 - as below

    context, made = zmq.Context(), []

    def bind(endpoint):
        socket = context.socket(zmq.XPUB)
        socket.rcvtimeo = 20_000
        socket.bind(endpoint)
        made.append(socket)
        return socket

    yield bind
    for socket in made:
        socket.close(0)
    context.term()


# ---- last_hour.py


@pytest.fixture(scope="module")
def last_hour():
    pytest.importorskip("pandas")
    spec = importlib.util.spec_from_file_location("last_hour", EXAMPLES / "last_hour.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


cells = st.dictionaries(
    st.tuples(st.integers(0, 150), st.integers(0, 2)), st.one_of(st.just(float("nan")), st.floats(0, 9)), min_size=1, max_size=20
)


@given(st.lists(cells, min_size=1, max_size=6))
@settings(max_examples=50)
def test_the_frame_is_the_last_hour_of_all_that_was_told(last_hour, told):
    import pandas as pd  # noqa: PLC0415 - an extra

    frame, known = pd.DataFrame(index=pd.DatetimeIndex([], tz="UTC")), {}
    for i, news in enumerate(told):
        names = ("a", "b", "c") if i % 2 else ("c", "b", "a")
        frame = last_hour.drawn(frame, batch(news, names))
        known |= {(row, names[column]): value for (row, column), value in news.items()}
        newest = max(row for row, _ in known)
        known = {(row, name): value for (row, name), value in known.items() if row > newest - 60}
    there = {
        ((int(stamp.timestamp()) - EPOCH) // 60, name): value
        for name in frame.columns
        for stamp, value in frame[name].items()
        if not np.isnan(value)
    }
    assert there == {key: value for key, value in known.items() if not np.isnan(value)}
    assert frame.index.is_monotonic_increasing


@pytest.mark.system
def test_the_frame_follows_a_feed(directory):
    pytest.importorskip("pandas")
    command = [sys.executable, str(EXAMPLES / "last_hour.py"), str(directory / "tokiod.toml"), f"fs/{READ}"]
    with Feed(f"ipc://{directory}/feed", "one") as feed, subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            until_known(feed)
            feed.publish("fs", batch({(1, 0): 0.5, (1, 1): 3.0}), EPOCH + 60)
            lines = [process.stdout.readline().split() for _ in range(2)]
        finally:
            process.kill()
    assert lines == [["OST0000", "OST0001"], ["2018-01-29", "00:01:00+00:00", "0.5", "3.0"]]
