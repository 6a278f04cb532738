"""A file of the job table that stands alone is read like the days of a system, whatever its name."""

import datetime as dt

import numpy as np
import pytest
from job_rows import DAY, collected, rows

from tokiod.jobs.one_file import one_file
from tokiod.jobs.rows import read
from tokiod.jobs.span import Days, pieces, target_names
from tokiod.jobs.table import write_window
from tokiod.jobs.table_file import Index, write
from tokiod.tts.live.files import Files
from tokiod.window_data import JOB_LOOKBACK_SECONDS


@pytest.fixture
def path(tmp_path):
    """The first minute of 02:00 of the day after DAY."""
    made = tmp_path / "saved of a site.hdf5"
    one = collected(26 * 60, rows(DAY + 26 * 3600 + 5, ("1", "2"), **{"open.samples": 3}), system="fs")
    write_window(made, Files(), one.meta, one.tables[0])
    return made


def test_it_is_one_day_of_its_system_by_the_date_in_utc(path):
    found, start = one_file(path), DAY + 26 * 3600
    assert (found.system, found.start, found.end, found.newest()) == ("fs", start, start + 60, start + 60)
    assert found.index.windows == (("jobs", start, start + 60),)
    assert found.dates() == {dt.date(2024, 8, 9): path}
    assert found.date_of(path) == dt.date(2024, 8, 9)
    ((day, piece),) = pieces(found, start, start + 60)
    assert (day, piece.rows.counts["open.samples"].tolist()) == (dt.date(2024, 8, 9), [3, 3, 6, 6])
    assert target_names(found, start, start + 60) == ["fs-OST0000", "fs-OST0001"]
    assert len(read([path], start + 5, start + 6)) == 4


def test_it_is_read_for_a_span_that_its_rows_may_be_of(path):
    """Rows of polls before its first window may stand in it."""
    found, start = one_file(path), DAY + 26 * 3600
    first = start - JOB_LOOKBACK_SECONDS
    spans = [(first - 60, first), (first, first + 1), (start + 59, start + 90), (start + 60, start + 90)]
    assert [found.of(*span) for span in spans] == [[], [path], [path], []]


def test_its_system_is_its_own_name_where_it_was_written_as_an_output(tmp_path):
    index = Index("saved/fs.jobs", (), np.empty(0, "S1"), np.empty(0, "S1"), np.zeros(1, np.int64), ())
    write(tmp_path / "out.jobs", Files(), index, [])
    found = one_file(tmp_path / "out.jobs")
    assert (found.system, found.start, found.end) == ("out", 0, 0)


def test_another_file_and_none_are_no_table(path, tmp_path):
    (tmp_path / "notes").write_text("no HDF5")
    assert [one_file(tmp_path / name) for name in ("notes", "none", ".")] == [None] * 3
    assert isinstance(one_file(path), Days)
