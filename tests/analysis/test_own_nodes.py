"""What a job did on its nodes: all keys, and the edges of its span."""

import pytest
from job_days import DAY, JobDays, polled

from tokiod.analysis.own_nodes import AROUND_SECONDS, KEYS, on_nodes
from tokiod.job_columns import UNKNOWN
from tokiod.jobs.span import Days
from tokiod.reader.span import Span
from tokiod.window_data import job_key

START, END = DAY + 7200, DAY + 7400
KEY, OTHER = (job_key(name, None, None, None, f"slurm:{name}") for name in ("7", "8"))
COUNTS = ("cpu", "cpu_user", "cpu_system", "cpu_throttled", "cpu_stalled", "memory_stalled", "io_stalled")


@pytest.fixture
def made(tmp_path):
    return JobDays(tmp_path)


def of_job(made):
    return on_nodes(Days((made.root,), made.system), "7", Span(START, END))


def counted(by, mem):
    """Counters that all differ, in microseconds and numbers."""
    seconds = {f"{name}.sum": by * (n + 1) * 10**6 for n, name in enumerate(COUNTS)}
    others = ("disk_read.bytes", "disk_written.bytes", "page_faults.samples", "oom_kills.samples")
    return seconds | {name: by * (n + 20) for n, name in enumerate(others)} | {"mem_bytes.max": mem}


def test_a_job_has_all_keys_of_its_nodes(made):
    made.store(
        polled(START + 59, b"nid1", KEY, START, counted(2, 700)),
        polled(START + 119, b"nid1", KEY, START, counted(60, 300)),
        polled(START + 59, b"nid2", KEY, START, counted(40, 500)),
        polled(START + 59, b"nid2", OTHER, START, counted(9999, 9999)),
    )
    found = of_job(made)
    assert found == {
        "job_nodes": 2,
        **{f"job_{name}_seconds": 100 * (n + 1) for n, name in enumerate(COUNTS)},
        "job_ave_cores": 100 / 200,
        "job_max_mem_bytes": 1200, "job_max_node_mem_bytes": 700,
        "job_tot_disk_bytes_read": 2000, "job_tot_disk_bytes_written": 2100, "job_tot_page_faults": 2200, "job_tot_oom_kills": 2300,
    }  # fmt: skip
    assert [key for key in KEYS if key in found] == [*KEYS]


def test_a_sum_is_of_the_nodes_that_reported_and_a_key_that_none_did_is_left_out(made):
    made.store(
        polled(START + 59, b"nid1", KEY, START, {"cpu_user.sum": 3 * 10**6, "mem_bytes.max": UNKNOWN, "oom_kills.samples": UNKNOWN}),
        polled(START + 59, b"nid2", KEY, START, {"cpu_user.sum": UNKNOWN, "mem_bytes.max": 5, "oom_kills.samples": UNKNOWN}),
    )
    assert of_job(made) == {"job_nodes": 2, "job_cpu_user_seconds": 3, "job_max_mem_bytes": 5, "job_max_node_mem_bytes": 5}


@pytest.mark.parametrize(
    ("time", "is_found"),
    [(START - AROUND_SECONDS - 1, False), (START - AROUND_SECONDS, True), (END + AROUND_SECONDS - 1, True), (END + AROUND_SECONDS, False)],
)
def test_rows_within_a_minute_of_the_span_are_the_jobs(made, time, is_found):
    assert AROUND_SECONDS == 60
    made.store(polled(time, b"nid1", KEY, time, {"cpu.sum": 10**8}))
    assert of_job(made) == ({"job_nodes": 1, "job_cpu_seconds": 100, "job_ave_cores": 0.5} if is_found else {})
