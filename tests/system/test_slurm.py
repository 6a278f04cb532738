"""`tokioctl job ID` finds the times and nodes of a job that a real Slurm ran; a CSV file gives the same."""

import json
import re
import subprocess
import sys
import time
from datetime import UTC, datetime

import numpy as np
import pytest

from tokiod.tts.live.create import create
from tokiod.tts.live.live_file import LiveFile
from tokiod.tts.spec import FileSpec, GroupSpec, MatrixSpec

pytestmark = pytest.mark.system
ODD_NAME = "a|b\nc"
"""sacct prints it as it is."""


@pytest.fixture(scope="module")
def site(tmp_path_factory, slurm):
    """A configuration whose sacct is that of the Slurm, and whose archive has a row for each second of this day and the next one."""
    directory = tmp_path_factory.mktemp("site")
    (directory / "scratch").mkdir()
    today = int(time.time()) // 86400 * 86400
    for start in (today, today + 86400):
        save(directory / f"tts/scratch-{datetime.fromtimestamp(start, UTC):%Y-%m-%d}.hdf5", start)
    lines = [
        'timezone = "UTC"',
        '[archive]\npath = "/nowhere/%Y-%m-%d/{system}.hdf5"',
        f'[site]\nsacct = ["env", "SLURM_CONF={slurm.directory}/slurm.conf", "sacct"]',
        f'archives = ["/neither/{{system}}/%Y-%m-%d.hdf5", "{directory}/tts/{{system}}-%Y-%m-%d.hdf5"]',
        'names = { scratch = "The scratch" }',
        f'mounts = {{ "{directory}/scratch" = "scratch", "{directory}" = "other" }}',
    ]
    (directory / "tokiod.toml").write_text("\n".join(lines) + "\n")
    return directory


def save(path, start):
    """Create a day in which each OST reads as many bytes in a second as seconds of the day have passed."""
    path.parent.mkdir(exist_ok=True)
    spec = FileSpec(
        start, start + 86400, {"datatargets": GroupSpec(1, "x")}, {"datatargets/readbytes": MatrixSpec(("a", "b"), counter=False)}
    )
    create(path, spec, created=start)
    file = LiveFile.open(path)
    file.cells["datatargets/readbytes"].write_rows(0, np.repeat(np.arange(1.0, 86401.0)[:, None], 2, axis=1))
    file.commit()
    file.close()


def tokioctl(site, *words, code=0, name="job"):
    command = [sys.executable, "-m", "tokiod.cli.tokioctl", name, *map(str, words), "--config", str(site / "tokiod.toml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == code, done.stdout + done.stderr
    return done


def rows(site, *words, code=0):
    return [json.loads(line) for line in tokioctl(site, *words, "--json", code=code).stdout.splitlines()]


def reads(start, end):
    return 2.0 * sum(second % 86400 + 1 for second in range(start, end))


def shown(slurm, jobid, name):
    """Return a field of what the controller shows of a job."""
    found = re.search(rf"\b{name}=(\S+)", slurm.run("scontrol", "show", "job", jobid))
    return found[1]


def test_it_finds_the_times_the_nodes_and_the_system_of_a_job_and_a_csv_file_gives_the_same(slurm, site):
    jobid = slurm.ended(f"--job-name={ODD_NAME}", f"--chdir={site}/scratch", script="sleep 2; srun sleep 2")
    (job,) = rows(site, jobid)
    start, end = (int(datetime.fromisoformat(shown(slurm, jobid, name)).astimezone().timestamp()) for name in ("StartTime", "EndTime"))
    assert (job["_jobid"], job["_datetime_start"], job["_datetime_end"], job["_file_system"]) == (jobid, start, end, "scratch")
    assert (job["_job_nodelist"], job["_job_nodes"]) == (shown(slurm, jobid, "NodeList"), int(shown(slurm, jobid, "NumNodes")))
    assert (job["_job_name"], job["_job_state"]) == (ODD_NAME, "COMPLETED")
    assert (end - start >= 2, job["fs_tot_bytes_read"]) == (True, reads(start, end))
    assert "The scratch" in tokioctl(site, jobid).stdout
    (beside,) = rows(site, jobid, "--concurrent")
    assert beside["jobsdb_concurrent_jobs"] >= 1
    assert beside["jobsdb_concurrent_nodehrs"] >= job["_job_nodes"] * (end - start) / 3600
    path = site / "jobs.csv"
    path.write_text(f"jobid,start,end,system,nodes\n{jobid},{start},{end},scratch,{job['_job_nodes']}\n")
    (same,) = rows(site, "--csv", path)
    assert same == {key: value for key, value in job.items() if key in same}
    assert same.keys() == job.keys() - {"_job_name", "_job_user", "_job_state", "_job_nodelist"}
    (step,) = rows(site, f"{jobid}.0", "--system", "scratch")  # srun sleep 2
    assert (step["_jobid"], start <= step["_datetime_start"] < step["_datetime_end"] <= end) == (f"{jobid}.0", True)


def test_an_array_has_a_row_for_each_task_and_one_of_them_can_be_named(slurm, site):
    jobid = slurm.ended("--array=1-2", f"--chdir={site}/scratch", script="sleep 2")
    found = rows(site, jobid)
    assert sorted(job["_jobid"] for job in found) == [f"{jobid}_1", f"{jobid}_2"]
    (one,) = rows(site, f"{jobid}_2")
    assert one == next(job for job in found if job["_jobid"] == f"{jobid}_2")


def test_earlier_jobs_of_the_same_name_are_those_that_completed_before(slurm, site):
    """The name has a comma, which separates names in options of sacct."""
    options = ("--job-name=model,7", f"--chdir={site}/scratch")
    first, second = slurm.ended(*options, script="sleep 2"), slurm.ended(*options, script="sleep 2")
    slurm.ended("--job-name=model", f"--chdir={site}/scratch", script="sleep 2")
    found = json.loads(tokioctl(site, second, "--json", name="umami").stdout)
    times = {str(row["_datetime_start"]): row["fs_tot_gibs_read"] for jobid in (first, second) for row in rows(site, jobid)}
    assert {time: row["fs_tot_gibs_read"] for time, row in found.items()} == times
    assert len(times) == 2
    tokioctl(site, first, "--json", name="umami", code=1)  # nothing before it


def test_a_job_that_runs_ends_now_and_one_that_waits_has_not_started(slurm, site):
    with (
        slurm.unfinished("--job-name=runs", f"--chdir={site}/scratch", state="RUNNING") as running,
        slurm.unfinished("--hold", f"--chdir={site}/scratch", state="PENDING") as waiting,
    ):
        time.sleep(1.1)  # it has run for a second
        (job,) = rows(site, running)
        assert (job["_job_state"], job["fs_tot_bytes_read"]) == ("RUNNING", reads(job["_datetime_start"], job["_datetime_end"]))
        assert f"job {waiting} has not started; its state is PENDING" in tokioctl(site, waiting, code=2).stderr


def test_a_job_that_does_not_exist_or_ran_elsewhere_is_reported_with_the_remedy(slurm, site):
    assert "has no record of job 999999" in tokioctl(site, "999999", code=2).stderr
    assert "'1,2' is not an ID of a Slurm job" in tokioctl(site, "1,2", code=2).stderr
    jobid = slurm.ended("--chdir=/", script="sleep 2")
    assert "ran in /, which no pattern of site.mounts matches; give --system" in tokioctl(site, jobid, code=2).stderr
    (job,) = rows(site, jobid, "--system", "scratch")
    assert job["fs_tot_bytes_read"] == reads(job["_datetime_start"], job["_datetime_end"])
