"""The job table: windows are stored once and whole, merged, and found again."""

import asyncio
import contextlib
import datetime as dt
import errno
import inspect
import os
import re
import signal
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import job_rows
import numpy as np
import pytest
from faulty_files import FaultyFiles, SimulatedKill
from job_rows import DATE, DAY, collected, rows
from structlog.testing import capture_logs
from waiting import wait_for

from tokiod.errors import Refusal
from tokiod.jobs import merge as jobs_merge
from tokiod.jobs import table as jobs_table
from tokiod.jobs import table_file
from tokiod.jobs.identity import JobIdentities
from tokiod.jobs.passed_time import TRUSTED_SECONDS
from tokiod.jobs.rows import directory_of, read, stored_windows, table_files
from tokiod.jobs.table import CHECK_SECONDS, MERGE_WINDOWS, JobTable
from tokiod.jobs.table_file import NotAJobTable, opened
from tokiod.testing.clock import FakeClock
from tokiod.tts.live.files import Files
from tokiod.units import NEVER
from tokiod.window import Calendar, Window
from tokiod.window_data import JOB_TABLE, Collected, TableRows, WindowMeta, job_key, job_parts


@pytest.fixture
def site(tmp_path):
    clock = FakeClock(DAY + 3600)
    table = JobTable(tmp_path / "jobs", Calendar("UTC"), clock, inline=True)

    def store(number, jobs=("1", "2"), count=None, table=table, **given):
        counted = {"open.samples": number + 1 if count is None else count}
        done = table.apply(collected(number, rows(DAY + 60 * number + 5, jobs, **counted), **given))
        assert table.commit() == []
        return done

    def run(times=1):
        for _ in range(2 * times):
            asyncio.run(clock.advance(60))
            table.run()

    return SimpleNamespace(table=table, clock=clock, store=store, run=run, place=directory_of(tmp_path / "jobs", "fs", DATE))


def all_rows(place, job=None):
    return read([place], DAY, DAY + 86400, job)


def as_cells(found):
    columns = found.columns | found.counts
    names = sorted(columns)
    keys = zip(found.jobs[found.job].tolist(), found.targets[found.target].tolist(), strict=True)
    return sorted((*key, *values) for key, *values in zip(keys, *(columns[name].tolist() for name in names), strict=True))


def test_what_is_stored_is_read_back_sorted_by_job_target_and_time(site):
    assert site.store(3).cells == 4
    site.store(1)
    found = all_rows(site.place)
    assert found.jobs[found.job].tolist() == [job_key(job, "1000", None, "n1") for job in "11112222"]
    assert found.columns["time"].tolist() == [DAY + 65, DAY + 185] * 4
    assert found.counts["open.samples"].tolist() == [2, 4, 2, 4, 4, 8, 4, 8]
    assert len(read([site.place], DAY + 70, DAY + 86400)) == 4


def test_a_window_that_is_stored_twice_is_there_once_with_its_last_counts(site):
    site.store(3)
    once = all_rows(site.place)
    site.store(3)
    assert as_cells(all_rows(site.place)) == as_cells(once)
    site.store(3, count=50)
    assert all_rows(site.place).counts["open.samples"].tolist() == [50, 50, 100, 100]


@pytest.mark.parametrize("is_merged", [False, True])
def test_rows_that_a_later_attempt_at_a_window_lacks_stay(site, is_merged):
    """A server forgets a job soon after its end, and a process that was restarted has rows of later times alone."""
    for number in range(3):
        site.store(number)
    if is_merged:
        site.clock.jump(2 * 86400)
        site.run()
    assert len(table_files(site.place)) == (1 if is_merged else 3)
    before = as_cells(all_rows(site.place))
    for second, jobs in ((40, ("2", "9")), (50, ())):
        site.table.apply(collected(1, rows(DAY + 60 + second, jobs, **{"open.samples": 8, "close.samples": 1})))
        assert site.table.commit() == []
    found = all_rows(site.place)
    times = {(DAY + 5, DAY + 65, DAY + 125): [b"1", b"2"], (DAY + 100,): [b"2", b"9"]}
    expected = sorted((job, time) for some, jobs in times.items() for job in jobs for time in some for _target in range(2))
    assert sorted(zip((key.split(b"\x1f")[0] for key in found.jobs[found.job]), found.columns["time"].tolist(), strict=True)) == expected
    assert set(found.counts["close.samples"].tolist()) == {0, 1, 2}
    site.clock.jump(2 * 86400)
    site.run()
    assert (len(table_files(site.place)), as_cells(all_rows(site.place))) == (1, as_cells(found))
    del found.counts["close.samples"]
    assert set(before) <= set(as_cells(found))


