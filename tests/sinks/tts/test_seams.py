"""What is stored in one day is right in the days around it too, sealed or live, however it comes and whoever is killed meanwhile."""

import random

import archive_model as model
import numpy as np
import pytest
from archive_model import COUNTER, NAMES, ROWS, filled, held
from faulty_files import FaultyFiles, SimulatedKill
from manual_executor import ManualExecutor

from sinks.tts.day_files import DayFiles
from sinks.tts.reopened_days import IDLE_SECONDS
from sinks.tts.sink import TtsSink
from tokiod.archive.layout import daily
from tokiod.archive.seal_marker import marked_files
from tokiod.batch import Batch
from tokiod.errors import Refusal
from tokiod.ranges import Ranges
from tokiod.simulator import oracle
from tokiod.testing.clock import FakeClock
from tokiod.tts.layout import form_of, open_for_reading
from tokiod.tts.live.files import REAL, sweep
from tokiod.window import Window
from tokiod.window_data import Collected, WindowMeta

DAYS = 3
LENGTH = 6
SAMPLES = {name: {row: 100 * row + i + 1 for row in range(DAYS * ROWS)} for i, name in enumerate(NAMES)}


class Archive:
    """A writer's sink over three days; boot() starts another over the same files."""

    def __init__(self, directory, samples=SAMPLES, executor="inline"):
        self.directory, self.samples, self.clock, self.executor = directory, samples, FakeClock(model.EPOCH), executor
        self.boot()

    def boot(self, files=REAL):
        for temporary in list(self.directory.rglob(".*.tmp")):
            sweep(temporary.parent)
        layout = daily(model.CALENDAR, lambda day, system: self.directory / f"{day.date}" / f"{system}.hdf5")
        self.sink = TtsSink(DayFiles(layout, self.clock, files, self.executor))
        for path in marked_files(self.directory):
            self.sink.adopt("fs", model.EPOCH + model.DAY * (int(path.parent.name[-2:]) - 29 if "01-" in path.parent.name else 3))

    def store(self, first, last, *, commit=True):
        applied = self.sink.apply(model.window(self.samples, first, last, NAMES))
        if commit:
            assert self.sink.commit() == []
        return applied

    def fill(self, first, last):
        for row in range(first, last, LENGTH):
            self.store(row, min(row + LENGTH, last))

    def seal(self, *days):
        for day in days:
            assert self.sink.seal("fs", model.EPOCH + day * model.DAY)
            assert {done.error for done in self.sink.run_maintenance()} == {None}

    def seal_reopened(self):
        self.clock.jump(IDLE_SECONDS)
        assert [done.error for done in self.sink.seal_reopened() if done.error] == []

    def forms(self):
        found = []
        for path in sorted(self.directory.rglob("fs.hdf5")):
            with open_for_reading(path) as file:
                found.append(form_of(file))
        return found

    def bytes(self):
        return [path.read_bytes() for path in sorted(self.directory.rglob("fs.hdf5"))]


@pytest.fixture
def archive(tmp_path):
    return Archive(tmp_path)


def right(archive, samples=None):
    return filled(held(archive.directory)) == filled(model.expected(samples or archive.samples, DAYS))


def undisturbed(directory, samples):
    """The bytes of the days after one run without a fault, all sealed at the end."""
    archive = Archive(directory, samples)
    archive.fill(0, DAYS * ROWS)
    archive.seal(0)
    archive.seal(1)
    archive.seal(2)
    return archive.bytes()


def test_a_day_that_was_sealed_before_the_next_ones_first_window_gets_its_last_row(archive):
    """A2: `tokioctl seal` at 00:00, or a source that went down at midnight for longer than `seal_after`."""
    archive.fill(0, ROWS)
    archive.seal(0)
    archive.fill(ROWS, 2 * ROWS)
    row = {name: held(archive.directory)[0, COUNTER, name].get(ROWS - 1) for name in NAMES}
    assert row == dict.fromkeys(NAMES, 100.0)
    archive.seal_reopened()
    assert archive.forms() == ["sealed", "live"]


