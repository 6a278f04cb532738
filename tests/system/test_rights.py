"""The table of rights of docs/security.md: every command, run by every user on a real archive, and attacks that the rights must stop.

The tests are one story: a daemon runs as a user of its own, is attacked, is stopped, and is used without.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from socket import gethostname

import pytest
from rights_table import table
from user_site import MIDNIGHT, UserSite
from users import ENVIRONMENT, READERS, SERVICE, USERS, need_users, open_directory, python
from waiting import PATIENCE, wait_for

from tokiod.cli.commands.keygen import keygen_command
from tokiod.cli.tokioctl import main as tokioctl
from tokiod.cli.tokiod import main as tokiod
from tokiod.simulator.sources import free_port

pytestmark = pytest.mark.system

SPAN = ("2018-01-28T23:50:00", "2018-01-28T23:51:00")
REFUSED = 2


def cells(state):
    """The cells of the table; of each command those that are refused first, because nothing is left to be done after the others."""
    rows = [(command, users) for command, daemon, users in table() if daemon == state]
    return [(command, user, users[user]) for command, users in rows for user in sorted(users, key=users.get)]


@pytest.fixture(scope="module")
def site():
    need_users()
    with open_directory() as directory, UserSite(directory, with_hub(directory) + with_jobs(directory)).running() as made:
        wait_for(lambda: [*directory.rglob("*.jobs")], 60, "no window of the job table")
        jobs = directory / "jobs.csv"
        jobs.write_text(f"jobid,start,end,system\n7,{SPAN[0]},{SPAN[1]},one\n")
        jobs.chmod(0o644)
        (directory / "sinks" / "files").mkdir(mode=0o750)
        os.chown(directory / "sinks" / "files", SERVICE, READERS)
        shutil.copyfile(Path(__file__).parents[1] / "data" / "ior.darshan", directory / "ior.darshan")
        yield made


HUB = """\
[hub]
endpoint = "tcp://127.0.0.1:{1}"
secret_key_file = "{0}/hub.key_secret"
clients = "{0}/hub-clients"
[hub.classes]
compute = ["nid*"]
[[host]]
name = "{2}"
endpoint = "tcp://127.0.0.1:{3}"
secret_key_file = "{0}/hub.key_secret"
[[host]]
name = "zone-b"
[[sink]]
name = "files"
kind = "parquet"
path = "{0}/service/parquet"
"""


def with_hub(directory):
    """Make the keys of a hub and a relay, which only the daemon's user may read, and return their sections, and that of a sink."""
    (directory / "hub-clients").mkdir()
    for name, place in (("hub", directory), ("compute", directory / "hub-clients")):
        keygen_command.main([str(place), name], standalone_mode=False)
    secret = directory / "hub.key_secret"
    os.chown(secret, SERVICE, READERS)
    return HUB.format(directory, free_port(), gethostname(), free_port())


JOBS = """\
[[source]]
name = "one-jobs"
kind = "lustre_jobstats"
system = "one"
servers = ["oss1"]
lctl = ["{0}/lctl"]
window = "10s"
command_timeout = "5s"
"""
LCTL = """\
#!/bin/sh
printf 'obdfilter.fs-OST0000.job_stats=\\njob_stats:\\n- job_id: 7\\n  snapshot_time: %d\\n' "$(date +%s)"
printf '  write_bytes: { samples: %d, unit: bytes, min: 1, max: 1, sum: %d }\\n' "$(date +%s)" "$(date +%s)"
"""


def with_jobs(directory):
    """Make an lctl that prints job_stats, and return the section of a source."""
    (directory / "lctl").write_text(LCTL)
    (directory / "lctl").chmod(0o755)
    return JOBS


@pytest.fixture
def down(site):
    """The same without a daemon."""
    if site.daemon is not None:
        site.stop_daemon()
    return site


def arguments(site, user, command):
    """Return the program of a row of the table, and its arguments."""
    program, name, *rest = command.split()
    if name == "agent":
        # The configuration of a node is not the daemon's, and a report needs none.
        return program, name, "--once"
    own = site.directory / user
    more = {
        "archive": ["lmt", own / "copy.sqlite3", "--output", own / "one.hdf5", "--start", SPAN[0], "--end", SPAN[1]],
        "backfill": [] if rest else ["one-lmt", *SPAN, "--force"],
        "badost": [site.directory / "ior.darshan"],
        "completion": ["bash"],
        "demo": ["--seconds", "10", "--directory", own / "demo"],
        "export": ["one:2018-01-28", "datatargets/readbytes"],
        "fetch": ["one-lmt", *SPAN, "--output", own / "raw"],
        "health": ["one:2018-01-28"],
        "job": ["--system", "one", "--start", SPAN[0], "--end", SPAN[1]],
        "keygen": [own, "key"],
        "once": ["one-lmt"],
        "plot": ["one:2018-01-28", "datatargets/readbytes"],
        "report": ["--output", own / f"report-{time.monotonic_ns()}.tar.gz"],
        "seal": ["2018-01-28" if site.daemon else "2018-01-29"],
        "sink": ["files"],
        "sinks": ["files", "--from", "yesterday"] if rest else [],
        "summarize": ["one:2018-01-28"],
        "tail": ["--since", "5m"],
        "top": ["one"],
        "umami": ["--csv", site.directory / "jobs.csv"],
        "verify": ["one-lmt", *SPAN],
    }
    words = site.words(program, name, *rest, *map(str, more.get(name, [])))
    # Without a daemon another day is sealed, which is over a day later.
    return program, *words, *(("--clock", str(site.tomorrow)) if name == "seal" and not site.daemon else ())