def test_rows_with_ids_of_another_key_stay_and_those_whose_users_were_removed_are_replaced(site):
    """A key that was lost with its directory is made again: jobs that run have other ids then."""

    def store(key, users, count):
        named = collected(1, rows(DAY + 65, ("1",), **{"open.samples": count}))
        named = replace(named, tables=[with_ids(named.tables[0])])
        site.table.apply(JobIdentities(users, key).applied(named))
        assert site.table.commit() == []

    def with_ids(table):
        values = dict(zip(table.columns, table.values, strict=True))
        values["job"] = np.array([job_key("1", "alice", None, "n1", "1:alice:n1")] * len(table), "S")
        return TableRows(table.table, table.columns, tuple(values.values()))

    store(b"old" * 8, "names", 5)
    store(b"new" * 8, "names", 6)
    assert sorted(all_rows(site.place).counts["open.samples"].tolist()) == [5, 5, 6, 6]
    store(b"new" * 8, "no", 7)
    assert sorted(all_rows(site.place).counts["open.samples"].tolist()) == [5, 5, 7, 7]


def test_a_window_without_a_changed_job_is_stored_too(site):
    site.store(3, jobs=())
    assert list(stored_windows(site.place)) == [("jobs", DAY + 180, DAY + 240)]
    assert len(all_rows(site.place)) == 0


def test_windows_are_merged_and_the_rows_stay_the_same(site):
    for number in range(MERGE_WINDOWS):
        site.store(number, jobs=("1", "2", str(number)))
    before = as_cells(all_rows(site.place))
    site.clock.jump(2 * 3600)
    site.run()
    (merged,) = table_files(site.place)
    assert (merged.start, merged.end, merged.is_window) == (DAY, DAY + 60 * MERGE_WINDOWS, False)
    assert as_cells(all_rows(site.place)) == before
    assert as_cells(all_rows(site.place, "17")) == [one for one in before if one[0].startswith(b"17\x1f")]
    assert sorted(stored_windows(site.place)) == [("jobs", DAY + 60 * n, DAY + 60 * n + 60) for n in range(MERGE_WINDOWS)]


@pytest.mark.parametrize("again", range(3))
def test_a_window_that_comes_after_its_day_was_merged_is_added_to_what_was_there(site, again):
    for number in range(3):
        site.store(number)
    site.clock.jump(2 * 86400)
    site.run()
    assert len(table_files(site.place)) == 1
    site.store(again, jobs=("7",))
    late = as_cells(all_rows(site.place))
    assert {one[0].split(b"\x1f")[0] for one in late if 0 <= one[-1] - DAY - 60 * again < 60} == {b"1", b"2", b"7"}
    site.run()
    assert len(table_files(site.place)) == 1
    assert as_cells(all_rows(site.place)) == late


def test_sources_of_one_system_keep_their_own_windows(site):
    site.store(0, source="a")
    site.store(0, source="b", jobs=("3",))
    site.clock.jump(2 * 86400)
    site.run()
    assert sorted(stored_windows(site.place)) == [("a", DAY, DAY + 60), ("b", DAY, DAY + 60)]
    assert len(all_rows(site.place)) == 6


def test_files_of_a_watched_folder_that_hold_parts_of_one_window_do_not_replace_each_other(site):
    def some(jobs):
        whole = collected(3, rows(DAY + 185, jobs, **{"open.samples": 1}))
        return replace(whole, meta=replace(whole.meta, extent="some"))

    for jobs in (("1",), ("2",), ("1",), ()):
        site.table.apply(some(jobs))
    assert site.table.commit() == []
    assert [key.split(b"\x1f")[0] for key in all_rows(site.place).jobs.tolist()] == [b"1", b"2"]
    assert len(all_rows(site.place)) == 4
    sources = [file.source for file in table_files(site.place)]
    assert (len(set(sources)), [len(one) for one in sources]) == (3, [len("jobs.") + 16] * 3)
    site.clock.jump(2 * 86400)
    site.run()
    assert (len(table_files(site.place)), len(all_rows(site.place))) == (1, 4)


def test_another_operation_of_a_later_version_is_zero_before(site):
    site.table.apply(collected(0, rows(DAY + 5, ("1",), **{"open.samples": 1})))
    site.table.apply(collected(1, rows(DAY + 65, ("1",), **{"open.samples": 2, "fallocate.samples": 5})))
    site.table.commit()
    expected = job_rows.totals(all_rows(site.place))
    site.clock.jump(2 * 86400)
    site.run()
    assert job_rows.totals(all_rows(site.place)) == expected
    assert expected["fs-OST0000", job_key("1", "1000", None, "n1")] == {"open.samples": 2, "fallocate.samples": 5}


def everything(place):
    return b"".join(path.read_bytes() for path in sorted(place.iterdir()))


def users_of(place):
    return sorted({job_parts(key)["user"] for key in read([place], 0, 2 * DAY).jobs.tolist()})


def pass_time(clock, table, seconds=TRUSTED_SECONDS + 60):
    """Let a table look at its days for so long."""
    for _ in range(0, seconds, 300):
        asyncio.run(clock.advance(300))
        table.run()


