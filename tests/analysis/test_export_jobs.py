"""An export of the job table has what jobs did, in every form, and users only where the site allows them in exports."""

import csv
import io
import json
from collections import Counter, defaultdict

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from job_days import DAY, JobDays, polled, random_day

from tokiod.analysis.export import ExportedJobs
from tokiod.cli.tokioctl import main
from tokiod.job_columns import figure_of
from tokiod.jobs import span as spans
from tokiod.times import iso
from tokiod.window_data import job_key, job_parts

START, END = DAY + 86400 - 1200, DAY + 86400 + 1200  # about midnight
NOW = END + 600
CONFIG = """\
timezone = "UTC"
[archive]
path = "{directory}/tts/%Y-%m-%d/{{system}}.hdf5"
[bus]
endpoint = "ipc://{directory}/bus"
[feed]
endpoint = "ipc://{directory}/feed"
[jobs]
users = "{users}"
users_in = [{places}]
{key}
[[source]]
name = "jobs"
kind = "lustre_jobstats"
system = "fs"
servers = ["oss1"]
lctl = ["lctl"]
"""
SPAN = ("fs", "jobs/operations", "--start", iso(START), "--end", iso(END))


@pytest.fixture
def made(tmp_path):
    (tmp_path / "key").write_text("a secret of the site")
    (tmp_path / "key").chmod(0o400)
    return JobDays(tmp_path / "tts" / "jobs", window=600)


def exported(tmp_path, *options, users="names", places='"export"', code=0):
    key = 'key_file = "key"' if users == "hashed" else ""
    (tmp_path / "tokiod.toml").write_text(CONFIG.format(directory=tmp_path, users=users, places=places, key=key))
    command = ["export", *options, "--config", str(tmp_path / "tokiod.toml"), "--clock", f"{NOW}@0x0"]
    done = CliRunner().invoke(main, command, prog_name="tokioctl", catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done.stdout if code == 0 else done.stderr


def expected(made, start=START, end=END):
    return {
        (job_parts(key)["id"], target.decode()): {figure_of(name): n for name, n in counts.items()}
        for (key, target), counts in made.done(start, end).items()
    }


def summed(rows):
    found = defaultdict(Counter)
    for row in rows:
        texts = {"time", "since", "target", "job", "user", "command", "node", "id"}
        found[row["id"], row["target"]].update({name: int(value) for name, value in row.items() if name not in texts and int(value)})
    return {key: dict(counts) for key, counts in found.items()}


@pytest.mark.parametrize(("at_once", "lines"), [(1 << 20, 720), (200, 7)])
def test_all_forms_have_the_rows_of_the_span(made, tmp_path, monkeypatch, at_once, lines):
    monkeypatch.setattr(spans, "ROWS_AT_ONCE", at_once)
    monkeypatch.setattr("tokiod.analysis.export_jobs.ROWS_AT_ONCE", lines)
    made.store(*random_day(3, START - 3600, 1.5))
    text = exported(tmp_path, *SPAN)
    rows = [*csv.DictReader(io.StringIO(text))]
    assert text.startswith("time,since,target,job,user,command,node,id,")
    assert len(rows) == sum(START <= row["time"] < END for row in made.rows)
    assert summed(rows) == expected(made)
    assert {row["time"] for row in rows} == {iso(row["time"]) for row in made.rows if START <= row["time"] < END}
    found = json.loads(exported(tmp_path, *SPAN, "--json"))
    assert set(found) == {*ExportedJobs.__struct_fields__}
    assert summed([dict(zip(found["columns"], row, strict=True)) for row in found["rows"]]) == expected(made)
    report = exported(tmp_path, *SPAN, "--parquet", str(tmp_path / "out"))
    assert len(report.splitlines()) == 2
    # A file of a day replaces the one that is there, so it has the whole day until now.
    for date, start, end in (("2024-08-08", DAY, DAY + 86400), ("2024-08-09", DAY + 86400, NOW)):
        path = tmp_path / "out/system=fs/group=jobs/dataset=operations" / f"date={date}/part.parquet"
        table = pq.read_table(path, partitioning=None)
        assert summed(table.to_pylist()) == expected(made, start, end)
        assert str(table.schema.field("time").type) == "timestamp[ms, tz=UTC]"


@pytest.mark.parametrize(("users", "places", "shown"), [
    ("names", '"export"', True), ("names", "", False), ("names", '"page"', False), ("hashed", '"export"', False), ("no", '"export"', False),
])  # fmt: skip
def test_users_are_exported_only_where_they_are_configured_to_be(made, tmp_path, users, places, shown):
    hashed = job_key("12", "0123456789abcdef", "fedcba9876543210", None, "a")
    keys = job_key("7", "1000", "cp", None, "b"), job_key("alice's", "1000", "cp", None, "c"), hashed
    made.store(*(polled(START + 5, b"fs-OST0000", key, START, {"write_bytes.sum": 1}) for key in keys))
    for form in ((), ("--json",)):
        text = exported(tmp_path, *SPAN, *form, users=users, places=places)
        assert [name in text for name in ("alice", "1000", "cp")] == [shown] * 3
        assert ("0123456789abcdef" in text) == (places == '"export"' and users != "no")
        assert ("user" in text) == (places == '"export"' and users != "no")
    exported(tmp_path, *SPAN, "--parquet", str(tmp_path / "out"), users=users, places=places)
    (path,) = (tmp_path / "out").rglob("*.parquet")
    assert any("1000" in map(str, row.values()) for row in pq.read_table(path, partitioning=None).to_pylist()) == shown


def test_what_can_t_be_exported_is_a_sentence(made, tmp_path):
    message = "tokioctl: jobs/operations is a table, not a matrix: name it alone, with --csv, --json or --parquet and without --rates\n"
    assert exported(tmp_path, *SPAN, "--zarr", str(tmp_path / "z"), code=2) == message
    assert exported(tmp_path, *SPAN, "datatargets/readbytes", code=2) == message
    assert exported(tmp_path, *SPAN, code=2).startswith("tokioctl: fs has no job table at ")
    made.store(*random_day(3, DAY, 0.5))
    assert exported(tmp_path, *SPAN[:2], "--start", iso(END + 9e5), "--end", iso(END + 9.1e5), code=2).endswith(
        "the job table of fs has days of 2024-08-08 to 2024-08-08\n"
    )