ENDLESS = {
    "tokioctl tail": "one/",
    "tokiod demo": "kill -9",
    "tokiod run": "collectors.ready",
    "tokiod writer": "writer.ready",
    "tokiod feed": "feed.ready",
    "tokiod hub": "hub.ready",
    "tokiod relay": "relay.ready",
    "tokiod web": "web.ready",
    "tokiod sink": "sink.ready",
    "tokiod collectors": "",
}
"""Commands that run until they are ended, and what they print when they do their work. Collectors without a writer wait in silence."""
SILENT_SECONDS = 8.0


def outcome(site, user, command):
    """Run a row of the table; return whether it is allowed and what it printed."""
    program, *words = arguments(site, user, command)
    if command in ENDLESS:
        return endless(user, command, program, *words)
    done = site.programs.run(USERS[user], program, *words)
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode in {0, 1, REFUSED}, done.stderr
    return done.returncode != REFUSED, done.stdout + done.stderr


def sign_of(user, command):
    """Return what a command prints when it does its work. A whole demo is played by the user with the fewest rights alone."""
    return "a daemon archives them in" if command == "tokiod demo" and user != "outsider" else ENDLESS[command]


def endless(user, command, program, *words):
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            USERS[user].command(python(), "-P", "-m", f"tokiod.cli.{program}", *words), stdin=subprocess.DEVNULL, stdout=output,
            stderr=output, cwd="/", env=ENVIRONMENT, start_new_session=True,
        )  # fmt: skip

        def printed():
            output.seek(0)
            return output.read()

        begun, sign = time.monotonic(), sign_of(user, command)
        try:
            while process.poll() is None and not (sign and sign in printed()):
                if not sign and time.monotonic() - begun > SILENT_SECONDS:
                    break
                assert time.monotonic() - begun < PATIENCE * 60, printed()
                time.sleep(0.1)
            if process.poll() is None:
                return True, printed()
            assert "Traceback" not in printed(), printed()
            assert process.returncode == REFUSED, printed()
            return False, printed()
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                process.wait(300)


def test_the_table_names_every_command_of_both_programs():
    named = {" ".join(command.split()[:2]) for command, _, _ in table()}
    programs = {"tokiod": tokiod, "tokioctl": tokioctl}
    assert named == {f"{name} {command}" for name, main in programs.items() for command in main.list_commands(None)}


@pytest.mark.parametrize(("command", "user", "allowed"), cells("runs"))
def test_while_the_daemon_runs(site, command, user, allowed):
    is_allowed, printed = outcome(site, user, command)
    assert is_allowed == allowed, printed


ATTACKS = {
    "connect to the bus": "import socket; socket.socket(socket.AF_UNIX).connect('{0}/run/private/bus')",
    "connect to the control socket": "import socket; socket.socket(socket.AF_UNIX).connect('{0}/run/private/control')",
    "list what is private": "import os; os.listdir('{0}/run/private')",
    "lock the archive": "import fcntl; fcntl.flock(open('{0}/state/tts/.tokiod/lock'), fcntl.LOCK_SH)",
    "read the ledger": "open('{0}/state/tts/.tokiod/ledger.sqlite3')",
    "map the ledger's shared memory": "open('{0}/state/tts/.tokiod/ledger.sqlite3-shm')",
    "write to a day": "open('{0}/state/tts/2018-01-29/one.hdf5', 'r+b')",
    "add a file": "open('{0}/state/tts/2018-01-29/forged.hdf5', 'w')",
    "ask for sealing": "open('{0}/state/tts/2018-01-29/.one.hdf5.opened', 'w')",
    "replace the feed": "import os; os.rename('{0}/run/feed', '{0}/run/other')",
    "replace the copy of the ledger": "import os; os.unlink('{0}/state/tts/.tokiod-readers/ledger.sqlite3')",
    "read the running configuration": "open('{0}/run/private/running.toml')",
    "read the environment": "open('/proc/{1}/environ').read()",
    "read the memory": "open('/proc/{1}/mem')",
    "signal the daemon": "import os; os.kill({1}, 15)",
}


@pytest.mark.parametrize("user", ["reader", "outsider"])
@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_is_denied(site, attack, user):
    done = USERS[user].python(ATTACKS[attack].format(site.directory, site.daemon.pid))
    assert re.search(r"^PermissionError: ", done.stderr, re.MULTILINE), done.stderr


def test_only_the_group_connects_to_the_feed(site):
    code = f"import socket; socket.socket(socket.AF_UNIX).connect('{site.directory}/run/feed')"
    assert {user: USERS[user].python(code).returncode for user in USERS} == {"root": 0, "service": 0, "reader": 0, "outsider": 1}