def test_users_are_removed_from_days_after_their_retention_and_the_jobs_stay(site):
    """Also from a window that comes later, and after another process has taken over."""
    site.table.users_retention = 3 * 86400
    for number in range(3):
        site.store(number)
    site.clock.jump(2 * 86400)
    site.run()
    sealed = all_rows(site.place)
    assert users_of(site.place) == ["1000"]
    site.clock.jump(2 * 86400)
    again = JobTable(site.table.root, Calendar("UTC"), site.clock, users_retention=3 * 86400, inline=True)
    for table in (site.table, again):
        pass_time(site.clock, table)
        for _ in range(4):
            asyncio.run(site.clock.advance(60))
            table.run()
        assert users_of(site.place) == [""]
        assert b"1000" not in everything(site.place)
        found = all_rows(site.place)
        assert [key.split(b"\x1f")[0] for key in found.jobs.tolist()] == [b"1", b"2"]
        assert {name: values.tolist() for name, values in (found.columns | found.counts).items()} == {
            name: values.tolist() for name, values in (sealed.columns | sealed.counts).items()
        }
        written = {path: path.stat().st_ino for path in site.place.iterdir()}
        site.run(3)
        assert {path: path.stat().st_ino for path in site.place.iterdir()} == written
    site.store(1, jobs=("7",))
    site.run(2)
    pass_time(site.clock, site.table)
    assert (len(table_files(site.place)), users_of(site.place)) == (1, [""])
    # A clock that went back for a while, so that a window came with its users.
    site.clock.jump(-2 * 86400)
    site.store(2, jobs=("8",))
    site.run(2)
    assert (len(table_files(site.place)), users_of(site.place)) == (1, ["", "1000"])
    site.clock.jump(2 * 86400)
    pass_time(site.clock, site.table)
    assert users_of(site.place) == [""]


def test_days_after_their_retention_are_removed(site):
    site.store(0)
    site.table.retention = 3 * 86400
    site.clock.jump(4 * 86400)
    site.run(2)
    assert site.place.exists()
    pass_time(site.clock, site.table)
    assert not site.place.exists()
    # A backfill makes the day again, and is killed while it writes.
    site.place.mkdir()
    (site.place / ".60-120@jobs.jobs.tmp").touch()
    site.run(2)
    assert list(site.place.iterdir()) == []


def test_a_clock_that_is_ahead_for_a_while_removes_neither_days_nor_users(site):
    site.store(0)
    site.table.retention, site.table.users_retention = 400 * 86400, 90 * 86400
    pass_time(site.clock, site.table)
    for seconds in (1200, TRUSTED_SECONDS - 600):
        site.clock.jump(3 * 365 * 86400)
        pass_time(site.clock, site.table, seconds)
        site.clock.jump(-3 * 365 * 86400)
        pass_time(site.clock, site.table)
    assert (len(table_files(site.place)), users_of(site.place)) == (1, ["1000"])


def test_a_damaged_file_stops_no_other_day_and_is_named_to_the_reader(site):
    site.store(0)
    site.store(1)
    path = table_files(site.place)[0].path
    path.write_bytes(path.read_bytes()[:-1000])
    other = WindowMeta("jobs", "lustre_jobstats", "fs", Window(DAY + 86400, DAY + 86460))
    site.table.apply(Collected(other, (), [rows(DAY + 86405, ("1",), **{"open.samples": 1})]))
    site.table.commit()
    site.clock.jump(4 * 86400)
    site.run(2)
    (merged,) = table_files(directory_of(site.table.root, "fs", DATE + dt.timedelta(days=1)))
    assert not merged.is_window
    with pytest.raises((NotAJobTable, ValueError), match=path.name):
        all_rows(site.place)


def test_what_fails_in_one_day_stops_no_other_and_is_tried_again_a_day_later(site, monkeypatch):
    def damaged(paths, target, files, rename):
        if target.parent == site.place:
            raise RuntimeError("unable to get group info")
        merge(paths, target, files, rename)

    merge = jobs_table.merge
    monkeypatch.setattr(jobs_table, "merge", damaged)
    (site.table.root / "fs" / "README").parent.mkdir(parents=True)
    for stray in ("README", "fs/README"):
        (site.table.root / stray).touch()
    site.store(0)
    other = WindowMeta("jobs", "lustre_jobstats", "fs", Window(DAY + 86400, DAY + 86460))
    site.table.apply(Collected(other, (), [rows(DAY + 86405, ("1",), **{"open.samples": 1})]))
    site.table.commit()
    site.clock.jump(4 * 86400)
    site.run(2)
    place = directory_of(site.table.root, "fs", DATE + dt.timedelta(days=1))
    assert [file.is_window for where in (site.place, place) for file in table_files(where)] == [True, False]
    monkeypatch.setattr(jobs_table, "merge", merge)
    failed = site.table._failed[site.place]
    for seconds, is_window in ((86400 - CHECK_SECONDS, True), (86400, False)):
        asyncio.run(site.clock.advance(failed + seconds - site.clock.monotonic()))
        site.table.run()
        site.table.run()
        assert [file.is_window for file in table_files(site.place)] == [is_window]


def test_a_window_that_is_stored_again_during_a_merge_stays_where_its_inode_returns(site):
    class FilesOfOneInode(Files):
        def stat(self, path):
            found = super().stat(path)
            return SimpleNamespace(st_ino=1, st_size=found.st_size, st_mtime_ns=found.st_mtime_ns)

    site.table.files = FilesOfOneInode()
    for number in range(MERGE_WINDOWS):
        site.store(number)
    site.clock.jump(2 * 3600)
    asyncio.run(site.clock.advance(60))
    site.table.run()
    site.store(3, jobs=("9",))
    site.table.run()
    assert len(all_rows(site.place, "9")) == 2
    assert len(table_files(site.place)) == 2


