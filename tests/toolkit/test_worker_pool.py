"""Worker processes: real ones, and a parent that is killed."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest

from tokiod.toolkit.worker_pool import FilesInMemory, workers

PARENT = """
import os, time
from tokiod.toolkit.worker_pool import workers
with workers(1) as pool:
    print(pool.submit(os.getpid).result(), flush=True)
    pool.submit(time.sleep, 60)
    time.sleep(60)
"""


def runs(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_workers_end_with_the_block():
    with workers(1) as pool:
        pid = pool.submit(os.getpid).result(timeout=150)
        assert runs(pid)
        assert pid != os.getpid()
    assert not runs(pid)


@pytest.mark.parametrize("way", ["kill", "terminate"])
def test_workers_end_with_a_parent_that_is_killed(way):
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        pid = int(parent.stdout.readline())
        assert runs(pid)
        getattr(parent, way)()
        parent.wait(timeout=100)
    for _ in range(100):
        if not runs(pid):
            break
        time.sleep(0.05)
    assert not runs(pid)


def beginning(path, size):
    """The beginning of a file."""
    return Path(path).read_bytes()[:size]


def test_bytes_reach_workers_by_files_that_are_used_again():
    pieces = [os.urandom(size) for size in (10, 0, 3_000_000, 70_000, 3_900_000, 5)]
    with contextlib.closing(FilesInMemory()) as files, workers(2) as pool:
        for _ in range(3):
            submitted = [files.submit(pool, beginning, piece, len(piece)) for piece in pieces]
            assert [future.result(timeout=150) for future in submitted] == pieces
        # A map has a descriptor of its own.
        assert memory_files() <= 2 * len(pieces)
    assert memory_files() == 0


def die(_path):
    os.kill(os.getpid(), signal.SIGKILL)


def memory_files():
    """How many of our descriptors are files in memory that hand bytes to workers."""
    found = 0
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            found += "tokiod-work" in str(link.readlink())
    return found


def test_a_pool_that_is_broken_takes_no_bytes():
    with contextlib.closing(FilesInMemory()) as files, workers(1) as pool:
        assert files.submit(pool, beginning, b"abc", 3).result(timeout=150) == b"abc"
        with pytest.raises(BrokenProcessPool):
            files.submit(pool, die, b"abc").result(timeout=150)
        with pytest.raises(BrokenProcessPool):
            files.submit(pool, beginning, b"abc", 3)
