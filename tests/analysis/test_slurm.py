"""Records of sacct: jobs, steps and tasks, text of users, times with and without a zone. tests/system/test_slurm.py has a real Slurm."""

import json
import sys
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import growth
import pytest

from tokiod.analysis.slurm import FIELDS, SEPARATOR, NoSuchJob, SacctFailed, completed, described, jobs_of, numbers_of, parsed, running
from tokiod.reader.errors import UnclearTime
from tokiod.reader.span import Span

ZONE = ZoneInfo("America/Los_Angeles")
SAMPLE = Path(__file__).parents[3] / "shared" / "data" / "reading" / "sample.slurm"
DARSHAN_START = 1490000867
"""Of the same job's sample.darshan, in UTC epoch seconds."""
USUAL = {
    "JobID": "7", "JobIDRaw": "7", "JobName": "vasp", "User": "ann", "State": "COMPLETED", "Start": "1517126460", "End": "1517126520",
    "NNodes": "2", "NodeList": "nid[001-002]", "WorkDir": "/scratch/ann", "ElapsedRaw": "60",
}  # fmt: skip


def text(*records, names=FIELDS):
    lines = [SEPARATOR.join(names), *(SEPARATOR.join({**USUAL, **record}[name] for name in names) for record in records)]
    return "".join(f"{line}\n" for line in lines)


def test_fields_are_found_by_their_names_in_any_order():
    (job,) = parsed(text({}, names=(*reversed(FIELDS[:-1]), FIELDS[-1])), ZONE)
    assert (job.jobid, job.name, job.user, job.state, job.nodes) == ("7", "vasp", "ann", "COMPLETED", 2)
    assert (job.start, job.end, job.nodelist, job.directory) == (1517126460, 1517126520, "nid[001-002]", "/scratch/ann")


def test_a_header_without_a_field_names_it():
    with pytest.raises(SacctFailed, match="sacct printed no WorkDir; its first line must name the fields"):
        parsed(text({}, names=[name for name in FIELDS if name != "WorkDir"]), ZONE)
    with pytest.raises(SacctFailed, match="sacct printed no JobID, JobIDRaw"):
        parsed("", ZONE)


def test_line_breaks_and_bars_in_names_end_no_record_and_one_with_too_many_fields_is_left_out():
    names = ["a|b\nc", f"x\n8{SEPARATOR}8", "\xe9\u2028 "]
    found = parsed(text(*({"JobName": name} for name in names)), ZONE)
    assert [job.name for job in found] == [names[0], names[2]]


def test_the_time_grows_with_the_text_and_not_with_its_square():
    """Lines without a separator belong to one record: a user's text, or the output of another program."""
    header, line = text().partition("\n")[0], "x" * 20 + "\n"
    growth.check(lambda n: parsed(f"{header}\n{line * n}", ZONE), 10_000, 40_000)


@pytest.mark.parametrize(("start", "end"), [("Unknown", "Unknown"), ("None", ""), ("", "Unknown")])
def test_a_job_that_has_not_started_has_no_times(start, end):
    (job,) = parsed(text({"State": "PENDING", "Start": start, "End": end, "NNodes": "", "ElapsedRaw": ""}), ZONE)
    assert (job.start, job.end, job.nodes) == (None, None, None)


def test_local_times_are_those_of_the_zone_and_an_hour_that_occurs_twice_is_known_by_what_elapsed():
    def times(start, end, elapsed):
        (job,) = parsed(text({"Start": start, "End": end, "ElapsedRaw": str(elapsed)}), ZONE)
        return job.start, job.end

    first = int(datetime(2017, 11, 5, 0, 50, tzinfo=ZONE).timestamp())
    assert times("2018-01-28T00:01:00", "2018-01-28T00:02:00", 60) == (1517126460, 1517126520)
    assert times("2017-11-05T00:50:00", "2017-11-05T01:10:00", 1200) == (first, first + 1200)
    assert times("2017-11-05T00:50:00", "2017-11-05T01:10:00", 4800) == (first, first + 4800)
    assert times("2017-11-05T01:50:00", "2017-11-05T01:10:00", 1200) == (first + 3600, first + 4800)
    with pytest.raises(UnclearTime, match=r"job 7: .* occurs twice in America/Los_Angeles; let sacct print epoch seconds"):
        times("2017-11-05T01:10:00", "2017-11-05T01:20:00", 600)
    with pytest.raises(UnclearTime, match="occurs twice"):
        times("2017-11-05T01:10:00", "Unknown", 600)
    with pytest.raises(SacctFailed, match="the time 'soon', which is neither"):
        times("soon", "Unknown", 0)


