"""What a daemon keeps of users: with users = "no" or "hashed", no name of a user or command is in any of its files, logs or outputs."""

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import jobstats_text
from tests.support.job_commands import COMMON, MADE, UIDS, commanded_ids, secrets
from tests.support.waiting import wait_for
from tokiod.jobs.rows import read
from tokiod.runtime.process_setup import python_command
from tokiod.window_data import job_parts

pytestmark = pytest.mark.system

USER, COMMAND, NAME = "48151", "secret_tool", "alice"
IDS = (f'"4711:{USER}:n1"', f"{COMMAND}.{USER}", f'"{NAME}:{USER}:n2"', f'"{NAME}\\x27s own id"', f"{NAME}job")
LCTL = """\
#!/bin/sh
now=$(date +%s)
case "$*" in *cleanup*) echo obdfilter.fs-OST0000.job_cleanup_interval=5; exit;; esac
printf 'obdfilter.fs-OST0000.job_stats=\\njob_stats:\\n'
for id in {ids}; do
    printf -- '- job_id:          %s\\n  snapshot_time:   %s.000000000 secs.nsecs\\n' "$id" $now
    printf '  start_time:      1700000000.000000000 secs.nsecs\\n'
    printf '  open:   {{ samples: %s, unit: usecs, min: 1, max: 1, sum: %s }}\\n' $now $now
done
"""
CONFIG = """\
timezone = "UTC"
secrets = "{directory}"
[archive]
path = "{directory}/tts/%Y-%m-%d/{{system}}.hdf5"
[bus]
endpoint = "ipc://{directory}/bus"
[feed]
endpoint = "ipc://{directory}/feed"
[jobs]
users = "{users}"
key_file = "jobs.key"
[[source]]
name = "fs-jobs"
kind = "lustre_jobstats"
system = "fs"
window = "10s"
timeout = "9s"
command_timeout = "5s"
servers = ["oss1"]
lctl = ["{lctl}"]
jobid_name = ["%j:%u:%H", "%e.%u"]
"""


def tokioctl(directory, *arguments):
    line = [sys.executable, "-m", "tokiod.cli.tokioctl", *arguments, "--config", f"{directory}/tokiod.toml"]
    return subprocess.run(line, capture_output=True, check=False, timeout=100)


def everything(directory):
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize("users", ["no", "hashed", "names"])
def test_what_is_not_allowed_is_nowhere(tmp_path, users):
    (tmp_path / "lctl").mkdir()
    lctl = tmp_path / "lctl" / "lctl"
    lctl.write_text(LCTL.format(ids=" ".join(f"'{one}'" for one in IDS)))
    lctl.chmod(0o755)
    directory = tmp_path / "site"
    directory.mkdir()
    (directory / "tokiod.toml").write_text(CONFIG.format(directory=directory, users=users, lctl=lctl))
    (directory / "jobs.key").write_text("a key of at least sixteen bytes\n")
    os.chmod(directory / "jobs.key", 0o600)  # noqa: PTH101 - as an administrator does
    stored = directory / "tts" / "jobs" / "fs"

    def rows():
        return read(sorted(stored.glob("*")), 0, 2**40) if stored.exists() else ()

    with (directory / "log").open("wb") as log:
        line = python_command("tokiod.cli.tokiod", "run", "--config", str(directory / "tokiod.toml"), "--log-level", "debug")
        daemon = subprocess.Popen(line, stdout=log, stderr=log)
    try:
        wait_for(lambda: len(rows()) >= 2 * len(IDS), 100, f"nothing is stored; see {directory / 'log'}")
        printed = [
            tokioctl(directory, *command) for command in (("status",), ("status", "--json"), ("once", "fs-jobs"), ("gaps", "fs-jobs"))
        ]
    finally:
        daemon.terminate()
        daemon.wait(60)
    held = {**everything(directory), Path("printed"): b"".join(one.stdout + one.stderr for one in printed)}
    found = {word: [str(path) for path, content in held.items() if word.encode() in content] for word in (USER, COMMAND, NAME)}
    if users == "names":
        # And `once` shows them to its user.
        assert all(paths and all(path.endswith(".jobs") or path == "printed" for path in paths) for paths in found.values()), found
        assert not any(word.encode() in one.stdout + one.stderr for one in (*printed[:2], printed[3]) for word in found)
        return
    assert found == {USER: [], COMMAND: [], NAME: []}
    keys = [job_parts(key) for key in rows().jobs.tolist()]
    assert len(keys) == len(IDS)
    assert sorted(one["job"] for one in keys) == ["", "", "", "", "4711"]
    hashes = {one["user"] for one in keys} - {""}
    assert len(hashes) == (users == "hashed")


def test_status_names_a_target_that_removes_jobs_too_early(tmp_path):
    """By the state `partial`, while all rows are stored."""
    lctl = tmp_path / "lctl"
    lctl.write_text(LCTL.format(ids="7"))
    lctl.chmod(0o755)
    (tmp_path / "tokiod.toml").write_text(CONFIG.format(directory=tmp_path, users="names", lctl=lctl))
    (tmp_path / "jobs.key").write_text("a key of at least sixteen bytes\n")
    with (tmp_path / "log").open("wb") as log:
        daemon = subprocess.Popen(
            python_command("tokiod.cli.tokiod", "run", "--config", str(tmp_path / "tokiod.toml")), stdout=log, stderr=log
        )
    try:
        wait_for(lambda: b'"partial"' in tokioctl(tmp_path, "status", "--json").stdout, 100, f"no state; see {tmp_path / 'log'}")
        said = tokioctl(tmp_path, "status").stdout.decode()
    finally:
        daemon.terminate()
        daemon.wait(60)
    assert "fs-jobs: partial: 1 targets, such as fs-OST0000, remove idle jobs after 5 s" in " ".join(said.split())


