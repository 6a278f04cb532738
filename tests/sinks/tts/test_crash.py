"""Kills and power losses at any file operation: files open, acknowledged cells stay, and in the end nothing shows that it happened."""

from __future__ import annotations

import contextlib
import errno
import random
from typing import TYPE_CHECKING

import archive_model as model
import h5py
import pytest
from archive_model import DAYS, NAMES, archives, filled, held, sink_in
from faulty_files import FaultyFiles, SimulatedKill
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tokiod.errors import Refusal
from tokiod.tts.live.files import sweep
from tokiod.window import Window

if TYPE_CHECKING:
    from pathlib import Path

    from tokiod.sink import Collected, QuarantinedFile


class Machine:
    """A writer that may die at any file operation, and the windows that it has acknowledged."""

    def __init__(self, directory: Path, windows: list[Collected]) -> None:
        self.directory = directory
        self.windows = windows
        self.acknowledged: set[int] = set()
        self.boot()

    def boot(self) -> None:
        """Start afresh, as the writer does: sweep what was left half made."""
        for file in list(self.directory.rglob(".*.tmp")):
            sweep(file.parent)
        self.files = FaultyFiles(self.directory)
        self.sink = sink_in(self.directory, self.files)

    def run(self, rng: random.Random) -> list[QuarantinedFile]:
        """Apply what is not acknowledged, in any order, committing now and then; returns what was set aside."""
        todo = [i for i in range(len(self.windows)) if i not in self.acknowledged]
        rng.shuffle(todo)
        aside, pending = [], []
        while todo:
            index = todo.pop()
            try:
                self.sink.apply(self.windows[index])
            except Refusal as error:
                assert error.when != "never"  # noqa: PT017 - what kind of refusal matters
            else:
                pending.append(index)
            if rng.random() < 0.4 or not todo:
                failed = self.sink.commit()
                aside += failed
                self.acknowledged |= {i for i in pending if not any(touches(f, self.windows[i]) for f in failed)}
                for one in (f for f in failed if not f.salvaged):
                    self.acknowledged -= {i for i in self.acknowledged if touches(one, self.windows[i])}
                pending = []
        return aside

    def check_acknowledged(self) -> None:
        """Every file opens; every gauge cell of an acknowledged window is there, whatever else is."""
        cells = held(self.directory)
        for index in self.acknowledged:
            collected = self.windows[index]
            batch = collected.batches[1]
            for time, column, value in zip(batch.time.tolist(), batch.column.tolist(), batch.value.tolist(), strict=True):
                day, row = divmod((time - model.EPOCH) // model.STEP, model.ROWS)
                assert cells[day, model.GAUGE, batch.columns[column]][row] == value


def touches(one: QuarantinedFile, collected: Collected) -> bool:
    return one.window.start < collected.meta.window.end and collected.meta.window.start < one.window.end


def windows_of(samples: model.Samples, length: int = 8) -> list[Collected]:
    return [model.window(samples, first, first + length) for first in range(0, DAYS * model.ROWS, length)]


def crash(machine: Machine, rng: random.Random, steps: int, *, power: bool) -> None:
    machine.files.kill_at(rng.randint(1, steps))
    with contextlib.suppress(SimulatedKill):
        machine.run(rng)
    if power:
        machine.files.power_loss(rng.randrange(2**32))
    machine.boot()
    machine.check_acknowledged()


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power loss"])
@given(archives, st.randoms(use_true_random=False))
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_after_crashes_at_any_operation_the_archive_ends_as_if_nothing_had_happened(tmp_path_factory, power, samples, rng: random.Random):
    machine = Machine(tmp_path_factory.mktemp("archive"), windows_of(samples))
    for _ in range(4):
        crash(machine, rng, 250, power=power)
    assert machine.run(rng) == []
    machine.sink.close()
    assert filled(held(machine.directory)) == filled(model.expected(samples, DAYS))


@given(archives, st.randoms(use_true_random=False))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_crashes_while_columns_appear_lose_nothing_either(tmp_path_factory, samples, rng: random.Random):
    windows = [model.window({name: samples[name]}, first, first + 12) for name in NAMES for first in range(0, DAYS * model.ROWS, 12)]
    machine = Machine(tmp_path_factory.mktemp("archive"), windows)
    for _ in range(5):
        crash(machine, rng, 300, power=rng.random() < 0.5)
    assert machine.run(rng) == []
    machine.sink.close()
    assert filled(held(machine.directory)) == filled(model.expected(samples, DAYS))


SAMPLES = {name: {row: 100 * row + i + 1 for row in range(DAYS * model.ROWS)} for i, name in enumerate(NAMES)}


@pytest.mark.parametrize("nth", [1, 2, 5])
def test_after_a_failed_sync_the_file_goes_aside_a_copy_takes_its_place_and_only_the_unsynced_windows_come_again(tmp_path, nth):
    machine = Machine(tmp_path, windows_of(SAMPLES))
    rng = random.Random(nth)
    machine.run(rng)
    machine.acknowledged -= {0, 4, 8}
    machine.files.fail("fdatasync", 1, errno.EIO)
    aside = machine.run(rng)
    assert [(one.system, one.salvaged) for one in aside] == [("fs", True)]
    assert (tmp_path / aside[0].aside).exists()
    machine.check_acknowledged()
    assert machine.run(rng) == []
    machine.sink.close()
    assert filled(held(tmp_path)) == filled(model.expected(SAMPLES, DAYS))


def truncate(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(5000)


def replace(path: Path) -> None:
    path.with_name("copy").write_bytes(path.read_bytes())
    path.with_name("copy").replace(path)


@pytest.mark.parametrize("damage", [truncate, replace, lambda path: path.unlink()], ids=["truncated", "replaced", "unlinked"])
def test_a_file_damaged_from_outside_is_noticed_at_the_next_commit_named_and_its_day_collected_again(tmp_path, damage):
    machine = Machine(tmp_path, windows_of(SAMPLES))
    rng = random.Random(1)
    machine.run(rng)
    path = tmp_path / "2018-01-30" / "fs.hdf5"
    damage(path)
    machine.acknowledged -= {4}
    aside = machine.run(rng)
    assert [(one.path, one.window, one.salvaged) for one in aside] == [
        (str(path), Window(model.EPOCH + model.DAY, model.EPOCH + 2 * model.DAY), False)
    ]
    assert machine.run(rng) == []
    machine.sink.close()
    assert filled(held(tmp_path)) == filled(model.expected(SAMPLES, DAYS))


def test_a_file_that_is_no_live_file_when_it_is_opened_goes_aside_and_the_day_begins_anew(tmp_path):
    path = tmp_path / "2018-01-29" / "fs.hdf5"
    path.parent.mkdir()
    path.write_bytes(b"not HDF5 at all" * 100)
    machine = Machine(tmp_path, windows_of(SAMPLES))
    aside = machine.run(random.Random(1))
    assert [(one.path, one.salvaged) for one in aside] == [(str(path), False)]
    machine.run(random.Random(2))
    machine.sink.close()
    assert filled(held(tmp_path)) == filled(model.expected(SAMPLES, DAYS))


@pytest.mark.parametrize("operation", ["allocate", "pwrite", "rename", "fsync"])
def test_a_full_disk_while_a_file_is_made_refuses_the_window_for_now_and_leaves_no_debris(tmp_path, operation):
    machine = Machine(tmp_path, windows_of(SAMPLES))
    machine.files.fail(operation, 1, errno.ENOSPC)
    with pytest.raises(Refusal, match="No space left on device") as refused:
        machine.sink.apply(machine.windows[0])
    assert refused.value.when == "retry"
    assert list(tmp_path.rglob("*.hdf5")) == list(tmp_path.rglob(".*.tmp")) == []
    machine.run(random.Random(1))
    machine.sink.close()
    assert filled(held(tmp_path)) == filled(model.expected(SAMPLES, DAYS))


def test_a_file_can_be_read_between_any_two_windows(tmp_path):
    machine = Machine(tmp_path, windows_of(SAMPLES))
    for collected in machine.windows[:3]:
        machine.sink.apply(collected)
        with h5py.File(tmp_path / "2018-01-29" / "fs.hdf5", "r") as file:
            assert file[model.GAUGE].shape == (24, 3)
    machine.sink.close()
