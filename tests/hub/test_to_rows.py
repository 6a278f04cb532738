"""What agents say of jobs becomes rows of the job table, whatever they claim."""

import numpy as np

from tokiod.hub.to_rows import JOB_FIELDS, JOB_METRICS, job_rows, key_of
from tokiod.job_columns import OF_NODES, UNKNOWN, column_of, figure_of
from tokiod.window import Window
from tokiod.window_data import ENDED_REMOVED, JOB_COLUMNS, job_key

START = 1_800_000_000 // 60 * 60
WINDOW, BILLION = Window(START, START + 60), 10**9


def states(*found):
    """f8[fields + metrics, n] of (node, job, begin, time, ended, {metric: value})."""
    made = np.full((JOB_FIELDS + len(JOB_METRICS), len(found)), np.nan)
    for column, (*fields, values) in enumerate(found):
        made[:JOB_FIELDS, column] = fields
        for name, value in values.items():
            made[JOB_FIELDS + JOB_METRICS.index(name), column] = value
    return made


def as_lists(rows):
    return {name: values.tolist() for name, values in zip(rows.columns, rows.values, strict=True)}


def test_each_metric_of_jobs_has_a_column_and_the_figure_of_a_column_is_of_no_other():
    assert [column_of(figure_of(column)) for column in OF_NODES.values()] == list(OF_NODES.values())
    assert set(OF_NODES.values()) >= {"cpu.sum", "mem_bytes.max", "processes.max", "disk_read.bytes", "page_faults.samples"}


def test_a_row_has_the_job_the_node_its_times_and_what_was_counted():
    cells = {"job_cpu": 1.5, "job_mem": 9e9, "job_page_faults": 7}
    found = job_rows(
        states((1, 0, START - 100.25, START + 3.5, 1, cells), (0, 1, np.nan, START + 59, 0, {"job_cpu": 0.000001})),
        ("slurm:4711", "flux:f2x"), ("nid1", "nid2"), WINDOW,
    )  # fmt: skip
    assert found.columns == (*JOB_COLUMNS, "cpu.sum", "mem_bytes.max", "page_faults.samples")
    assert as_lists(found) == {
        "time": [START + 3, START + 59],
        "target": [b"nid2", b"nid1"],
        "job": [job_key("4711", None, None, None, "slurm:4711"), job_key("f2x", None, None, None, "flux:f2x")],
        "begin": [int((START - 100.25) * BILLION), -1],
        "last": [(START + 3) * BILLION, (START + 59) * BILLION],
        "ended": [ENDED_REMOVED, 0],
        "cpu.sum": [1_500_000, 1],
        "mem_bytes.max": [9_000_000_000, UNKNOWN],
        "page_faults.samples": [7, UNKNOWN],
    }


def test_what_no_clock_and_no_kernel_says_stays_within_the_table():
    found = as_lists(job_rows(states((0, 0, 1e300, -1e300, 1, {"job_cpu": 1e300, "job_mem": -5})), ("a",), ("n",), WINDOW))
    assert (found["time"], found["begin"]) == ([START], [START * BILLION])
    assert as_lists(job_rows(states((0, 0, -1e300, START, 0, {})), ("a",), ("n",), WINDOW))["begin"] == [0]
    assert (found["cpu.sum"], found["mem_bytes.max"]) == ([2**62], [0])
    found = as_lists(job_rows(states((0, 0, -1e300, 1e300, 1, {}), (0, 0, -1, np.nan, -1, {})), ("a",), ("n",), WINDOW))
    assert (found["time"], found["begin"], found["ended"]) == ([START + 59, START], [0, 0], [ENDED_REMOVED, 0])


def test_a_job_has_one_begin_in_all_windows_also_if_it_began_in_the_last_second_of_one():
    """A begin that is later than in the row before is that of other counts: all of them would be charged again."""
    begin = START + 59.75
    windows = [WINDOW, Window(START + 60, START + 120)]
    found = [
        as_lists(job_rows(states((0, 0, begin, window.end - 0.125, 0, {"job_cpu": 3.5})), ("a",), ("n",), window)) for window in windows
    ]
    assert [(rows["time"], rows["begin"]) for rows in found] == [
        ([window.end - 1], [int(begin * BILLION)]) for window in windows
    ]  # fmt: skip


def test_times_beyond_a_window_are_its_first_and_its_last_second():
    found = as_lists(
        job_rows(states(*((0, 0, np.nan, time, 0, {}) for time in (START - 1, START, START + 60, START + 99))), ("a",), ("n",), WINDOW)
    )
    assert found["time"] == [START, START, START + 59, START + 59]
    assert found["last"] == [time * BILLION for time in found["time"]]


def test_a_window_without_a_job_has_all_columns():
    found = job_rows(states(), (), ("n",), WINDOW)
    assert (len(found), found.columns) == (0, (*JOB_COLUMNS, *OF_NODES.values()))


def test_names_are_printable_ascii():
    assert key_of("slurm:é\u2028") == job_key("\\xe9\\u2028", None, None, None, "slurm:\\xe9\\u2028")
    assert key_of("lonely") == job_key("lonely", None, None, None, "lonely")
