"""A figure that a node did not report of a job is missing, never 0: in the table, merged, added up, and in all forms that users read."""

import csv
import io
import json
import random
from datetime import UTC

import numpy as np
import pyarrow.parquet as pq
import pytest
from job_days import DAY, JobDays, polled

from tokiod.analysis.export_jobs import JobExport
from tokiod.analysis.own_nodes import on_nodes
from tokiod.analysis.top import top
from tokiod.hub.to_rows import JOB_FIELDS, JOB_METRICS, job_rows
from tokiod.job_columns import OF_NODES, UNKNOWN, figure_of, is_state
from tokiod.jobs.groups import grouped
from tokiod.jobs.span import Days, series, span_rows
from tokiod.reader.jobs import history, totals
from tokiod.reader.span import Span
from tokiod.window import Window
from tokiod.window_data import job_key

NAMES = ("cpu.sum", "page_faults.samples", "perf_instructions.samples", "mem_bytes.max")
NODES = (b"nid1", b"nid2", b"nid3")


@pytest.fixture
def made(tmp_path):
    return JobDays(tmp_path / "jobs", system="c.nodes", window=60)


def days(made):
    return Days((made.root,), made.system)


def key(number):
    return job_key(str(number), None, None, None, f"slurm:{number}")


def random_rows(seed, minutes=60):
    """Rows of jobs on nodes, of which any may lack any figure, and some lack one in all rows; a table without a column lacks it too."""
    draw = random.Random(seed)
    rows = []
    for number in range(6):
        for node in NODES:
            begin = None if draw.random() < 0.3 else DAY + draw.randrange(600)
            never = {name for name in NAMES[1:] if draw.random() < 0.3}
            counts = dict.fromkeys(NAMES, 0)
            for minute in range(draw.randrange(10), minutes):
                counts = {name: value + draw.randrange(100) if draw.random() > 0.02 else 0 for name, value in counts.items()}
                if draw.random() < 0.1:
                    continue
                given = {name: value for name, value in counts.items() if name not in never and draw.random() > 0.2}
                given["cpu.sum"] = counts["cpu.sum"]
                rows.append(polled(DAY + 60 * minute + 59, node, key(number), begin, given))
    return rows


