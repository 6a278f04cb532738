"""What is stored of a job's identity, for each thing that a site allows."""

import errno
import stat
from unittest.mock import Mock

import numpy as np
import pytest
from structlog.testing import capture_logs

from tokiod.config import load as config
from tokiod.errors import ConfigError, TokiodError
from tokiod.jobs.groups import shown
from tokiod.jobs.identity import JobIdentities, identities, without_users
from tokiod.window import Window
from tokiod.window_data import JOB_COLUMNS, JOB_TABLE, Collected, TableRows, WindowMeta, job_key, job_parts

KEY = b"a secret key of the site"
SCHEDULED = job_key("4711", "1000", "", "n1", "4711:1000:n1")
INTERACTIVE = job_key("", "alice", "bash", "", "bash.alice")
UNKNOWN = job_key("", "", "", "", "alice's own id")
NAMED = job_key("alice-run", "alice", "", "", "alice-run:alice")
ALL = [SCHEDULED, INTERACTIVE, UNKNOWN, NAMED]


def stored(users, keys=ALL, key=KEY):
    n = len(keys)
    columns = (np.arange(n), np.full(n, b"fs-OST0000"), np.array(keys, "S"), *(np.zeros(n, int) for _ in JOB_COLUMNS[3:]))
    meta = WindowMeta("jobs", "lustre_jobstats", "fs", Window(0, 60))
    done = JobIdentities(users, key).applied(Collected(meta, [], [TableRows(JOB_TABLE, JOB_COLUMNS, columns)]))
    return done.tables[0].values[2].tolist()


def test_names_are_stored_as_ids_name_them_and_an_unknown_id_as_the_job():
    found = [job_parts(key) for key in stored("names")]
    assert [(one["job"], one["user"], one["command"], one["node"]) for one in found] == [
        ("4711", "1000", "", "n1"),
        ("", "alice", "bash", ""),
        ("alice's own id", "", "", ""),
        ("alice-run", "alice", "", ""),
    ]
    assert all(len(one["id"]) == 12 for one in found)


@pytest.mark.parametrize("users", ["hashed", "no"])
def test_no_name_is_in_what_is_stored_otherwise(users):
    whole = b"".join(stored(users))
    assert b"alice" not in whole
    assert b"bash" not in whole
    assert b"1000" not in whole
    assert job_parts(stored(users)[0])["job"] == "4711"
    assert len(set(stored(users))) == len(ALL)


# What stands in the place of a job where jobid_name is %j alone, and text that may be a job or what stands next to it.
COMMANDS = [job_key(one, None, None, None, one) for one in ("7z.1000", "2to3.1000", "3dview.sh.1000", "7z", "2to3", "1000:7z", "123.0")]
EITHER = [job_key("alice", "1000", "7z", "alice", "alice:7z:1000"), job_key("7z", "1000", "7z", None, "7z.1000")]
PBS = job_key("12.srv", "1000", "12.srv", None, "12.srv.1000")


@pytest.mark.parametrize("users", ["hashed", "no"])
def test_what_can_not_be_told_apart_from_a_job_is_private(users):
    keys = [job_parts(key) for key in stored(users, [*COMMANDS, *EITHER, PBS])]
    assert {(one["job"], one["node"]) for one in keys} == {("", "")}
    assert len({one["id"] for one in keys}) == len({job_parts(key)["id"] for key in [*COMMANDS, *EITHER, PBS]})
    assert not any(
        text in b"".join(stored(users, [*COMMANDS, *EITHER, PBS])) for text in (b"7z", b"2to3", b"3dview", b"srv", b"alice", b"1000")
    )


def test_with_names_a_text_that_may_be_a_job_is_the_part_next_to_it():
    assert [tuple(job_parts(key).values())[:4] for key in stored("names", [*EITHER, PBS])] == [
        ("", "1000", "7z", "alice"),
        ("", "1000", "7z", ""),
        ("12.srv", "1000", "", ""),
    ]


def test_commands_of_days_that_an_earlier_version_stored_as_jobs_are_not_shown_and_are_removed_with_users():
    old = [job_key(one, None, None, "n1", f"{place:012x}") for place, one in enumerate(("7z.1000", "2to3.1000", "4711", "12[3].pbs"))]
    assert [job_parts(key)["job"] for key in without_users(old)] == ["", "", "4711", "12[3].pbs"]
    for users in ("no", "hashed"):
        assert [one["job"] for one in shown(np.array(old, "S"), users)] == ["", "", "4711", "12[3].pbs"]


def test_one_user_has_one_hash_which_depends_on_the_key():
    users = [job_parts(key)["user"] for key in stored("hashed")]
    assert users[1] == users[3] != users[0]
    assert {len(user) for user in users} == {16, 0}
    assert [len(job_parts(key)["command"]) for key in stored("hashed")] == [0, 16, 0, 0]
    assert users == [job_parts(key)["user"] for key in stored("hashed")]
    assert not {*users} & {job_parts(key)["user"] for key in stored("hashed", key=KEY + b"!")} - {""}


def test_without_users_nothing_is_stored_of_them_and_ids_of_one_job_stay_apart():
    two = [job_key("7", "alice", "", "n", "7:alice:n"), job_key("7", "bob", "", "n", "7:bob:n")]
    found = stored("no", two)
    assert [job_parts(key)["user"] for key in found] == ["", ""]
    assert found[0] != found[1]


