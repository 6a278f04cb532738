"""The archive's lock: real processes, real kills."""

import os
import signal
import subprocess
import sys
import textwrap
import threading

import pytest

from tokiod.archive.lock import ArchiveLock, ArchiveLocked, lasting_owner, lock_owner
from tokiod.errors import TokiodError


def start(code: str, *arguments: str) -> subprocess.Popen:
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code), *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    return process


HOLD = """
    import sys, signal, pathlib
    from tokiod.archive.lock import ArchiveLock
    with ArchiveLock(pathlib.Path(sys.argv[1])):
        print("ready", flush=True)
        signal.pause()
"""


def test_a_second_writer_is_refused_by_name_and_the_lock_dies_with_its_owner(tmp_path):
    path = tmp_path / "state" / "lock"
    owner = start(HOLD, str(path))
    with owner:
        assert lock_owner(path) == owner.pid
        with pytest.raises(ArchiveLocked, match=f"process {owner.pid} already writes to this archive"), ArchiveLock(path, timeout=0):
            pass
        owner.send_signal(signal.SIGKILL)
        owner.wait()
        assert lock_owner(path) is None
        with ArchiveLock(path, timeout=0):
            assert lock_owner(path) == os.getpid()
    assert lock_owner(path) is None


def test_a_writer_whose_supervisor_is_gone_is_waited_for_longer_than_one_that_works(tmp_path):
    path = tmp_path / "lock"
    ending = """
        import sys, time, pathlib
        from tokiod.archive.lock import ArchiveLock
        with ArchiveLock(pathlib.Path(sys.argv[1])):
            print("ready", flush=True)
            time.sleep(2)
    """
    with start(ending, str(path), "--parent", "1") as abandoned:
        assert lasting_owner(path, timeout=0.1) is None
        assert abandoned.wait(1) == 0
    with start(ending, str(path), "--parent", str(os.getpid())) as working:
        assert lasting_owner(path, timeout=0.1) == working.pid
        with pytest.raises(ArchiveLocked), ArchiveLock(path, timeout=0.1):
            pass
    with start(ending, str(path), "--parent", "1"), ArchiveLock(path, timeout=0.1):
        assert lock_owner(path) == os.getpid()


def test_a_writer_waits_a_moment_for_the_one_that_is_ending(tmp_path):
    path = tmp_path / "lock"
    ending = start(
        """
        import sys, time, pathlib
        from tokiod.archive.lock import ArchiveLock
        with ArchiveLock(pathlib.Path(sys.argv[1])):
            print("ready", flush=True)
            time.sleep(0.3)
        """,
        str(path),
    )
    with ending, ArchiveLock(path):
        assert lock_owner(path) == os.getpid()


def test_an_owner_that_is_ending_does_not_count_as_a_lasting_one(tmp_path):
    path = tmp_path / "lock"
    with start(HOLD, str(path)) as owner:
        assert lasting_owner(path, timeout=0.2) == owner.pid
        threading.Timer(0.3, owner.kill).start()
        assert lasting_owner(path) is None


def test_a_directory_that_cannot_be_made_is_a_sentence_with_the_way_out(tmp_path):
    (tmp_path / "file").write_text("not a directory")
    with (
        pytest.raises(TokiodError, match=r"can't lock the archive: .*/file/lock; make it writable"),
        ArchiveLock(tmp_path / "file" / "lock"),
    ):
        pass


def test_no_lock_file_means_no_owner(tmp_path):
    assert lock_owner(tmp_path / "none") is None
