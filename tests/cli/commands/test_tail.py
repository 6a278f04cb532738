"""`tokioctl tail` of a feed that lets only those in who have a key."""

import subprocess
import sys

import numpy as np
import pytest
from keyed import Keyring, wait

from tokiod.batch import Batch
from tokiod.bus.feed import Feed
from tokiod.cli.commands.tail import _prefix
from tokiod.config.load import load

CONFIG = """\
timezone = "UTC"
secrets = "{directory}"
[archive]
path = "{directory}/tts/%Y-%m-%d/{{system}}.hdf5"
[bus]
endpoint = "ipc://{directory}/bus"
[feed]
endpoint = "ipc://{directory}/feed"
secret_key_file = "server.key_secret"
clients = "clients"
[[source]]
name = "one"
kind = "lmt"
system = "fs"
url = "sqlite:///none"
"""
CELLS = Batch("datatargets/readbytes", "gauge", 5, ("a", "b"), np.array([0, 0]), np.array([0, 1], np.uint32), np.array([1.5, np.nan]))


@pytest.fixture
def keyring(tmp_path):
    (tmp_path / "tokiod.toml").write_text(CONFIG.format(directory=tmp_path))
    return Keyring(tmp_path)


def tail(keyring, *options):
    return [sys.executable, "-m", "tokiod.cli.tokioctl", "tail", "--config", str(keyring.directory / "tokiod.toml"), *map(str, options)]


@pytest.mark.system
def test_with_both_keys_the_cells_of_a_guarded_feed_are_told(keyring):
    keyring.allowed("me")
    keys = ["--key", keyring.directory / "me.key_secret", "--server-key", keyring.directory / "server.key"]
    with (
        Feed(f"ipc://{keyring.directory}/feed", "one", keys=keyring.server_keys()) as feed,
        subprocess.Popen(tail(keyring, "fs", "--csv", *keys), stdout=subprocess.PIPE, text=True) as process,
    ):
        try:
            wait(feed.poll, 30)
            feed.publish("fs", CELLS, 60)
            lines = [process.stdout.readline() for _ in range(3)]
        finally:
            process.kill()
    cell = "1970-01-01T00:00:00Z,fs,datatargets/readbytes"
    assert lines == ["time,system,dataset,column,value\n", f"{cell},a,1.5\n", f"{cell},b,\n"]


def test_without_keys_it_says_which_to_give(keyring):
    done = subprocess.run(tail(keyring), capture_output=True, text=True, check=False, timeout=150)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "give both --key (your secret key) and --server-key (its public key)" in done.stderr


@pytest.mark.parametrize(
    ("topic", "reason"),
    [
        ("fs/datatargets/readbyts", "fs has no 'datatargets/readbyts', did you mean datatargets/readbytes?"),
        ("fs/datatarget/", "fs has no 'datatarget/', did you mean "),
        ("fs/x", "fs has no 'x'; known: dataservers/cpuload, "),
        ("fs/datatargets/readbytes/", "fs has no 'datatargets/readbytes/', did you mean datatargets/readbytes?"),
        ("fz", "unknown system 'fz'; known: fs"),
        ("fz/datatargets/readbytes", "unknown system 'fz'; known: fs"),
    ],
)
def test_a_topic_that_no_source_fills_is_refused(keyring, topic, reason):
    done = subprocess.run(tail(keyring, topic), capture_output=True, text=True, check=False, timeout=150)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert f": {reason}" in done.stderr


@pytest.mark.parametrize("topic", ["", "fs", "fs/", "fs/data", "fs/datatargets/", "fs/datatargets/readbytes"])
def test_a_topic_is_the_beginning_of_what_a_source_fills(keyring, topic):
    assert _prefix(load(keyring.directory / "tokiod.toml"), topic) == ("fs/" if topic == "fs" else topic)