def process(site, name):
    pong = json.loads(site.run("root", "tokioctl", "ping", "--json").stdout)
    return next(process for process in pong["processes"] if process["name"] == name)


def peak_mib(pid):
    return int(re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())[1]) / 1024


def test_a_reader_that_subscribes_to_tens_of_thousands_of_topics_costs_the_writer_nothing(site):
    code = """
import signal, sys, zmq
socket = zmq.Context.instance().socket(zmq.SUB)
socket.set(zmq.SNDHWM, 0)
socket.connect(sys.argv[1])
for n in range(30_000):
    socket.subscribe(b"%0190d" % n)
signal.pause()
"""
    writer = process(site, "writer")["pid"]
    before = peak_mib(writer)
    command = USERS["reader"].command(python(), "-P", "-c", code, f"ipc://{site.directory}/run/feed")
    with subprocess.Popen(command, cwd="/", env=ENVIRONMENT) as flood:
        try:
            wait_for(lambda: '"feed.overloaded"' in site.log.read_text(), 60, "the topics are not limited")
        finally:
            flood.kill()
    assert process(site, "writer")["pid"] == writer
    assert peak_mib(writer) < before + 32
    wait_for(lambda: endless("reader", "tokioctl tail", *arguments(site, "reader", "tokioctl tail"))[0], 60, "readers receive nothing")


def test_a_window_that_the_configuration_does_not_cover_is_not_stored_even_from_the_daemons_own_user(site):
    code = f"""
import asyncio
import numpy as np
from tokiod.batch import Batch
from tokiod.bus.sender import Sender
from tokiod.window import Window
from tokiod.window_data import Collected, WindowMeta

async def send(system, source, start):
    batch = Batch("datatargets/readbytes", "counter", 5, ("a",), np.array([start]), np.zeros(1, np.uint32), np.ones(1, np.int64))
    collected = Collected(WindowMeta(source, "lmt", system, Window(start, start + 60)), [batch])
    async with Sender("ipc://{site.directory}/run/private/bus") as sender:
        await sender.welcomed()
        print(type(await (await sender.submit(collected))).__name__, flush=True)

for forged in (("one", "nobody", {MIDNIGHT}), ("another", "one-lmt", {MIDNIGHT}), ("one", "one-lmt", 4 * 10**9)):
    asyncio.run(asyncio.wait_for(send(*forged), 30))
"""
    printed = USERS["service"].python(code).stdout.splitlines()
    assert [line for line in printed if line in {"Refusal", "Stored"}] == ["Refusal"] * 3
    files = sorted(path.name for path in site.config.archive.files())
    assert set(files) == {"one.hdf5"}
    # The writer reports its status a few times a second.
    refused = "another system or kind 1, future day 1, unknown source 1"
    wait_for(lambda: refused in process(site, "writer")["status"], 20, "the refusals are not counted")


def test_who_requested_a_reload_is_logged(site):
    assert site.run("service", "tokioctl", "reload").returncode == 0
    events = [json.loads(line) for line in site.log.read_text().splitlines() if line.startswith("{")]
    assert [event["uid"] for event in events if event["event"] == "reload.requested"][-1] == SERVICE


def test_no_file_of_the_archive_is_open_to_others_and_the_private_ones_are_not_the_groups(site):
    root = site.config.archive.root
    entries = {path: path.lstat().st_mode & 0o777 for path in [root, *root.rglob("*")]}
    assert {path for path, mode in entries.items() if mode & 0o027} == set()
    private = {path for path in entries if site.config.archive.private in (path, *path.parents)}
    assert {path for path in private if entries[path] & 0o077 and path.is_dir()} == set()
    assert {path.name: entries[path] for path in private if path.name in {"lock", "ledger.sqlite3"}}["lock"] == 0o600
    assert {(path.lstat().st_uid, path.lstat().st_gid) for path in entries} == {(SERVICE, READERS)}


def test_a_reader_that_locks_all_that_it_can_read_does_not_keep_the_daemon_from_starting(down):
    code = """
import fcntl, os, pathlib, signal, struct, sys
held = []
for path in pathlib.Path(sys.argv[1]).rglob("*"):
    if path.is_file():
        held.append(os.open(path, os.O_RDONLY))
        fcntl.flock(held[-1], fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.fcntl(held[-1], fcntl.F_SETLK, struct.pack("hhqqi4x", fcntl.F_RDLCK, 0, 0, 0, 0))
print(len(held), flush=True)
signal.pause()
"""
    command = USERS["reader"].command(python(), "-c", code, down.config.archive.root)
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd="/") as holder:
        try:
            assert int(holder.stdout.readline()) >= 3
            down.start_daemon()
            down.stop_daemon()
        finally:
            holder.kill()


@pytest.mark.parametrize(("command", "user", "allowed"), cells("is down"))
def test_while_the_daemon_is_down(down, command, user, allowed):
    is_allowed, printed = outcome(down, user, command)
    assert is_allowed == allowed, printed
