"""A job among the earlier jobs of its application: quartiles, quarters and ratings as pytokio colours them, by sacct and by a CSV file."""

import json
import sys

import numpy as np
import pytest
from click.testing import CliRunner

from tokiod.analysis.slurm import FIELDS, SEPARATOR
from tokiod.analysis.umami import QUANTITIES, SECONDS, UmamiMetric, umami
from tokiod.cli.tokioctl import main
from tokiod.reader.span import zone_of
from tokiod.tts.live.create import create
from tokiod.tts.live.live_file import LiveFile
from tokiod.tts.spec import FileSpec, GroupSpec, MatrixSpec

START, STEP, ROWS, GIB = 1_517_097_600, 60, 1440, 2.0**30
"""2018-01-28T00:00Z."""
READ, FULL = "datatargets/readbytes", "fullness/bytes"
JOBS = [(hour, hour + 1) for hour in (1, 3, 5, 7, 9)]
"""Hours from START; the last one is compared. In hour h, each of two OSTs reads h GiB in each row."""


def metric(*values, big_is_good=False):
    return UmamiMetric(list(range(len(values))), list(values), "label", big_is_good)


@pytest.mark.parametrize(
    ("values", "quarter", "ratings"),
    [
        ((0.0, 1.0, 2.0, 3.0, 4.0, 0.5), 0, ("best", "worst")),
        ((0.0, 1.0, 2.0, 3.0, 4.0, 1.0), 0, ("best", "worst")),
        ((0.0, 1.0, 2.0, 3.0, 4.0, 1.5), 1, ("good", "poor")),
        ((0.0, 1.0, None, 2.0, 3.0, 4.0, 2.5), 2, ("poor", "good")),
        ((0.0, 1.0, 2.0, 3.0, 4.0, 3.5), 3, ("worst", "best")),
        ((0.0, 1.0, 2.0, 3.0, 4.0, 99.0), 3, ("worst", "best")),
        ((1.0,), None, (None, None)),
        ((1.0, None), None, (None, None)),
        ((None, 1.0), None, (None, None)),
    ],
)
def test_the_quarter_is_the_first_percentile_of_earlier_jobs_that_is_not_below(values, quarter, ratings):
    found = [metric(*values, big_is_good=good) for good in (False, True)]
    assert [one.quarter for one in found] == [quarter, quarter]
    assert tuple(one.rating for one in found) == ratings


def test_percentiles_are_those_of_numpy_without_the_job_itself():
    values = np.random.default_rng(1).random(50).tolist()
    assert metric(*values).percentiles == tuple(np.percentile(values[:-1], (25, 50, 75, 100)))


def test_more_transfers_are_good_and_more_time_load_operations_and_fullness_are_bad():
    assert {one.key for one in QUANTITIES if one.big_is_good} == {"fs_tot_gibs_read", "fs_tot_gibs_written"}


def test_both_forms_are_those_of_pytokio():
    jobs = [{"_datetime_start": 60 * n, "_datetime_end": 60 * n + 30, "fs_tot_gibs_read": n or None, "fs_max_oss_cpu": n} for n in range(2)]
    del jobs[1]["fs_max_oss_cpu"]  # the job itself has none, so there is nothing to compare
    found = umami(jobs)
    assert found.to_dict() == {
        SECONDS: {"timestamps": [0, 60], "values": [30.0, 30.0], "label": "job time (s)", "big_is_good": False},
        "fs_tot_gibs_read": {"timestamps": [0, 60], "values": [None, 1.0], "label": "read (GiB)", "big_is_good": True},
    }
    assert found.by_time() == {"0": {"fs_tot_gibs_read": None, SECONDS: 30.0}, "60": {"fs_tot_gibs_read": 1.0, SECONDS: 30.0}}


