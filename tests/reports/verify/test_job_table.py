"""What verify finds in a job table: names that are not shown, and counts that can't be true."""

import datetime as dt

import pytest
from job_days import DAY, JobDays, polled

from tokiod.jobs.identity import JobIdentities
from tokiod.jobs.span import Days
from tokiod.reports.verify.job_table import MAX_COUNT, OddDay, odd_days
from tokiod.window_data import job_key

NEXT = DAY + 86400
OST = b"fs-OST0000"
AS_JOB = job_key("7z.1000", None, None, None, "a1")
NAMED = job_key("4711", "1000", "cp", "n1", "b2")
HASHED = JobIdentities("hashed", b"a key of the site")._of(NAMED)
CLEAR = job_key("4711", None, None, "n1", "c3")


@pytest.fixture
def made(tmp_path):
    days = JobDays(tmp_path)
    keys = (AS_JOB, NAMED, HASHED, CLEAR)
    days.store(*(polled(DAY + 5, OST, key, DAY, {"open.samples": 7}) for key in keys))
    days.store(polled(NEXT + 5, OST, CLEAR, DAY, {"open.samples": 1, "read_bytes.sum": MAX_COUNT - 1}))
    days.store(polled(NEXT + 65, OST, CLEAR, DAY, {"open.samples": MAX_COUNT, "read_bytes.sum": MAX_COUNT}))
    return days


@pytest.mark.parametrize(("users", "private"), [("names", 0), ("hashed", 2), ("no", 3)])
@pytest.mark.parametrize("is_merged", [False, True])
def test_days_with_names_that_the_site_hides_and_with_counts_that_can_not_be_true_are_found(made, users, private, is_merged):
    if is_merged:
        made.merged(NEXT + 3 * 86400)
    days = Days((made.root,), "fs")
    first, second = (dt.datetime.fromtimestamp(time, dt.UTC).date().isoformat() for time in (DAY, NEXT))
    of_second = OddDay(second, str(made.root / "fs" / second), 0, 1)
    of_first = [OddDay(first, str(made.root / "fs" / first), private, 0)] if private else []
    assert list(odd_days(days, DAY, NEXT + 86400, users)) == [*of_first, of_second]
    assert list(odd_days(days, NEXT, NEXT + 86400, users)) == [of_second]
    assert list(odd_days(days, DAY + 60, NEXT, users)) == []
