"""`tokioctl job`: what the job itself did, from the job table, next to what the file system did."""

import csv
import io
import json
import stat
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from job_days import DAY, JobDays, polled

from tokiod.analysis.own_traffic import KEYS
from tokiod.analysis.slurm import FIELDS, SEPARATOR
from tokiod.cli.tokioctl import main
from tokiod.tts.live.create import create
from tokiod.tts.live.live_file import LiveFile
from tokiod.tts.spec import FileSpec, GroupSpec, MatrixSpec
from tokiod.window_data import job_key

OST, MDT, GIB = b"fs-OST0000", b"fs-MDT0000", 1 << 30
START, END = DAY + 600, DAY + 1200
CONFIG = """\
timezone = "UTC"
[archive]
path = "{directory}/tts/%Y-%m-%d/{{system}}.hdf5"
[bus]
endpoint = "ipc://{directory}/bus"
[feed]
endpoint = "ipc://{directory}/feed"
[site]
sacct = ["{directory}/sacct"]
mounts = {{ "/scratch" = "fs" }}
"""
RECORD = {
    "JobID": "40_3", "JobIDRaw": "4711", "JobName": "wrf", "User": "alice", "State": "COMPLETED", "Start": str(START), "End": str(END),
    "NNodes": "2", "NodeList": "nid[001-002]", "WorkDir": "/scratch", "ElapsedRaw": str(END - START),
}  # fmt: skip


@pytest.fixture
def site(tmp_path):
    (tmp_path / "tokiod.toml").write_text(CONFIG.format(directory=tmp_path))
    answer = SEPARATOR.join(FIELDS) + "\n" + SEPARATOR.join(RECORD[name] for name in FIELDS) + "\n"
    (tmp_path / "sacct").write_text(f"#!{sys.executable}\nimport sys\nsys.stdout.write({answer!r})")
    (tmp_path / "sacct").chmod(stat.S_IRWXU)
    path = tmp_path / "tts" / "2024-08-08" / "fs.hdf5"
    path.parent.mkdir(parents=True)
    names = "datatargets/readbytes", "datatargets/writebytes"
    matrices = {name: MatrixSpec(("OST0000",), counter=False) for name in names}
    create(path, FileSpec(DAY, DAY + 86400, {"datatargets": GroupSpec(60, "lmt")}, matrices), created=DAY)
    file = LiveFile.open(path)
    for name in names:
        file.cells[name].write_rows(0, np.full((1440, 1), float(GIB)))
    file.commit()
    file.close()
    return tmp_path


def stored(site):
    """The job's rows: at its start, in it, after its end, and a summary ten minutes later; and those of another job."""
    key, node = job_key("4711", "1000", None, "nid001", "a"), job_key("4711", "1000", None, "nid002", "b")
    JobDays(site / "tts" / "jobs").store(
        polled(START + 5, OST, key, START, {"write_bytes.sum": GIB}),
        polled(START + 65, OST, key, START, {"write_bytes.sum": 3 * GIB, "read_bytes.sum": 0}),
        polled(START + 65, MDT, node, START + 2, {"open.samples": 40, "statfs.samples": 1}),
        polled(END + 6, OST, key, START, {"write_bytes.sum": 4 * GIB, "read_bytes.sum": GIB}),
        polled(END + 700, OST, key, START, {"write_bytes.sum": 5 * GIB, "read_bytes.sum": GIB}, ended=1),
        polled(END + 66, OST, job_key("815", "1001"), START, {"write_bytes.sum": 90 * GIB}),
    )


def run(site, *options):
    return CliRunner().invoke(main, ["job", *options, "--config", str(site / "tokiod.toml")], prog_name="tokioctl")


def test_a_task_of_an_array_has_its_own_reads_and_writes_next_to_those_of_the_file_system(site):
    stored(site)
    found = json.loads(run(site, "40_3", "--json").stdout)
    assert {key: value for key, value in found.items() if key.startswith("job_")} == {
        "job_tot_bytes_read": GIB, "job_tot_gibs_read": 1.0, "job_ave_bytes_read_per_sec": GIB / 600, "job_ave_gibs_read_per_sec": 1 / 600,
        "job_frac_bytes_read": 0.1, "job_tot_bytes_written": 5 * GIB, "job_tot_gibs_written": 5.0,
        "job_ave_bytes_written_per_sec": 5 * GIB / 600, "job_ave_gibs_written_per_sec": 5 / 600, "job_frac_bytes_written": 0.5,
        "job_tot_open_ops": 40, "job_tot_statfs_ops": 1, "job_targets": 2,
    }  # fmt: skip
    assert (found["fs_tot_gibs_written"], found["_jobid"]) == (10.0, "40_3")
    rows = {line.split()[0]: line.split()[1:] for line in run(site, "40_3").stdout.splitlines()}
    assert rows["key"] == ["value", "of", "the", "job"]
    assert rows["fs_tot_gibs_written"] == ["10", "5"]
    assert rows["job_frac_bytes_written"] == ["0.5"]
    assert "job_tot_gibs_written" not in rows


