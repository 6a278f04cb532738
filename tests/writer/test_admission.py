"""What a configuration covers: real sources, a real ledger with backfills, and the window that a process with the bus could forge."""

from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors import lmt
from tokiod.batch import Batch
from tokiod.config.watched_folder import watched
from tokiod.ledger.jobs import JobRequest
from tokiod.ledger.ledger import Ledger
from tokiod.testing.clock import FakeClock
from tokiod.window import Calendar, Window
from tokiod.window_data import Collected, TableRows, WindowMeta
from tokiod.writer.admission import Admission, NotCovered

DAY = 86400
NOW = 1_517_184_000 + 12 * 3600
"""Noon of a day in UTC."""
UTC = Calendar("UTC")
READ = "datatargets/readbytes"
LMT = lmt.Config(name="one-lmt", kind="lmt", system="one", url="sqlite:///x", retention="10d")
SAVED = watched(lmt.Saved)(name="two-files", kind="lmt", system="two", watch="/spool")


def convert(source, **changes):
    """Return a struct with other values."""
    return type(source)(**{name: getattr(source, name) for name in source.__struct_fields__} | changes)


@pytest.fixture
def ledger(tmp_path):
    with Ledger.open(tmp_path / "ledger.sqlite3") as opened:
        yield opened


@pytest.fixture
def admission(ledger):
    return Admission([convert(LMT, retention=10 * DAY), SAVED], UTC, ledger.jobs, FakeClock(NOW))


def window(start=NOW - 60, end=None, *, source="one-lmt", kind="lmt", system="one", dataset=READ, step=5, extent="whole"):
    """A window with one cell."""
    batch = Batch(dataset, "counter", step, ("a",), np.array([start]), np.zeros(1, np.uint32), np.ones(1, np.int64))
    return Collected(WindowMeta(source, kind, system, Window(start, end or start + 60), extent=extent), [batch])


def refusal(admission, **forged):
    with pytest.raises(NotCovered) as refused:
        admission.check(window(**forged))
    return refused.value.reason, refused.value.when


def test_what_a_source_has_is_admitted(admission):
    for start in (NOW - 60, NOW - 10 * DAY, NOW - 11 * DAY, NOW):
        admission.check(window(start))
    admission.check(window(0, source="two-files", system="two"))
    admission.check(Collected(WindowMeta("one-lmt", "lmt", "one", Window(NOW - 60, NOW)), []))


@pytest.mark.parametrize(
    ("forged", "reason"),
    [
        ({"source": "nobody"}, "unknown source"),
        ({"system": "another"}, "another system or kind"),
        ({"source": "two-files"}, "another system or kind"),
        ({"kind": "collectd_es"}, "another system or kind"),
        ({"dataset": "datatargets/cpuload"}, "unknown dataset"),
        ({"step": 1}, "another step"),
        ({"start": NOW + 3 * DAY}, "future day"),
        ({"start": 200_000_000_000}, "future day"),
        ({"start": NOW + 3 * DAY, "source": "two-files", "system": "two"}, "future day"),
    ],
)
def test_what_no_source_has_is_refused_until_the_configuration_or_the_clock_changes(admission, forged, reason):
    assert refusal(admission, **forged) == (reason, "retry")


def test_rows_of_a_table_that_the_source_does_not_fill_are_refused(admission):
    rows = TableRows("jobs/operations", ("time",), (np.array([NOW - 60]),))
    with pytest.raises(NotCovered, match="does not fill the table 'jobs/operations'"):
        admission.check(Collected(WindowMeta("one-lmt", "lmt", "one", Window(NOW - 60, NOW)), [], [rows]))


def test_a_day_before_the_retention_is_refused_for_ever(admission):
    assert refusal(admission, start=NOW - 12 * DAY) == ("day before the retention", "retry")
    assert refusal(admission, start=0) == ("day before the retention", "retry")


def test_tomorrow_is_admitted_to_its_last_second_and_no_second_more(admission):
    midnight = NOW + DAY // 2 + DAY
    admission.check(window(midnight - 60))
    assert refusal(admission, start=midnight - 60, end=midnight + 1) == ("future day", "retry")


@pytest.mark.parametrize(("start", "end"), [(0, 60), (3600, 7200), (-5, 0), (7200, 7205), (-DAY + 1, 0)])
def test_a_backfill_of_any_past_is_admitted_with_its_seams_until_it_ends(ledger, admission, start, end):
    past = 1_000_000_000
    forged = window(past + start, past + end, extent="seam" if end - start < 60 else "whole")
    with pytest.raises(NotCovered):
        admission.check(forged)
    job = ledger.jobs.add(JobRequest("one-lmt", Window(past, past + 7200)), NOW)
    admission.check(forged)
    ledger.jobs.set_state(job, "done", NOW)
    with pytest.raises(NotCovered):
        admission.check(forged)


def test_a_backfill_admits_nothing_of_other_sources_or_other_days(ledger, admission):
    ledger.jobs.add(JobRequest("other", Window(0, 7200)), NOW)
    ledger.jobs.add(JobRequest("one-lmt", Window(5 * DAY, 6 * DAY)), NOW)
    assert refusal(admission, start=60) == ("day before the retention", "retry")


def test_another_configuration_is_used_at_once(admission):
    admission.reconfigure([convert(LMT, name="new", retention=10 * DAY)])
    admission.check(window(source="new"))
    assert refusal(admission) == ("unknown source", "retry")


@given(st.integers(0, 249_999_999_000), st.sampled_from(["one-lmt", "two-files"]))
def test_every_time_is_admitted_or_refused(start, source):
    """No time of a header makes the check raise anything else."""

    class NoJobs:
        def unfinished(self, _source):
            return []

    admission = Admission([convert(LMT, retention=10 * DAY), SAVED], UTC, NoJobs(), FakeClock(NOW))
    with suppress(NotCovered):
        admission.check(window(start, source=source, system=source[:3]))


def test_nothing_is_written_off_by_a_clock_that_was_ahead(ledger):
    clock = FakeClock(NOW + 365 * DAY)
    ahead = Admission([convert(LMT, retention=10 * DAY)], UTC, ledger.jobs, clock)
    assert refusal(ahead) == ("day before the retention", "retry")
    right = Admission([convert(LMT, retention=10 * DAY)], UTC, ledger.jobs, FakeClock(NOW))
    right.check(window())