@pytest.fixture
def site(tmp_path):
    """A day of cscratch, a sacct with its jobs and those of others, a CSV file of the jobs."""
    names = {READ: ("OST0000", "OST0001"), FULL: ("fs-OST0000", "fs-OST0001"), "fullness/bytestotal": ("fs-OST0000", "fs-OST0001")}
    groups = {"datatargets": GroupSpec(STEP, "lmt"), "fullness": GroupSpec(STEP, "lmt")}
    path = tmp_path / "cscratch-2018-01-28.hdf5"
    create(path, FileSpec(START, START + 86400, groups, {n: MatrixSpec(of, counter=False) for n, of in names.items()}), created=START)
    hours = np.repeat(np.arange(24.0), 60)[:, None] * [[1.0, 1.0]]
    file = LiveFile.open(path)
    for name, cells in ((READ, hours * GIB), (FULL, 100 + hours * [[1.0, 0.0]]), ("fullness/bytestotal", 0 * hours + 1000)):
        file.cells[name].write_rows(0, cells)
    file.commit()
    file.close()
    usual = {"JobName": "vasp", "User": "ann", "State": "COMPLETED", "NNodes": "2", "NodeList": "n[1-2]", "WorkDir": "/cscratch/ann"}
    records = [
        {"JobID": str(n), "JobIDRaw": str(n), "Start": START + 3600 * first, "End": START + 3600 * last, "ElapsedRaw": "3600", **usual}
        for n, (first, last) in enumerate(JOBS)
    ]
    before = [{"Start": START - days * 86400, "End": START - days * 86400 + 3600} for days in (40, 5)]  # sacct returns others, too
    others = [{"JobName": "other"}, {"User": "bob"}, {"WorkDir": "/home/ann"}, {"End": "Unknown"}, *before]
    records = [*records[:-1], *({**records[0], **one} for one in others), records[-1]]
    lines = [SEPARATOR.join(FIELDS), *(SEPARATOR.join(str(one[name]) for name in FIELDS) for one in records)]
    (tmp_path / "out").write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / "sacct.py").write_text(f"""
import sys
open({str(tmp_path / "calls")!r}, "a").write(repr(sys.argv[1:4]) + "\\n")
lines = open({str(tmp_path / "out")!r}).readlines()
jobs = [one[7:] for one in sys.argv if one.startswith("--jobs=")]
sys.stdout.writelines(lines[:1] + [line for line in lines[1:] if not jobs or line.startswith(jobs[0])])
""")
    (tmp_path / "jobs.csv").write_text(
        "jobid,start,end,system,name\n"
        + "".join(f"{one['JobID']},{one['Start']},{one['End']},cscratch,{one['JobName']}\n" for one in records)
    )
    (tmp_path / "tokiod.toml").write_text(f"""\
timezone = "UTC"
[archive]
path = "{tmp_path}/{{system}}-%Y-%m-%d.hdf5"
[site]
sacct = ["{sys.executable}", "{tmp_path}/sacct.py"]
mounts = {{ "/cscratch" = "cscratch", "/home" = "home" }}
names = {{ cscratch = "Cori scratch" }}
""")
    return tmp_path


def run(site, *arguments, command="umami"):
    options = ["--config", str(site / "tokiod.toml"), "--clock", f"{START + 86400}@0x0"]
    return CliRunner().invoke(main, [command, *map(str, arguments), *options])


def expected(*jobs):
    """The metrics of jobs by their hours."""
    return {
        str(START + 3600 * hour): {SECONDS: 3600.0, "fs_tot_gibs_read": 120.0 * hour, "fshealth_ost_most_full_pct": (100 + hour) / 10}
        for hour, _ in jobs
    }


def test_earlier_jobs_without_data_are_counted(site):
    assert run(site, "4").stdout.startswith("job 4 (vasp) on Cori scratch, and 4 earlier jobs of 30 days; 1 more have no data\n")