def test_a_csv_has_columns_of_jobs_only_where_there_is_a_job_table(site):
    (site / "jobs.csv").write_text(f"jobid,start,end,system\n4711,{START},{END},fs\n9,{START},{END},fs\n")
    without = run(site, "--csv", str(site / "jobs.csv")).stdout
    assert "job_tot" not in without.partition("\n")[0]
    stored(site)
    known, unknown = csv.DictReader(io.StringIO(run(site, "--csv", str(site / "jobs.csv")).stdout))
    assert (known["job_tot_gibs_written"], known["job_tot_open_ops"], known["job_tot_mkdir_ops"]) == ("5.0", "40", "")
    assert {unknown[key] for key in KEYS} == {""}
    assert unknown["fs_tot_gibs_written"] == "10.0"


@pytest.mark.parametrize("bom", ["", "\ufeff"])
@pytest.mark.parametrize(
    ("header", "ids"), [("jobid", "40_3"), ("jobid", "40_3.0"), ("jobid", "4711.batch"), ("jobidraw,jobid", "4711,40_7")]
)
def test_a_task_of_an_array_in_a_csv_is_found_by_its_number(site, header, ids, bom):
    stored(site)
    (site / "jobs.csv").write_text(f"{bom}{header},start,end,system\n{ids},{START},{END},fs\n", "utf-8")
    (found,) = map(json.loads, run(site, "--csv", str(site / "jobs.csv"), "--json").stdout.splitlines())
    assert (found["_jobid"], found["job_tot_gibs_written"]) == (ids.rpartition(",")[2], 5.0)


def test_a_task_whose_number_is_unknown_has_the_reason_and_the_remedy(site):
    stored(site)
    (site / "jobs.csv").write_text(f"jobid,start,end,system\n40_4,{START},{END},fs\n4711,{START},{END},fs\n")
    row, known = csv.DictReader(io.StringIO(run(site, "--csv", str(site / "jobs.csv")).stdout))
    reason = "job tables have a task of an array by its JobIDRaw, not by 40_4: add a column jobidraw (sacct has no record of it)"
    assert (row["job_reason"], row["job_tot_gibs_written"], known["job_reason"], known["job_tot_gibs_written"]) == (reason, "", "", "5.0")
    (site / "sacct").unlink()
    (found, _) = map(json.loads, run(site, "--csv", str(site / "jobs.csv"), "--json").stdout.splitlines())
    assert "add a column jobidraw (" in found["job_reason"]
    assert "No such file" in found["job_reason"]


def test_the_other_runs_of_a_job_that_was_requeued_are_named(site):
    runs = [
        {"State": "REQUEUED", "Start": str(DAY), "End": str(DAY + 60)},
        {"State": "COMPLETED", "Start": str(DAY), "End": str(DAY + 60), "User": "bob"},  # another job, from before a reset of the numbers
        {},
        {"State": "NODE_FAIL", "Start": str(DAY + 120), "End": str(DAY + 300)},
    ]
    lines = [SEPARATOR.join((RECORD | one)[name] for name in FIELDS) for one in runs]
    answer = "\n".join([SEPARATOR.join(FIELDS), *lines, ""])
    (site / "sacct").write_text(f"#!{sys.executable}\nimport sys\nsys.stdout.write({answer!r} * ('--duplicates' in sys.argv))")
    found = json.loads(run(site, "40_3", "--json").stdout)
    assert (found["_datetime_start"], found["_job_state"]) == (START, "COMPLETED")
    assert found["_job_other_runs"] == (
        "2024-08-08T00:00:00Z to 2024-08-08T00:01:00Z REQUEUED; 2024-08-08T00:02:00Z to 2024-08-08T00:05:00Z NODE_FAIL"
    )
    assert "_job_other_runs" in run(site, "40_3").stdout


STRANGERS = Path(__file__).parents[4] / "shared" / "data" / "strangers" / "nodes"


@pytest.mark.skipif(not STRANGERS.is_dir(), reason="the inputs of strangers are not part of the project")
def test_the_inputs_of_strangers_are_read(site):
    done = run(site, "--csv", str(STRANGERS / "c01_csv" / "excel_bom.csv"), "--json")
    assert json.loads(done.stdout)["_jobid"] == "4107219"
    stored(site)
    task, number = map(json.loads, run(site, "--csv", str(STRANGERS / "c02_csv_task" / "j.csv"), "--json").stdout.splitlines())
    assert task["job_tot_bytes_written"] == number["job_tot_bytes_written"] == 5 * GIB
    (site / "sacct").write_text((STRANGERS / "s02_requeued" / "sacct").read_text())
    assert json.loads(run(site, "235929", "--json").stdout)["_job_other_runs"].count("REQUEUED") == 3


def test_a_span_without_a_job_has_no_keys_of_one(site):
    stored(site)
    found = json.loads(run(site, "--system", "fs", "--start", "2024-08-08T00:10:00", "--end", "2024-08-08T00:20:00", "--json").stdout)
    assert not [key for key in found if key.startswith("job_")]
