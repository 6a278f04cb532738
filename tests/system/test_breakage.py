"""What breaks a daemon from outside, made to happen to real processes, files and disks: each ends with every cell right, by itself."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import h5py
import pytest
from waiting import wait_for

from tokiod.clock import SimulatedClock
from tokiod.errors import TokiodError
from tokiod.simulator.scene import Scene
from tokiod.simulator.site import Site

pytestmark = pytest.mark.system

HISTORY = 600
RATE = 30
RETENTION = 12 * 3600
"""Longer than all tests of the shared daemon take on a busy machine: one that destroys its file has all of its past collected again."""
FROZEN = 6
"""Seconds, some three windows of the simulation: several times what the bus waits for a sign of life."""


@contextmanager
def small_site(tmp, **site):
    """A small site with ten minutes of past, whose database is there; the daemon is not."""
    clock = SimulatedClock(1_517_184_000.0 + 12 * 3600, time.time(), RATE)
    made = Scene(
        Path(tmp), Site(epoch=int(clock.epoch) - HISTORY, timezone="UTC", osts=4, osss=2, mdts=1, **site), clock, retention=RETENTION
    )
    made.prepare()
    try:
        made.start_simulator()
        yield made
    finally:
        made.close()


@pytest.fixture
def scene():
    with tempfile.TemporaryDirectory(prefix="tokiod-") as directory, small_site(directory) as made:
        yield made


@pytest.fixture(scope="module")
def shared():
    """One daemon that tests break one after the other: what one of them leaves broken the next one sees."""
    with tempfile.TemporaryDirectory(prefix="tokiod-") as directory, small_site(directory) as made:
        made.start_daemon()
        yield made


@pytest.fixture
def running(shared):
    try:
        shared.processes()
    except OSError:  # a test ended while it was down
        shared.start_daemon()
    wait_stored(shared)
    return shared


def wait_stored(scene, seconds=40):
    """Wait until everything up to now is stored."""
    end = int(scene.clock.time()) // scene.window * scene.window
    try:
        wait_for(lambda: scene.complete_to(scene.site.epoch, end), seconds, f"not complete up to {end}")
    except TokiodError as error:
        raise TokiodError(f"{error}; see the log: {tail(scene)}") from None


def tail(scene, lines=15):
    return "\n".join(scene.log.read_text().splitlines()[-lines:])


def assert_every_cell_is_right(scene, *, determined=False):
    comparison = scene.compare(determined=determined)
    assert (comparison.differences, comparison.equal) == ([], True)
    assert comparison.filled > HISTORY


def recovers(scene):
    """Everything is stored without a hand, and right while the daemon runs and once it is down."""
    wait_stored(scene)
    assert_every_cell_is_right(scene, determined=True)


def status(scene):
    command = [sys.executable, "-m", "tokiod.cli.tokioctl", "status", "--json"]
    done = subprocess.run(
        [*command, "--config", scene.config_path, "--clock", str(scene.clock)], capture_output=True, text=True, check=False, timeout=150
    )
    return done.returncode, json.loads(done.stdout)


def anonymous(pid):
    text = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"RssAnon:\s+(\d+)", text)[1]) / 1024


# ---- processes


@pytest.mark.parametrize("process", ["writer", "collectors"])
def test_a_process_that_stands_still_for_many_windows_stays_bounded_and_loses_nothing(running, process):
    pid, other = running.pid(process), running.pid("collectors" if process == "writer" else "writer")
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(FROZEN)
        assert anonymous(other) < 200
    finally:
        os.kill(pid, signal.SIGCONT)
    recovers(running)
    assert (running.pid(process), running.pid("collectors" if process == "writer" else "writer")) == (pid, other)


@contextmanager
def little_memory(pid, nbytes):
    """Put a process into a control group of its own, which may not have more than so many bytes beyond what it has."""
    group = Path(f"/sys/fs/cgroup/memory/tokiod-test-{os.getpid()}")
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(nbytes))
        (group / "cgroup.procs").write_text(str(pid))
    except OSError as error:
        with suppress(OSError):
            group.rmdir()
        pytest.skip(f"no control group for memory can be had here: {error}")
    try:
        yield group
    finally:
        for left in (group / "cgroup.procs").read_text().split():
            (group.parent / "cgroup.procs").write_text(left)
        group.rmdir()


@pytest.mark.parametrize("process", ["collectors", "writer"])
def test_a_process_that_the_kernel_kills_for_want_of_memory_is_replaced(running, process):
    pid = running.pid(process)
    with little_memory(pid, 0):
        wait_for(lambda: running.pid(process) not in {None, pid}, 40, f"the {process} live on")
    assert {"child": process, "code": -signal.SIGKILL}.items() <= events(running, "child.died")[-1].items()
    recovers(running)


def events(scene, name):
    """Return what the daemon logged under a name."""
    lines = (json.loads(line) for line in scene.log.read_text().splitlines() if line.startswith("{") and name in line)
    return [line for line in lines if line["event"] == name]


CRASHING = """\
import os, sys
if "writer" in sys.orig_argv and os.path.exists("{flag}"):
    os.abort()