def merged_early(site, windows):
    """Store windows and have them merged by a clock that is two days ahead for two minutes."""
    for number in range(windows):
        site.store(number, jobs=("1",))
    site.clock.jump(2 * 86400)
    site.run()
    site.clock.jump(-2 * 86400)
    assert [file.is_window for file in table_files(site.place)] == [False]


def held_windows(place):
    return sorted(stored_windows(place))


def test_a_later_attempt_at_a_window_that_was_merged_early_stays_through_each_merge(site):
    merged_early(site, 10)
    site.store(5, jobs=("1", "2"))
    for number in range(10, 9 + MERGE_WINDOWS):
        site.store(number, jobs=("1",))
    before, windows = as_cells(all_rows(site.place)), sorted(set(held_windows(site.place)))
    for seconds in (3 * 3600, 2 * 86400):
        site.clock.jump(seconds)
        site.run()
        (merged,) = table_files(site.place)
        assert not merged.is_window
        assert as_cells(all_rows(site.place)) == before
        assert held_windows(site.place) == windows


def test_a_window_that_is_stored_again_during_a_merge_stays_through_the_next_ones(site):
    for number in range(MERGE_WINDOWS):
        site.store(number)
    site.clock.jump(2 * 3600)
    asyncio.run(site.clock.advance(60))
    site.table.run()
    site.store(3, jobs=("9",))
    site.table.run()
    for number in range(MERGE_WINDOWS, 2 * MERGE_WINDOWS - 1):
        site.store(number)
    before = as_cells(all_rows(site.place))
    for seconds in (3 * 3600, 2 * 86400):
        site.clock.jump(seconds)
        site.run()
        assert [file.is_window for file in table_files(site.place)] == [False]
        assert as_cells(all_rows(site.place)) == before


def test_a_merged_file_that_holds_none_of_the_windows_is_not_merged_again(site):
    """Of two sources, one may be an hour late each time: then the day would be written once an hour."""
    for number in range(MERGE_WINDOWS):
        site.store(number, source="a")
    site.clock.jump(2 * 3600)
    site.run()
    (first,) = table_files(site.place)
    written = first.path.stat().st_ino
    for number in range(MERGE_WINDOWS):
        site.store(number + (number == MERGE_WINDOWS - 1), source="b")
    site.run()
    assert [(file.is_window, file.end) for file in table_files(site.place)] == [(False, first.end), (False, first.end + 60)]
    assert first.path.stat().st_ino == written


@pytest.mark.parametrize("most", [4, 5, 8, 40])
def test_windows_that_many_merged_files_hold_are_merged_with_them_as_many_at_once_as_may_be_open(site, most, monkeypatch):
    monkeypatch.setattr(jobs_table, "MERGE_WINDOWS", 4)
    for module in (jobs_table, jobs_merge):
        monkeypatch.setattr(module, "MAX_FILES", most)
    sizes = []
    merge = jobs_table.merge

    def counted(paths, *rest):
        sizes.append(len(paths))
        merge(paths, *rest)

    monkeypatch.setattr(jobs_table, "merge", counted)
    for hour in range(4):
        for number in range(4):
            site.store(4 * hour + number, jobs=("1",))
        site.clock.jump(2 * 3600)
        site.run()
    assert len(table_files(site.place)) == 4
    for number in range(16):
        site.store(number, jobs=("1", "2"))
    before = as_cells(all_rows(site.place))
    for _ in range(12):
        site.run()
        assert as_cells(all_rows(site.place)) == before
    site.clock.jump(2 * 86400)
    site.run()
    assert ([file.is_window for file in table_files(site.place)], as_cells(all_rows(site.place))) == ([False], before)
    assert len(held_windows(site.place)) == 16
    assert max(sizes) <= most


def merged_by_hours_and_by_day(table):
    """Merge windows with the file that holds one of them, store another attempt, and merge the day."""
    let_run(table, 2 * 3600)
    store_in(table, 2, ("1", "9"))
    let_run(table, 2 * 86400)


def let_run(table, seconds):
    table.clock.jump(seconds)
    for _ in range(4):
        asyncio.run(table.clock.advance(60))
        table.run()


def store_in(table, number, jobs):
    table.apply(collected(number, rows(DAY + 60 * number + 5, jobs, **{"open.samples": number + 1})))
    assert table.commit() == []


def with_a_window_stored_again(directory):
    """Store windows of which a clock that was ahead merged four, and one of these again; return the clock."""
    table = JobTable(directory / "jobs", Calendar("UTC"), FakeClock(DAY + 3600), inline=True)
    for number in range(4):
        store_in(table, number, ("1",))
    let_run(table, 2 * 86400)
    table.clock.jump(-2 * 86400)
    for number, jobs in ((1, ("1", "2")), (4, ("1",)), (5, ("1",)), (6, ("1",))):
        store_in(table, number, jobs)
    return table.clock


