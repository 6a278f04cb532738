"""Commands on a source of jobs: once, check, archive, verify and backfill, over scripts that play lctl."""

import json

import h5py
import job_rows
import pytest
from click.testing import CliRunner
from job_days import DAY, JobDays, polled
from jobstats_servers import MDT0, OST0, START, Servers, job

from tokiod.cli.tokioctl import main as tokioctl
from tokiod.cli.tokiod import main as tokiod
from tokiod.clock import SystemClock
from tokiod.jobs.rows import read
from tokiod.jobs.table_file import opened
from tokiod.reader.archive import open_archive as tokiod_open
from tokiod.reader.errors import UnclearTime
from tokiod.window_data import job_key, job_parts

SPAN = ("--start", "2024-08-08T10:00:00Z", "--end", "2024-08-08T13:00:00Z")
BEGIN = 1_723_111_200
"""2024-08-08T10:00:00Z."""


def run(main, *arguments):
    result = CliRunner().invoke(main, [*map(str, arguments)])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def servers(tmp_path):
    return Servers(tmp_path)


def configured(servers, window="1m", **more):
    path = servers.directory / "tokiod.toml"
    keys = {
        "servers": ["oss1", "oss2", "mds1"],
        "lctl": [f"{servers.directory}/lctl", "{server}"],
        "jobid_name": ["%j:%u:%H", "%e.%u"],
    } | more
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
    path.write_text(
        f'timezone = "UTC"\n[archive]\npath = "{servers.directory}/tts/%Y-%m-%d/{{system}}.hdf5"\n'
        f'[[source]]\nname = "fs-jobs"\nkind = "lustre_jobstats"\nsystem = "fs"\nwindow = "{window}"\n{lines}'
    )
    return path


def test_once_shows_the_rows_that_would_be_stored_and_nothing_of_a_user(servers):
    code, out, err = run(tokioctl, "once", "fs-jobs", "--config", configured(servers), "--json")
    assert (code, err) == (0, "")
    (table,) = json.loads(out)["tables"]
    assert {name: table[name] for name in ("table", "rows", "jobs", "targets")} == {
        "table": "jobs/operations",
        "rows": 5,
        "jobs": 3,
        "targets": 3,
    }
    code, out, _ = run(tokioctl, "once", "fs-jobs", "--config", configured(servers))
    assert code == 0
    assert "5 rows in" in out
    assert "bash" not in out


def test_once_and_check_name_a_server_that_refuses_and_exit_well(servers):
    servers.script("oss2", "echo 'Permission denied (publickey).' >&2; exit 255")
    code, out, _ = run(tokioctl, "once", "fs-jobs", "--config", configured(servers))
    assert (code, "fs-jobs is incomplete: lctl on oss2: exit code 255: Permission denied (publickey)." in out) == (0, True)
    assert "dropped 1: oss2: no answer" in out


def test_check_refuses_a_poll_interval_above_half_of_the_cleanup_interval(servers):
    code, out, err = run(tokiod, "check", "--config", configured(servers, window="10m"))
    assert code == 2
    assert "window: must be at most half of cleanup_interval, or what jobs did before their removal is lost" in out + err


def test_verify_names_days_with_what_the_table_should_not_have(servers):
    days = JobDays(servers.directory / "tts" / "jobs")
    days.store(polled(DAY + 5, b"fs-OST0000", job_key("7z.1000", None, None, None, "a1"), DAY, {"open.samples": 7}))
    path = configured(servers)
    words = ("verify", "fs-jobs", "2024-08-08", "2024-08-09", "--config", path)
    code, out, err = run(tokioctl, *words)
    assert (code, err, "no name that [jobs] users hides, and no count that can't be true" in out) == (0, "", True)
    path.write_text(path.read_text() + '[jobs]\nusers = "no"\n')
    code, out, err = run(tokioctl, *words)
    assert (code, err, out.startswith("2024-08-08: 1 job ids with names that [jobs] users hides")) == (1, "", True)
    assert "7z" not in out
    code, out, _ = run(tokioctl, *words, "--json")
    assert (code, json.loads(out)["odd_days"][0]["private"]) == (1, 1)


