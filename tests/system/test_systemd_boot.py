"""The units on a machine with a systemd of its own: installed as docs/install.md says, all hardening on, over simulated sources.

The tests are one story and come in the document's order: the machine is booted once.
"""

import fcntl
import json
import os
import re
import shlex
import signal
import stat
import textwrap
import time
import tomllib
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from booted import Machine, missing, wait
from installed import DOCUMENT, PASSWORD, USERS, WATCHDOG, Installed
from rights_table import table
from waiting import PATIENCE

pytestmark = pytest.mark.system

NOTHING = "0000000000000000"
PROBE = """
import ctypes, json, mmap, os, socket, sqlite3, threading
import apsw, asyncmy.cursors, h5py, numpy, pyinotify, zmq
state, found = os.environ["STATE_DIRECTORY"], {}
def does(name, action):
    try: action()
    except Exception as error: found[name] = f"{type(error).__name__}: {error}"
    else: found[name] = "done"
def renice(): os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 15)
def callback(): assert ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(lambda n: n + 1)(1) == 2
def allocate():
    with open(state + "/probe", "wb") as file: os.posix_fallocate(file.fileno(), 0, 4096)
def ledger():
    with sqlite3.connect(state + "/probe.sqlite3") as db: db.execute("PRAGMA journal_mode = WAL"); db.execute("CREATE TABLE t (a)")
def file():
    with h5py.File(state + "/probe.hdf5", "w") as f: f["a"] = numpy.linalg.inv(numpy.random.rand(200, 200))
def watch():
    manager = pyinotify.WatchManager(); assert list(manager.add_watch(state, pyinotify.IN_CLOSE_WRITE).values())[0] > 0
def die_with_parent(): assert ctypes.CDLL(None).prctl(1, 15, 0, 0, 0) == 0
def talk():
    with zmq.Context() as context, context.socket(zmq.PAIR) as one, context.socket(zmq.PAIR) as other:
        one.bind("ipc:///run/tokiod/probe"); other.connect("ipc:///run/tokiod/probe"); other.send(b"x"); assert one.recv() == b"x"
for action in (renice, callback, allocate, ledger, file, watch, die_with_parent, talk): does(action.__name__, action)
does("resolve", lambda: socket.getaddrinfo("localhost", 80))
does("credential", lambda: open(os.environ["CREDENTIALS_DIRECTORY"] + "/lmt-password").read())
for path in ("/etc/probe", "/usr/probe", "/opt/tokiod/probe", "/var/lib/probe"): does("write " + path, lambda: open(path, "w"))
for path in ("/etc/shadow", "/etc/tokiod/credentials/lmt-password", "/root/.profile", "/proc/kmsg"):
    does("read " + path, lambda: open(path).read())
does("become root", lambda: os.setuid(0))
does("packets", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
does("executable memory", lambda: mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC))
does("others", lambda: open("/proc/1/cmdline").read())
open(state + "/probe.json", "w").write(json.dumps(found))
"""
ALLOWED = {"renice", "callback", "allocate", "ledger", "file", "watch", "die_with_parent", "talk", "resolve", "credential"}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A booted machine, on which nothing is installed yet."""
    if reason := missing():
        pytest.fail(reason) if os.environ.get("CI") == "true" and os.geteuid() == 0 else pytest.skip(reason)
    with Machine.boot(tmp_path_factory.mktemp("booted")) as machine, Installed.on(machine) as installed:
        yield installed


@contextmanager
def frozen(pid):
    """Freeze a process, as if it hung; its supervisor may kill it."""
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def test_it_is_installed_as_the_document_says(site):
    assert "version" in site.type_in("The programs")[0]
    site.type_in("User, directories, unit")
    site.type_in("Configuration", 0, 1)
    site.configure()
    assert "OK: 2 sources" in site.type_in("Configuration", 1)[0]
    site.type_in("Passwords", 0, 1)
    site.machine.path("/etc/tokiod/credentials/lmt-password").write_text(PASSWORD + "\n")
    site.type_in("Passwords", 1)
    site.simulate()
    site.hurry("tokiod.service")


def test_users_become_readers_by_the_documents_command(site):
    site.machine.run("useradd --no-create-home alice; useradd --no-create-home mallory")
    (command,) = [command for command in inline_commands() if command.startswith("usermod")]
    site.machine.run(command.replace("NAME", "alice"))
    assert "tokiod-readers" in site.machine.run("id --name --groups alice").stdout.split()


ANSWERS = "cells in|cells of"
NO_READER = "no permission to read the archive /var/lib/tokiod/tts: join the group tokiod-readers"
NO_PASSWORD = "it can't be read .*/etc/tokiod/credentials/lmt-password: Permission denied.*run this as root or as the file's owner"
NO_CONTROL = "no permission to connect to /run/tokiod/private/control: only root and the daemon's user have it"
NO_DAEMON = "no daemon answers at /run/tokiod/private/control"
DOWN = "the daemon is down"
STATES = {
    "before it starts": {
        "tokiod check --connect": ((0, ANSWERS), (1, NO_PASSWORD), (1, NO_PASSWORD), (1, NO_PASSWORD)),
        "tokioctl status": ((2, DOWN), (2, DOWN), (2, DOWN), (2, NO_READER)),
        "tokioctl ping": ((2, NO_DAEMON), (2, NO_DAEMON), (2, NO_CONTROL), (2, NO_CONTROL)),
        "tokioctl ls": ((0, "demo"), (0, "demo"), (0, "demo"), (2, NO_READER)),
    },
    "while it runs": {
        "tokioctl once demo-collectd": ((0, ANSWERS), (2, NO_PASSWORD), (2, NO_PASSWORD), (2, NO_PASSWORD)),
        "tokioctl status": ((0, "writer"), (0, "writer"), (0, "writer"), (2, NO_READER)),
        "tokioctl ping": ((0, "ready"), (0, "ready"), (2, NO_CONTROL), (2, NO_CONTROL)),
        "tokioctl reload": ((0, "nothing changed"), (0, "nothing changed"), (2, NO_CONTROL), (2, NO_CONTROL)),
        "tokioctl ls": ((0, "demo"), (0, "demo"), (0, "demo"), (2, NO_READER)),
    },
    "after it stops": {
        "tokioctl status": ((2, DOWN), (2, DOWN), (2, DOWN), (2, NO_READER)),
        "tokioctl gaps": ((1, "due"), (1, "due"), (1, "due"), (2, NO_READER)),
        "tokioctl ls": ((0, "demo"), (0, "demo"), (0, "demo"), (2, NO_READER)),
    },
}
"""What each command does for root, the service, a reader and an outsider: exit code and what it prints."""


def assert_users_are_answered(site, state):
    for command, wanted in STATES[state].items():
        for user, (code, pattern) in zip(USERS, wanted, strict=True):
            found, printed = site.as_user(user, command)
            # Degraded is as good as healthy here: a window may just be late.
            assert found == code or (code, found, command) == (0, 1, "tokioctl status"), (state, command, user, printed)
            assert re.search(pattern, printed), (state, command, user, printed)
            assert "Traceback" not in printed
    assert site.of_root() == []


def test_before_it_starts_every_user_is_answered_and_leaves_nothing_of_root(site):
    assert all(source.name in site.type_in("Does each source answer?")[0] for source in site.scene.sources)
    assert_users_are_answered(site, "before it starts")


def test_it_starts_and_tells_how_it_goes(site):
    _, _, told = ["", *site.type_in("The first start")]
    assert all(source.name in told for source in site.scene.sources)
    site.await_complete()
    assert site.machine.show("tokiod", "NRestarts") == "0"
    going = re.compile(r"feed: .*; writer: \d+ windows stored, .*; collectors: 2 of 2 sources running")
    wait(lambda: going.search(site.machine.show("tokiod", "StatusText")), 10)
    wait(lambda: {line["state"] for line in site.status()["sources"]} == {"running"}, 10)


def test_bus_and_control_are_the_daemons_and_the_feed_and_the_archive_are_the_readers_too(site):
    directory = site.machine.path("/run/tokiod")
    modes = {name: stat.S_IMODE((directory / name).stat().st_mode) for name in (".", "feed", "private", "private/bus", "private/control")}
    assert modes == {".": 0o750, "feed": 0o660, "private": 0o700, "private/bus": 0o600, "private/control": 0o600}
    assert_users_are_answered(site, "while it runs")


def test_its_health_is_served(site):
    assert site.served("/readyz")
    assert f'tokiod_windows_total{{outcome="stored",source="{site.scene.sources[0].name}"}}' in site.served("/metrics")


def test_its_processes_have_no_privileges(site):
    for pid in site.processes().values():
        status = dict(re.findall(r"(?m)^(\w+):\s*(.*)$", Path(f"/proc/{pid}/status").read_text()))
        assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {NOTHING}
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
        assert "0" not in status["Uid"].split()


def test_all_that_it_needs_is_allowed_and_nothing_else(site):
    unit = re.sub(
        r"(?m)^(Type|ExecReload|WatchdogSec|Restart|Conflicts)=.*\n",
        "",
        site.machine.path("/etc/systemd/system/tokiod.service").read_text(),
    )
    unit = re.sub(r"(?m)^ExecStart=.*", "Type=oneshot\nExecStart=/opt/tokiod/bin/python /etc/tokiod/probe.py", unit)
    unit += "[Service]\nLoadCredential=lmt-password:/etc/tokiod/credentials/lmt-password\n"
    site.machine.path("/run/systemd/system/probe.service").write_text(unit)
    site.machine.path("/etc/tokiod/probe.py").write_text(PROBE)
    site.machine.run("systemctl daemon-reload; systemctl start probe; rm /etc/tokiod/probe.py")
    found = json.loads(site.machine.path("/var/lib/tokiod/probe.json").read_text())
    assert {name: found[name] for name in ALLOWED} == dict.fromkeys(ALLOWED, "done")
    assert [name for name, outcome in found.items() if outcome == "done" and name not in ALLOWED] == []
    assert len(found) > len(ALLOWED) + 10


@pytest.mark.parametrize("name", ["feed", "writer", "collectors", "run"])
def test_what_is_killed_comes_back_and_completes(site, name):
    pid = site.processes()[name]
    os.kill(pid, signal.SIGKILL)
    site.replaced(name, pid, 20)
    site.await_ready()


@pytest.mark.parametrize("name", ["feed", "writer", "collectors", "run"])
def test_what_hangs_is_replaced_within_twice_the_watchdogs_time(site, name):
    pid = site.processes()[name]
    with frozen(pid):
        assert site.replaced(name, pid, 20) < 2 * WATCHDOG
        site.await_ready()


def test_a_reload_takes_another_configuration_and_refuses_a_broken_one(site):
    before, path = site.processes(), site.machine.path("/etc/tokiod/tokiod.toml")
    path.write_text(path.read_text().replace("[[source]]", '[[source]]\nrecount = ["30m"]', 1))
    site.type_in("Changing the configuration")
    sound = path.read_text()
    path.write_text(sound + "nonsense = 1\n")
    assert site.machine.run("systemctl reload tokiod", check=False).returncode != 0
    assert re.search(r"tokiod.toml:\d+: .*nonsense", site.machine.log())
    path.write_text(sound)
    assert site.processes() == before
    assert site.machine.show("tokiod", "ActiveState") == "active"


def test_it_is_ready_only_when_the_writer_is_and_has_the_limits_of_a_drop_in(site):
    (limits,) = re.findall(r"(?ms)^```ini\n(.*?)^```$", DOCUMENT.read_text("utf-8"))
    site.machine.path("/etc/systemd/system/tokiod.service.d/limits.conf").write_text(limits)
    site.machine.run("systemctl stop tokiod; systemctl daemon-reload")
    with (site.scene.config.archive.lock).open("rb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        site.machine.run("systemctl start --no-block tokiod")
        time.sleep(2)
        assert site.machine.show("tokiod", "ActiveState") == "activating"
    wait(lambda: site.machine.show("tokiod", "ActiveState") == "active", 20)
    assert site.machine.show("tokiod", "MemoryHigh") == str(4 << 30)


def test_root_runs_lctl_for_the_group_and_for_nobody_else(site):
    text = (Path(__file__).parents[2] / "docs" / "sources" / "lustre.md").read_text()
    site.machine.path("/etc/systemd/system/tokiod-lctl@.service.d").mkdir()
    # There is no Lustre here; and behind log.conf, which all units of this machine have, its output is again what the unit says.
    fake = "[Service]\nExecStart=\nExecStart=/bin/sh -c 'id -u; echo 0 UP mgc; cat'\nStandardOutput=socket\n"
    site.machine.path("/etc/systemd/system/tokiod-lctl@.service.d/with-fake.conf").write_text(fake)
    site.machine.run(re.search(r"(?ms)^ *```sh\n(.*?)```", text)[1])
    line = tomllib.loads(textwrap.dedent(re.search(r"(?ms)^ *```toml lctl\n(.*?)```", text)[1]))["lctl"]
    for user, groups, said in (("tokiod", "--init-groups", "0\n0 UP mgc\n"), ("nobody", "--clear-groups", "")):
        lowered = ["setpriv", f"--reuid={user}", f"--regid={site.machine.run(f'id -g {user}').stdout.strip()}", groups]
        assert site.machine.run(shlex.join([*lowered, *line, "dl", "-t"]), check=False).stdout == said


def test_root_leaves_files_in_a_watched_folder_as_its_page_says(site):
    text = (Path(__file__).parents[2] / "docs" / "sources" / "watched_folders.md").read_text()
    site.machine.run(re.search(r"(?ms)^```sh\n(.*?)```", text)[1])
    fake = 'mmperfmon() { echo "$@"; }\n'
    site.machine.run(fake + re.search(r"(?ms)^```sh writer\n(.*?)```", text)[1])
    (saved,) = site.machine.path("/var/spool/tokiod/mmperfmon").iterdir()
    assert (saved.read_text(), saved.stat().st_gid) == ("query usage -n 6 -b 60\n", saved.parent.stat().st_gid)


def test_it_stops_in_time_with_every_cell_right(site):
    site.await_complete()
    begun = time.monotonic()
    site.machine.run("systemctl stop tokiod")
    assert time.monotonic() - begun < PATIENCE * 20
    shown = {name: site.machine.show("tokiod", name) for name in ("ActiveState", "Result", "ExecMainStatus")}
    assert shown == {"ActiveState": "inactive", "Result": "success", "ExecMainStatus": "0"}
    # Time before the sources' first record may be a gap already: it is empty, not due.
    wait(lambda: "due" in site.as_user(next(iter(USERS)), "tokioctl gaps")[1], 120)
    assert_users_are_answered(site, "after it stops")
    site.assert_every_cell_is_right()


def test_separate_units_do_the_same(site):
    site.flavour = ("tokiod-feed.service", "tokiod-writer.service", "tokiod-collectors.service")
    site.hurry(*site.flavour)
    site.type_in("Separate units instead of one", 0, 1)
    site.await_complete()
    site.type_in("Separate units instead of one", 1)
    assert site.machine.show("tokiod", "ActiveState") == "inactive"
    assert "tokiod_cells_total" in site.served("/metrics")


RIGHTS = ("backfill --list", "gaps", "ls", "ping", "reload", "status")
"""Commands that reach the daemon's sockets, ledger and files in each way that there is, and change nothing."""


