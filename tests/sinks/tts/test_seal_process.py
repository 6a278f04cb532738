"""Files are sealed by a process of the lowest priority, for which no window waits, and whose failure changes nothing."""

import errno
import os
import signal
import time
from pathlib import Path

import archive_model as model
import pytest
from archive_model import NAMES, filled, held
from archive_model import sink_in as opened

from sinks.tts.seal_process import LOWEST_PRIORITY
from tokiod.errors import Refusal
from tokiod.tts.layout import form_of, open_for_reading
from tokiod.tts.live.files import temporary_path
from tokiod.tts.sealed.seal import SealingFailed

SAMPLES = {name: {row: 100 * row + i + 1 for row in range(2 * model.ROWS)} for i, name in enumerate(NAMES)}
DEADLINE_SECONDS = 60


def store(sink, first, last):
    """Store rows, however long their file takes to be created."""
    until(lambda: is_stored(sink, model.window(SAMPLES, first, last)))
    assert sink.commit() == []


def is_stored(sink, window):
    try:
        sink.apply(window)
    except Refusal as error:
        assert error.when == "busy"  # noqa: PT017 - one of many
        sink.run_maintenance()
        return False
    return True


def until(is_so):
    """Wait until a condition holds, and return what it returned."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (found := is_so()):
        assert time.monotonic() < deadline
        time.sleep(0.002)
    return found


def sealers():
    """Return the ids of the processes that seal for this one, once they have begun to write."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            line, parent = (directory / "cmdline").read_bytes(), (directory / "stat").read_text().rpartition(")")[2].split()[1]
        except OSError:
            continue
        if b"sinks.tts.seal_process" in line and int(parent) == os.getpid():
            found.append(int(directory.name))
    return found


def sealed(sink):
    """Return what maintenance reports of the sealing, once it is over."""
    return until(lambda: [done for done in sink.run_maintenance() if done.change == "sealed"])[0]


@pytest.fixture
def sink(tmp_path):
    sink = opened(tmp_path, executor="threads")
    store(sink, 0, model.ROWS)
    sink.run_maintenance()
    yield sink
    sink.close()


@pytest.fixture
def path(sink):
    return sink.days.layout("fs", model.EPOCH).path


def form(path):
    with open_for_reading(path) as file:
        return form_of(file)


@pytest.fixture
def stopped(sink):
    """The process that seals the day, stopped: it has no processor, whatever it holds."""
    assert sink.seal("fs", model.EPOCH)
    (process,) = until(sealers)
    os.kill(process, signal.SIGSTOP)
    return process


def test_windows_are_stored_and_files_created_while_the_process_that_seals_stands_still(sink, path, stopped):
    later = model.ROWS + 2
    store(sink, later, 2 * model.ROWS)
    assert form(path) == "live"
    os.kill(stopped, signal.SIGCONT)
    done = sealed(sink)
    assert (done.path, done.error) == (path, None)
    stored = {name: {row: v for row, v in rows.items() if row < model.ROWS or row >= later} for name, rows in SAMPLES.items()}
    assert (form(path), filled(held(path.parent.parent))) == ("sealed", filled(model.expected(stored, 2)))


def test_only_the_process_that_seals_has_the_lowest_priority(stopped):
    priority = int(Path(f"/proc/{stopped}/stat").read_text().rpartition(")")[2].split()[16])
    threads = {os.getpriority(os.PRIO_PROCESS, int(thread.name)) for thread in Path("/proc/self/task").iterdir()}
    assert priority in {LOWEST_PRIORITY, os.getpriority(os.PRIO_PROCESS, 0)}  # as long as Python starts it has its parent's
    assert max(threads) <= os.getpriority(os.PRIO_PROCESS, 0)


def test_the_process_lowers_its_priority_before_it_opens_a_file(sink):
    assert sink.seal("fs", model.EPOCH)
    (process,) = until(sealers)
    seen = until(lambda: nice_while_it_has(process, b".hdf5"))
    assert seen == LOWEST_PRIORITY


def nice_while_it_has(process, name):
    """Return the priority of a process that has a file of that name open, None if it has not; fails if it has ended."""
    directory = Path(f"/proc/{process}")
    os.kill(process, signal.SIGSTOP)
    try:
        files = [bytes(entry.readlink()) for entry in (directory / "fd").iterdir()]
        return int((directory / "stat").read_text().rpartition(")")[2].split()[16]) if any(name in file for file in files) else None
    finally:
        os.kill(process, signal.SIGCONT)


def test_closing_the_sink_ends_the_process_and_leaves_no_temporary_file(sink, path, stopped):
    sink.close()
    assert sealers() == []
    assert (form(path), temporary_path(path).exists()) == ("live", False)
    assert not Path(f"/proc/{stopped}").exists()


def test_a_window_that_is_stored_meanwhile_has_the_result_discarded(sink, path, stopped):
    store(sink, 3, 5)
    os.kill(stopped, signal.SIGCONT)
    assert sealed(sink).error.errno == errno.EBUSY
    assert (form(path), temporary_path(path).exists()) == ("live", False)


def test_a_process_that_is_killed_is_reported_and_the_file_sealed_the_next_time(sink, path, stopped):
    os.kill(stopped, signal.SIGKILL)
    done = sealed(sink)
    assert isinstance(done.error, SealingFailed)
    assert "the process that seals ended with -9" in str(done.error)
    assert form(path) == "live"
    assert sink.seal("fs", model.EPOCH)
    assert sealed(sink).error is None
    assert form(path) == "sealed"


def test_the_error_of_the_process_has_its_number_and_text(sink, path):
    temporary_path(path).mkdir()
    assert sink.seal("fs", model.EPOCH)
    done = sealed(sink)
    assert isinstance(done.error, SealingFailed)
    assert (done.error.errno, "the sealed file can't be written: Is a directory" in str(done.error)) == (errno.EISDIR, True)
    assert form(path) == "live"


def test_a_sealed_file_is_the_same_as_one_sealed_inline(sink, path, tmp_path):
    assert sink.seal("fs", model.EPOCH)
    sealed(sink)
    inline = opened(tmp_path / "inline")
    store(inline, 0, model.ROWS)
    assert inline.seal("fs", model.EPOCH)
    sealed(inline)
    assert inline.days.layout("fs", model.EPOCH).path.read_bytes() == path.read_bytes()