def test_a_day_that_was_sealed_before_the_day_before_was_complete_takes_no_stale_sample(archive):
    """A3: a column that is absent in the day's first rows has its first difference to the last sample of the day before."""
    for row in (ROWS, ROWS + 1):
        archive.samples = {name: {r: v for r, v in rows.items() if r != row} for name, rows in archive.samples.items()}
    archive.fill(0, 12)
    archive.fill(ROWS, 3 * ROWS)
    archive.seal(1)
    archive.fill(12, ROWS)
    first = {name: held(archive.directory)[1, COUNTER, name].get(1) for name in NAMES}
    assert first == dict.fromkeys(NAMES, 300.0)
    archive.seal_reopened()
    assert (archive.forms(), right(archive)) == (["live", "sealed", "live"], True)


def test_what_sealing_computes_is_recorded_before_the_day_is_sealed(archive):
    """A kill came before the last row of a day was closed. The window that closes it comes again when the day is sealed already."""
    archive.fill(0, ROWS)
    day = archive.directory / "2018-01-29" / "fs.hdf5"
    content = day.read_bytes()
    archive.store(ROWS, ROWS + 1)
    day.write_bytes(content)
    archive.boot()
    recorded = []
    archive.sink.record_computed = lambda system, spans: recorded.append((system, list(spans), archive.forms()))
    archive.seal(0)
    last = (model.EPOCH + (ROWS - 1) * model.STEP, model.EPOCH + ROWS * model.STEP)
    assert [(system, forms) for system, _, forms in recorded] == [("fs", ["live", "live"])]
    assert Ranges(recorded[0][1]).covers(Window(*last))
    # The window that comes again has nothing to add.
    assert not archive.store(ROWS, ROWS + 1).computed.covers(Window(*last))


def test_sealed_days_that_a_window_does_not_change_stay_sealed(archive):
    archive.fill(0, 6)
    archive.fill(18, 3 * ROWS)
    archive.seal(0)
    archive.seal(1)
    archive.fill(6, 18)
    assert (archive.forms(), right(archive)) == (["live", "sealed", "live"], True)


def test_one_change_leads_to_the_next_over_sealed_days(archive):
    """A dip at a day's end that a later day confirms as a reset, or not, by what came before it."""
    falling = {"OST0000": {0: 900, 20: 400, 30: 300, 44: 200, 60: 250, 70: 350}, "OST0001": {1: 5}, "OST0002": {71: 1}}
    archive.samples = falling
    for row in (20, 30, 44, 60, 70):
        archive.fill(row, row + 1)
    archive.store(0, 3)
    archive.store(71, 72)
    assert right(archive)
    archive.seal(0)
    archive.seal(1)
    archive.seal(2)
    archive.samples = falling | {"OST0000": falling["OST0000"] | {20: 100, 21: 450}}
    archive.store(20, 22)
    assert right(archive)
    archive.seal_reopened()
    assert (archive.forms(), right(archive)) == (["sealed"] * 3, True)


def test_a_window_waits_until_the_sealed_day_that_it_changes_is_reopened(tmp_path):
    archive = Archive(tmp_path)
    archive.fill(0, ROWS)
    archive.seal(0)
    archive.sink.close()
    archive.executor = executor = ManualExecutor()
    archive.boot()
    for reason in ("is being created", "is being reopened"):
        with pytest.raises(Refusal, match=reason) as refused:
            archive.store(ROWS, ROWS + 6)
        assert refused.value.when == "busy"
        executor.run_all()
    changed = archive.store(ROWS, ROWS + 6).changes
    assert sum(len(batch.value) for batch in changed if batch.dataset == COUNTER) == 3 * (1 + 5)
    assert filled(held(tmp_path))[0, COUNTER, "OST0000"][ROWS - 1] == 100.0