@pytest.mark.parametrize(
    ("arguments", "jobs"),
    [
        (["4"], JOBS),
        (["2"], JOBS[:3]),
        (["4", "--like", "other"], [JOBS[0], JOBS[4]]),
        (["--csv", "jobs.csv"], JOBS),
        (["--csv", "jobs.csv", "--like", "vasp"], JOBS),
    ],
)
def test_the_jobs_of_a_user_and_a_name_are_compared_and_a_csv_gives_the_same(site, arguments, jobs, monkeypatch):
    monkeypatch.chdir(site)
    done = run(site, *arguments, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert {time: one for time, one in found.items() if int(time) > START} == {
        time: {key: pytest.approx(value) for key, value in one.items()} for time, one in expected(*jobs).items()
    }


def test_sacct_is_asked_for_the_days_before_the_job(site):
    run(site, "4", "--days", "2")
    asked = ["--user=ann", f"--starttime=uts{START + 9 * 3600 - 2 * 86400}", f"--endtime=uts{START + 9 * 3600}"]
    assert (site / "calls").read_text().splitlines()[1] == repr(asked)


def test_the_table_has_the_quarter_of_each_metric(site):
    done = run(site, "4", "--days", "1")
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    assert (
        lines
        == """\
job 4 (vasp) on Cori scratch, and 4 earlier jobs of 1 days
metric             this job   25 %  median   75 %  quarter  rating
job time (s)           3600   3600    3600   3600  1st      best
read (GiB)             1080    300     480    660  4th      best
most full OST (%)      10.9  10.25    10.4  10.55  4th      worst
""".splitlines()
    )


def test_without_earlier_jobs_there_is_no_quarter_and_the_exit_is_1(site):
    done = run(site, "4", "--like", "nothing")
    assert done.exit_code == 1
    assert [line.split()[-2:] for line in done.stdout.splitlines()[2:]] == [["-", "-"]] * 3


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "give one job: JOBID, or --csv FILE"),
        (["4", "--csv", "jobs.csv"], "give one job: JOBID, or --csv FILE"),
        (["77"], "has no record of job 77"),
        (["4", "--figure", "x.doc"], "--figure: x.doc: the suffix must be one of .png, .svg, .pdf"),
        (["4", "--figure", "/no/where/x.png"], "--figure: /no/where/x.png: No such file or directory"),
        (["--csv", "jobs.csv", "--like", "nothing"], "--csv: jobs.csv: it has no such job; --like needs a column name with 'nothing'"),
        (["4", "--path", "/nowhere/{system}.hdf5", "--system", "cscratch"], "sacct"),
    ],
)
def test_errors_are_sentences(site, arguments, sentence, monkeypatch):
    monkeypatch.chdir(site)
    done = run(site, *arguments)
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1), done.output
    assert sentence in done.stderr


def test_a_picture_has_two_panels_for_each_metric(site):
    drawing = pytest.importorskip("tokiod.analysis.umami_figure")
    assert run(site, "4", "--figure", site / "umami.png").exit_code == 0
    assert (site / "umami.png").read_bytes().startswith(b"\x89PNG")
    rows = [{"_datetime_start": START + n, "_datetime_end": START + 60 + n, "fs_max_oss_cpu": n} for n in range(5)]
    assert len(drawing.draw_figure(umami(rows), "title", zone_of("UTC")).axes) == 4
    drawing.save_figure(umami(rows[:1]), site / "one.svg", "title", zone_of("UTC"))  # nothing to compare with