@pytest.mark.parametrize("loses_power", [False, True])
def test_a_kill_at_any_step_of_a_merge_loses_no_row_of_a_window_that_a_merged_file_holds_too(tmp_path, loses_power, monkeypatch):
    monkeypatch.setattr(jobs_table, "MERGE_WINDOWS", 4)

    def played(step):
        directory = tmp_path / str(step)
        clock, files, place = with_a_window_stored_again(directory), FaultyFiles(directory), directory_of(directory / "jobs", "fs", DATE)
        before = set(as_cells(all_rows(place)))
        files.kill_at(step)
        with contextlib.suppress(SimulatedKill):
            merged_by_hours_and_by_day(JobTable(directory / "jobs", Calendar("UTC"), clock, files, inline=True))
        if loses_power:
            files.power_loss(step)
        assert before <= set(as_cells(all_rows(place))), step
        merged_by_hours_and_by_day(JobTable(directory / "jobs", Calendar("UTC"), FakeClock(DAY + 7200), inline=True))
        assert len(table_files(place)) == 1, step
        return as_cells(all_rows(place)), len(files.operations)

    expected, steps = played(10**6)
    assert steps > 30
    for step in range(2 if loses_power else 1, steps + 1, 5):
        assert played(step)[0] == expected, step


def test_a_window_that_several_files_hold_is_taken_from_the_first_of_them(tmp_path):
    """`tokioctl archive` merges new windows with the file that is there in two stages: then that file may be one of few windows."""

    def merged(name, numbers, count, *others):
        paths = [tmp_path / f"{name}.{number}" for number in numbers]
        for path, number in zip(paths, numbers, strict=True):
            one = collected(number, rows(DAY + 60 * number + 5, ("1",), **{"open.samples": count}))
            jobs_table.write_window(path, Files(), one.meta, one.tables[0])
        jobs_merge.merge([*paths, *others], tmp_path / name, Files())
        return tmp_path / name

    older = merged("older", range(2), 1)
    groups = [merged("first", range(4), 2), merged("last", range(4, 5), 2, older)]
    jobs_merge.merge(groups, tmp_path / "all", Files())
    with opened(tmp_path / "all") as (file, index):
        assert (len(index.windows), set(file["rows/open.samples"][...].tolist())) == (5, {2})


def test_no_more_files_are_merged_at_once_than_may_be_open(tmp_path):
    paths = [tmp_path / str(number) for number in range(241)]
    with pytest.raises(ValueError, match="241 files, at most 240 are merged at once"):
        jobs_merge.merge(paths, tmp_path / "all", Files())
    with pytest.raises(FileNotFoundError):
        jobs_merge.merge(paths[:240], tmp_path / "all", Files())


def test_what_a_killed_process_left_is_removed_but_no_window_that_is_not_yet_in_place(site):
    site.store(0)
    left = site.place / ".1-2.jobs.tmp"
    left.write_bytes(b"half a merge")
    site.table.apply(collected(1, rows(DAY + 65, ("1",), **{"open.samples": 1})))
    site.run()
    assert not left.exists()
    assert site.table.commit() == []
    assert len(list(stored_windows(site.place))) == 2


@pytest.mark.parametrize("ends", ["writer", "merge"])
def test_a_merge_whose_process_is_killed_loses_nothing_and_is_done_by_the_next_one(site, ends):
    for number in range(MERGE_WINDOWS):
        site.store(number, jobs=tuple(map(str, range(500))))
    before, windows = as_cells(all_rows(site.place)), table_files(site.place)
    site.table.inline = False
    site.clock.jump(2 * 3600)
    asyncio.run(site.clock.advance(60))
    site.table.run()
    merging = site.table._merging
    while not list(site.place.glob(".*.tmp")):
        assert merging.process.poll() is None, "the merge ended before it was seen"
    assert os.getpriority(os.PRIO_PROCESS, merging.process.pid) == 19
    assert merging.process.args[3:6] == ["tokiod.jobs.merge_process", str(os.getpid()), "keep"]
    if ends == "merge":
        merging.process.kill()
        merging.process.wait()
    else:
        site.table.close()
    assert merging.process.returncode == -signal.SIGKILL
    assert [table_files(site.place), as_cells(all_rows(site.place))] == [windows, before]
    if ends == "merge":
        with capture_logs() as logs:
            site.table.run()
        assert not site.table.is_busy
        assert [(one["event"], one["error"]) for one in logs] == [("jobs.not_merged", "the process that merges ended with -9")]
        asyncio.run(site.clock.advance(86400))
        table = site.table
        site.store(MERGE_WINDOWS)  # so that the next merge makes another file
        before = as_cells(all_rows(site.place))
    else:
        table = JobTable(site.table.root, site.table.calendar, site.clock)
    table.run()
    assert not list(site.place.glob(".*.tmp")) or table.is_busy
    wait_for(lambda: table.run() or not table.is_busy, 60, "the merge does not end")
    assert [file.is_window for file in table_files(site.place)] == [False]
    assert not list(site.place.glob(".*.tmp"))
    assert as_cells(all_rows(site.place)) == before


