"""The commands on a configuration with hosts: which host they run on, and what they show of the others."""

import json
import socket
import subprocess
import sys
import time

import msgspec
import pytest
from click.testing import CliRunner
from many_hosts import ManyHosts
from rich.console import Console

from tokiod.cli.commands.status_view import details, parts
from tokiod.cli.common.roles import host_line
from tokiod.cli.common.tables import fitted
from tokiod.cli.tokioctl import main as tokioctl
from tokiod.cli.tokiod import main as tokiod
from tokiod.published.hosts import HostState
from tokiod.reports.hosts import read
from tokiod.reports.status import SourceLine, Status

NOW = 1_517_140_800.0
HOSTS = [
    HostState(name="admin", role="writer", trouble="", sources=("a-one",), clock=0.0, clock_bound=0.0),
    HostState(
        name="zone-b", trouble="", sources=("b-one", "b-two"), contact=NOW - 3, address="10.0.1.2", version="0.1.0", wire=1, clock=0.2,
        clock_bound=0.001,
    ),
    HostState(
        name="zone-c", trouble="unreachable", reason="no message for 20 s, last contact 2018-01-28T11:00:00Z", sources=("c-one",),
        contact=NOW - 3600, version="0.1.0", wire=1,
    ),
    HostState(
        name="zone-d", trouble="clock", reason="its clock is +3600.0 s ahead of the writer's host's, the limit is 2 s: set it by NTP",
        sources=("d-one",), contact=NOW - 1, version="0.1.0", wire=1, clock=3600.0, clock_bound=0.001,
    ),
    HostState(name="zone-e", trouble="new", sources=("e-one",)),
]  # fmt: skip


@pytest.fixture
def many(tmp_path):
    return ManyHosts(tmp_path, kind="lmt", own='url = "sqlite:////tmp/none"\n')


def run(main, *arguments):
    return CliRunner().invoke(main, [*map(str, arguments)])


def begun(*arguments):
    """Run a process of the daemon as one: it changes the umask and the log of its process."""
    command = [sys.executable, "-m", "tokiod.cli.tokiod", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.parametrize("command", ["run", "writer"])
def test_the_archive_is_written_on_the_writers_host_only(many, command):
    done = begun(command, "--config", many.path, "--host", "zone-b")
    sentence = "this is host zone-b, and the archive is on another host: run `tokiod collectors` here (docs/hosts.md)"
    assert (done.returncode, done.stderr.splitlines()[-1].partition(": ")[2]) == (2, sentence)


def test_a_machine_that_no_host_names_gets_a_sentence(many):
    done = begun("collectors", "--config", many.path)
    here = f"this machine is {socket.gethostname()!r}, which no [[host]] names (admin, zone-b, zone-c): "
    sentence = here + "add a [[host]] for it, or give --host NAME"
    assert (done.returncode, sentence in done.stderr) == (2, True)


def test_a_source_of_another_host_is_queried_there(many, monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "admin")
    done = run(tokioctl, "once", "b-one", "--config", many.path)
    assert (done.exit_code, done.stderr.partition(": ")[2]) == (2, "b-one is collected on host zone-b: run this there\n")
    monkeypatch.setattr("socket.gethostname", lambda: "zone-b.example.org")
    assert "is collected on host" not in run(tokioctl, "once", "b-one", "--config", many.path).stderr


def test_check_examines_what_its_host_needs(many):
    (many.directory / "keys" / "zone-b.key_secret").unlink()
    many.public_key("zone-c").unlink()
    writers = run(tokiod, "check", "--config", many.path, "--host", "admin").stderr
    assert f"host zone-c: public_key: no file {many.public_key('zone-c')}: it is refused, and its sources wait" in writers
    assert ("source a-one: url" in writers, "source b-one: url" in writers) == (True, False)
    other = run(tokiod, "check", "--config", many.path, "--host", "zone-b").stderr
    assert "host zone-b: secret_key_file: no file" in other
    assert ("source a-one: url" in other, "source b-one: url" in other) == (False, True)
    assert run(tokiod, "check", "--config", many.path, "--host", "zone-x").exit_code == 2


def shown(width):
    now = Status(NOW, "/var/lib/tokiod/tts", 7, "degraded", [], [], hosts=HOSTS)
    console = Console(width=width, highlight=False, record=True, file=None, force_terminal=False)
    with console.capture() as captured:
        for one in parts(now):
            console.print(fitted(one, width), soft_wrap=False)
    return captured.get()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_status_shows_every_host_in_any_width(width):
    text = shown(width)
    assert max(map(len, text.splitlines())) <= width
    for word in ("zone-b", "connected", "3s ago", "+0.2s", "unreachable", "1h00m ago", "+3600.0s", "new", "b-one, b-two", "writer"):
        assert word in text, word
    flat = " ".join(text.split())
    assert "host zone-c: unreachable: no message for 20 s, last contact 2018-01-28T11:00:00Z" in flat
    assert "host zone-e: new: it has not connected since the daemon started: does `tokiod collectors` run there?" in flat
    assert ("10.0.1.2" in text) == (width >= 80)


def test_status_as_json_has_every_host(many):
    done = run(tokioctl, "status", "--json", "--config", many.path)
    hosts = json.loads(done.stdout)["hosts"]
    assert [(one["name"], one["role"], one["trouble"]) for one in hosts] == [
        ("admin", "writer", ""),
        ("zone-b", "collectors", "unknown"),
        ("zone-c", "collectors", "unknown"),
    ]


def test_a_state_that_is_damaged_or_old_is_unknown(many):
    config = many.load()
    config.hosts_state.write_bytes(b"{")
    assert [one.trouble for one in read(config, time.time())] == ["", "unknown", "unknown"]
    config.hosts_state.write_bytes(msgspec.json.encode(HOSTS[:2]))
    _, b, c = read(config, time.time())
    assert (b.version, c.reason) == ("0.1.0", "the daemon has another configuration: reload it")


def test_the_status_of_one_source_names_its_host():
    now = Status(NOW, "/a", 7, "degraded", [SourceLine("c-one", "lmt", "c")], [], hosts=HOSTS)
    console = Console(width=120)
    with console.capture() as captured:
        console.print(*details(now))
    assert "zone-c, unreachable: no message for 20 s" in captured.get()


def test_ping_and_check_have_a_line_for_each_host():
    assert [host_line(host) for host in HOSTS[:3]] == [
        "admin: the writer's, 1 source",
        "zone-b: connected, tokiod 0.1.0, 2 sources",
        "zone-c: unreachable, tokiod 0.1.0, 1 source: no message for 20 s, last contact 2018-01-28T11:00:00Z",
    ]


def test_check_with_connect_reports_the_other_hosts_on_the_writers(many):
    many.load().hosts_state.write_bytes(msgspec.json.encode(HOSTS[1:3]))
    done = run(tokiod, "check", "--connect", "--config", many.path, "--host", "admin")
    assert done.exit_code == 1
    assert "host zone-b: connected, tokiod 0.1.0, 2 sources\n" in done.output
    assert "host zone-c: unreachable, tokiod 0.1.0, 1 source: no message for 20 s" in done.output
    assert "host zone-" not in run(tokiod, "check", "--connect", "--config", many.path, "--host", "zone-c").output.partition("OK")[2]