@pytest.mark.parametrize("command", [("backfill",), ("verify",), ("fetch", "--output", "{fetched}")])
def test_the_past_can_not_be_queried_which_is_a_sentence(servers, command):
    fetched = servers.directory / "fetched"
    name, *options = (word.format(fetched=fetched) for word in command)
    code, out, err = run(tokioctl, name, "fs-jobs", "2024-08-08", "2024-08-09", *options, "--config", configured(servers))
    assert code == 2
    assert len((out + err).strip().splitlines()) == 1, out + err
    assert not fetched.exists()


def saved(servers, name, time, *targets):
    """Save the outputs of a poll."""
    for server, jobs in targets:
        servers.show(server, jobs)
    text = b"".join((servers.directory / f"{server}.stats").read_bytes() for server in ("oss1", "oss2", "mds1"))
    path = servers.directory / name
    path.write_bytes(b"BEGIN %d\n" % time + text)
    return path


def archived(servers, *inputs):
    out = servers.directory / "day.jobs"
    code, printed, err = run(tokioctl, "archive", "lustre_jobstats", *inputs, "--output", out, *SPAN, "--jobid-name", "%j:%u:%H", "--json")
    assert (code, err) == (0, "")
    return out, json.loads(printed)


def test_saved_outputs_become_one_file_of_the_job_table_with_what_each_job_did(servers):
    first = saved(servers, "first", START + 5)
    second = saved(servers, "second", START + 4000, ("mds1", {MDT0: [job("7:1000:n1", last=3990, open=9)]}))
    out, printed = archived(servers, second, first)
    with opened(out) as (_, index):
        assert (printed["cells"], len(index.jobs)) == (int(index.first[-1]), 3)
    place = servers.directory / "2024-08-08"
    place.mkdir()
    out.rename(place / f"{BEGIN}-{BEGIN + 3 * 3600}.jobs")
    found = job_rows.totals(read([place], BEGIN, BEGIN + 3 * 3600))
    done = {(target, job_parts(key)["job"]): counts for (target, key), counts in found.items()}
    assert done[MDT0, "7"] == {"open.samples": 9}
    assert done[OST0, "7"] == {"write_bytes.samples": 3, "write_bytes.sum": 300}
    assert list(servers.directory.glob(".*")) == []


@pytest.fixture
def day(servers):
    """Two polls, the first of job 7 with begin 600 s before it."""
    first = saved(servers, "first", START + 5)
    second = saved(servers, "second", START + 4000, ("mds1", {MDT0: [job("7:1000:n1", last=3990, open=9)]}))
    return archived(servers, first, second)[0]


NO_CONFIG = ("--config", "/nonexistent/tokiod.toml")


def test_a_file_of_the_job_table_is_listed(day):
    code, out, err = run(tokioctl, "ls", day, "--json")
    first, last = START // 60 * 60, (START + 4000) // 60 * 60 + 60
    entry = {"table": "jobs/operations", "system": "day", "start": first, "end": last, "rows": 11, "jobs": 3, "targets": 3}
    assert (code, err, json.loads(out)["tables"]) == (0, "", [entry])
    code, out, _ = run(tokioctl, "ls", day)
    assert (code, "jobs/operations" in out, "2024-08-08T" in out) == (0, True, True)


@pytest.mark.parametrize("config", ["", 'users = "no"'])
def test_a_file_of_the_job_table_is_exported_as_csv_and_json(servers, day, config):
    """Without a configuration as it is; with one, users only where that allows it."""
    path = configured(servers) if config else NO_CONFIG[1]
    code, out, err = run(tokioctl, "export", day, "--json", "--config", path)
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert (found["system"], found["table"], len(found["rows"])) == ("day", "jobs/operations", 11)
    assert ("user" in found["columns"]) == (not config)
    code, out, _ = run(tokioctl, "export", day, "jobs/operations", "--csv", "-", "--config", path)
    assert (code, len(out.splitlines())) == (0, 12)
    code, out, _ = run(tokioctl, "export", day, "--json", "--start", "2024-08-08T11:30:00Z", "--config", path)
    assert (code, len(json.loads(out)["rows"])) == (0, 5)
    for words, sentence in (
        (("--parquet", servers.directory), "--parquet: writes days of a system"),
        (("datatargets/readbytes",), "is of the job table"),
        (("--zarr", servers.directory / "z", "jobs/operations"), "is a table, not a matrix"),
    ):
        code, _, err = run(tokioctl, "export", day, *words, "--config", path)
        assert (code, sentence in err) == (2, True), err


