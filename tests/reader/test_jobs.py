"""Frames of what jobs did, against plain dictionaries of the stored rows; users only as the configuration allows them."""

from collections import Counter, defaultdict

import pandas as pd
import pytest
from job_days import DAY, JobDays, polled, random_day

import tokiod
from tokiod.job_columns import column_of, figure_of
from tokiod.reader.errors import NoData, NoJobTable
from tokiod.window_data import job_key, job_parts

CONFIG = """\
timezone = "{zone}"
[archive]
path = "{directory}/%Y-%m-%d/{{system}}.hdf5"
[jobs]
users = "{users}"
{key}
[[source]]
name = "one"
kind = "lmt"
system = "fs"
url = "sqlite:///none"
"""
HASHES = {"user": "0123456789abcdef", "command": "fedcba9876543210"}


@pytest.fixture
def made(tmp_path):
    return JobDays(tmp_path / "jobs", window=600)


def opened(tmp_path, start=DAY, end=DAY + 7200, system="fs", users=None, zone="UTC"):
    if users is None:
        return tokiod.open(system, start, end, path=f"{tmp_path}/%Y-%m-%d/{{system}}.hdf5")
    (tmp_path / "key").write_text("a secret of the site")
    (tmp_path / "key").chmod(0o400)
    key = 'key_file = "key"' if users == "hashed" else ""
    (tmp_path / "tokiod.toml").write_text(CONFIG.format(directory=tmp_path, users=users, zone=zone, key=key))
    return tokiod.open(system, start, end, config=tmp_path / "tokiod.toml")


def expected(made, start, end, label):
    found = defaultdict(Counter)
    for (key, target), counts in made.done(start, end).items():
        found[label(job_parts(key), target.decode())].update({figure_of(name): value for name, value in counts.items()})
    return {label: dict(counts) for label, counts in found.items()}


def as_dictionaries(frame, *label):
    figures = [name for name in frame.columns if frame[name].dtype == "int64" and name not in {"nodes", "targets", "jobs"}]
    return {tuple(row[name] for name in label): {name: int(row[name]) for name in figures if row[name]} for row in frame.to_dict("records")}


def test_jobs_users_and_targets_have_the_sums_of_the_rows(made, tmp_path):
    made.store(*random_day(1))
    start, end = DAY + 1000, DAY + 5000
    archive = opened(tmp_path, start, end)
    assert as_dictionaries(archive.jobs(), "job", "user") == expected(made, start, end, lambda job, _: (job["job"], job["user"]))
    assert as_dictionaries(archive.jobs("user"), "user") == expected(made, start, end, lambda job, _: (job["user"],))
    of_targets = expected(made, start, end, lambda job, target: (job["job"], job["id"], target))
    assert as_dictionaries(archive.jobs("target"), "job", "id", "target") == of_targets
    frame = archive.jobs()
    nodes = defaultdict(set)
    for key, _ in made.done(start, end):
        nodes[job_parts(key)["job"], job_parts(key)["user"]].add(job_parts(key)["node"])
    assert {(row.job, row.user): row.nodes for row in frame.itertuples()} == {label: len(names) for label, names in nodes.items()}
    assert [*frame.columns[:10]] == ["job", "user", "command", "id", "nodes", "targets", "since", "until", "read_bytes", "write_bytes"]


