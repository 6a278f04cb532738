"""Worker processes: real ones, and a parent that is killed."""

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tokiod.toolkit.worker_pool import workers

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