def test_top_of_a_file_is_about_all_of_it(day):
    code, out, err = run(tokioctl, "top", day, "--by", "open", "--json", *NO_CONFIG)
    assert (code, err) == (0, "")
    found = json.loads(out)
    seconds = found["end"] - found["start"]
    assert (found["system"], found["lines"][0]["job"], found["lines"][0]["user"]) == ("day", "7", "1000")
    assert 0 < found["lines"][0]["rate"] * seconds <= 9.001
    code, out, _ = run(tokioctl, "top", day, *NO_CONFIG)
    assert (code, "7" in out) == (0, True)
    code, out, err = run(tokioctl, "top", day, "--since", "2024-08-08T12:30:00Z", "--until", "2024-08-08T12:40:00Z", *NO_CONFIG)
    assert (code, "has no window from" in err) == (2, True)
    code, out, err = run(tokioctl, "top", day, "--watch", *NO_CONFIG)
    assert (code, "a file alone has no new windows" in err) == (2, True)


def test_a_job_of_a_file_is_summarized_without_sacct(day):
    code, out, err = run(tokioctl, "job", "7", "--system", day, "--json", *NO_CONFIG)
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert {key: found[key] for key in ("_jobid", "_file_system", "_datetime_start", "_datetime_end")} == {
        "_jobid": "7",
        "_file_system": "day",
        "_datetime_start": START - 600,
        "_datetime_end": START + 4000,
    }
    assert (found["job_tot_bytes_written"], found["job_tot_open_ops"], found["job_targets"]) == (800, 9, 3)
    assert found["job_ave_bytes_written_per_sec"] == 800 / 4600
    code, out, err = run(tokioctl, "job", "99", "--system", day, *NO_CONFIG)
    assert (code, "has no row of job 99" in err) == (2, True)
    code, out, err = run(tokioctl, "job", "--system", day, *NO_CONFIG)
    assert (code, "JOBID: missing" in err) == (2, True)


def test_a_file_of_the_job_table_is_opened_by_its_path(day):
    with tokiod_open(str(day)) as archive:
        frame = archive.jobs().set_index("job")
        assert (archive.system, frame.loc["7", "write_bytes"], frame.loc["7", "open"]) == ("day", 800, 9)
        assert len(archive.job("7")) == 7
    with tokiod_open(str(day), "2024-08-08T11:30:00Z") as archive:
        assert archive.job_figures("7")["open"].sum() == 5
    with pytest.raises(UnclearTime, match="give a start"):
        tokiod_open("cscratch", path="/nonexistent/%Y-%m-%d/{system}.hdf5")


def test_a_file_that_is_there_is_filled_further_and_another_one_is_left_alone(servers):
    out, first = archived(servers, saved(servers, "first", START + 5))
    _, second = archived(
        servers, saved(servers, "second", START + 2 * 3600, ("oss1", {OST0: [job("9:1:n", begin=7000, last=7100, open=1)]}))
    )
    with opened(out) as (content, index):
        windows = len(index.windows)
        assert content["rows/time"].shape == (first["cells"] + second["cells"],)
    assert windows == 2
    again, third = archived(servers, servers.directory / "first")
    with opened(again) as (content, _):
        assert content["rows/time"].shape == (first["cells"] + second["cells"],)
    assert third["cells"] == first["cells"]
    other = servers.directory / "day.jobs"
    other.unlink()
    with h5py.File(other, "w") as file:
        file["x"] = 1
    code, _, err = run(tokioctl, "archive", "lustre_jobstats", servers.directory / "first", "--output", other, *SPAN)
    assert (code, "is not a file of the job table" in err) == (2, True)
    with h5py.File(other) as file:
        assert list(file) == ["x"]


def test_a_span_without_outputs_is_a_sentence_and_no_file_is_written(servers):
    code, _, err = run(
        tokioctl,
        "archive",
        "lustre_jobstats",
        saved(servers, "first", int(SystemClock().time())),
        "--output",
        servers.directory / "x",
        *SPAN,
    )
    assert (code, "no data between" in err, (servers.directory / "x").exists()) == (2, True, False)