def test_rows_of_another_table_and_batches_are_refused(site):
    other, own = TableRows("jobs/other", ("time",), (np.array([DAY]),)), rows(DAY + 5, ("1",))
    one = collected(0, own)
    expected = "source jobs: expected rows of jobs/operations alone, got "
    for refused, reason in (
        (collected(0, other), f"{expected}jobs/other"),
        (replace(one, tables=[own, other]), f"{expected}jobs/other"),
        (replace(one, tables=[own, own]), f"{expected}batches"),
        (replace(one, tables=[]), f"{expected}batches"),
        (replace(one, batches=(object(),)), f"{expected}batches"),
        (
            collected(0, TableRows(JOB_TABLE, ("time",), (np.array([DAY]),))),
            "source jobs: jobs/operations without its columns time, target, job, begin, last, ended",
        ),
    ):
        with pytest.raises(Refusal) as raised:
            site.table.apply(refused)
        assert (str(raised.value), raised.value.when) == (reason, "never")


def look(site, at):
    """Let a table look at its files, and end what it begins."""
    site.clock.jump(at - CHECK_SECONDS - site.clock.time())
    asyncio.run(site.clock.advance(CHECK_SECONDS))
    site.table.run()
    site.table.run()


def test_an_hour_of_windows_is_merged_once_none_of_them_comes_again_and_a_day_an_hour_after_its_end(site):
    for number in range(MERGE_WINDOWS - 1):
        site.store(number)
    look(site, DAY + 86400 - 60)
    assert len(table_files(site.place)) == MERGE_WINDOWS - 1 == 59
    site.store(100)
    for at, files in ((100 * 60 + 60 + 3999, 60), (100 * 60 + 60 + 4000, 1)):
        look(site, DAY + at)
        assert len(table_files(site.place)) == files
    site.store(1439)
    for at, files in ((86400 + 3599, 2), (86400 + 3600, 1)):
        look(site, DAY + at)
        assert len(table_files(site.place)) == files
    written = table_files(site.place)[0].path.stat()
    look(site, DAY + 86400 + 9999)
    assert table_files(site.place)[0].path.stat() == written, "it was written again"


def test_a_table_looks_each_half_minute_and_at_once_after_a_merge(site):
    days = [directory_of(site.table.root, "fs", DATE + dt.timedelta(days=day)) for day in range(3)]
    site.clock.jump(9 * 86400)
    for place, number in zip(days, (0, 1440, 2880), strict=True):
        site.store(number)
        assert table_files(place)[0].is_window

    def merged():
        return [not file.is_window for place in days for file in table_files(place)]

    for advance, is_busy, expected in (
        (0, True, [True, False, False]), (0, True, [True, True, False]), (0, True, [True] * 3), (0, False, [True] * 3),
    ):  # fmt: skip
        asyncio.run(site.clock.advance(advance))
        site.table.run()
        assert [site.table.is_busy, sum(merged())] == [is_busy, sum(expected)]
    site.store(2881)
    for advance, is_busy in ((29.5, False), (0.5, True)):
        asyncio.run(site.clock.advance(advance))
        site.table.run()
        assert site.table.is_busy == is_busy


@pytest.mark.parametrize(("seconds", "is_over"), [(59, False), (60, True)])
@pytest.mark.parametrize("kept", ["retention", "users_retention"])
def test_days_and_users_are_kept_to_the_second(site, kept, seconds, is_over):
    """Of a window that ends a minute after midnight, eight hours later."""
    site.store(0)
    site.table.configure(**{"retention": NEVER, "users_retention": NEVER} | {kept: 8 * 3600})
    pass_time(site.clock, site.table, 7 * 3600)
    asyncio.run(site.clock.advance(seconds))
    with capture_logs() as logs:
        site.table.run()
        site.table.run()
    assert (site.place.exists(), users_of(site.place)) == {
        "retention": (not is_over, [] if is_over else ["1000"]), "users_retention": (True, [""] if is_over else ["1000"]),
    }[kept]  # fmt: skip
    assert [one["event"] for one in logs] == [{"retention": "jobs.removed", "users_retention": "jobs.merged"}[kept]] * is_over


def test_a_window_that_cannot_be_put_in_place_is_reported_and_the_others_are_stored(site):
    site.table.files = FaultyFiles(site.table.root)
    for number in range(3):
        site.table.apply(collected(number, rows(DAY + 60 * number + 5, ("1",), **{"open.samples": 1})))
    site.table.files.fail("rename", 2, errno.ENOSPC)
    (failed,) = site.table.commit()
    path = site.place / f"{DAY + 60}-{DAY + 120}@jobs.jobs"
    assert (failed.system, failed.window, failed.path) == ("fs", Window(DAY + 60, DAY + 120), str(path))
    assert os.strerror(errno.ENOSPC) in failed.reason
    assert [window[1] for window in stored_windows(site.place)] == [DAY, DAY + 120]
    assert site.table.commit() == []


@pytest.mark.parametrize("operation", ["create", "fsync"])
def test_a_window_that_cannot_be_written_is_tried_again_and_leaves_nothing(site, operation):
    site.table.files = FaultyFiles(site.table.root)
    site.table.files.make_directory(site.place)
    site.table.files.fail(operation, 1, errno.ENOSPC)
    with pytest.raises(Refusal, match=rf"^fs: .*{os.strerror(errno.ENOSPC)}") as refused:
        site.table.apply(collected(0, rows(DAY + 5, ("1",), **{"open.samples": 1})))
    assert (refused.value.when, site.table.commit(), list(site.place.iterdir())) == ("retry", [], [])