def test_separate_units_grant_the_rights_of_the_table(site):
    """But without `tokiod run` there is no control socket: ping and reload are systemctl's."""
    found = {}
    for user, prefix in USERS.items():
        lines = [f"{prefix} /opt/tokiod/bin/tokioctl {command} > /dev/null && echo 0 || echo $?" for command in RIGHTS]
        codes = site.machine.run("\n".join(lines), timeout=120).stdout.split()
        found[user] = {command for command, code in zip(RIGHTS, codes, strict=True) if code in {"0", "1"}}
    rows = {command.removeprefix("tokioctl "): cells for command, daemon, cells in table() if daemon == "runs"}
    granted = {user: {command for command in RIGHTS if rows[command][user]} for user in USERS}
    assert found == {user: commands - {"ping", "reload"} for user, commands in granted.items()}


def test_all_units_refuse_a_broken_configuration(site):
    before, path = site.processes(), site.machine.path("/etc/tokiod/tokiod.toml")
    sound = path.read_text()
    path.write_text(sound + "nonsense = 1\n")
    for unit in site.flavour:
        assert site.machine.run(f"systemctl reload {unit}", check=False).returncode != 0
    path.write_text(sound)
    site.await_ready()
    assert site.processes() == before


def test_all_units_come_back_from_a_kill(site):
    for name, pid in site.processes().items():
        os.kill(pid, signal.SIGKILL)
        site.replaced(name, pid, 20)
    site.await_ready()