def test_the_local_times_of_a_job_include_the_start_that_darshan_recorded():
    (job,) = parsed(text({"Start": "2017-03-20T01:59:02", "End": "2017-03-20T02:11:38", "ElapsedRaw": "756"}), ZONE)
    assert (job.start, job.end) == (1490000342, 1490001098)
    assert job.start < DARSHAN_START < job.end


@pytest.mark.skipif(not SAMPLE.exists(), reason="the reference answers are not part of the project")
def test_every_record_of_the_reference_job_has_its_times_and_nodes():
    records = json.loads(SAMPLE.read_text())
    names = {"JobIDRaw": "jobidraw", "Start": "start", "End": "end"}
    lines = [
        {"JobID": jobid, "NNodes": str(len(one["nodelist"])), "NodeList": ",".join(one["nodelist"])}
        | {name: one[key] for name, key in names.items()}
        for jobid, one in records.items()
    ]
    found = [(job.raw_id, job.start, job.end, job.nodes, job.nodelist.split(",")) for job in parsed(text(*lines), ZONE)]
    assert found == [
        (one["jobidraw"], epoch(one["start"]), epoch(one["end"]), len(one["nodelist"]), one["nodelist"]) for one in records.values()
    ]


def epoch(local):
    """UTC epoch seconds of a time in summer, 7 hours after that of Los Angeles."""
    return int(datetime.fromisoformat(f"{local}-07:00").timestamp())


@pytest.fixture
def sacct(tmp_path):
    """A command like sacct, which records how it was run and prints what a test wants."""

    def printing(*records, message=""):
        (tmp_path / "out").write_text(text(*records))
        program = f"""
import os, sys
open({str(tmp_path / "call")!r}, "w").write(repr((sys.argv[1:], os.environ["SLURM_TIME_FORMAT"], os.environ["TZ"])))
sys.stdout.write(open({str(tmp_path / "out")!r}, newline="").read())
sys.exit({message!r} or 0)
"""
        return [sys.executable, "-c", program]

    return printing


def test_a_job_is_the_record_without_a_step_and_a_step_the_one_with_it(sacct, tmp_path):
    job, batch = {}, {"JobID": "7.batch", "JobIDRaw": "7.batch", "WorkDir": ""}
    assert [one.jobid for one in jobs_of("7", sacct(job, batch), ZONE)] == ["7"]
    assert [one.jobid for one in jobs_of("7.batch", sacct(batch), ZONE)] == ["7.batch"]
    tasks = [{"JobID": f"7_{n}", "JobIDRaw": str(7 + n)} for n in (1, 2)]
    assert [one.jobid for one in jobs_of("7", sacct(*tasks, batch), ZONE)] == ["7_1", "7_2"]
    options = ["--jobs=7", "--duplicates", "--parsable2", f"--delimiter={SEPARATOR}", f"--format={','.join(FIELDS)}"]
    assert (tmp_path / "call").read_text() == repr((options, "%s", "America/Los_Angeles"))


def test_of_a_job_that_was_requeued_the_last_run_is_the_job_and_names_the_others(sacct):
    first, last, waiting = (
        {"Start": "100", "End": "200", "State": "REQUEUED"},
        {"Start": "300", "End": "400"},
        {"Start": "Unknown", "End": "Unknown"},
    )
    others = [{"Start": "10", "End": "20", "User": "bob"}, {"Start": "10", "End": "20", "JobName": "lmp"}]  # before a reset of the numbers
    (job,) = jobs_of("7", sacct(*others, last, first), ZONE)
    assert (job.start, [run.start for run in job.others]) == (300, [100])
    (job,) = jobs_of("7", sacct(first, waiting, last), ZONE)
    assert (job.start, [run.start for run in job.others]) == (None, [100, 300])
    (job,) = jobs_of("7", sacct(last), ZONE)
    assert job.others == ()


