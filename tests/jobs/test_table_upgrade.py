"""The job table that an earlier tokiod wrote: this version reads it and continues where that one stopped, also when it is killed then.

tests/data/jobs-1.tar.xz was written by the code of commit 8369675, the first with a job table: windows 1370 to 1509 of the model below,
those of the first day merged, 65 of the second one merged, and five as files of their own.
"""

import asyncio
import contextlib
import datetime as dt
from pathlib import Path

import job_rows
import pytest
import unpacked
from faulty_files import FaultyFiles, SimulatedKill
from job_rows import DATE, DAY, collected, rows

from tokiod.jobs.rows import directory_of, read, stored_windows, table_files
from tokiod.jobs.table import JobTable
from tokiod.testing.clock import FakeClock
from tokiod.tts.live.files import REAL
from tokiod.window import Calendar

FIXTURE = Path(__file__).parents[1] / "data" / "jobs-1.tar.xz"
FIRST, MIDNIGHT, STOPPED, LAST = 1370, 1440, 1510, 1513
TOMORROW = DATE + dt.timedelta(days=1)


def window_rows(number):
    jobs = dict.fromkeys(("1", str(number % 7), str(100 + number)))
    return rows(DAY + 60 * number + 5, tuple(jobs), **{"open.samples": number + 1, "write_bytes.sum": 4096 * number})


def unpack(directory):
    unpacked.unpack(FIXTURE, directory)
    return directory / "jobs"


def places(root):
    return [directory_of(root, "fs", date) for date in (DATE, TOMORROW)]


def cells(found):
    columns = found.columns | found.counts
    keys = zip(found.jobs[found.job].tolist(), found.targets[found.target].tolist(), strict=True)
    values = zip(*(columns[name].tolist() for name in sorted(columns)), strict=True)
    return sorted((*key, *one) for key, one in zip(keys, values, strict=True))


def expected(first, last):
    return cells(job_rows.joined([window_rows(number) for number in range(first, last)]))


def stored(root):
    return [cells(read([place], DAY, DAY + 2 * 86400)) for place in places(root)]


def continue_it(root, files=REAL):
    """Store the last old window again and the new ones, and let both days be merged."""
    clock = FakeClock(DAY + 60 * LAST)
    table = JobTable(root, Calendar("UTC"), clock, files, inline=True)
    for number in range(STOPPED - 1, LAST):
        table.apply(collected(number, window_rows(number)))
        assert table.commit() == []
    asyncio.run(clock.advance(2 * 86400))
    for _ in range(4):
        asyncio.run(clock.advance(60))
        table.run()


def test_what_an_earlier_version_stored_is_read(tmp_path):
    root = unpack(tmp_path)
    assert stored(root) == [expected(FIRST, MIDNIGHT), expected(MIDNIGHT, STOPPED)]
    windows = [window[1:] for place in places(root) for window in stored_windows(place)]
    assert sorted(windows) == [(DAY + 60 * number, DAY + 60 * number + 60) for number in range(FIRST, STOPPED)]


def test_a_table_of_an_earlier_version_is_continued_and_merged(tmp_path):
    root = unpack(tmp_path)
    continue_it(root)
    assert stored(root) == [expected(FIRST, MIDNIGHT), expected(MIDNIGHT, LAST)]
    assert [len(table_files(place)) for place in places(root)] == [1, 1]


@pytest.mark.parametrize("loses_power", [False, True], ids=["kill", "power loss"])
@pytest.mark.parametrize("at", range(1, 333, 23))
def test_an_upgrade_that_is_killed_at_any_file_operation_ends_as_one_that_was_not(tmp_path, at, loses_power):
    root = unpack(tmp_path)
    files = FaultyFiles(tmp_path)
    files.kill_at(at)
    with contextlib.suppress(SimulatedKill):
        continue_it(root, files)
    if loses_power:
        files.power_loss(at)
    yesterday, today = stored(root)
    assert yesterday == expected(FIRST, MIDNIGHT)
    assert set(expected(MIDNIGHT, STOPPED)) <= set(today)
    continue_it(root)
    assert stored(root) == [expected(FIRST, MIDNIGHT), expected(MIDNIGHT, LAST)]
    assert [len(table_files(place)) for place in places(root)] == [1, 1]