def test_all_units_come_back_from_a_hang(site):
    before = site.processes()
    with frozen(before["writer"]), frozen(before["collectors"]), frozen(before["feed"]):
        wait(lambda: not set(before.values()) & set(site.processes().values()), 2 * WATCHDOG, site.machine.log)
        site.await_ready()
    site.await_complete()


def test_the_collectors_can_write_no_file_of_the_archive(site):
    pid = site.processes()["collectors"]
    inside = Path(f"/proc/{pid}/mountinfo").read_text()
    mounts = {line.split()[4]: line.split()[5].split(",")[0] for line in inside.splitlines()}
    assert mounts["/var/lib/tokiod/tts/.tokiod"] == "rw"
    assert mounts.get("/var/lib/tokiod", mounts["/"]) == "ro"


def test_the_feed_can_see_no_archive_and_only_reach_unix_sockets(site):
    pid = site.processes()["feed"]
    inside = Path(f"/proc/{pid}/mountinfo").read_text()
    assert "/var/lib/tokiod" in {line.split()[4] for line in inside.splitlines()}, "something else is mounted over it"
    assert not list(Path(f"/proc/{pid}/root/var/lib/tokiod").iterdir())


def test_all_units_stop_with_every_cell_right(site):
    site.machine.run("systemctl stop tokiod.target")
    wait(lambda: not site.processes(), 20)
    assert {site.machine.show(unit, "Result") for unit in site.flavour} == {"success"}
    site.assert_every_cell_is_right()