def test_a_table_that_is_closed_leaves_nothing_of_what_was_not_committed(site):
    site.store(0)
    site.table.apply(collected(1, rows(DAY + 65, ("1",), **{"open.samples": 1})))
    assert len(list(site.place.iterdir())) == 2
    site.table.close()
    assert [path.name for path in site.place.iterdir()] == [f"{DAY}-{DAY + 60}@jobs.jobs"]


def test_a_root_that_is_no_directory_is_reported_once_and_a_missing_one_never(site):
    with capture_logs() as logs:
        look(site, DAY + 3600)
        assert logs == []
        site.table.root.touch()
        for later in (60, 120):
            look(site, DAY + 3600 + later)
    assert [(one["event"], one["path"]) for one in logs] == [("jobs.not_merged", str(site.table.root))]


@pytest.mark.parametrize("loses_power", [False, True])
@pytest.mark.parametrize("at", range(1, 96, 5))
def test_a_kill_at_any_step_leaves_what_was_committed_and_no_window_in_part(tmp_path, at, loses_power):
    """Windows are committed two by two; after the kill all of a commit that returned is there, and a merge loses nothing."""
    files = FaultyFiles(tmp_path)
    clock, committed = FakeClock(DAY + 3600), []
    expected = Counter()

    def work(table):
        for number in range(6):
            table.apply(collected(number, rows(DAY + 60 * number + 5, ("1", str(number)), **{"open.samples": number + 1})))
            if number % 2:
                assert table.commit() == []
                committed.extend((number - 1, number))
        clock.jump(3 * 86400)
        table.run()
        table.run()

    files.kill_at(at)
    with contextlib.suppress(SimulatedKill):
        work(JobTable(tmp_path / "jobs", Calendar("UTC"), clock, files, inline=True))
    if loses_power:
        files.power_loss(at)
    place = directory_of(tmp_path / "jobs", "fs", DATE)
    found = {window[1]: window for window in stored_windows(place)}
    assert {DAY + 60 * number for number in committed} <= found.keys()
    for window in found.values():
        expected[len(read([place], window[1], window[2]))] += 1
    assert set(expected) <= {4}
    again = JobTable(tmp_path / "jobs", Calendar("UTC"), FakeClock(DAY + 5 * 86400), inline=True)
    for number in range(6):
        again.apply(collected(number, rows(DAY + 60 * number + 5, ("1", str(number)), **{"open.samples": number + 1})))
    assert again.commit() == []
    again.run()
    again.run()
    assert len(all_rows(place)) == 24
    assert len(table_files(place)) == 1


def test_rows_of_a_target_that_a_later_attempt_lacks_stay(site):
    """A node may have restarted between two attempts at a window: what it sent is in no memory any more."""

    def of(node, job, **counts):
        row = rows(DAY + 65, (job,), **counts)
        one = {name: values[:1] for name, values in zip(row.columns, row.values, strict=True)}
        one["target"] = np.array([node], "S")
        return TableRows(JOB_TABLE, tuple(one), tuple(one.values()))

    def put(*parts):
        names = dict.fromkeys(name for part in parts for name in part.columns)
        columns = [
            np.concatenate([dict(zip(part.columns, part.values, strict=True)).get(name, np.zeros(len(part), int)) for part in parts])
            for name in names
        ]
        site.table.apply(collected(1, TableRows(JOB_TABLE, tuple(names), tuple(columns))))

    put(of("n1", "1", **{"open.samples": 5}), of("n2", "2", **{"open.samples": 6}))
    assert site.table.commit() == []
    put(of("n2", "2", **{"open.samples": 6}), of("n3", "3", **{"close.samples": 7}))
    put(of("n4", "4", **{"close.samples": 8}))  # twice before a commit
    assert site.table.commit() == []
    found = all_rows(site.place)
    columns = (found.jobs[found.job], found.targets[found.target], found.counts["open.samples"], found.counts["close.samples"])
    cells = [(job[:1], *rest) for job, *rest in zip(*(column.tolist() for column in columns), strict=True)]
    assert cells == [(b"1", b"n1", 5, 0), (b"2", b"n2", 6, 0), (b"3", b"n3", 0, 7), (b"4", b"n4", 0, 8)]
    assert len(table_files(site.place)) == 1


def test_a_damaged_file_of_an_earlier_attempt_is_replaced(site):
    site.store(3)
    (file,) = table_files(site.place)
    file.path.write_bytes(b"x" * 5000)
    site.store(3)
    assert len(all_rows(site.place)) == 4


MOMENTARY = [errno.EIO, errno.ESTALE, errno.EMFILE, errno.ENOMEM, errno.EACCES]


