"""Parse workers: pages of one file in several processes, which die with us, are missed when they die, and don't hear Ctrl-C."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from collectd_documents import Documents

from collectors.collectd_es import parse_workers, saved_inputs
from collectors.collectd_es.datasets import Fields
from collectors.collectd_es.parse_workers import NameRules, Parsing
from collectors.collectd_es.series import Series
from tokiod.errors import Fatal

START = 1_513_153_800
SHAPES = NameRules(None, None, Fields())


@pytest.fixture
def path(tmp_path, monkeypatch):
    """A file of pages with other hosts in each, so that no process knows all names."""
    monkeypatch.setattr(parse_workers, "MIN_BYTES_FOR_WORKERS", 1000)
    found = [Documents(prefix=f"p{n}bb", hosts=2, cores=2).hits(START, START + 20) for n in range(40)]
    path = tmp_path / "pages.json"
    path.write_text(json.dumps(found))
    return path


def parsed(path, series, workers, on_read=lambda _bytes: None):
    """The samples of a file's pages."""
    with contextlib.closing(Parsing(SHAPES, series, workers)) as parsing:
        yield from parsing.parsed(path, on_read)


def rows(path, workers, on_read=lambda _bytes: None):
    """(time, name, value) of every sample, in order."""
    series, found = Series(), []
    for samples in parsed(path, series, workers, on_read):
        names = series.names()
        found += [(t, names[s], v) for t, s, v in zip(*(c.tolist() for c in (samples.time, samples.series, samples.value)), strict=True)]
    return found


def children():
    found = []
    for task in Path("/proc/self/task").iterdir():
        # A thread may end between the listing and the look into it.
        with contextlib.suppress(FileNotFoundError):
            found += [int(pid) for pid in (task / "children").read_text().split()]
    return [pid for pid in found if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_samples_come_in_the_file_s_order_with_the_names_of_their_documents(path):
    on_read = []
    alone = rows(path, 0, on_read.append)
    assert sum(on_read) == path.stat().st_size
    assert len({column for _, (_, column, _), _ in alone}) > 80
    assert rows(path, 2) == alone
    assert not children()


def test_series_of_documents_are_numbered_once_whichever_process_saw_them_first(path):
    series = Series()
    numbers = np.concatenate([samples.series for samples in parsed(path, series, 2)])
    assert set(numbers.tolist()) == set(range(len(series)))
    assert len(set(series.names())) == len(series)


@pytest.mark.parametrize("workers", [0, 2])
def test_pages_that_were_cut_inside_of_a_text_are_joined_again(workers, path):
    found = json.loads(path.read_text())
    for page in found[::7]:
        page[len(page) // 2]["_source"]["note"] = '"],["] , ['
        page[1]["sort"] = [[1], [2]]
    plain = rows(path, 0)
    path.write_text(json.dumps(found))
    assert rows(path, workers) == plain


@pytest.mark.parametrize("workers", [0, 2])
def test_joining_ends_with_the_longest_page_there_is(workers, path, monkeypatch):
    monkeypatch.setattr(parse_workers, "MAX_PAGE_BYTES", 10_000)
    monkeypatch.setattr(saved_inputs, "MAX_PAGE_BYTES", 10_000)
    path.write_text("[" + ",".join(['[{"_source": ]'] * 10_000) + "]")
    with pytest.raises(Fatal, match=r"byte 1: not a page"):
        rows(path, workers)


def test_a_process_that_is_killed_is_an_error_and_no_hang(path):
    coming = parsed(path, Series(), 2)
    next(coming)
    for pid in children():
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(Fatal, match=f"{path}: a worker process has died"):
        list(coming)
    assert not children()


def test_ctrl_c_is_the_parent_s_alone(path):
    coming = parsed(path, Series(), 1)
    next(coming)
    (pid,) = children()
    os.kill(pid, signal.SIGINT)
    assert len(list(coming)) == 39
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


@pytest.mark.parametrize(("number", "wait"), [(signal.SIGINT, 0), (signal.SIGINT, 0.3), (signal.SIGKILL, 0.3)])
def test_a_command_that_is_ended_leaves_no_process_and_prints_next_to_nothing(number, wait, path):
    # Larger than what can be parsed until it is ended.
    text = path.read_text()[1:-1]
    with path.open("w") as file:
        file.write("[" + ",".join([text] * 200) + "]")
    command = [sys.executable, "-m", "tokiod.cli.tokioctl", "archive", "collectd_es", str(path), "--output", str(path.with_suffix(".hdf5"))]
    span = ["--start", "2017-12-13T08:00:00Z", "--end", "2017-12-13T09:00:00Z", "--parse-workers", "2"]
    with subprocess.Popen([*command, *span], stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        while len(group(process.pid)) < 3 and process.poll() is None:
            time.sleep(0.01)
        time.sleep(wait)
        # As a terminal does it: to all processes.
        (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
        _, fields = process.communicate(timeout=100)
    assert process.returncode == (130 if number == signal.SIGINT else -number)
    assert "Traceback" not in fields
    assert len(fields.splitlines()) <= 2
    for _ in range(100):
        if not group(process.pid):
            break
        time.sleep(0.05)
    assert group(process.pid) == []
    assert [name.name for name in path.parent.iterdir()] == [path.name] or number == signal.SIGKILL


def group(leader):
    """The processes of a session."""
    found = []
    for place in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(place.read_text().rpartition(")")[2].split()[3]) == leader:
                found.append(place.parent.name)
    return found


def test_the_files_of_a_source_are_parsed_by_the_same_processes_that_start_before_the_first(path, tmp_path):
    other = tmp_path / "other.json"
    other.write_bytes(path.read_bytes())
    series = Series()
    with contextlib.closing(Parsing(SHAPES, series, 2)) as parsing:
        parsing.start([path, other])
        for _ in range(1000):
            if len(begun := children()) == 2:
                break
            time.sleep(0.05)
        first, second = ([one.series.tolist() for one in parsing.parsed(p, lambda _bytes: None)] for p in (path, other))
        assert first == second
        assert children() == begun
        assert len(begun) == 2
    assert not children()


def test_small_files_start_no_process(path, monkeypatch):
    monkeypatch.setattr(parse_workers, "MIN_BYTES_FOR_WORKERS", path.stat().st_size + 1)
    with contextlib.closing(Parsing(SHAPES, Series(), 2)) as parsing:
        parsing.start([path])
        assert sum(map(len, parsing.parsed(path, lambda _bytes: None))) > 0
        assert not children()


def test_a_file_that_is_missing_is_an_error_when_it_is_parsed(path):
    path.unlink()
    with contextlib.closing(Parsing(SHAPES, Series(), 2)) as parsing:
        parsing.start([path])
        with pytest.raises(FileNotFoundError):
            list(parsing.parsed(path, lambda _bytes: None))
