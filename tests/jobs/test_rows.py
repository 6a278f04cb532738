"""Rows of the job table that are read for jobs, keys and counts are those of a reading of all, whatever the files and slices are."""

import datetime as dt
import random

import numpy as np
import pytest
from job_days import DAY, JobDays, polled, random_day
from structlog.testing import capture_logs

from tokiod.jobs import rows as rows_module
from tokiod.jobs import table_file
from tokiod.jobs.rows import TableFile, Wanted, directory_of, polled_until, read, stored_windows, table_files
from tokiod.jobs.span import Days
from tokiod.jobs.table_file import NotAJobTable
from tokiod.window_data import JOB_LOOKBACK_SECONDS, job_key


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
    for chosen in (keys[:1], keys[::2], keys[1::2], keys[1:4], keys[-1:], keys):
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
    lookback = JOB_LOOKBACK_SECONDS
    file, spans = (
        TableFile(tmp_path, 10_000, 10_060, "a"),
        [(0, 10_000 - lookback), (0, 10_001 - lookback), (10_059, 20_000), (10_060, 20_000)],
    )
    assert [file.may_have(*span) for span in spans] == [False, True, True, False]


def test_a_file_of_several_windows_that_stands_alone_has_the_span_of_all(made, tmp_path):
    made.merged(DAY + 3 * 86400)
    ((merged,),) = map(table_files, (made.root / made.system).iterdir())
    alone = merged.path.rename(tmp_path / "alone")
    assert table_files(alone) == [TableFile(alone, DAY + 3600, DAY + 7200, "")]
    assert len(read([alone], DAY, DAY + 86400)) == len(made.rows)


def test_a_reader_tries_again_while_files_vanish_that_it_listed(made, monkeypatch):
    """A merge removes them, and the file that has their rows is there already."""
    (directory,) = (made.root / made.system).iterdir()
    calls, opened = [], rows_module.opened

    def vanished(path):
        calls.append(path)
        if len(calls) < most:
            raise FileNotFoundError(path)
        return opened(path)

    monkeypatch.setattr(rows_module, "opened", vanished)
    most = 300
    assert len(read([directory], DAY, DAY + 86400)) == len(made.rows)
    calls.clear()
    most = 301
    with pytest.raises(FileNotFoundError):
        read([directory], DAY, DAY + 86400)
    assert len(calls) == 300


def test_the_windows_of_a_file_that_is_damaged_are_unknown_and_it_is_logged(made):
    (directory,) = (made.root / made.system).iterdir()
    first, *others = table_files(directory)
    first.path.write_bytes(b"x" * 5000)
    with capture_logs() as logs:
        assert sorted(stored_windows(directory)) == [file.window for file in others]
    assert [(one["event"], one["log_level"], one["path"]) for one in logs] == [("jobs.file_skipped", "warning", str(first.path))]


@pytest.mark.parametrize("name", ["windows/source", "rows/time", "rows/window", "windows/polled"])
@pytest.mark.parametrize(("said", "error"), [("errno = 5, error message = '?'", OSError), ("a wrong checksum", NotAJobTable)])
def test_a_column_that_cannot_be_read_is_an_error_of_the_system_or_a_damaged_file(made, monkeypatch, name, said, error):
    (directory,) = (made.root / made.system).iterdir()
    targets = np.array([b"fs-OST0000"])
    made.store(polled(DAY + 10_000, targets[0], made.rows[0]["job"], DAY, {"open.samples": 1}), answered=(targets[0],))
    whole = table_file.read

    def failing(file, asked, rows=None):
        if asked == name:
            raise OSError(f"Can't read data (file read failed: {said})")
        return whole(file, asked, rows)

    monkeypatch.setattr(table_file, "read", failing)
    with pytest.raises(error) as raised:
        polled_until(directory, DAY, DAY + 10_300, targets)
    assert type(raised.value) is error
    assert str(directory) in str(raised.value)


@pytest.mark.parametrize("seed", range(2))
def test_targets_were_polled_until_what_rows_and_windows_show(tmp_path, seed):
    draw, targets = random.Random(seed), [b"a", b"b", b"c"]
    made, windows = JobDays(tmp_path / "jobs", window=60), []
    for begin in sorted(draw.sample(range(DAY + 3600, DAY + 5400, 60), 15)):
        source, answered = draw.choice("xy"), tuple(draw.sample(targets, draw.randrange(3)))
        times = [(begin + draw.choice((-40, 5, 30, 59)), target) for target in draw.sample(targets, draw.randrange(3))]
        rows = [polled(time, target, job_key("1"), DAY, {"open.samples": 1}) for time, target in times]
        made.store(*rows, *([] if rows else [begin]), source=source, late={time for time, _ in times if time < begin}, answered=answered)
        windows.append((begin, times, answered))

    def shown(target, start):
        """Yield until when each window shows that a target was polled before a time."""
        yield 0
        for begin, times, answered in windows:
            own, until = [time for time, one in times if one == target], min(begin + 60, start)
            yield from (until if time >= begin else time for time in own if time < start)
            if target in answered and begin < start and (begin + 60 <= start or not own):
                yield until

    (directory,) = (made.root / made.system).iterdir()
    starts = [DAY + 3600, DAY + 8000, *(begin + draw.choice((0, 1, 5, 6, 30, 59, 60)) for begin, *_ in windows)]
    for at in (None, DAY + 4 * 86400):
        if at is not None:
            made.merged(at)
        for start in starts:
            found = polled_until(directory, DAY, start, np.array(targets)).tolist()
            assert found == [max(shown(target, start)) for target in targets], start


def test_rows_of_one_time_are_sorted_by_begin_and_snapshot_and_the_largest_counts_come_first(tmp_path):
    """Whatever the files are in which they stand."""
    order = [(5, 7, 3, 0), (5, 8, 9, 0), (5, 8, 4, 4), (5, 8, 2, 1), (6, 1, 1, 1)]
    key, other = job_key("1"), job_key("2")
    given = [
        {**polled(DAY + 65, b"t", key, DAY, {"open.samples": a, "close.samples": b}), "begin": begin, "last": last}
        for begin, last, a, b in order
    ]
    given += [polled(DAY + 66, b"t", key, DAY, {"open.samples": 1}), polled(DAY + 65, b"t", other, DAY, {"open.samples": 2})]
    for seed in range(4):
        made = JobDays(tmp_path / str(seed))
        draw = random.Random(seed)
        for number, row in enumerate(draw.sample(given, len(given))):
            made.store(row, source=str(number))
        found = read(Days((made.root,), made.system).of(DAY, DAY + 60), DAY, DAY + 86400)
        columns = ("begin", "last"), ("open.samples", "close.samples")
        values = [found.columns[name].tolist() for name in columns[0]] + [found.counts[name].tolist() for name in columns[1]]
        assert [*zip(*values, strict=True)][:5] == order
        assert found.columns["time"].tolist() == [DAY + 65] * 5 + [DAY + 66, DAY + 65]


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