def test_the_numbers_of_tasks_are_asked_for_by_their_arrays_and_5000_at_once(sacct, tmp_path):
    answer = sacct({"JobID": "40_3", "JobIDRaw": "4711"}, {"JobID": "41+1", "JobIDRaw": "42"})
    assert numbers_of(["41+1", "40_3", "40_5"], answer, ZONE) == {"40_3": "4711", "41+1": "42"}
    assert "'--jobs=40,41', '--allocations'" in (tmp_path / "call").read_text()
    for count, last in ((5000, 5000), (5001, 1)):
        numbers_of([f"{n}_1" for n in range(10_000, 10_000 + count)], answer, ZONE)
        assert (tmp_path / "call").read_text().partition("', '")[0].count(",") == last - 1
    assert "'--jobs=15000'" in (tmp_path / "call").read_text()


def test_jobs_are_described_by_their_numbers_and_nothing_is_asked_for_without_one(sacct, tmp_path):
    answer = sacct({"JobID": "40_3", "JobIDRaw": "4711"}, {"JobID": "5", "JobIDRaw": "5"})
    assert described(["x", "", "4.batch", "\u0664"], answer, ZONE, 30) == {}
    assert not (tmp_path / "call").exists()
    found = described(["5", "4711", "5", "4.batch", "40_3"], answer, ZONE, 30)
    assert {number: job.jobid for number, job in found.items()} == {"4711": "40_3", "5": "5"}
    assert "['--jobs=4711,5', '--allocations'" in (tmp_path / "call").read_text()


def test_jobs_of_a_user_with_a_name_are_those_that_started_in_a_span_and_ended(sacct, tmp_path):
    mine = {"User": "alice", "JobName": "wrf"}
    records = [
        mine | {"Start": "199", "End": "250"}, mine | {"Start": "100", "End": "300"}, mine | {"Start": "99", "End": "150"},
        mine | {"Start": "200", "End": "300"}, mine | {"Start": "150", "End": "Unknown"}, mine | {"Start": "Unknown", "End": "Unknown"},
        mine | {"User": "bob", "Start": "150", "End": "160"}, mine | {"JobName": "wrf,", "Start": "150", "End": "160"},
    ]  # fmt: skip
    answer = sacct(*({"JobID": str(n), "JobIDRaw": str(n)} | one for n, one in enumerate(records)))
    assert [job.jobid for job in completed("alice", "wrf", Span(100, 200), answer, ZONE)] == ["1", "0"]
    assert (
        "--user=alice', '--starttime=uts100', '--endtime=uts200', '--state=COMPLETED', '--allocations'" in (tmp_path / "call").read_text()
    )


def test_jobs_that_ran_in_a_part_of_a_span_are_those_between_its_edges(sacct):
    times = [(50, 100), (50, 101), (199, 300), (200, 300), (120, "Unknown"), ("Unknown", "Unknown")]
    found = running(Span(100, 200), sacct(*({"JobID": str(i), "Start": str(a), "End": str(b)} for i, (a, b) in enumerate(times))), ZONE)
    assert [job.jobid for job in found] == ["1", "2", "4"]


@pytest.mark.parametrize("jobid", ["", "-j", "7 8", "7;8", "all", "7.", "_1", "7\n"])
def test_what_is_no_id_of_a_job_is_refused_before_sacct_is_run(sacct, tmp_path, jobid):
    with pytest.raises(NoSuchJob, match="is not an ID of a Slurm job"):
        jobs_of(jobid, sacct({}), ZONE)
    assert not (tmp_path / "call").exists()


def test_a_job_without_a_record_and_a_command_that_fails_or_is_missing_are_sentences(sacct, tmp_path):
    with pytest.raises(NoSuchJob, match="has no record of job 7"):
        jobs_of("7", sacct(), ZONE)
    with pytest.raises(SacctFailed, match="failed with exit code 1: Slurm accounting storage is disabled"):
        jobs_of("7", sacct(message="Slurm accounting storage is disabled"), ZONE)
    with pytest.raises(SacctFailed, match=r"can't be run: No such file or directory.*site\.sacct in the configuration"):
        jobs_of("7", [str(tmp_path / "sacct")], ZONE)