def test_a_picture_shows_the_jobs_over_time_and_the_spread_of_the_earlier_ones(tmp_path):
    drawing = pytest.importorskip("tokiod.analysis.umami_figure")
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, num2date  # noqa: PLC0415 - an extra

    zone = zone_of("Asia/Tokyo")
    rows = [{"_datetime_start": START + 3600 * n, "_datetime_end": START + 3600 * n + 60, "fs_max_oss_cpu": n} for n in range(102)]
    rows.insert(1, rows[0] | {"fs_max_oss_cpu": None})
    figure = drawing.draw_figure(umami(rows), "the title", zone)
    over_time, box = figure.axes[2:]
    assert figure.get_size_inches().tolist() == [8.0, pytest.approx(1.2 + 2 * 1.1)]
    assert [over_time.get_gridspec().get_width_ratios(), figure.axes[0].get_shared_x_axes().joined(*figure.axes[::2])] == [(5, 1), True]
    course, star = over_time.lines
    assert (course.get_marker(), course.get_linewidth(), course.get_ydata().tolist()) == ("x", 1, list(range(102)))
    assert [int(num2date(day).timestamp() + 0.5) for day in course.get_xdata(orig=False)] == [START + 3600 * n for n in range(102)]
    assert (star.get_marker(), star.get_markersize(), star.get_clip_on(), star.get_ydata().tolist()) == ("*", 14, False, [101])
    assert (star.get_xdata()[0], star.get_color()) == (course.get_xdata()[-1], drawing.COLOURS["worst"])
    label = over_time.yaxis.label
    assert (label.get_text(), label.get_rotation(), label.get_ha(), label.get_va()) == ("largest OSS CPU load\n(%)", 0, "right", "center")
    grid = over_time.get_xgridlines()[0]
    assert (grid.get_visible(), grid.get_linewidth()) == (True, 0.4)
    assert [line.get_ydata().tolist() for line in box.lines[1:5]] == [[25, 5], [75, 95], [5, 5], [95, 95]]
    job = box.lines[-1]
    assert (job.get_ydata(), job.get_linestyle(), job.get_linewidth(), job.get_color()) == ([101, 101], "--", 2, drawing.COLOURS["worst"])
    assert box.lines[0].get_xdata().tolist() == pytest.approx([0.65, 1.35, 1.35, 0.65, 0.65])
    dates, words = over_time.xaxis.get_major_locator(), over_time.xaxis.get_major_formatter()
    assert (type(dates), type(words), box.get_xticks().tolist()) == (AutoDateLocator, ConciseDateFormatter, [])
    assert {str(one) for one in (dates.tz, words._tz)} == {"Asia/Tokyo"}
    assert [(one.get_text().partition(":")[0], one.get_fontsize()) for one in (figure._suptitle, figure._supxlabel)] == [
        ("the title", 11), ("star", 9),
    ]  # fmt: skip
    drawing.save_figure(umami(rows), tmp_path / "a.png", "the title", zone)
    assert int.from_bytes((tmp_path / "a.png").read_bytes()[16:20], "big") == 8 * 120


def test_without_matplotlib_a_picture_is_a_sentence_with_the_way_out(site, monkeypatch):
    monkeypatch.delitem(sys.modules, "tokiod.analysis.umami_figure", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = run(site, "4", "--figure", site / "umami.png")
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "a picture needs matplotlib: pip install '.[plot]'" in done.stderr


def test_the_name_of_a_job_is_drawn_as_text_and_not_as_a_formula(tmp_path):
    drawing = pytest.importorskip("tokiod.analysis.umami_figure")
    rows = [{"_datetime_start": START + n, "_datetime_end": START + 60 + n, "fs_max_oss_cpu": n} for n in range(5)]
    drawing.save_figure(umami(rows), tmp_path / "one.svg", "job 4 (run_${A}_${B})", zone_of("UTC"))
    assert (tmp_path / "one.svg").stat().st_size > 1000


def test_a_job_has_the_state_of_the_osts_when_it_started(site):
    span = ["--system", "cscratch", "--start", START + 3 * 3600 + 30, "--end", START + 4 * 3600]
    plain, full = (json.loads(run(site, *span[:2], *times(span), *more, "--json", command="job").stdout) for more in ([], ["--ost"]))
    health = json.loads(run(site, "cscratch", "--time", "2018-01-28T03:00:30", "--json", command="health").stdout)
    keys = {key for key in health if key.startswith("fshealth_")}
    assert full == plain | {key: health[key] for key in keys}
    assert (len(keys), full["fshealth_ost_most_full_kib"], full["fshealth_ost_fullness_lead_secs"]) == (21, 103, 30.0)
    done = run(site, "--csv", site / "jobs.csv", "--ost", command="job")
    header, *rows = done.stdout.splitlines()
    assert header.split(",")[-21:] == [key for key in health if key in keys]
    assert len(rows) == 11


def times(span):
    """Return --start and --end as times of the command line."""
    iso = [f"{np.datetime64(int(second), 's')}Z" for second in (span[3], span[5])]
    return ["--start", iso[0], "--end", iso[1]]