def test_users_are_removed_from_stored_keys_and_jobs_stay_apart():
    found = without_users(stored("names"))
    assert b"alice" not in b"".join(found)
    assert b"bash" not in b"".join(found)
    assert len(set(found)) == len(ALL)
    assert without_users(stored("hashed")) == without_users(stored("no")) == found


def configuration(tmp_path, jobs):
    path = tmp_path / "tokiod.toml"
    path.write_text(
        f'timezone = "UTC"\nsecrets = "{tmp_path}"\n[archive]\npath = "{tmp_path}/tts/%Y-%m-%d/{{system}}.hdf5"\n[jobs]\n{jobs}\n'
    )
    return config.load(path)


def allowed_by(loaded):
    return identities(loaded.jobs, loaded.archive, loaded.secret)


def test_a_hash_needs_a_key_of_the_site(tmp_path):
    with pytest.raises(ConfigError, match="jobs: users: needs key_file: a hash without a key can be computed for every user name"):
        configuration(tmp_path, 'users = "hashed"')
    loaded = configuration(tmp_path, 'users = "hashed"\nkey_file = "jobs.key"')
    (tmp_path / "jobs.key").write_text("short\n")
    for text in ("short", "x" * 15):
        (tmp_path / "jobs.key").write_text(f"{text}\n")
        with pytest.raises(ConfigError) as raised:
            allowed_by(loaded)
        assert raised.value.faults == [f"jobs.key_file: a key of {len(text)} bytes; expected 16 or more, as of openssl rand -hex 32"]
    (tmp_path / "jobs.key").write_text(f"{'x' * 16}\n")
    assert allowed_by(loaded)._of(NAMED) == stored("hashed", [NAMED], b"x" * 16)[0]
    (tmp_path / "jobs.key").write_bytes(KEY + b"\n")
    assert allowed_by(loaded)._of(NAMED) == stored("hashed", [NAMED])[0]


def test_without_a_key_the_daemon_makes_one_that_only_it_can_read_and_keeps_it(tmp_path):
    loaded = configuration(tmp_path, "")
    loaded.archive.private.mkdir(parents=True)
    first = allowed_by(loaded)._of(NAMED)
    assert allowed_by(loaded)._of(NAMED) == first
    (key,) = loaded.archive.private.iterdir()
    assert (stat.S_IMODE(key.stat().st_mode), len(key.read_bytes())) == (0o600, 64)


def test_a_key_that_cannot_be_made_is_an_error_that_names_it(tmp_path):
    loaded = configuration(tmp_path, "")
    with pytest.raises(TokiodError, match=r"^the key of job ids can't be made: .*jobs\.key: No such file or directory$"):
        allowed_by(loaded)


@pytest.mark.parametrize("step", ["os.fsync", "os.fchmod", "tokiod.tts.live.files.Files.rename"])
def test_a_kill_or_a_full_disk_while_the_key_is_made_leaves_none(tmp_path, monkeypatch, step):
    """An empty key was used without a word: by it the uids behind hashes are found by trying them all."""
    loaded = configuration(tmp_path, "")
    loaded.archive.private.mkdir(parents=True)
    with monkeypatch.context() as broken:
        broken.setattr(step, Mock(side_effect=OSError(errno.ENOSPC, "No space left on device")))
        with pytest.raises(TokiodError, match="No space left on device"):
            allowed_by(loaded)
    assert list(loaded.archive.private.iterdir()) == []
    assert len(allowed_by(loaded)._key) == 64


def test_a_key_that_was_left_empty_is_refused_with_what_helps(tmp_path):
    loaded = configuration(tmp_path, "")
    loaded.archive.private.mkdir(parents=True)
    (loaded.archive.private / "jobs.key").touch()
    with pytest.raises(TokiodError, match=r"^the key of job ids has 0 bytes, 16 or more are needed: .*jobs\.key: restore it"):
        allowed_by(loaded)


def test_windows_without_jobs_and_other_tables_stay_as_they_are():
    meta, other = (
        WindowMeta("jobs", "lustre_jobstats", "fs", Window(0, 60)),
        TableRows("jobs/other", ("time", "job"), (np.array([5]), np.array([NAMED]))),
    )
    none = TableRows(JOB_TABLE, JOB_COLUMNS, tuple(np.empty(0, "S1") for _ in JOB_COLUMNS))
    empty, whole = Collected(meta, [], []), Collected(meta, [], [other, none])
    done = JobIdentities("no", KEY)
    assert done.applied(empty) is empty
    assert [*map(id, done.applied(whole).tables)] == [id(other), id(none)]


def test_a_key_that_is_made_for_a_job_table_of_another_one_is_reported_once(tmp_path):
    loaded = configuration(tmp_path, "")
    loaded.archive.private.mkdir(parents=True)
    with capture_logs() as logs:
        allowed_by(loaded)
        (loaded.archive.jobs / "fs" / "2024-08-08").mkdir(parents=True)
        allowed_by(loaded)
        assert logs == []
        (loaded.archive.private / "jobs.key").unlink()
        allowed_by(loaded)
        allowed_by(loaded)
    (made,) = logs
    assert (made["event"], made["log_level"]) == ("jobs.key_made", "warning")
    assert "count twice" in made["reason"]


@pytest.mark.parametrize(
    ("jobs", "sentence"), [('retention = "1d"', "jobs: retention: must be"), ('users_retention = "1h"', "jobs: users_retention: must be")]
)
def test_days_are_kept_for_two_days_at_least(tmp_path, jobs, sentence):
    with pytest.raises(ConfigError, match=sentence):
        configuration(tmp_path, jobs)