def test_a_job_has_a_row_for_each_poll_of_each_target_in_the_zone_that_was_asked_for(made, tmp_path):
    key = job_key("4711", "1000", None, "n1")
    made.store(
        polled(DAY + 5, b"fs-OST0000", key, DAY - 60, {"write_bytes.sum": 100, "write_bytes.samples": 1}),
        polled(DAY + 65, b"fs-OST0000", key, DAY - 60, {"write_bytes.sum": 400, "write_bytes.samples": 3}),
        polled(DAY + 65, b"fs-MDT0000", key, DAY + 7, {"open.samples": 2, "open.sum": 90}),
        polled(DAY + 65, b"fs-MDT0000", job_key("471", "1000"), DAY, {"open.samples": 50}),
    )
    frame = opened(tmp_path).job(4711, timezone="America/Los_Angeles")
    assert str(frame.index.tz) == "America/Los_Angeles"
    assert frame.index.name == "time"
    assert frame.index.astype("int64").tolist() == [(DAY + 5) * 10**9, (DAY + 65) * 10**9, (DAY + 65) * 10**9]
    assert frame["target"].tolist() == ["fs-OST0000", "fs-MDT0000", "fs-OST0000"]
    assert frame["since"].tolist() == [pd.Timestamp(time, unit="s", tz="UTC") for time in (DAY - 60, DAY + 7, DAY + 5)]
    figures = frame[["write_bytes", "writes", "open", "open_usecs", "read_bytes"]].to_numpy().T.tolist()
    assert figures == [[100, 0, 300], [1, 0, 2], [0, 2, 0], [0, 90, 0], [0, 0, 0]]
    assert set(frame["node"]) == {"n1"}
    assert len(opened(tmp_path).job("47")) == 0


def test_a_system_without_a_table_and_a_span_without_a_day_are_named(made, tmp_path):
    made.store(*random_day(1, hours=0.5))
    with pytest.raises(NoJobTable, match=r"other has no job table at .*/jobs/other: a source of kind lustre_jobstats fills it"):
        opened(tmp_path, system="other").jobs()
    with pytest.raises(NoData, match="the job table of fs has days of 2024-08-08 to 2024-08-08"):
        opened(tmp_path, DAY + 30 * 86400, DAY + 31 * 86400).jobs()
    assert len(opened(tmp_path, DAY + 80000, DAY + 80001).jobs()) == 0


@pytest.mark.parametrize(("users", "shown"), [("names", {"1000", "0123456789abcdef"}), ("hashed", {"", HASHES["user"]}), ("no", {""})])
def test_users_of_rows_that_an_earlier_configuration_stored_are_shown_as_the_present_one_allows(made, tmp_path, users, shown):
    made.store(
        polled(DAY + 5, b"fs-OST0000", job_key("12", "1000", None, None, "a1"), DAY, {"open.samples": 1}),
        polled(DAY + 5, b"fs-OST0000", job_key("", HASHES["user"], HASHES["command"], None, "a2"), DAY, {"open.samples": 2}),
        polled(DAY + 5, b"fs-OST0000", job_key("alice's job", "1000", "cp", None, "a3"), DAY, {"open.samples": 4}),
    )
    archive = opened(tmp_path, users=users)
    frame = archive.jobs()
    assert set(frame["user"]) == shown
    assert frame["open"].sum() == 7
    texts = frame.to_csv() + archive.jobs("user").to_csv() + archive.jobs("target").to_csv() + archive.job(12).to_csv()
    assert [name in texts for name in ("alice", ",1000,", ",cp,")] == [users == "names"] * 3


def test_names_of_figures_lead_back_to_their_columns():
    for column in (
        "read_bytes.sum",
        "read_bytes.samples",
        "write_bytes.sum",
        "write_bytes.samples",
        "open.samples",
        "open.sum",
        "read.sum",
    ):
        assert column_of(figure_of(column)) == column


def test_a_site_far_from_utc_has_the_days_of_its_own_calendar(tmp_path):
    made = JobDays(tmp_path / "jobs", zone="Pacific/Kiritimati", window=600)  # 14 hours ahead
    made.store(*random_day(5, DAY + 9 * 3600, 2.0))
    start, end = DAY + 9 * 3600, DAY + 11 * 3600
    found = opened(tmp_path, start, end, users="names", zone="Pacific/Kiritimati").jobs("target")
    assert as_dictionaries(found, "job", "id", "target") == expected(made, start, end, lambda job, target: (job["job"], job["id"], target))