# Prints what jobs.txt has; of all jobs the counts grow, some have one that can't be true.
SERVER = """\
#!{python}
import sys, time
if "interval" in sys.argv[-1]:
    sys.exit()
now = int(time.time())
for target, bad in (("fs-OST0000", 0), ("fs-OST0001", 2**64)):
    print(f"obdfilter.{{target}}.job_stats=\\njob_stats:")
    for number, identity in enumerate(open("{ids}").read().splitlines()):
        count = now if number % 7 or not bad else bad - now
        print(f"- job_id:          {{identity}}\\n  snapshot_time:   {{now}}.000000000 secs.nsecs")
        print(f"  start_time:      1700000000.000000000 secs.nsecs")
        print("  open:   {{ samples: %s, unit: usecs, min: 1, max: 1, sum: 5 }}" % count if number % 11 else "  open: {{ samples: 1")
"""
SHOWN = (
    "status", "status --json", "once fs-jobs", "once fs-jobs --json", "gaps fs-jobs", "ls", "top fs", "top fs --json",
    "top fs --by open --user", "export fs jobs/operations --csv -", "export fs jobs/operations --json",
)  # fmt: skip


def page(directory):
    """Return what the page and its API answer, and what they log."""
    with (directory / "web.log").open("wb") as log:
        line = python_command("tokiod.cli.tokiod", "web", "--config", str(directory / "tokiod.toml"))
        web = subprocess.Popen(line, stdout=log, stderr=log)
    try:
        wait_for((directory / "http").exists, 100, "no page")
        return b"".join(
            answer(directory / "http", path) for path in ("/", "/api/v1/status", *(f"/api/v1/jobs?{query}" for query in QUERIES))
        )
    finally:
        web.terminate()
        web.wait(60)


QUERIES = ("system=fs&start=-1h", "system=fs&start=-1h&of=user", "system=fs&start=-1h&by=open&limit=500")


def answer(path, url):
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(60)
        client.connect(str(path))
        client.sendall(b"GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n" % url.encode())
        return b"".join(iter(lambda: client.recv(1 << 16), b""))


@pytest.mark.parametrize("users", ["no", "hashed", "names"])
def test_no_command_and_no_user_of_a_load_is_anywhere(tmp_path, users):
    """With the default formats, where %j matches any id: 7z.UID begins with a digit, as the id of a job does."""
    directory = tmp_path / "site"
    directory.mkdir()
    ids = tmp_path / "ids"
    written = [jobstats_text.written(one) for one in [*commanded_ids([*COMMON, *MADE]), *(b"4711:%d:n1" % uid for uid in UIDS)]]
    ids.write_bytes(b"\n".join([b"1", b"4711", b"12[3].srv", *written]))
    lctl = tmp_path / "lctl"
    lctl.write_text(SERVER.format(python=sys.executable, ids=ids))
    lctl.chmod(0o755)
    text = CONFIG.format(directory=directory, users=users, lctl=lctl).replace('jobid_name = ["%j:%u:%H", "%e.%u"]\n', "")
    text = text.replace("[jobs]", f'[web]\naddress = "{directory}/http"\n[jobs]\nusers_in = ["page", "export"]')
    (directory / "tokiod.toml").write_text(text)
    (directory / "jobs.key").write_text("a key of at least sixteen bytes\n")
    os.chmod(directory / "jobs.key", 0o600)  # noqa: PTH101 - as an administrator does
    with (directory / "log").open("wb") as log:
        line = python_command("tokiod.cli.tokiod", "run", "--config", str(directory / "tokiod.toml"), "--log-level", "debug")
        daemon = subprocess.Popen(line, stdout=log, stderr=log)
    try:
        stored = directory / "tts" / "jobs" / "fs"
        wait_for(lambda: stored.exists() and len(read(sorted(stored.glob("*")), 0, 2**40)) > 2 * len(written), 100, "nothing is stored")
        printed = [tokioctl(directory, *one.split()) for one in SHOWN]
        checked = subprocess.run(
            python_command("tokiod.cli.tokiod", "check", "--connect", "--config", str(directory / "tokiod.toml")),
            capture_output=True, check=False, timeout=100,
        )  # fmt: skip
        shown = page(directory)
    finally:
        daemon.terminate()
        daemon.wait(60)
    held = {**everything(directory), Path("page"): shown, Path("check"): checked.stdout + checked.stderr}
    held |= {Path(one): done.stdout + done.stderr for one, done in zip(SHOWN, printed, strict=True)}
    whole = {secret: re.compile(rb"(?<!\d)%s(?!\d)" % re.escape(secret)) for secret in secrets()}
    found = {
        secret: [str(path) for path, content in held.items() if secret in content and pattern.search(content)]  # the first is faster
        for secret, pattern in whole.items()
    }
    found = {secret: paths for secret, paths in found.items() if paths}
    if users == "names":
        assert len(found) > len(UIDS)
        return
    assert found == {}
    keys = [job_parts(key) for key in read(sorted(stored.glob("*")), 0, 2**40).jobs.tolist()]
    assert {one["job"] for one in keys} == {"", "4711", "12[3].srv"}
    assert b"implausible count or time of a job" in held[Path("once fs-jobs")]
    assert b"12[3].srv" in shown
    assert b"12[3].srv" in held[Path("export fs jobs/operations --csv -")]