def test_cells_that_a_refused_window_changed_are_returned_with_the_one_that_is_stored(tmp_path):
    """Applied again they do not change, but no subscriber has them yet."""
    archive = Archive(tmp_path)
    archive.fill(0, ROWS)
    archive.fill(ROWS + 6, 2 * ROWS)
    archive.samples = {name: {r: v for r, v in rows.items() if r < ROWS or r > ROWS + 6} for name, rows in SAMPLES.items()}
    archive.sink.close()
    archive.boot()
    archive.seal(0)
    archive.executor = executor = ManualExecutor()
    archive.sink.close()
    archive.boot()
    archive.samples = SAMPLES
    refusals, changed = 0, None
    while changed is None:
        try:
            changed = archive.store(ROWS, ROWS + 6).changes
        except Refusal:
            refusals += 1
            executor.run_all()
    counters = [batch for batch in changed if batch.dataset == COUNTER]
    rows = {(int(time), batch.columns[column]) for batch in counters for time, column in zip(batch.time, batch.column, strict=True)}
    assert refusals > 0
    assert rows == {(model.EPOCH + row * model.STEP, name) for row in range(ROWS - 1, ROWS + 6) for name in NAMES}


@pytest.mark.parametrize(
    ("absent", "again", "changed", "value"),
    [((), 0, ROWS - 1, 100.0), ((ROWS, ROWS + 1), ROWS + 6, ROWS + 1, 300.0)],
    ids=["by a window of the day before", "by a window of the day after"],
)
def test_cells_that_change_when_a_day_is_joined_with_those_around_it_are_returned(tmp_path, absent, again, changed, value):
    """A kill came after a window was stored and before the day before, or the state before this day, was corrected."""
    samples = {name: {row: v for row, v in rows.items() if row not in absent} for name, rows in SAMPLES.items()}
    for day in range(2):
        alone = Archive(tmp_path / str(day), samples)
        alone.fill(day * ROWS, day * ROWS + ROWS)
        alone.sink.close()
    (tomorrow,) = (tmp_path / "1").iterdir()
    tomorrow.rename(tmp_path / "0" / tomorrow.name)
    archive = Archive(tmp_path / "0", samples)
    (batch,) = archive.store(again, again + LENGTH).changes
    cells = zip(batch.time.tolist(), batch.column.tolist(), batch.value.tolist(), strict=True)
    assert {(time, batch.columns[column], cell) for time, column, cell in cells} == {
        (model.EPOCH + changed * model.STEP, name, value) for name in NAMES
    }


def test_a_sample_of_a_days_first_row_that_only_the_day_before_has_is_taken_over(archive):
    """A backfill stores the step after its span, for which it creates no file: the difference to it must not be counted twice."""
    archive.fill(0, ROWS)
    collected = model.window(SAMPLES, ROWS, ROWS + 1)
    archive.sink.apply(
        type(collected)(type(collected.meta)("fs-lmt", "lmt", "fs", collected.meta.window, extent="seam"), collected.batches)
    )
    assert archive.forms() == ["live"]
    archive.fill(ROWS + 12, 2 * ROWS)
    got = held(archive.directory)[1, COUNTER, "OST0000"]
    assert [held(archive.directory)[0, COUNTER, "OST0000"][ROWS - 1], got[11]] == [100.0, 1200.0]