def test_no_password_is_in_a_log_or_in_the_archives_ledger(site):
    for path in (*site.machine.path("/var/log").rglob("*"), *site.machine.path("/var/lib/tokiod/tts/.tokiod").iterdir()):
        assert not path.is_file() or PASSWORD.encode() not in path.read_bytes()


def test_an_upgrade_and_its_removal_leave_the_archive(site):
    site.machine.run("systemctl disable --now tokiod.target")
    site.type_in("Upgrade")
    assert site.machine.show("tokiod", "ActiveState") == "active"
    site.type_in("Uninstall")
    assert not site.machine.run("systemctl list-unit-files 'tokiod*' | grep ^tokiod", check=False).stdout
    assert site.scene.files()


IN_PROSE = {
    "/opt/tokiod/bin/pip install --require-hashes --requirement config/constraints.txt": "tests/docs/test_constraints.py",
    "/opt/tokiod/bin/pip install --no-deps .": "the same",
    "make sbom": "tests/docs/test_constraints.py",
    "tokioctl completion --help": "tests/cli/commands/test_completion.py",
    "usermod --append --groups tokiod-readers NAME": "above",
    "tokiod keygen": "tests/system/test_rights.py",
    "tokioctl once SOURCE": "above",
    "journalctl --unit tokiod": "no journal runs here",
    "systemctl edit tokiod": "it writes what the tests write",
    "systemctl daemon-reload": "above",
    "systemctl restart tokiod": "the limits of a drop-in",
    "systemctl reload": "above",
    "systemctl start": "above",
    "tokioctl ping": "above",
    "tokioctl reload": "above",
    "tokioctl plot --output": "tests/cli/commands/test_plot.py",
    "make deb": "tests/packages",
    "make rpm": "tests/packages",
    "make packages": "tests/packages",
    "systemd-analyze security tokiod": "tests/system/test_systemd_units.py",
}
"""Commands within sentences, and where each one is run."""


def inline_commands():
    prose = re.sub(r"(?ms)^```.*?^```$", "", DOCUMENT.read_text("utf-8"))
    words = r"(?:/opt/tokiod/bin/)?(?:tokiod|tokioctl|systemctl|systemd-analyze|usermod|make|journalctl|pip)"
    return {re.sub(r"\s+", " ", found) for found in re.findall(rf"`({words} [^`]+)`", prose)}


def test_no_command_and_no_block_of_the_document_is_left_out(site):
    """The last test: all shell blocks were typed, and every command in a sentence has a place where it runs."""
    assert {(heading, number) for heading, blocks in site.blocks.items() for number in range(len(blocks))} == site.typed
    assert inline_commands() == set(IN_PROSE)
