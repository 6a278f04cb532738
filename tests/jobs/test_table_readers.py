"""Readers of the job table and its writer do not wait for each other, and a reader sees all that was committed."""

import asyncio
import threading
import time
from contextlib import ExitStack

import pytest
from job_rows import DATE, DAY, collected, rows

from tokiod.jobs.rows import directory_of, read, table_files
from tokiod.jobs.table import MERGE_WINDOWS, JobTable
from tokiod.jobs.table_file import opened
from tokiod.testing.clock import FakeClock
from tokiod.window import Calendar

WINDOWS = MERGE_WINDOWS + 20


@pytest.fixture
def table(tmp_path):
    made = JobTable(tmp_path / "jobs", Calendar("UTC"), FakeClock(DAY + 60 * WINDOWS + 3600))
    yield made
    made.close()


def store(table, number):
    table.apply(collected(number, rows(DAY + 60 * number + 5, ("1", "2"), **{"open.samples": number + 1})))
    assert table.commit() == []
    asyncio.run(table.clock.advance(31))
    table.run()


def finish(table):
    """Wait for the merge that runs."""
    deadline = time.monotonic() + 100
    while table._merging is not None and time.monotonic() < deadline:
        time.sleep(0.05)
        table.run()


def test_a_reader_at_any_time_sees_all_that_was_committed_while_windows_are_stored_and_merged(table):
    """Each window has four rows; a file that a merge removes meanwhile is found in the merged one."""
    place = directory_of(table.root, "fs", DATE)
    stored, failed, counts = [0], [], []

    def reader():
        while stored[0] < WINDOWS:
            before = stored[0]
            try:
                found = len(read([place], DAY, DAY + 86400))
            except Exception as error:  # noqa: BLE001 - the test fails with it
                failed.append(error)
                return
            counts.append(found)
            if not 4 * before <= found <= 4 * (stored[0] + 1):
                failed.append(AssertionError(f"{found} rows, {before} to {stored[0]} windows"))

    threads = [threading.Thread(target=reader) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(WINDOWS):
        store(table, number)
        stored[0] = number + 1
    for thread in threads:
        thread.join(60)
    assert failed == []
    assert len(counts) > 10
    finish(table)
    assert any(not file.is_window for file in table_files(place))
    assert len(read([place], DAY, DAY + 86400)) == 4 * WINDOWS


def test_a_reader_that_keeps_all_files_open_holds_up_no_window_and_no_merge(table):
    place = directory_of(table.root, "fs", DATE)
    for number in range(MERGE_WINDOWS - 1):
        store(table, number)
    with ExitStack() as stack:
        held = [stack.enter_context(opened(file.path)) for file in table_files(place)]
        assert len(held) == MERGE_WINDOWS - 1
        for number in range(MERGE_WINDOWS - 1, MERGE_WINDOWS + 40):
            store(table, number)
        finish(table)
        assert len(table_files(place)) < MERGE_WINDOWS
        assert all(len(content["rows/time"][...]) == 4 for content, _ in held)
    assert len(read([place], DAY, DAY + 86400)) == 4 * (MERGE_WINDOWS + 40)
