"""A window of both matrices and rows is stored whole or refused, and a lost ledger finds it only where both parts are."""

import errno
from dataclasses import replace

import h5py
import numpy as np
import pytest

from collectors.nodes.config import Config as NodesConfig
from sinks.tts.day_files import DayFiles
from sinks.tts.sink import TtsSink
from tokiod.archive.layout import daily
from tokiod.batch import Batch
from tokiod.config.schema import Config
from tokiod.config.sections import ArchiveConfig
from tokiod.errors import Refusal
from tokiod.hub.to_rows import JOB_FIELDS, JOB_METRICS, job_rows
from tokiod.jobs.rows import directory_of, read, table_files
from tokiod.jobs.table import JobTable
from tokiod.testing.clock import FakeClock
from tokiod.tts.live.files import REAL, Files
from tokiod.tts.schema import missing
from tokiod.window import Calendar, Window
from tokiod.window_data import Collected, WindowMeta
from tokiod.writer.archive_sink import ArchiveSink
from tokiod.writer.proven_windows import proof

DAY = 1_800_057_600


class Site:
    """A sink of both. files: of the job table."""

    def __init__(self, directory, files=REAL):
        archive = ArchiveConfig(path=f"{directory}/tts/%Y-%m-%d/{{system}}.hdf5")
        source = NodesConfig(name="n", kind="nodes", system="cluster.nodes", metrics=("load_1min",))
        self.config = Config(timezone="UTC", archive=archive, source=(source,))
        self.clock, calendar = FakeClock(DAY + 3600), Calendar("UTC")
        self.place = directory_of(archive.jobs, "cluster.nodes", calendar.day(DAY).date)
        tts = TtsSink(DayFiles(daily(calendar, archive.file), self.clock, executor="inline"))
        self.sink = ArchiveSink(tts, JobTable(archive.jobs, calendar, self.clock, files))

    def window(self, number, *, jobs=1):
        window = Window(DAY + 60 * number, DAY + 60 * number + 60)
        batch = Batch("nodes/load_1min", "gauge", 60, ("nid1",), np.array([window.start]), np.array([0], np.uint32), np.array([1.5]))
        states = np.full((JOB_FIELDS + len(JOB_METRICS), jobs), np.nan)
        states[: JOB_FIELDS + 1] = np.array([[0, 0, window.start, window.start + 59, 0, 2.0]]).T
        rows = job_rows(states, ("slurm:1",), ("nid1",), window)
        return Collected(WindowMeta("n", "nodes", "cluster.nodes", window), [batch], [rows])

    def store(self, *numbers):
        for number in numbers:
            self.sink.apply(self.window(number))
        return self.sink.commit()

    def stored(self):
        """Return the windows of which the matrix has a cell, and those of which the table has a row."""
        with h5py.File(self.config.archive.file(Calendar("UTC").day(DAY), "cluster.nodes")) as file:
            cells = np.flatnonzero(~missing(file["nodes/load_1min"][:, 0])).tolist()
        return cells, ((read([self.place], DAY, DAY + 86400).columns["time"] - DAY) // 60).tolist()


def test_a_window_of_both_is_in_the_file_and_in_the_table(tmp_path):
    site = Site(tmp_path)
    assert site.sink.apply(site.window(3, jobs=1)).cells == 2
    assert site.sink.commit() == []
    assert site.store(3, 4) == []
    site.sink.apply(site.window(5, jobs=0))
    assert site.sink.commit() == []
    assert site.stored() == ([3, 4, 5], [3, 4])


def test_a_window_whose_rows_have_no_room_is_refused_and_stored_once_they_have(tmp_path):
    class Full(Files):
        is_full = True

        def make_directory(self, path):
            if self.is_full:
                raise OSError(errno.ENOSPC, "No space left on device")
            super().make_directory(path)

    files = Full()
    site = Site(tmp_path, files)
    with pytest.raises(Refusal, match="No space left") as refused:
        site.sink.apply(site.window(3))
    assert refused.value.when == "retry"
    files.is_full = False
    # Its cells are in the file, so that the next attempt changes none: subscribers must read them there.
    applied = site.sink.apply(site.window(3))
    assert (applied.changes, applied.unreported) == ([], {"nodes/load_1min"})
    assert site.sink.commit() == []
    assert site.stored() == ([3], [3])
    assert site.sink.apply(site.window(4)).unreported == set()


def test_rows_that_can_not_be_put_in_place_leave_their_window_unstored(tmp_path):
    class Broken(Files):
        def rename(self, *_):
            raise OSError(errno.EIO, "Input/output error")

    (failed,) = Site(tmp_path, Broken()).store(3)
    assert (failed.system, failed.window) == ("cluster.nodes", Window(DAY + 180, DAY + 240))


def test_windows_of_another_source_in_the_table_and_those_of_the_future_prove_nothing(tmp_path):
    site = Site(tmp_path)
    assert site.store(0, 1) == []
    other = site.window(1)
    site.sink.jobs.apply(replace(other, batches=(), meta=replace(other.meta, source="earlier")))
    assert site.sink.commit() == []
    assert list(proof(site.config, DAY + 60).stored["n"]) == [(DAY, DAY + 60)]
    assert list(proof(site.config, DAY + 3600).stored["n"]) == [(DAY, DAY + 120)]


def test_a_lost_ledger_finds_the_windows_that_both_parts_hold(tmp_path):
    site = Site(tmp_path)
    assert site.store(0, 1, 2, 3, 4) == []
    for file in table_files(site.place)[2:3]:
        file.path.unlink()
    site.sink.jobs.apply(replace(site.window(7), batches=()))  # a kill came between the two
    assert site.sink.commit() == []
    found = proof(site.config, DAY + 3600)
    assert list(found.stored["n"]) == [(DAY, DAY + 120), (DAY + 180, DAY + 300)]
    assert found.windows == 4