"""


def test_a_writer_that_crashes_at_each_start_is_started_later_and_later_and_recovers_by_itself(scene, monkeypatch):
    flag = scene.directory / "crash"
    (scene.directory / "site").mkdir()
    (scene.directory / "site" / "sitecustomize.py").write_text(CRASHING.format(flag=flag))
    monkeypatch.setenv("PYTHONPATH", str(scene.directory / "site"))
    scene.start_daemon()
    wait_stored(scene)
    collectors = scene.pid("collectors")
    flag.touch()
    scene.kill("writer")
    died = len(deaths(scene))
    time.sleep(7)
    waits = deaths(scene)[died:]
    assert 4 <= len(waits) <= 9
    assert waits == sorted(waits)
    assert max(waits) <= 5
    assert anonymous(collectors) < 200
    assert status(scene)[1]["health"] == "down"
    flag.unlink()
    wait_stored(scene)
    assert scene.pid("collectors") == collectors
    assert scene.stop_daemon() == 0
    assert_every_cell_is_right(scene)
    assert "Traceback" not in scene.log.read_text()


def deaths(scene):
    """After how many seconds a child was started again, each time that one died."""
    return [event["restart_in"] for event in events(scene, "child.died")]


# ---- files


def truncated(path):
    os.truncate(path, path.stat().st_size // 2)


def empty(path):
    os.truncate(path, 0)


def replaced(path):
    other = path.with_name("other")
    shutil.copy(path, other)
    other.replace(path)


def unlinked(path):
    path.unlink()


def overwritten(path):
    """As `cp OTHER FILE` does where OTHER has the same size."""
    path.write_bytes(os.urandom(path.stat().st_size))


def lengthened(path):
    os.truncate(path, path.stat().st_size + 4096)


def of_another_schema(path):
    """Overwrite it in one write: a running daemon may rename it as soon as its size changes."""
    with tempfile.NamedTemporaryFile(suffix=".hdf5") as other:
        with h5py.File(other.name, "w") as file:
            file["measurements"] = [1.0, 2.0]
        path.write_bytes(Path(other.name).read_bytes())


def raw_gone(path):
    with h5py.File(path, "r+") as file:
        del file["_tokiod/raw/datatargets/readbytes"]


def span_gone(path):
    with h5py.File(path, "r+") as file:
        del file["_tokiod/span"]


def with_foreign_datasets(path):
    with h5py.File(path, "r+") as file:
        file["datatargets/latency"] = [[1.0, 2.0]]
        file["datatargets/latency"].attrs["columns"] = [b"one", b"two"]
        file["notes"] = [1.0]


def dataset_reshaped(path):
    with h5py.File(path, "r+") as file:
        old = file["datatargets/readbytes"]
        attributes, shape = dict(old.attrs), old.shape
        del file["datatargets/readbytes"]
        file.create_dataset("datatargets/readbytes", (shape[0] // 2, shape[1]), "f8").attrs.update(attributes)


@pytest.mark.parametrize("damage", [truncated, empty, replaced, unlinked, of_another_schema])
def test_a_live_file_that_others_damage_is_named_set_aside_and_collected_again(running, damage):
    (path,) = running.files()
    before = len(events(running, "file.set_aside"))
    damage(path)
    is_named(running, path, before)
    recovers(running)


WHILE_DOWN = [empty, raw_gone, overwritten, of_another_schema, with_foreign_datasets, span_gone, dataset_reshaped]


@pytest.mark.parametrize("damage", WHILE_DOWN)
def test_a_file_that_was_damaged_while_the_daemon_was_down_is_named_set_aside_and_collected_again(running, damage):
    assert running.stop_daemon() == 0
    (path,) = running.files()
    before = len(events(running, "file.set_aside"))
    damage(path)
    running.start_daemon()
    is_named(running, path, before)
    recovers(running)


def is_named(scene, path, before=0, seconds=12):
    wait_for(lambda: len(events(scene, "file.set_aside")) > before, seconds, f"it goes unnoticed; see {scene.log}")
    assert events(scene, "file.set_aside")[-1]["path"] == str(path)


def test_a_file_that_became_longer_while_the_daemon_was_down_is_filled_further(running):
    assert running.stop_daemon() == 0
    before = len(events(running, "file.set_aside"))
    lengthened(running.files()[0])
    running.start_daemon()
    recovers(running)
    assert len(events(running, "file.set_aside")) == before


def test_a_live_file_that_others_overwrite_is_named_set_aside_and_collected_again(scene):
    scene.start_daemon()
    wait_stored(scene)
    (path,) = scene.files()
    overwritten(path)
    is_named(scene, path, seconds=5)
    recovers(scene)


def test_files_that_others_put_into_the_archive_are_named_and_end_no_writer(scene):
    scene.start_daemon()
    wait_stored(scene)
    pid, (path,) = scene.pid("writer"), scene.files()
    for number, start in enumerate(("noon", float("nan"), 1e300)):
        with h5py.File(path.with_name(f"odd{number}.hdf5"), "w") as file:
            file.attrs["start"] = start
    wait_for(lambda: len(events(scene, "file.skipped")) == 3, 25, f"they go unnoticed; see {scene.log}")
    wait_stored(scene)
    assert scene.pid("writer") == pid
    assert "Traceback" not in scene.log.read_text()


def test_a_file_lost_while_the_daemon_was_down_is_collected_again_in_an_archive_of_many_files(scene):
    scene.start_daemon()
    wait_stored(scene)
    assert scene.stop_daemon() == 0
    (path,) = scene.files()
    for number in range(60):
        shutil.copy(path, path.with_name(f"copy{number}.hdf5"))
    path.unlink()
    scene.start_daemon()
    wait_for(lambda: [event["path"] for event in events(scene, "file.gone")] == [str(path)], 12, f"it is not missed; see {scene.log}")
    recovers(scene)


# ---- disks


def mounted(directory, *options):
    """Mount something on a directory; skips where that may not be done."""
    directory.mkdir(exist_ok=True)
    if os.geteuid() != 0:
        pytest.skip("only root may mount a disk")
    done = subprocess.run(["mount", *options, str(directory)], capture_output=True, text=True, check=False, timeout=150)
    if done.returncode:
        pytest.skip(f"a disk can't be mounted here: {done.stderr.strip()}")


@contextmanager
def small_disk(directory, options):
    mounted(directory, "-t", "tmpfs", "-o", options, "tmpfs")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True, timeout=150)


@pytest.fixture
def growing():
    """A site on which an OST appears ten minutes after now: on a busy machine a daemon takes some of them to start."""
    with tempfile.TemporaryDirectory(prefix="tokiod-") as directory, small_site(directory, growth=HISTORY + 600) as made:
        yield made


def test_a_disk_without_room_for_a_file_that_grows_is_named_and_everything_is_stored_once_there_is(growing):
    with small_disk(growing.directory / "tts", "size=14m") as disk:
        growing.start_daemon()
        wait_for(lambda: "are free" in growing.log.read_text(), 40, f"no word of it in the log: {tail(growing)}")
        assert len(growing.files()) == 1
        wait_for(lambda: "are free" in status(growing)[1]["sources"][0]["last_error"], 20, f"not in the status: {status(growing)}")
        subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True, timeout=150)
        wait_stored(growing)
        assert growing.stop_daemon() == 0
        assert_every_cell_is_right(growing)
        assert "Traceback" not in growing.log.read_text()


def test_a_disk_without_inodes_is_named_and_everything_is_stored_once_there_are(scene):
    with small_disk(scene.directory / "tts", "size=64m,nr_inodes=40") as disk:
        junk = []
        with suppress(OSError):
            for number in range(100):
                (disk / f"junk-{number}").touch()
                junk.append(disk / f"junk-{number}")
        scene.start_daemon()
        # The writer can't make its first file, and is started again.
        wait_for(lambda: scene.log.read_text().count("no inode is free") > 1, 30, f"no word of it in the log: {tail(scene)}")
        # The ledger's directory, lock, database, log and memory; the readers' directory, owner and copy; and the day's directory.
        for path in junk[-9:]:
            path.unlink()
        wait_for(lambda: "window.refused" in scene.log.read_text(), 30, f"no word of the day's file in the log: {tail(scene)}")
        for path in junk[:-9]:
            path.unlink()
        wait_stored(scene)
        assert scene.stop_daemon() == 0
        assert_every_cell_is_right(scene)


@contextmanager
def loop_disk(directory, image):
    """An ext4 file system that becomes read-only at its first error, as most that hold archives do; yields what makes that error."""
    with image.open("wb") as file:
        os.truncate(file.fileno(), 64 * 2**20)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True, capture_output=True, timeout=150)
    options = "-o", "loop,errors=remount-ro", str(image)
    mounted(directory, *options)
    device = subprocess.run(
        ["findmnt", "-no", "SOURCE", str(directory)], capture_output=True, text=True, check=True, timeout=150
    ).stdout.strip()
    trigger = Path("/sys/fs/ext4") / Path(device).name / "trigger_fs_error"

    def again():
        subprocess.run(["umount", str(directory)], check=True, timeout=150)
        subprocess.run(["fsck.ext4", "-p", "-f", str(image)], check=False, capture_output=True, timeout=150)
        mounted(directory, *options)

    try:
        yield (lambda: trigger.write_text("1")), again
    finally:
        subprocess.run(["umount", "-l", str(directory)], check=True, timeout=150)


def test_a_file_system_that_becomes_read_only_acknowledges_nothing_and_everything_is_right_after_a_repair(scene):
    if shutil.which("mkfs.ext4") is None or os.geteuid() != 0:
        pytest.skip("only root may mount a disk of ext4")
    with loop_disk(scene.directory / "tts", scene.directory / "image") as (fail, again):
        scene.start_daemon()
        wait_stored(scene)
        fail()
        time.sleep(6)
        known = scene.stored()
        time.sleep(3)
        assert scene.stored() == known
        assert status(scene)[1]["health"] in {"degraded", "down"}
        scene.stop_daemon()
        again()
        scene.start_daemon()
        wait_stored(scene)
        assert scene.stop_daemon() == 0
        assert_every_cell_is_right(scene)