@pytest.mark.parametrize("code", MOMENTARY)
@pytest.mark.parametrize("step", ["open", "index", "column"])
@pytest.mark.parametrize("is_merged", [False, True])
def test_rows_of_an_earlier_attempt_that_cannot_be_read_now_are_not_dropped(site, monkeypatch, code, step, is_merged):
    """The window is refused, and tried again."""
    for number in range(3):
        site.store(number)
    if is_merged:
        site.clock.jump(2 * 86400)
        site.run()
    before = as_cells(all_rows(site.place))
    as_hdf5 = OSError(f"Can't read data (file read failed: time = Fri, errno = {code}, error message = '{os.strerror(code)}')")
    with monkeypatch.context() as failing:
        if step == "open":
            failing.setattr(table_file, "open_for_reading", raises(OSError(code, os.strerror(code))))
        elif step == "index":
            failing.setattr(table_file, "_index", raises(as_hdf5))
        else:
            failing.setattr(jobs_table, "_stored_rows", raises(as_hdf5))
        with pytest.raises(Refusal, match=os.strerror(code)) as refused:
            site.table.apply(collected(1, rows(DAY + 100, ("9",), **{"open.samples": 8})))
        assert refused.value.when == "retry"
        assert site.table.commit() == []
    assert as_cells(all_rows(site.place)) == before
    site.table.apply(collected(1, rows(DAY + 100, ("9",), **{"open.samples": 8})))
    assert site.table.commit() == []
    assert len(all_rows(site.place)) == len(before) + 2


def raises(error):
    def failing(*_args, **_named):
        raise error

    return failing


def test_a_reader_names_an_error_of_the_system_and_not_a_damaged_file(site, monkeypatch):
    site.store(3)
    monkeypatch.setattr(table_file, "read", raises(OSError("Can't read data (file read failed: errno = 5, error message = '?')")))
    with pytest.raises(OSError, match="Input/output error") as found:
        all_rows(site.place)
    assert not isinstance(found.value, NotAJobTable)


@pytest.mark.parametrize("is_merged", [False, True])
def test_a_window_with_operations_of_a_later_one_that_is_stored_is_refused(site, is_merged):
    """A clock went back by hours: its counts stood before smaller ones, and sums of hours had both."""

    def polled(number, last, source="jobs"):
        found = rows(DAY + 60 * number + 5, ("1",), **{"open.samples": 9})
        values = list(found.values)
        values[found.columns.index("last")][0] = last * 10**9
        site.table.apply(collected(number, replace(found, values=tuple(values)), source=source))
        assert site.table.commit() == []

    for number in (100, 101):
        site.store(number)
    if is_merged:
        site.clock.jump(2 * 86400)
        site.run()
    with pytest.raises(Refusal, match=r"was polled after \[.*\), which is stored: the clock went back") as refused:
        polled(7, DAY + 100 * 60)
    assert (refused.value.when, len(all_rows(site.place))) == ("never", 8)
    with pytest.raises(Refusal, match="the clock went back"):
        polled(99, DAY + 100 * 60)
    with pytest.raises(Refusal, match=re.escape(f"was polled after {Window(DAY + 6000, DAY + 6060)}, which")):
        polled(8, DAY + 101 * 60)
    polled(7, DAY + 100 * 60 - 1)
    polled(8, DAY + 100 * 60, source="other")
    polled(100, DAY + 101 * 60 - 1)
    polled(102, DAY + 400 * 60)  # a server whose clock is ahead
    assert len(all_rows(site.place)) == 8 + 2 + 2 + 2
    site.table.apply(collected(110, rows(DAY + 6605, ("1",), **{"open.samples": 9})))  # and not yet committed
    with pytest.raises(Refusal, match=re.escape(f"was polled after {Window(DAY + 6600, DAY + 6660)}, which")):
        polled(105, DAY + 110 * 60)


def test_the_first_window_of_a_system_may_have_any_operations_and_a_file_of_its_name_is_reported(site):
    ahead = rows(DAY + 400, ("1",), **{"open.samples": 9})
    site.table.apply(collected(0, ahead))
    (site.table.root / "other").touch()
    with capture_logs() as logs, pytest.raises(Refusal, match="other") as refused:
        site.table.apply(collected(0, ahead, system="other"))
    assert refused.value.when == "retry"
    assert [(one["event"], one["path"]) for one in logs] == [("jobs.not_merged", str(site.table.root / "other"))]


def test_a_damaged_day_whose_users_are_past_their_retention_is_reported_and_the_next_one_done(site):
    site.table.configure(NEVER, 86400)
    for number in (0, 1440):
        site.store(number)
    look(site, DAY + 3 * 86400)
    look(site, DAY + 3 * 86400)
    (damaged,) = table_files(site.place)
    damaged.path.write_bytes(b"x" * 5000)
    with capture_logs() as logs:
        pass_time(site.clock, site.table)
    assert [one["path"] for one in logs if one["event"] == "jobs.not_merged"] == [str(site.place)]
    assert users_of(directory_of(site.table.root, "fs", DATE + dt.timedelta(days=1))) == [""]


def test_a_table_takes_its_settings_and_nothing_of_its_state():
    given = ["root", "calendar", "clock", "files", "seal_after", "retention", "users_retention", "inline"]
    assert [*inspect.signature(JobTable).parameters] == given
