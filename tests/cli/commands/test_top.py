"""`tokioctl top`: the table, JSON, names of the scheduler, users as configured, and a sentence for each thing that is missing."""

import json
import os
import pwd
import re
import stat
import sys

import msgspec
import pytest
from click.testing import CliRunner
from job_days import DAY, JobDays, polled
from terminal import Terminal

from tokiod.analysis.slurm import FIELDS, SEPARATOR
from tokiod.analysis.top import Top
from tokiod.cli.commands.top import _account
from tokiod.cli.tokioctl import main
from tokiod.window_data import job_key

OST, MDT = b"fs-OST0000", b"fs-MDT0002"
NOW = DAY + 130
CONFIG = """\
timezone = "America/Los_Angeles"
[archive]
path = "{directory}/tts/%Y-%m-%d/{{system}}.hdf5"
[bus]
endpoint = "ipc://{directory}/bus"
[feed]
endpoint = "ipc://{directory}/feed"
[jobs]
users = "{users}"
{key}
[site]
names = {{ other = "Other" }}
sacct = ["{directory}/sacct"]
[[source]]
name = "jobs-of-fs"
kind = "lustre_jobstats"
system = "fs"
servers = ["oss1"]
lctl = ["lctl"]
"""
RECORD = {
    "JobID": "4711", "JobIDRaw": "4711", "JobName": "wrf\x1b[31m", "User": "alice", "State": "RUNNING", "Start": "1723075200",
    "End": "Unknown", "NNodes": "2", "NodeList": "nid[001-002]", "WorkDir": "/scratch", "ElapsedRaw": "60",
}  # fmt: skip


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


class Site:
    def __init__(self, directory):
        self.directory = directory
        (directory / "key").write_text("a secret of the site")
        (directory / "key").chmod(0o400)
        self.days = JobDays(directory / "tts" / "jobs")
        self.configure("names")

    def configure(self, users):
        key = 'key_file = "key"' if users == "hashed" else ""
        (self.directory / "tokiod.toml").write_text(CONFIG.format(directory=self.directory, users=users, key=key))

    def store(self):
        self.days.store(
            DAY,
            *(
                polled(DAY + 65, OST, job_key("4711", "1000", None, f"nid{n:03}", f"a{n}"), DAY + 1, {"write_bytes.sum": 600 << 30})
                for n in (1, 2)
            ),
            polled(DAY + 66, MDT, job_key("4711", "1000", None, "nid001", "a1"), DAY + 1, {"open.samples": 12}),
            polled(DAY + 66, MDT, job_key("", "1001", "find", None, "b"), DAY + 1, {"open.samples": 360_000}),
        )

    def sacct(self, program):
        path = self.directory / "sacct"
        path.write_text(f"#!{sys.executable}\n{program}")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def run(self, *options, now=NOW):
        command = ["top", *options, "--config", str(self.directory / "tokiod.toml"), "--clock", f"{now}@0x0"]
        return CliRunner().invoke(main, command, prog_name="tokioctl")


def lines(done):
    assert done.exit_code == 0, done.output
    return [re.split(r"\s{2,}", line.strip()) for line in done.stdout.splitlines()]


def test_the_table_has_rates_of_the_last_two_windows_the_largest_first(site):
    site.store()
    (head,), names, first, by = lines(site.run("fs", "--by", "write"))
    assert head == ("fs, 2024-08-07 17:00:00 to 17:02:00 PDT: read 0 B/s, written 10 GiB/s, metadata 3 k/s")
    assert names == ["job", "user", "name", "nodes", "read", "written", "metadata", "share", "targets"]
    assert (first[0], first[2:], by) == ("4711", ["2", "0 B/s", "10 GiB/s", "0.1 /s", "100.0 %", "OST0000 100 %"], ["by write"])
    metadata = lines(site.run("fs", "--by", "metadata"))
    assert metadata[2][0] == "find (no job)"
    assert metadata[2][-2:] == ["100.0 %", "MDT0002 100 %"]
    assert metadata[3][0] == "4711"


def test_json_has_the_whole_list_and_its_own_schema(site):
    site.store()
    done = site.run("fs", "--by", "open", "--json")
    assert done.stdout.count("\n") == 1
    found = msgspec.json.decode(done.stdout, type=Top)
    assert msgspec.to_builtins(found) == json.loads(done.stdout)
    assert (found.start, found.end, found.newest, found.by, found.total) == (DAY, DAY + 120, DAY + 120, "open", 360_012 / 120)
    assert [(one.job, one.command, one.user, one.nodes, one.rate) for one in found.lines] == [
        ("", "find", "1001", 0, 3000.0), ("4711", "", "1000", 2, 0.1),
    ]  # fmt: skip
    assert found.lines[1].busiest[0].target == "fs-MDT0002"
    users = json.loads(site.run("fs", "--by", "open", "--user", "--json").stdout)
    assert [(one["user"], one["jobs"]) for one in users["lines"]] == [("1001", 0), ("1000", 1)]
    assert json.loads(site.run("fs", "--target", "OST0000", "--json").stdout)["metadata"] == 0


