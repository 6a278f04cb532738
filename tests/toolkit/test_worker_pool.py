"""Worker processes: real ones, and a parent that is killed."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest

from tokiod.toolkit.worker_pool import FilesInMemory, workers

PARENT = """
import os, time
from tokiod.toolkit.worker_pool import workers
with workers(1, fork={fork}) as pool:
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


@pytest.mark.parametrize("fork", [False, True])
@pytest.mark.parametrize("way", ["kill", "terminate"])
def test_workers_end_with_a_parent_that_is_killed(way, fork):
    with subprocess.Popen([sys.executable, "-c", PARENT.format(fork=fork)], stdout=subprocess.PIPE, text=True) as parent:
        pid = int(parent.stdout.readline())
        assert runs(pid)
        getattr(parent, way)()
        parent.wait(timeout=100)
    for _ in range(100):
        if not runs(pid):
            break
        time.sleep(0.05)
    assert not runs(pid)


HALF_A_RESULT = """
from concurrent.futures.process import BrokenProcessPool
from tests.toolkit.test_worker_pool import large_when_stopped, workers
with workers(2, fork={fork}) as pool:
    future = pool.submit(large_when_stopped)
    try:
        print(len(future.result()))
    except BrokenProcessPool:
        print("broken")
"""


def large_when_stopped():
    """Return more than a pipe takes when the parent stands still, so that this process is left with half of it in the pipe."""
    print(os.getpid(), flush=True)
    while Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        time.sleep(0.01)
    return bytes(10_000_000)


@pytest.mark.parametrize("fork", [False, True])
def test_a_worker_that_is_killed_with_half_a_result_sent_breaks_the_pool(fork):
    with subprocess.Popen([sys.executable, "-c", HALF_A_RESULT.format(fork=fork)], stdout=subprocess.PIPE, text=True) as parent:
        pid = int(parent.stdout.readline())
        parent.send_signal(signal.SIGSTOP)
        wait_until_it_waits(pid)
        os.kill(pid, signal.SIGKILL)
        parent.send_signal(signal.SIGCONT)
        try:
            assert parent.communicate(timeout=60)[0] == "broken\n"
        finally:
            parent.kill()


def wait_until_it_waits(pid):
    """Wait until a process has had no processor for a while."""
    used = None
    while used != (used := Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]):
        time.sleep(0.5)


@pytest.mark.parametrize("fork", [False, True])
def test_a_pool_breaks_whole_when_a_worker_is_killed_and_cancelled_calls_do_not_matter(fork):
    with workers(2, fork=fork) as pool:
        sleeping = [pool.submit(time.sleep, 600) for _ in range(2)]
        waiting = [pool.submit(os.getpid) for _ in range(3)]
        waiting[1].cancel()
        while len(pool._processes) < 2:
            time.sleep(0.01)
        os.kill(pool._processes[1].pid, signal.SIGKILL)
        for future in [*sleeping, waiting[0], waiting[2]]:
            with pytest.raises(BrokenProcessPool):
                future.result(timeout=60)
    assert waiting[1].cancelled()
    assert not any(process.is_alive() for process in pool._processes)


def test_many_workers_outlive_the_thread_that_makes_their_pool():
    with contextlib.ExitStack() as stack:
        made = []
        thread = threading.Thread(target=lambda: made.append(stack.enter_context(workers(60))))
        thread.start()
        thread.join()
        (pool,) = made
        assert len({future.result(timeout=150) for future in [pool.submit(slow_pid) for _ in range(120)]}) > 1


def slow_pid():
    time.sleep(0.05)
    return os.getpid()


def test_errors_of_calls_reach_the_caller_and_the_worker_goes_on():
    with workers(1) as pool:
        with pytest.raises(ValueError, match="invalid literal") as caught:
            pool.submit(int, "x").result(timeout=60)
        assert "Traceback" in caught.value.__notes__[0]
        with pytest.raises(AttributeError, match="pickle"):
            pool.submit(lambda: None).result(timeout=60)
        with pytest.raises(TypeError, match="pickle"):
            pool.submit(open, os.devnull).result(timeout=60)
        assert pool.submit(int, "7", base=8).result(timeout=60) == 7
    with pytest.raises(RuntimeError, match="shutdown"):
        pool.submit(int, "7")


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
