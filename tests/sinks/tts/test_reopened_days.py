"""A sealed day that a backfill opens up is sealed again, with all that it held and all that came, whatever happens in between."""

import archive_model as model
import pytest
from archive_model import NAMES, filled, held
from faulty_files import FaultyFiles, SimulatedKill

from sinks.tts.day_files import DayFiles
from sinks.tts.reopened_days import IDLE_SECONDS
from sinks.tts.sink import TtsSink
from tokiod.archive.layout import daily
from tokiod.archive.seal_marker import is_marked, mark, marked_files
from tokiod.sink import FileChange
from tokiod.testing.clock import FakeClock
from tokiod.tts.layout import form_of, open_for_reading
from tokiod.tts.live.files import REAL, sweep

SAMPLES = {name: {row: 100 * row + i + 1 for row in range(2 * model.ROWS)} for i, name in enumerate(NAMES)}


class Archive:
    """A day of which rows 8 to 16 are missing, sealed; and a writer that is started over it, as often as one likes."""

    def __init__(self, directory):
        self.directory, self.path, self.clock = directory, directory / "2018-01-29" / "fs.hdf5", FakeClock(model.EPOCH)
        self.boot()
        for rows in ((0, 8), (16, 24)):
            self.store(*rows)
        self.sink.adopt("fs", model.EPOCH)
        assert self.sealed(0.0) == [self.path]
        self.sink.close()
        assert self.form == "sealed"
        self.boot()

    def boot(self, files=REAL):
        """Start as tokiod.writer.process does."""
        for temporary in list(self.directory.rglob(".*.tmp")):
            sweep(temporary.parent)
        layout = daily(model.CALENDAR, lambda day, system: self.directory / f"{day.date}" / f"{system}.hdf5")
        self.sink = TtsSink(DayFiles(layout, self.clock, files))
        for path in marked_files(self.directory):
            assert path == self.path
            self.sink.adopt("fs", model.EPOCH)

    def store(self, first, last):
        self.sink.apply(model.window(SAMPLES, first, last))
        assert self.sink.commit() == []
        self.sink.days.finish_rewrites()

    def fill(self):
        """What a backfill of the missing rows brings: the steps at both seams, for their differences, too."""
        self.store(7, 17)

    def fill_and_seal(self):
        self.fill()
        self.sealed(0.0)
        self.sink.close()

    def sealed(self, idle_seconds=IDLE_SECONDS):
        """What is sealed now, after so many idle seconds."""
        self.sink._seal_idle(idle_seconds)
        return [done.path for done in self.sink.days.finish_rewrites() if (done.change, done.error) == ("sealed", None)]

    @property
    def form(self):
        with open_for_reading(self.path) as file:
            return form_of(file)


@pytest.fixture
def archive(tmp_path):
    return Archive(tmp_path)


def whole():
    only = {name: {row: value for row, value in column.items() if row < model.ROWS} for name, column in SAMPLES.items()}
    return filled(model.expected(only, 1))


def test_it_is_sealed_again_once_nothing_came_for_a_while(archive):
    archive.fill()
    assert archive.form == "live"
    assert archive.sink.run_maintenance() == []
    archive.clock.jump(IDLE_SECONDS - 1)
    assert archive.sink.run_maintenance() == []
    archive.clock.jump(1)
    assert archive.sink.run_maintenance() == [FileChange("sealed", archive.path)]
    assert (archive.form, archive.sink.run_maintenance(), is_marked(archive.path)) == ("sealed", [], False)
    assert filled(held(archive.directory)) == whole()


def test_every_window_puts_it_off(archive):
    archive.fill()
    for _ in range(3):
        archive.clock.jump(IDLE_SECONDS - 1)
        archive.store(9, 10)
    assert (archive.sink.run_maintenance(), archive.form) == ([], "live")


def test_a_live_day_is_not_sealed(archive):
    archive.store(24, 30)
    archive.clock.jump(10 * IDLE_SECONDS)
    assert archive.sink.run_maintenance() == [FileChange("sealed", archive.path)]  # its last row of counters was closed
    archive.clock.jump(10 * IDLE_SECONDS)
    assert archive.sink.run_maintenance() == []


def test_a_successor_seals_what_a_killed_writer_had_opened_up(archive):
    archive.fill()
    archive.boot()
    archive.clock.jump(IDLE_SECONDS)
    assert archive.sink.run_maintenance() == [FileChange("sealed", archive.path)]
    assert (archive.form, filled(held(archive.directory))) == ("sealed", whole())


def operations(tmp_path):
    """How many file operations opening up, filling and sealing take."""
    archive = Archive(tmp_path)
    files = FaultyFiles(tmp_path)
    archive.boot(files)
    archive.fill_and_seal()
    return len(files.operations)


def test_killed_at_any_step_it_ends_sealed_with_every_cell(tmp_path_factory):
    steps = operations(tmp_path_factory.mktemp("count"))
    for step in range(1, steps + 1, max(1, steps // 25)):
        archive = Archive(tmp_path_factory.mktemp("killed"))
        files = FaultyFiles(archive.directory)
        archive.boot(files)
        files.kill_at(step)
        with pytest.raises(SimulatedKill):
            archive.fill_and_seal()
        archive.boot()
        archive.fill()
        archive.sink.seal_reopened()
        assert (archive.form, is_marked(archive.path)) == ("sealed", False), step
        assert filled(held(archive.directory)) == whole(), step


def test_a_mark_whose_file_is_sealed_or_gone_is_taken_away(archive):
    for system in ("fs", "other"):
        mark(archive.sink.days.layout(system, model.EPOCH).path)
        archive.sink.adopt(system, model.EPOCH)
    before = archive.path.read_bytes()
    assert archive.sink.seal_reopened() == []
    assert (archive.path.read_bytes(), list(marked_files(archive.directory))) == (before, [])
