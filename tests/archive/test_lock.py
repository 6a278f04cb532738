"""The archive's lock: real processes, real kills."""

import errno
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
from contextlib import contextmanager

import pytest
from users import READERS, SERVICE, USERS, need_users, open_directory, python

from tokiod.archive.lock import AlreadyRunning, ProcessLock, lasting_owner, lock_owner
from tokiod.archive.rights import make_private
from tokiod.errors import TokiodError


def start(code: str, *arguments: str) -> subprocess.Popen:
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code), *arguments], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    return process


@contextmanager
def killed(process: subprocess.Popen):
    """Kill a process at the end, so that a failed assertion waits for none."""
    try:
        yield
    finally:
        process.kill()


HOLD = """
    import sys, signal, pathlib
    from tokiod.archive.lock import ProcessLock
    with ProcessLock(pathlib.Path(sys.argv[1])):
        print("ready", flush=True)
        signal.pause()
"""


HOLD_SHOWN = """
    import sys, signal, pathlib
    from tokiod.archive.lock import ProcessLock
    path, shown = map(pathlib.Path, sys.argv[1:])
    with ProcessLock(path, owner=shown):
        print("ready", flush=True)
        signal.pause()
"""
READ_LOCK = """
    import fcntl, os, signal, struct, sys
    fd = os.open(sys.argv[1], os.O_RDONLY)
    fcntl.fcntl(fd, fcntl.F_SETLK, struct.pack("hhqqi4x", fcntl.F_RDLCK, 0, 0, 0, 0))
    fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    print("locked", flush=True)
    signal.pause()
"""


def test_a_second_writer_is_refused_by_name_and_the_lock_dies_with_its_owner(tmp_path):
    path = tmp_path / "state" / "lock"
    owner = start(HOLD, str(path))
    with owner:
        assert lock_owner(path) == owner.pid
        with pytest.raises(AlreadyRunning, match=f"process {owner.pid} already writes to this archive"), ProcessLock(path, timeout=0):
            pass
        owner.send_signal(signal.SIGKILL)
        owner.wait()
        assert lock_owner(path) is None
        with ProcessLock(path, timeout=0):
            assert lock_owner(path) == os.getpid()
    assert lock_owner(path) is None


def test_a_writer_whose_supervisor_is_gone_is_waited_for_longer_than_one_that_works(tmp_path):
    path = tmp_path / "lock"
    ending = """
        import sys, time, pathlib
        from tokiod.archive.lock import ProcessLock
        with ProcessLock(pathlib.Path(sys.argv[1])):
            print("ready", flush=True)
            time.sleep(2)
    """
    with start(ending, str(path), "--parent", "1") as abandoned:
        assert lasting_owner(path, timeout=0.1) is None
        assert abandoned.wait(1) == 0
    with start(ending, str(path), "--parent", str(os.getpid())) as working:
        assert lasting_owner(path, timeout=0.1) == working.pid
        with pytest.raises(AlreadyRunning), ProcessLock(path, timeout=0.1):
            pass
    with start(ending, str(path), "--parent", "1"), ProcessLock(path, timeout=0.1):
        assert lock_owner(path) == os.getpid()


def test_a_writer_waits_a_moment_for_the_one_that_is_ending(tmp_path):
    path = tmp_path / "lock"
    ending = start(
        """
        import sys, time, pathlib
        from tokiod.archive.lock import ProcessLock
        with ProcessLock(pathlib.Path(sys.argv[1])):
            print("ready", flush=True)
            time.sleep(0.3)
        """,
        str(path),
    )
    with ending, ProcessLock(path):
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
        ProcessLock(tmp_path / "file" / "lock"),
    ):
        pass


WITHOUT_FLOCK = f"""
import ctypes, struct
# Each flock() of this process and its children reports {errno.ENOSYS}, as on a Lustre client without -o flock: a filter of seccomp.
steps = ((0x20, 0, 0, 0), (0x15, 0, 1, {{"x86_64": 73, "aarch64": 32}}[__import__("platform").machine()]),
         (0x06, 0, 0, 0x00050000 | {errno.ENOSYS}), (0x06, 0, 0, 0x7FFF0000))
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code)))
prctl = ctypes.CDLL(None, use_errno=True).prctl
assert prctl(38, 1, 0, 0, 0) == 0 and prctl(22, 2, ctypes.byref(program), 0, 0) == 0, ctypes.get_errno()
"""
LOCK_IT = """
import sys, pathlib
from tokiod.archive.lock import ProcessLock, lock_owner
from tokiod.errors import TokiodError
path = pathlib.Path(sys.argv[1])
try:
    with ProcessLock(path):
        print("locked")
except TokiodError as error:
    print(error)
print(lock_owner(path))
"""


