"""Parse workers: outputs of one input in several processes, which are missed when they die, and don't hear Ctrl-C."""

import datetime as dt
import os
import pickle
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from mmperfmon_outputs import output, stamps

from collectors.mmperfmon import parse_workers, saved_inputs
from collectors.mmperfmon.parse import parse
from collectors.mmperfmon.parse_legend import read_legend
from collectors.mmperfmon.parse_workers import parsed
from tokiod.errors import Fatal

TIMES = stamps(dt.datetime.fromisoformat("2019-05-15T00:01:00"), 60)
PATH = Path("some.tgz")


@pytest.fixture
def outputs(monkeypatch):
    """Whole outputs and others, each with its number as a value, in pieces of a few."""
    monkeypatch.setattr(saved_inputs, "PIECE_BYTES", 10_000)
    found = []
    for number in range(200):
        columns = {f"h{number % 7}|CPU|cpu_user": [number] * 60, f"h{number % 7}|CPU|cpu_sys": [None, *range(59)]}
        found.append(output(columns, TIMES)[: -40 if number % 3 else None])
    return [*found, b"", b"nonsense\n"]


def contents(found):
    """All that outputs say."""
    tables = [
        [(table.legend.metrics, table.first, table.stamps, np.nan_to_num(table.value, nan=-1).tolist()) for table in one.tables]
        for one in found
    ]
    return tables, [(one.dropped.counts, one.dropped.why) for one in found], [[one_of.metrics for one_of in one.legends] for one in found]


def children():
    found = [int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()]
    return [pid for pid in found if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


@pytest.mark.parametrize("waiting", [1, 64])
def test_outputs_come_in_order_as_they_would_be_parsed_here(waiting, outputs, monkeypatch):
    monkeypatch.setattr(parse_workers, "MAX_WAITING_PIECES", waiting)
    assert contents(parsed(PATH, outputs, 1)) == contents(map(parse, outputs))
    assert not children()


def test_a_legend_from_another_process_is_the_one_of_the_same_bytes():
    one = read_legend(b" 1:\th0|CPU|cpu_user\n")
    assert pickle.loads(pickle.dumps(one)) is one


@pytest.mark.parametrize("noticed", [0.0, 0.5])
def test_a_process_that_is_killed_is_an_error_and_no_hang(outputs, monkeypatch, noticed):
    monkeypatch.setattr(parse_workers, "MAX_WAITING_PIECES", 1)
    coming = parsed(PATH, outputs, 1)
    next(coming)
    for pid in children():
        os.kill(pid, signal.SIGKILL)
    time.sleep(noticed)  # whether the pool knows before it is given more
    with pytest.raises(Fatal, match=f"{PATH}: a worker process has died"):
        list(coming)
    assert not children()


def test_ctrl_c_is_the_parent_s_alone(outputs, monkeypatch):
    monkeypatch.setattr(parse_workers, "MAX_WAITING_PIECES", 1)
    coming = parsed(PATH, outputs, 1)
    next(coming)
    (pid,) = children()
    os.kill(pid, signal.SIGINT)
    assert len(list(coming)) == len(outputs) - 1
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_no_process_is_left_when_reading_stops_early(outputs):
    coming = parsed(PATH, outputs, 1)
    next(coming)
    coming.close()
    assert not children()