def test_sacct_names_jobs_and_users_and_nothing_of_it_controls_the_terminal(site):
    site.store()
    answer = SEPARATOR.join(FIELDS) + "\n" + SEPARATOR.join(RECORD[name] for name in FIELDS) + "\n"
    site.sacct(f"import sys\nassert '--jobs=4711' in sys.argv, sys.argv\nsys.stdout.write({answer!r})")
    done = site.run("fs", "--by", "write", "--once")
    assert "alice" in done.stdout
    assert r"wrf\x1b[31m" in done.stdout
    assert "\x1b" not in done.stdout
    (one,) = json.loads(site.run("fs", "--by", "write", "--json").stdout)["lines"]
    assert (one["name"], one["account"], one["user"]) == ("wrf\x1b[31m", "alice", "1000")
    site.sacct("import sys\nsys.exit('Unable to connect to dbd')")
    note = json.loads(site.run("fs", "--json").stdout)["note"]
    assert note.startswith("no names of jobs: ")
    assert note.endswith("failed with exit code 1: Unable to connect to dbd")


@pytest.mark.parametrize("users", ["hashed", "no"])
def test_without_names_neither_the_table_nor_sacct_shows_one(site, users):
    site.store()
    site.sacct("import sys\nsys.exit('must not run')")
    site.configure(users)
    for options in (("--json",), ("--by", "metadata"), ("--by", "open", "--json")):
        done = site.run("fs", *options)
        assert done.exit_code == 0, done.output
        assert not re.search(r"find|alice|\b100[01]\b|must not", done.output)
    if users == "no":
        done = site.run("fs", "--user")
        assert done.stderr == 'tokioctl: --user: the configuration has users = "no" in [jobs], so no user is stored or shown\n'


def test_job_ids_of_users_are_printed_escaped(site):
    evil = job_key("\\x1b[2J", "1000", None, None, "c")
    site.days.store(DAY, polled(DAY + 65, OST, evil, DAY + 1, {"write_bytes.sum": 1}))
    assert r"\x1b[2J" in site.run("fs").stdout
    assert "\x1b" not in site.run("fs").output


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("cscratch",), "unknown system 'cscratch'; known: fs, other"),
        (("other",), "other has no job table: add a [[source]] of kind lustre_jobstats with system = 'other' (docs/jobs.md)"),
        (("fs",), "the job table of fs is empty: source jobs-of-fs has stored no window yet; see tokioctl status jobs-of-fs"),
        (("fs", "--until", "1h"), "--until: needs --since"),
    ],
)
def test_what_is_missing_is_one_sentence_with_a_remedy(site, options, message):
    done = site.run(*options)
    assert (done.exit_code, done.stderr) == (2, f"tokioctl: {message}\n")


def test_a_past_span_has_its_own_rates_and_one_without_windows_names_those_there_are(site):
    site.store()
    found = json.loads(site.run("fs", "--since", "2024-08-08T00:01:00Z", "--until", "2024-08-08T00:02:00Z", "--json", now=DAY + 9e5).stdout)
    assert (found["start"], found["end"], found["note"]) == (DAY + 60, DAY + 120, "")
    # What began at second 1 and was seen at 65 and 66 is of the span from second 60 on.
    assert found["write_bytes"] == pytest.approx(2 * (600 << 30) * 5 / 64 / 60)
    done = site.run("fs", "--since", "2024-08-01T00:00:00Z", "--until", "2024-08-01T01:00:00Z")
    assert done.stderr == (
        "tokioctl: the job table of fs has no window from 2024-08-01T00:00:00Z to 2024-08-01T01:00:00Z: "
        "it has days of 2024-08-08 to 2024-08-08, and ends at 2024-08-08T00:02:00Z\n"
    )
    assert site.run("fs", "--since", "1h", "--until", "2h").exit_code == 2


def test_old_rates_and_a_quiet_file_system_are_told_apart(site):
    site.store()
    done = site.run("fs", now=DAY + 3600)
    assert done.stdout.splitlines()[-1] == (
        "these are not of now: the newest window ended 2024-08-08T00:02:00Z; see tokioctl status jobs-of-fs"
    )
    site.days.store(DAY + 120, DAY + 180)
    done = site.run("fs", now=DAY + 250)
    assert done.stdout.splitlines()[-1] == "no job has done anything by bytes in this time"


def test_a_redrawn_table_looks_up_each_user_once(monkeypatch):
    asked = []

    def lookup(uid):
        asked.append(uid)
        raise KeyError(uid)

    monkeypatch.setattr(pwd, "getpwuid", lookup)
    _account.cache_clear()
    assert [_account(user) for user in ("4001", "4002", "4001", "")] == [""] * 4
    assert asked == [4001, 4002]
    _account.cache_clear()


def test_in_a_terminal_it_is_redrawn_in_place_until_ctrl_c(site):
    site.store()
    command = [
        sys.executable,
        "-P",
        "-m",
        "tokiod.cli.tokioctl",
        "top",
        "fs",
        "--by",
        "write",
        "--config",
        str(site.directory / "tokiod.toml"),
    ]
    with Terminal([*command, "--clock", f"{NOW}@0x0"], columns=120, env={**os.environ, "TERM": "xterm"}) as terminal:
        terminal.type("", until="4711")
        site.days.store(polled(DAY + 125, OST, job_key("815", "1002", None, None, "d"), DAY + 121, {"write_bytes.sum": 9 << 40}), DAY + 180)
        redrawn = terminal.type("", until="815")
        assert "\x1b[1A" in redrawn  # the cursor moved up
        os.write(terminal._ours, b"\x03")
        assert terminal.end() == 0