def store(made, rows):
    """Store rows in which a figure that is left out is unknown, as the collector stores them."""
    whole = {}
    for row in rows:
        names = {name for other in rows if other["time"] // 60 == row["time"] // 60 for name in other if name in NAMES}
        whole.setdefault(row["time"] // 60, []).append({**dict.fromkeys(sorted(names), UNKNOWN), **row})
    for minute in whole.values():
        made.store(*minute)


def expected(rows, start, end):
    """{(job, node): {figure: sum or largest}} of what is known, row by row."""
    found, last = {}, {}
    for row in sorted(rows, key=lambda row: row["time"]):
        pair = row["job"], row["target"]
        before = last.setdefault(pair, {})
        given = {name: row[name] for name in NAMES if name in row}
        of_span = found.setdefault(pair, {}) if start <= row["time"] < end else {}
        shown = [name for name in given if name in before and not is_state(name) and "perf" not in name]
        fell = [name for name in shown if given[name] < before[name]]
        # Without a begin, all counts began again if all fell; else one that fell goes on from there. Perf events begin again alone.
        if fresh := bool(fell) and row["begin"] < 0 and not any(before[name] for name in shown if name not in fell):
            before.clear()
        for name, value in given.items():
            if is_state(name):
                of_span[name] = max(value, of_span.get(name, 0))
                continue
            is_first = (*pair, name) not in last
            grown = 0 if is_first and row["begin"] < 0 and not fresh else value
            if name in before:
                grown = value - before[name] if value >= before[name] else value if "perf" in name else 0
            last[(*pair, name)] = True
            before[name] = value
            of_span[name] = of_span.get(name, 0) + grown
    return found


def plain(found):
    """{(job, node): {figure: value}} of series, without what is unknown."""
    keys = zip(found.jobs[found.job].tolist(), found.targets[found.target].tolist(), strict=True)
    return {pair: {name: int(values[i]) for name, values in found.counts.items() if values[i] >= 0} for i, pair in enumerate(keys)}


@pytest.mark.parametrize("seed", range(2))
def test_sums_are_of_what_is_known_before_and_after_a_merge(made, seed):
    rows = random_rows(seed)
    store(made, rows)
    draw = random.Random(seed)
    for until in (DAY + 4000, DAY + 3 * 86400):
        assert plain(series(days(made), DAY, DAY + 3600)) == expected(rows, DAY, DAY + 3600)
        start = DAY + 60 * draw.randrange(30)
        assert plain(series(days(made), start, start + 900)) == expected(rows, start, start + 900)
        made.merged(until)
    assert len(list(made.root.rglob("*.jobs"))) == 1


@pytest.mark.parametrize("begin", [DAY - 9 * 86400, None])
def test_the_last_row_that_has_a_count_is_found_hours_and_days_before_a_span(made, begin):
    """Between it and the span are rows in which the node did not report the count."""
    rows = [polled(DAY + 59, NODES[0], key(1), begin, {"cpu.sum": 10, "page_faults.samples": 1000})]
    rows += [polled(DAY + 59 + 1800 * step, NODES[0], key(1), begin, {"cpu.sum": 10 + step}) for step in range(1, 60)]
    rows += [polled(DAY + 2 * 86400, NODES[0], key(1), begin, {"cpu.sum": 99, "page_faults.samples": 1007})]
    for row in rows:
        made.store({**row, "page_faults.samples": row.get("page_faults.samples", UNKNOWN)})
    found = series(days(made), DAY + 2 * 86400 - 60, DAY + 2 * 86400 + 60)
    assert {name: values.tolist() for name, values in found.counts.items()} == {"cpu.sum": [30], "page_faults.samples": [7]}


def test_a_group_has_the_sum_of_its_nodes_that_report_and_is_unknown_without_one(made):
    store(made, random_rows(7))
    found = series(days(made), DAY, DAY + 3600)
    jobs = {}
    for (job, _node), figures in plain(found).items():
        for name, value in figures.items():
            of = jobs.setdefault(job.split(b"\x1f")[0].decode(), {})
            of[name] = of.get(name, 0) + value
    groups = grouped(found, "job", "names")
    got = {
        name[0]: {column: int(values[i]) for column, values in groups.counts.items() if values[i] >= 0}
        for i, name in enumerate(groups.names)
    }
    assert got == jobs


def agent_states(*found):
    """f8[fields + metrics, n] of (node, job, {metric: value}), as the hub has them."""
    states = np.full((JOB_FIELDS + len(JOB_METRICS), len(found)), np.nan)
    for column, (node, job, values) in enumerate(found):
        states[:JOB_FIELDS, column] = node, job, DAY, DAY + 59, 0
        for name, value in values.items():
            states[JOB_FIELDS + JOB_METRICS.index(name), column] = value
    return states


@pytest.fixture
def two_jobs(made):
    """Of job 1 on nid1 perf events could not be opened, and nid2's kernel has no memory.peak; job 2 has all."""
    whole = {"job_cpu": 5.0, "job_perf_instructions": 7e9, "job_mem_peak": 1e6, "job_page_faults": 0}
    states = agent_states(
        (0, 0, {name: value for name, value in whole.items() if name != "job_perf_instructions"}),
        (1, 1, {name: value for name, value in whole.items() if name != "job_mem_peak"}),
    )
    rows = job_rows(states, ("slurm:1", "slurm:2"), ("nid1", "nid2"), Window(DAY, DAY + 60))
    found = [dict(zip(rows.columns, values, strict=True)) for values in zip(*(column.tolist() for column in rows.values), strict=True)]
    made.store(*found)
    return made


def test_a_value_that_one_node_alone_lacks_is_unknown_in_its_row_not_0(two_jobs):
    found = span_rows(days(two_jobs), DAY, DAY + 60)
    assert {name: values.tolist() for name, values in found.activity.counts.items()} == {
        "cpu.sum": [5_000_000] * 2, "perf_instructions.samples": [UNKNOWN, 7 * 10**9], "mem_peak_bytes.max": [10**6, UNKNOWN],
        "page_faults.samples": [0, 0],
    }  # fmt: skip


def test_readers_have_nan(two_jobs):
    span = Span(DAY, DAY + 60)
    for found in (totals(days(two_jobs), span, "job", "names", UTC), totals(days(two_jobs), span, "target", "names", UTC)):
        np.testing.assert_array_equal(found["perf_instructions"], [np.nan, 7e9])
        np.testing.assert_array_equal(found["mem_peak_bytes"], [1e6, np.nan])
        assert (found["page_faults"].dtype, found["page_faults"].tolist()) == (np.int64, [0, 0])
    (one,) = history(days(two_jobs), span, "1", "names", UTC)["perf_instructions"]
    assert np.isnan(one)
    assert totals(days(two_jobs), span, "job", "names", UTC).frame()["perf_instructions"].isna().tolist() == [True, False]


def test_a_job_has_no_key_of_what_no_node_reported(two_jobs):
    span = Span(DAY, DAY + 60)
    assert "job_tot_page_faults" in on_nodes(days(two_jobs), "1", span)
    two_jobs.store(polled(DAY + 119, b"nid1", key(3), DAY, {"cpu.sum": 5, "mem_bytes.max": UNKNOWN, "page_faults.samples": UNKNOWN}))
    found = on_nodes(days(two_jobs), "3", Span(DAY, DAY + 120))
    assert set(found) == {"job_nodes", "job_cpu_seconds", "job_ave_cores"}


def test_a_list_of_jobs_has_no_rate_of_it(two_jobs):
    found = top(days(two_jobs), Span(DAY, DAY + 60), "perf_instructions", "names")
    assert [(line.job, line.rate) for line in found.lines] == [("2", 7e9 / 60)]
    assert found.total == 7e9 / 60
    by_cpu = top(days(two_jobs), Span(DAY, DAY + 60), "cpu", "names")
    assert {line.job: sorted(line.rates) for line in by_cpu.lines} == {
        "1": ["cpu_usecs", "mem_peak_bytes"], "2": ["cpu_usecs", "perf_instructions"],
    }  # fmt: skip


def test_exports_have_null(two_jobs, tmp_path):
    export = JobExport(days(two_jobs), Span(DAY, DAY + 60), "names")
    cells = list(csv.DictReader(io.StringIO("".join(export.csv_pieces()))))
    assert [(row["perf_instructions"], row["mem_peak_bytes"], row["page_faults"]) for row in cells] == [
        ("", "1000000", "0"), ("7000000000", "", "0"),
    ]  # fmt: skip
    written = json.loads("".join(export.json_pieces()))
    place = written["columns"].index("perf_instructions")
    assert [row[place] for row in written["rows"]] == [None, 7_000_000_000]
    ((path, _, _),) = export.parquet_files(tmp_path / "parquet")
    table = pq.read_table(path)
    assert table["perf_instructions"].to_pylist() == [None, 7_000_000_000]
    assert {table.schema.field(figure_of(OF_NODES[name])).type for name in ("job_perf_instructions", "job_page_faults")} == {
        table.schema.field("cpu_usecs").type
    }