@pytest.mark.parametrize("power", [False, True], ids=["kill", "power loss"])
def test_killed_at_any_step_of_a_chain_every_day_is_right_in_the_end(tmp_path_factory, power):
    def begin(name):
        archive = Archive(tmp_path_factory.mktemp(name))
        archive.fill(0, ROWS)
        archive.seal(0)
        archive.samples = {name: {r: v for r, v in rows.items() if not ROWS <= r <= ROWS + 2} for name, rows in SAMPLES.items()}
        archive.fill(ROWS, 3 * ROWS)
        archive.seal(1)
        archive.sink.close()
        archive.samples = {name: {r: v if r != ROWS - 1 else v - 1 for r, v in rows.items()} for name, rows in SAMPLES.items()}
        return archive

    def change(archive):
        archive.store(ROWS - 3, ROWS)
        archive.store(ROWS, ROWS + 3)
        archive.sink.seal_reopened()
        archive.sink.close()

    archive = begin("count")
    archive.boot(files := FaultyFiles(archive.directory))
    change(archive)
    assert (right(archive), archive.forms()) == (True, ["sealed", "sealed", "live"])
    final, steps = archive.bytes()[:2], len(files.operations)
    for step in range(1, steps + 1, 1 + steps // 40):
        archive = begin("killed")
        archive.boot(files := FaultyFiles(archive.directory))
        files.kill_at(step)
        with pytest.raises(SimulatedKill):
            change(archive)
        if power:
            files.power_loss(step)
        archive.boot()
        change(archive)
        assert (right(archive), archive.forms()) == (True, ["sealed", "sealed", "live"]), step
        assert archive.bytes()[:2] == final, step


@pytest.mark.parametrize("seed", range(4))
def test_in_any_order_with_days_sealed_at_any_time_the_files_are_those_of_one_run(tmp_path_factory, seed):
    rng = random.Random(seed)
    samples = {
        name: {row: int(v) for row, v in enumerate(values) if rng.random() > 0.15}
        for name, values in zip(NAMES, _columns(np.random.default_rng(seed)), strict=True)
    }
    archive = Archive(tmp_path_factory.mktemp("any"), samples)
    windows = [(row, row + LENGTH) for row in range(0, DAYS * ROWS, LENGTH)]
    rng.shuffle(windows)
    for first, last in windows + rng.sample(windows, 4):
        archive.store(first, last)
        if rng.random() < 0.5:
            archive.sink.seal("fs", model.EPOCH + rng.randrange(DAYS) * model.DAY)
            archive.sink.run_maintenance()
        if rng.random() < 0.2:
            archive.sink.close()
            archive.boot()
    assert right(archive)
    for day in range(DAYS):
        archive.sink.seal("fs", model.EPOCH + day * model.DAY)
        archive.sink.run_maintenance()
    archive.seal_reopened()
    assert archive.forms() == ["sealed"] * DAYS
    assert archive.bytes() == undisturbed(tmp_path_factory.mktemp("one"), samples)


def _columns(random, rows=DAYS * ROWS):
    steps = np.cumsum(random.integers(0, 9, (3, rows)), axis=1) + 10**6
    chance = random.random(steps.shape)
    return np.where(chance < 0.1, 0, np.where(chance < 0.2, steps // 2, steps))


class ChangedSteps(Archive):
    """An archive whose counter has another step from some midnight on. steps: of each day; samples: by seconds since the first day."""

    def __init__(self, directory, steps, samples, rate=None):
        self.steps = steps
        super().__init__(directory, samples)
        self.sink.days.max_rates = {} if rate is None else {"fs": {COUNTER: rate}}

    def store(self, first, last):
        step, names = self.steps[first // ROWS], tuple(self.samples)
        start, end = (model.EPOCH + row * model.STEP for row in (first, last))
        found = sorted((model.EPOCH + t, i, v) for i, name in enumerate(names) for t, v in self.samples[name].items())
        time, column, value = (np.array(part) for part in zip(*(one for one in found if start <= one[0] < end), strict=True))
        batch = Batch(COUNTER, "counter", step, names, time, column.astype(np.uint32), value)
        applied = self.sink.apply(Collected(WindowMeta("fs-lmt", "lmt", "fs", Window(start, end)), [batch]))
        assert self.sink.commit() == []
        return applied

    def is_right(self, rate=float("inf")):
        """Compare all cells with those of the slow rule with rows of a second."""
        expected = {}
        for name, samples in self.samples.items():
            for time, cell in oracle.run(sorted(samples.items()), max_step=rate, reach=oracle.REACH_SECONDS)[0].items():
                day = (time - 1) // model.DAY
                expected.setdefault((day, COUNTER, name), {})[(time - 1 - day * model.DAY) // self.steps[day]] = float(cell)
        return filled(held(self.directory, [COUNTER])) == expected


@pytest.mark.parametrize("is_sealed", [False, True])
@pytest.mark.parametrize(
    ("steps", "until", "since", "difference", "is_cell"),
    [
        ((600, 3600), 12, 1, 20_000, True),
        ((600, 3600), 12, 1, 50_000, False),
        ((600, 3600), 12, 12, 20_000, False),
        ((3600, 600), 12, 1, 20_000, True),
        ((3600, 600), 12, 1, 50_000, False),
        ((3600, 600), 12, 12, 20_000, False),
    ],
)
def test_a_difference_over_a_midnight_at_which_the_step_changes_is_judged_by_its_seconds(
    tmp_path, steps, until, since, difference, is_cell, is_sealed
):
    """At most 1 a second are plausible, and 23 hours are in reach."""
    last, first = model.DAY - until * 3600, model.DAY + since * 3600
    samples = {last - steps[0]: 1000, last: 1000, first: 1000 + difference, first + steps[1]: 1000 + difference}
    archive = ChangedSteps(tmp_path, steps, {"OST0000": samples}, rate=1.0)
    archive.store(ROWS - until - 1, ROWS - until + 1)
    if is_sealed:
        archive.seal(0)
    archive.store(ROWS + since, ROWS + since + 2)
    cell = held(tmp_path, [COUNTER])[1, COUNTER, "OST0000"].get(since * 3600 // steps[1] - 1)
    assert (cell, archive.is_right(rate=1.0)) == (difference if is_cell else None, True)


@pytest.mark.parametrize("steps", [(600, 3600, 3600), (3600, 600, 600), (1200, 1800, 600)])
@pytest.mark.parametrize("seed", range(4))
def test_where_the_step_changes_at_midnight_the_files_are_those_of_one_run(tmp_path_factory, steps, seed):
    rng = random.Random(seed)
    times = [t for day, step in enumerate(steps) for t in range(day * model.DAY, (day + 1) * model.DAY, step)]
    outage = [(day * model.DAY - rng.randrange(20) * 1800, day * model.DAY + rng.randrange(20) * 1800) for day in (1, 2)]
    samples = {
        name: {
            t: int(v)
            for t, v in zip(times, values, strict=False)
            if rng.random() > 0.15 and not any(low <= t < high for low, high in outage)
        }
        for name, values in zip(NAMES, _columns(np.random.default_rng(seed), len(times)), strict=True)
    }
    windows = [(row, row + LENGTH) for row in range(0, DAYS * ROWS, LENGTH)]
    windows = [(a, b) for a, b in windows if any(a * 3600 <= t < b * 3600 for column in samples.values() for t in column)]
    one = ChangedSteps(tmp_path_factory.mktemp("one"), steps, samples)
    for window in windows:
        one.store(*window)
    assert one.is_right()
    archive = ChangedSteps(tmp_path_factory.mktemp("any"), steps, samples)
    rng.shuffle(windows)
    for first, last in windows + rng.sample(windows, 4):
        archive.store(first, last)
        if rng.random() < 0.5:
            archive.sink.seal("fs", model.EPOCH + rng.randrange(DAYS) * model.DAY)
            archive.sink.run_maintenance()
    assert archive.is_right()
    for each in (one, archive):
        for day in range(DAYS):
            each.sink.seal("fs", model.EPOCH + day * model.DAY)
            each.sink.run_maintenance()
        each.seal_reopened()
    assert (archive.forms(), archive.bytes()) == (["sealed"] * DAYS, one.bytes())
