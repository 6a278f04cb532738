"""A job's own reads, writes and operations: all keys, and the edges of its span."""

import pytest
from job_days import DAY, JobDays, polled

from tokiod.analysis.job import GIB
from tokiod.analysis.own_traffic import FIRST_SECONDS, KEYS, LAST_SECONDS, own_traffic
from tokiod.jobs.span import Days
from tokiod.reader.span import Span
from tokiod.window_data import job_key

OSTS, MDT, KEY = (b"fs-OST0000", b"fs-OST0001"), b"fs-MDT0000", job_key("7", "1000", None, "nid1", "a")
START, END = DAY + 7200, DAY + 7600


@pytest.fixture
def made(tmp_path):
    return JobDays(tmp_path)


def of_job(made, of_system=None, number="7"):
    return own_traffic(Days((made.root,), made.system), number, Span(START, END), of_system or {})


def test_a_job_has_all_keys_of_what_it_did_on_all_targets(made):
    made.store(
        polled(START + 5, OSTS[0], KEY, START, {"read_bytes.sum": GIB, "write_bytes.sum": 0, "open.samples": 0}),
        polled(START + 65, OSTS[0], KEY, START, {"read_bytes.sum": 3 * GIB, "write_bytes.sum": 0, "open.samples": 0}),
        polled(START + 65, OSTS[1], KEY, START, {"read_bytes.sum": GIB, "write_bytes.sum": 8 * GIB, "open.samples": 0}),
        polled(START + 65, MDT, KEY, START, {"read_bytes.sum": 0, "write_bytes.sum": 0, "open.samples": 30}),
        polled(START + 65, OSTS[1], job_key("8", "1000"), START, {"read_bytes.sum": 99 * GIB, "write_bytes.sum": 0, "open.samples": 9}),
    )
    found = of_job(made, {"fs_tot_bytes_read": 16 * GIB, "fs_tot_bytes_written": 0})
    assert found == {
        "job_tot_bytes_read": 4 * GIB, "job_tot_gibs_read": 4, "job_ave_bytes_read_per_sec": GIB / 100, "job_ave_gibs_read_per_sec": 0.01,
        "job_frac_bytes_read": 0.25,
        "job_tot_bytes_written": 8 * GIB, "job_tot_gibs_written": 8, "job_ave_bytes_written_per_sec": GIB / 50,
        "job_ave_gibs_written_per_sec": 0.02, "job_frac_bytes_written": None,
        "job_tot_open_ops": 30, "job_targets": 3,
    }  # fmt: skip
    assert found.keys() <= {*KEYS}
    # A share needs a number of the file system.
    assert [of_job(made, {"fs_tot_bytes_read": of})["job_frac_bytes_read"] for of in (8.0 * GIB, None, "", "9")] == [0.5, None, None, None]


def test_bytes_that_no_target_counts_are_0_and_operations_that_none_counts_have_no_key(made):
    made.store(polled(START + 5, MDT, KEY, START, {"open.samples": 2}))
    found = of_job(made, {"fs_tot_bytes_read": 5})
    assert (found["job_tot_bytes_read"], found["job_frac_bytes_read"], found["job_targets"]) == (0, 0, 1)
    assert {key for key in found if key.endswith("_ops")} == {"job_tot_open_ops"}


@pytest.mark.parametrize(
    ("time", "is_found"),
    [(START - FIRST_SECONDS - 1, False), (START - FIRST_SECONDS, True), (END + LAST_SECONDS - 1, True), (END + LAST_SECONDS, False)],
)
def test_rows_from_shortly_before_the_start_to_long_after_the_end_are_the_jobs(made, time, is_found):
    assert (FIRST_SECONDS, LAST_SECONDS) == (60, 1800)
    made.store(polled(time, OSTS[0], KEY, time, {"read_bytes.sum": 5}))
    found = of_job(made)
    assert found.get("job_tot_bytes_read") == (5 if is_found else None)
    assert bool(found) == is_found