def test_a_file_system_without_locks_is_a_sentence_with_the_way_out(tmp_path):
    path = tmp_path / "lock"
    done = subprocess.run([sys.executable, "-c", WITHOUT_FLOCK + LOCK_IT, str(path)], capture_output=True, text=True, check=False)
    sentence = f"can't lock the archive: Function not implemented: {path}; mount its file system with locks (Lustre: -o flock)"
    assert (done.stdout.splitlines(), done.stderr) == ([sentence, "None"], "")


@pytest.mark.parametrize("command", ["run", "writer"])
def test_on_a_file_system_without_locks_a_daemon_ends_with_one_sentence(tmp_path, command):
    config = tmp_path / "tokiod.toml"
    config.write_text(
        f'timezone = "UTC"\n[archive]\npath = "{tmp_path}/tts/%Y-%m-%d/{{system}}.hdf5"\n'
        f'[bus]\nendpoint = "ipc://{tmp_path}/bus"\n[feed]\nendpoint = "ipc://{tmp_path}/feed"\n'
    )
    start_it = f"import sys\nsys.argv[1:] = ['{command}', '--config', '{config}']\nfrom tokiod.cli.tokiod import main\nmain()\n"
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_FLOCK + start_it], capture_output=True, text=True, check=False, timeout=300, cwd=tmp_path
    )
    output = done.stdout + done.stderr
    assert (done.returncode, "Traceback" in output) == (2, False), output
    # The first of the daemon's processes that needs a lock ends it.
    assert re.search("can't lock the (archive|collectors): Function not implemented", output), output


def test_no_lock_file_means_no_owner(tmp_path):
    assert lock_owner(tmp_path / "none") is None


def test_users_who_may_not_open_the_lock_see_its_owner_and_can_not_stop_it():
    need_users()
    with open_directory() as directory:
        path, shown = directory / "private" / "lock", directory / "shown" / "writer.pid"
        with start(HOLD_SHOWN, str(path), str(shown)) as owner, killed(owner):
            shown.parent.chmod(0o755)
            os.chown(shown, 0, READERS)
            assert lock_owner(path, shown) == owner.pid
            ask = "import sys, pathlib; from tokiod.archive.lock import lock_owner; print(lock_owner(*map(pathlib.Path, sys.argv[1:])))"
            assert USERS["reader"].python(ask, path, shown).stdout == f"{owner.pid}\n"
            assert USERS["outsider"].python(ask, path, shown).stdout == "None\n"
            attack = ["flock", "--shared", "--nonblock", str(path), "echo", "locked"]
            assert USERS["reader"].run(*attack).returncode != 0
            owner.send_signal(signal.SIGKILL)
            owner.wait()
            assert USERS["reader"].python(ask, path, shown).stdout == "None\n"
        # A reader that locks what it can read does not keep the next owner from its lock, nor from being seen.
        holder = subprocess.Popen(USERS["reader"].command(python(), "-c", textwrap.dedent(READ_LOCK), shown), stdout=subprocess.PIPE)
        with holder:
            try:
                assert holder.stdout.readline() == b"locked\n"
                with ProcessLock(path, timeout=0, owner=shown):
                    os.chown(shown, 0, READERS)
                    assert USERS["reader"].python(ask, path, shown).stdout == f"{os.getpid()}\n"
            finally:
                holder.kill()


def test_root_does_not_write_to_the_archive_of_another_user():
    need_users()
    with open_directory() as directory:
        os.chown(directory, SERVICE, SERVICE)
        with pytest.raises(TokiodError, match=f"belongs to user #{SERVICE}: run this as that user"), ProcessLock(directory / "lock"):
            pass
        # Before the daemon has ever run: neither its private directory nor the root of the archive exists.
        with pytest.raises(TokiodError, match=f"{directory} belongs to user #{SERVICE}"), ProcessLock(directory / "tts/.tokiod/lock"):
            pass
        with pytest.raises(TokiodError, match=f"{directory} belongs to user #{SERVICE}"):
            make_private(directory / "private")
        assert list(directory.iterdir()) == []
