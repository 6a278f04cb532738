"""Summaries have pytokio's keys and its answers, and count missing cells as missing."""

import csv
import io
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from click.testing import CliRunner
from stitched_days import save, slot

from tokiod.analysis.job import MAX_CELLS, summarize_job
from tokiod.cli.commands.job_summaries import JOBS_PER_TASK
from tokiod.cli.tokioctl import main
from tokiod.reader.archive import open_archive
from tokiod.reader.errors import NoData

REFERENCE = Path(__file__).parents[3] / "shared" / "data" / "reading"
DAY = REFERENCE / "snx11025_2018-01-28.hdf5"
ZONE = "America/Los_Angeles"
START, STEP, ROWS = 1_517_126_400, 5, 60
TIB_OF_PYTOKIO = {"ave_tibs_read_per_dt", "ave_tibs_write_per_dt"}
needs_reference = pytest.mark.skipif(not DAY.exists(), reason="the reference answers are not part of the project")


def printed(*arguments):
    done = CliRunner().invoke(main, [str(one) for one in arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def assert_close(found, expected):
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        if isinstance(value, dict):
            assert_close(found[key], value)
        else:
            assert found[key] == (value if value is None or isinstance(value, str) else pytest.approx(value, rel=1e-12)), key


@needs_reference
def test_a_day_of_pytokio_is_summarized_as_pytokio_does():
    found = printed("summarize", DAY, "--columns", "--timesteps", "--json")
    total = {"read_bytes": 6347173888.0, "write_bytes": 119037925429.0, "missing_pts": 0, "total_pts": 1440, "missing_pct": 0.0}
    assert found["total"] == {**total, "first_nonzero_idx": 0, "last_nonzero_idx": 59}
    assert (len(found["timesteps"]), len(found["columns"]), sorted(found)) == (60, 24, ["columns", "timesteps", "total"])
    for part in ("timesteps", "columns"):
        assert sum(one["read_bytes"] for one in found[part].values()) == total["read_bytes"]


@needs_reference
def test_its_bins_and_their_summary_are_those_of_pytokio_except_for_its_tebibytes():
    found = printed("summarize", DAY, "--bins", 5, "--json")
    expected = json.loads((REFERENCE / "pytokio_summarize_h5lmt_bins5.json").read_text())
    assert {len(one) for one in found["bins"].values()} == {72}
    assert_close(found["bins"], expected["bins"])
    differs = {key: expected["summary"].pop(key) for key in TIB_OF_PYTOKIO}
    ours = {key: found["summary"].pop(key) for key in TIB_OF_PYTOKIO}
    assert_close(found["summary"], expected["summary"])
    assert {key: value * 1024 for key, value in ours.items()} == pytest.approx(differs, rel=1e-12)


@needs_reference
def test_a_job_is_summarized_as_pytokio_does():
    span = ["--start", "2018-01-28T00:01:00", "--end", "2018-01-28T00:04:00", "--timezone", ZONE]
    found = printed("job", "--system", "scratch1", *span, "--path", DAY, "--json")
    (expected,) = json.loads((REFERENCE / "pytokio_summarize_job.json").read_text())
    ours = {key: found.pop(key) for key in list(found) if key.startswith("fs_sys_")}
    assert (found.pop("_datetime_start"), found.pop("_datetime_end")) == (START + 60, START + 240)
    assert_close(found, {key: value for key, value in expected.items() if not key.startswith("_datetime")})
    assert ours["fs_sys_ave_open_ops_per_sec"] == pytest.approx(found["fs_ave_open_ops_per_sec"])  # it has one MDT


@pytest.fixture
def day(tmp_path):
    """A day of pytokio's form with 2 MDTs, missing cells, an OST and a row without any value."""
    path, generator = tmp_path / "fs.hdf5", np.random.default_rng(5)
    cells = {}
    with h5py.File(path, "w") as file:
        for name, columns in (
            ("datatargets/readbytes", 4),
            ("datatargets/writebytes", 4),
            ("dataservers/cpuload", 2),
            ("mdtargets/opens", 2),
            ("mdtargets/closes", 3),
            ("mdtargets/renames", 2),
        ):
            group = file.require_group(name.partition("/")[0])
            if "timestamps" not in group:
                group["timestamps"] = START + STEP * np.arange(ROWS)
            values = np.round(generator.random((ROWS, columns)) * 1000)
            values[generator.random(values.shape) < 0.2] = np.nan
            values[7] = np.nan
            if columns == 4:
                values[:, 2], values[3, 0] = np.nan, 0.0
            cells[name] = values
            made = group.create_dataset(name.partition("/")[2], data=np.where(np.isnan(values), -0.0, values), compression="gzip")
            made.attrs["columns"] = np.array([f"c{i}".encode() for i in range(columns)])
            made.attrs["units"] = b"bytes/sec"
    return path, cells


FIGURES = {"max": np.max, "min": np.min, "sum": np.sum, "ave": np.mean}
SIZES = {"bytes": 1, "kibs": 1024, "mibs": 1024**2, "gibs": 1024**3, "tibs": 1024**4}
BINNED = {
    "datatargets/readbytes": "ost_read", "datatargets/writebytes": "ost_write", "dataservers/cpuload": "oss_cpu",
    "mdservers/cpuload": "mds_cpu",
}  # fmt: skip


def bin_of(cells, key):
    """Return the keys of a dataset of a bin, slowly."""
    known = cells[~np.isnan(cells)]
    found = {f"{how}_{key}": of(known) if known.size else None for how, of in FIGURES.items()}
    if key.startswith("ost"):
        found |= {f"{name}_{unit}": value and value / size for name, value in [*found.items()] for unit, size in SIZES.items()}
    missing = cells.size - known.size
    return found | {f"missing_{key}": missing, f"num_{key}": cells.size, f"frac_missing_{key}": missing / cells.size}


def summary_of(cells):
    """Return the summary of the bins of the rows of all datasets, slowly."""
    found = {"n": len(cells["datatargets/readbytes"])}
    for dataset, key in (("datatargets/readbytes", "read"), ("datatargets/writebytes", "write")):
        whole = None if np.isnan(cells[dataset]).all() else np.nansum(cells[dataset])
        found |= {f"sum_{unit}_{key}": whole and whole / size for unit, size in SIZES.items()}
        found |= {f"ave_{unit}_{key}_per_dt": whole and whole / SIZES[unit] / found["n"] for unit in ("bytes", "gibs", "tibs")}
    for dataset, key in BINNED.items():
        one = bin_of(cells[dataset], key) if dataset in cells else {f"missing_{key}": 0, f"num_{key}": 0, f"frac_missing_{key}": 1.0}
        found |= {f"{name}_{key}": one[f"{name}_{key}"] for name in ("missing", "num", "frac_missing")}
        if key.endswith("cpu"):
            found |= {f"{key[:3]}_{how}": one.get(f"{how}_{key}") for how in ("ave", "max")}
    return found


@pytest.mark.parametrize(("first", "last"), [(0, 60), (7, 20), (7, 8), (30, 31)])
def test_missing_cells_are_missing_and_not_zero(day, first, last):
    """Row 7 has no value, and neither has one column."""
    path, cells = day
    cells = {name: values[first:last] for name, values in cells.items()}
    read, write = cells["datatargets/readbytes"], cells["datatargets/writebytes"]
    span = ["--start", f"2018-01-28T08:{first * STEP // 60:02}:{first * STEP % 60:02}Z"]
    span += ["--end", f"2018-01-28T08:{last * STEP // 60:02}:{last * STEP % 60:02}Z"]
    found = printed("summarize", path, *span, "--columns", "--timesteps", "--bins", 7, "--json")
    filled = np.flatnonzero(~np.isnan(read).all(axis=1))

    def added(values):
        return None if np.isnan(values).all() else np.nansum(values)

    assert found["total"] == {
        "read_bytes": added(read), "write_bytes": added(write), "missing_pts": np.isnan(read).sum(), "total_pts": read.size,
        "missing_pct": pytest.approx(100 * np.isnan(read).mean()),
        "first_nonzero_idx": filled[0] if filled.size else -1, "last_nonzero_idx": filled[-1] if filled.size else -1,
    }  # fmt: skip
    assert found["columns"] == {f"c{i}": {"read_bytes": added(read[:, i]), "write_bytes": added(write[:, i])} for i in range(4)}
    assert found["timesteps"] == {
        str(START + STEP * (first + i)): {"read_bytes": added(read[i]), "write_bytes": added(write[i])} for i in range(len(read))
    }
    height, bins = -(-len(read) // 7), {}
    for row in range(0, len(read), height):
        until, start = min(row + height, len(read)), START + STEP * first
        bins[str(start + STEP * row)] = {
            "index0": row, "indexf": until, "tstart": start + STEP * row, "tend": start + STEP * (until - 1),
            **{key: value for name, of in BINNED.items() if name in cells for key, value in bin_of(cells[name][row:until], of).items()},
        }  # fmt: skip
    assert_close(found["bins"], bins)
    assert_close(found["summary"], summary_of(cells))


@pytest.mark.parametrize("count", [1, 7, 60])
def test_bins_are_of_the_same_time_where_groups_have_other_steps(day, count):
    path, cells = day
    coarse = np.arange(12, dtype=float)[:, np.newaxis] + 1
    with h5py.File(path, "a") as file:
        file["mdservers/timestamps"] = START + 25 * np.arange(12)
        file["mdservers/cpuload"] = coarse
        file["mdservers/cpuload"].attrs["columns"] = np.array([b"mds"])
    found = printed("summarize", path, "--bins", count, "--json")
    height = -(-ROWS // count)
    firsts = range(0, ROWS, height)
    assert list(found["bins"]) == [str(START + STEP * first) for first in firsts]
    for first, one in zip(firsts, found["bins"].values(), strict=True):
        last = min(first + height, ROWS)
        assert (one["index0"], one["indexf"], one["tstart"], one["tend"]) == (first, last, START + STEP * first, START + STEP * (last - 1))
        loads = coarse[-(-first // 5) : -(-last // 5)]
        assert (one["num_mds_cpu"], one["sum_mds_cpu"]) == (len(loads), loads.sum() if len(loads) else None)
    summed = found["summary"]
    assert (summed["n"], summed["num_mds_cpu"], summed["mds_ave"], summed["mds_max"]) == (ROWS, 12, 6.5, 12)
    assert summed["ave_bytes_read_per_dt"] == pytest.approx(np.nansum(cells["datatargets/readbytes"]) / ROWS)


@pytest.mark.parametrize(("first", "last", "at_once"), [(2, 50, MAX_CELLS), (7, 8, MAX_CELLS), (0, 60, MAX_CELLS), (0, 60, 1)])
def test_a_job_leaves_out_rows_without_a_value_and_adds_the_operations_of_all_mdts(day, first, last, at_once, monkeypatch):
    """Row 7 has no value."""
    monkeypatch.setattr("tokiod.analysis.job.MAX_CELLS", at_once)
    path, cells = day
    expected, figures = {}, {"ave": np.mean, "max": max, "min": min}

    def known_rates(values):
        return [np.nansum(row) / STEP for row in values if not np.isnan(row).all()]

    for key, dataset in (("read", "readbytes"), ("written", "writebytes")):
        values = cells[f"datatargets/{dataset}"][first:last]
        rates = known_rates(values)
        expected[f"fs_frac_zero_{key}"] = (values == 0).mean()
        for unit, size in (("bytes", 1), ("gibs", 2**30)):
            expected[f"fs_tot_{unit}_{key}"] = np.nansum(values) / size if rates else None
            expected |= {f"fs_{how}_{unit}_{key}_per_sec": of(rates) / size if rates else None for how, of in figures.items()}
    loads = cells["dataservers/cpuload"][first:last]
    expected["fs_frac_missing"] = np.isnan(loads).mean()
    expected |= {
        "fs_ave_oss_cpu": np.mean(np.nanmean(loads, axis=0)) if rates else None,
        "fs_max_oss_cpu": np.nanmax(loads) if rates else None,
    }
    for name in ("open", "close", "rename"):
        of_mdts = cells[f"mdtargets/{name}s"][first:last]
        rates = known_rates(of_mdts)
        expected |= {
            f"fs_tot_{name}_ops": np.nansum(of_mdts) if rates else None,
            f"fs_ave_{name}_ops_per_sec": np.mean(np.nanmean(of_mdts / STEP, axis=0)) if rates else None,
            f"fs_max_{name}_ops_per_sec": np.nanmax(of_mdts) / STEP if rates else None,
            f"fs_min_{name}_ops_per_sec": np.nanmin(of_mdts) / STEP if rates else None,
            **{f"fs_sys_{how}_{name}_ops_per_sec": of(rates) if rates else None for how, of in figures.items()},
        }
    assert_close(summarize_job(open_archive("fs", START + STEP * first, START + STEP * last, path=path)), expected)


def test_a_span_in_which_no_row_of_another_step_begins_has_what_the_other_groups_hold(day):
    path, cells = day
    with h5py.File(path, "a") as file:
        file["mdservers/timestamps"] = START + 60 * np.arange(5)
        file["mdservers/cpuload"] = np.ones((5, 1))
        file["mdservers/cpuload"].attrs["columns"] = np.array([b"mds"])
    span = ["--start", "2018-01-28T08:00:10Z", "--end", "2018-01-28T08:00:50Z"]
    read = np.nansum(cells["datatargets/readbytes"][2:10])
    job = printed("job", "--system", "fs", *span, "--path", path, "--json")
    assert (job["fs_tot_bytes_read"], "fs_ave_oss_cpu" in job, "fs_ave_mds_cpu" in job) == (read, True, False)
    found = printed("summarize", path, *span, "--bins", 1, "--json")
    assert (found["total"]["read_bytes"], found["summary"]["num_oss_cpu"], found["summary"]["num_mds_cpu"]) == (read, 16, 0)
    assert sorted(printed("export", path, *span, "--json")["datasets"]) == sorted(cells)
    with open_archive("fs", START + 10, START + 50, path=path) as archive:
        assert {one.source for one in archive.completeness()} == set(cells)
    with open_archive("fs", START + 11, START + 12, path=path) as archive, pytest.raises(NoData):
        summarize_job(archive)


def test_a_job_over_a_change_of_step_has_the_figures_of_equal_times(tmp_path):
    """From midnight on rows of 60 s for those of 24 s: the figures are those of rows of 12 s."""
    midnight, found = slot(tmp_path, 2).start, {}
    for dataset in ("datatargets/readbytes", "mdtargets/opens", "dataservers/cpuload"):
        directory = tmp_path / dataset.replace("/", "-")
        directory.mkdir()
        save(directory, 1, ["a", "b"], [[24, np.nan]] * 3600, 24, dataset)
        save(directory, 2, ["b", "c"], [[60, np.nan], [np.nan, 120], [np.nan, np.nan]], 60, dataset, is_sealed=True)
        with open_archive("fs", midnight - 48, midnight + 180, path=directory / "%-d.hdf5") as archive:
            assert archive.with_rows([dataset]) == [dataset]
            found |= summarize_job(archive)
    rates = np.array([1.0] * 4 + [1.0] * 5 + [2.0] * 5)
    assert found["fs_tot_bytes_read"] == found["fs_tot_open_ops"] == pytest.approx(12 * rates.sum())
    assert (found["fs_ave_bytes_read_per_sec"], found["fs_sys_ave_open_ops_per_sec"]) == (pytest.approx(rates.mean()),) * 2
    assert (found["fs_max_bytes_read_per_sec"], found["fs_min_bytes_read_per_sec"]) == (pytest.approx(2), pytest.approx(1))
    assert found["fs_max_oss_cpu"] == 120
    assert found["fs_ave_oss_cpu"] == pytest.approx((24 + 60 + 120) / 3)
    assert found["fs_frac_missing"] == pytest.approx(1 - 14 / (3 * 19))


def test_a_job_between_two_rows_of_the_only_dataset_has_no_data(tmp_path):
    place = save(tmp_path, 1, ["a"], [[1]])
    with open_archive("fs", place.start + 10, place.start + 20, path=tmp_path / "%-d.hdf5") as archive, pytest.raises(NoData):
        summarize_job(archive)


def test_many_jobs_are_printed_in_the_order_of_the_input_with_a_reason_for_each_without_data(day, tmp_path):
    path, _ = day
    jobs = tmp_path / "jobs.csv"
    lines = [
        f"9,{START + 100},{START + 200},fs",
        f"3,{START},{START + 60},fs",
        "4,1,2,fs",
        "5,2018-01-28 00:00,x,fs",
        f"6,{START},{START},fs",
    ]
    jobs.write_text("jobid,start,end,system\n" + "\n".join(lines))
    arguments = ["job", "--csv", str(jobs), "--path", str(path), "--timezone", ZONE]
    done = CliRunner().invoke(main, [*arguments, "--json"])
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert (done.exit_code, [row["_jobid"] for row in rows]) == (1, ["9", "3", "4", "5", "6"])
    assert ["reason" in row for row in rows] == [False, False, True, True, True]
    assert rows[2]["reason"].startswith("no data in [1970-01-01T00:00:01Z")
    assert rows[3]["reason"] == "'x' is not a time; write it like 2018-01-28T08:00:00Z, 2018-01-28, -1h or now"
    assert rows[0]["fs_tot_bytes_read"] == summarize_job(open_archive("fs", START + 100, START + 200, path=path))["fs_tot_bytes_read"]
    done = CliRunner().invoke(main, arguments)
    header, first, *_ = done.stdout.splitlines()
    assert (header.split(",")[:3], first.split(",")[:2], len(done.stdout.splitlines())) == (
        ["_jobid", "_file_system", "_datetime_start"],
        ["9", "fs"],
        6,
    )
    jobs.write_text("jobid,begin\n")
    done = CliRunner().invoke(main, arguments)
    assert (done.exit_code, "has no start, end, system; it must name jobid, start, end, system" in done.stderr) == (2, True)


def test_any_text_in_a_file_of_jobs_is_one_field_of_its_row(day, tmp_path):
    path, _ = day
    (tmp_path / "jobs.csv").write_text(
        "jobid,start,end,system,nodes\n"
        f'"1\n2",{START},{START + 60},fs,99999999999999999999\n'
        f"3,\N{SUPERSCRIPT TWO},{START + 60},fs,1\n"
        f"4,{START},{START + 60},fs,2\n"
    )
    done = CliRunner().invoke(main, ["job", "--csv", str(tmp_path / "jobs.csv"), "--path", str(path), "--timezone", ZONE, "--concurrent"])
    rows = list(csv.DictReader(io.StringIO(done.stdout, newline="")))
    assert (done.exit_code, [row["_jobid"] for row in rows]) == (1, ["1\n2", "3", "4"]), done.output
    assert ["is not a time" in row["reason"] for row in rows] == [False, True, False]
    assert [row["jobsdb_concurrent_nodes"] for row in rows] == ["2", "", "2"]


def test_what_else_ran_is_counted_of_the_jobs_of_the_file(day, tmp_path):
    path, _ = day
    jobs = tmp_path / "jobs.csv"
    rows = [("1", START, START + 3600, 2), ("2", START + 1800, START + 7200, 10), ("3", START + 3600, START + 3700, 5)]
    jobs.write_text("jobid,start,end,system,nodes\n" + "\n".join(f"{name},{start},{end},fs,{nodes}" for name, start, end, nodes in rows))
    arguments = ["job", "--csv", str(jobs), "--path", str(path), "--timezone", ZONE, "--concurrent"]
    found = [json.loads(line) for line in CliRunner().invoke(main, [*arguments, "--json"]).stdout.splitlines()]
    keys = ("jobsdb_concurrent_jobs", "jobsdb_concurrent_nodes", "jobsdb_concurrent_nodehrs")
    assert [tuple(row[key] for key in keys) for row in found] == [(2, 12, 7.0), (3, 17, 1.0 + 15.0 + 5 / 36), (2, 15, 10 / 36 + 5 / 36)]
    header = CliRunner().invoke(main, arguments).stdout.splitlines()[0].split(",")
    assert header[-3:] == list(keys)


def of_many(path, directory, numbers):
    """Write a job for each number to a CSV file, in their order; return the command that prints them, and their spans."""
    spans = [(START + i % 40 * 5, START + i % 40 * 5 + 100) for i in numbers]
    jobs = directory / "many.csv"
    jobs.write_text("\n".join(["jobid,start,end,system", *(f"{i},{start},{end},fs" for i, (start, end) in enumerate(spans))]))
    return [sys.executable, "-m", "tokiod.cli.tokioctl", "job", "--csv", jobs, "--path", path, "--json"], spans


def test_the_rows_of_jobs_that_several_processes_read_are_those_of_each_alone(day, tmp_path):
    path, _ = day
    command, spans = of_many(path, tmp_path, reversed(range(3 * JOBS_PER_TASK + 1)))
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["_jobid"] for row in rows] == [str(i) for i in range(len(spans))]
    for row, span in zip(rows, spans, strict=True):
        alone = summarize_job(open_archive("fs", *span, path=path))
        assert {key: row[key] for key in alone} == alone


@pytest.mark.parametrize(("kills", "exit_code", "words"), [(True, 2, "was killed; is there enough memory?"), (False, 130, "")])
def test_a_process_that_is_killed_and_ctrl_c_end_many_jobs_with_a_sentence(day, tmp_path, kills, exit_code, words):
    # The first to be printed is among the first to be read, so nearly all of the work is left when it is there.
    command, _ = of_many(day[0], tmp_path, range(12_000))
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout.readline()
        if kills:
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            os.kill(int(children[0]), signal.SIGKILL)
        else:
            os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, words in errors, "Traceback" in errors) == (exit_code, True, False), errors


def test_a_file_without_bytes_shows_its_groups(tmp_path):
    path = tmp_path / "net.hdf5"
    with h5py.File(path, "w") as file:
        file["fullness/timestamps"] = START + STEP * np.arange(3)
        file["fullness/bytes"] = np.ones((3, 2))
        file["fullness/bytes"].attrs["columns"] = np.array([b"a", b"b"])
    assert printed("summarize", path, "--json") == {"groups": [{"group": "fullness", "datasets": ["bytes"], "columns": 2}]}
    assert "fullness" in CliRunner().invoke(main, ["summarize", str(path)]).stdout


def test_the_tables_show_bytes_with_units_and_a_dash_without_a_value(day):
    path, _ = day
    done = CliRunner().invoke(main, ["summarize", str(path), "--bins", "2", "--columns", "--timesteps", "--timezone", ZONE])
    assert done.exit_code == 0
    assert "2018-01-28 00:00:00" in done.stdout
    assert ["c2", "-", "-"] in [line.split() for line in done.stdout.splitlines()]
    done = CliRunner().invoke(main, ["job", "--system", "fs", "--start", str(START), "--end", "1h", "--path", str(path)])
    assert done.exit_code == 2
    assert "--start: '1517126400' is not a time" in done.stderr
