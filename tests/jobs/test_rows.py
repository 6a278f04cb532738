"""Rows of the job table that are read for jobs, keys and counts are those of a reading of all, whatever the files and slices are."""

import datetime as dt

import numpy as np
import pytest
from job_days import DAY, JobDays, random_day

from tokiod.jobs import rows as rows_module
from tokiod.jobs.rows import TableFile, Wanted, directory_of, read, table_files
from tokiod.jobs.span import Days


@pytest.fixture
def made(tmp_path):
    made = JobDays(tmp_path / "jobs", window=600)
    made.store(*random_day(3, DAY + 3600, 1.0))
    return made


def listed(found, counts=None):
    """[(job, target, fixed columns, counts that are not 0)] in the order of the rows."""
    names = [name for name in found.counts if counts is None or name in counts]
    return [
        (
            found.jobs[found.job[i]], found.targets[found.target[i]], *(int(of[i]) for of in found.columns.values()),
            *sorted((name, int(found.counts[name][i])) for name in names if found.counts[name][i]),
        ) for i in range(len(found))
    ]  # fmt: skip


@pytest.mark.parametrize("most", [64, 1])
def test_chosen_rows_are_the_same_as_of_all_rows(made, most, monkeypatch):
    monkeypatch.setattr(rows_module, "MAX_SLICES", most)
    (directory,) = (made.root / made.system).iterdir()
    span = DAY + 4000, DAY + 6800
    every = listed(read([directory], DAY, DAY + 86400))
    assert len(every) == len(made.rows)
    inside = [row for row in every if span[0] <= row[2] < span[1]]
    assert 0 < len(inside) < len(every)
    assert listed(read([directory], *span)) == inside
    time = inside[0][2]
    assert {row[2] for row in listed(read([directory], time, time + 1))} == {time}
    keys = sorted({row[0] for row in every})
    for chosen in (keys[:1], keys[::2], keys[1:4], keys[-1:], keys):
        assert listed(read([directory], *span, Wanted(keys=np.array(chosen)))) == [row for row in inside if row[0] in chosen]
    for low, high in ((None, keys[2]), (keys[2], None), (keys[1], keys[3]), (keys[1], keys[1]), (None, None)):
        expected = [row for row in inside if (low is None or low <= row[0]) and (high is None or row[0] < high)]
        assert listed(read([directory], *span, Wanted(low=low, high=high))) == expected
    for key in keys:
        name = key.partition(b"\x1f")[0]
        expected = [row for row in inside if row[0].partition(b"\x1f")[0] == name]
        assert listed(read([directory], *span, name.decode())) == listed(read([directory], *span, Wanted.of_job(name.decode()))) == expected
    found = read([directory], *span, Wanted(counts={"open.samples"}))
    assert {*found.counts} == {"open.samples"}
    assert listed(found) == listed(read([directory], *span), {"open.samples"})
    assert listed(read([directory], *span, "40")) == []


def test_files_are_known_by_their_names_windows_first(tmp_path):
    names = [
        "60-120@b.jobs",
        "60-120@a.jobs",
        "0-600.jobs",
        "0-60@a.jobs",
        "60-90@a.jobs",
        "0-60@a.jobs.tmp",
        "x.jobs",
        "-60@a.jobs",
        "0-60@.jobs",
    ]
    for name in names:
        (tmp_path / name).touch()
    found = table_files(tmp_path)
    assert [file.path.name for file in found] == ["0-60@a.jobs", "60-90@a.jobs", "60-120@a.jobs", "60-120@b.jobs", "0-600.jobs"]
    assert found[2] == TableFile(tmp_path / "60-120@a.jobs", 60, 120, "a")
    assert (found[2].is_window, found[2].window, found[-1].is_window, found[-1].source) == (True, ("a", 60, 120), False, "")
    assert table_files(tmp_path / "none") == []


def test_days_are_directories_with_a_date_of_the_first_table_that_has_them(tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    for root, name in ((first, "2024-08-09"), (second, "2024-08-09"), (second, "2024-08-08"), (second, "note"), (first, "2024-08-11")):
        directory = root / "fs" / name
        directory.mkdir(parents=True)
    (first / "fs" / "2024-08-10").touch()
    days, dates = Days((first, tmp_path / "none", second), "fs"), [dt.date(2024, 8, day) for day in (8, 9, 11)]
    paths = [directory_of(second, "fs", dates[0]), directory_of(first, "fs", dates[1]), directory_of(first, "fs", dates[2])]
    assert [*days.dates().items()] == [*zip(dates, paths, strict=True)]
    assert Days((first,), "other").dates() == {}
    assert days.newest() is None
    # The site may be up to 14 hours before or after UTC.
    noon = DAY + 43200
    assert days.of(noon, noon + 60) == paths[:2]
    assert days.of(noon + 86400, noon + 86460) == paths[:2]
    assert days.of(noon + 2 * 86400, noon + 2 * 86400 + 60) == paths[1:]
    assert days.of(DAY + 2 * 86400 - 50400, DAY + 2 * 86400) == paths[:2]
    assert days.of(DAY + 2 * 86400, DAY + 2 * 86400 + 1) == paths[1:]
