"""The units as systemd reads them: sound, hardened, each loosening explained, and nothing named in them that isn't there."""

import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from tokiod.cli.tokioctl import main as tokioctl
from tokiod.cli.tokiod import main as tokiod

pytestmark = pytest.mark.system

ROOT = Path(__file__).parents[2]
UNITS = ROOT / "systemd"
SERVICES = sorted(UNITS.glob("tokiod*.service"))
DAEMONS = [path for path in SERVICES if "lctl" not in path.name]
DROPINS = sorted(UNITS.glob("dropins/*.conf"))
STRICTEST = 1.5
OF_ROOT = 1.7
"""What runs one command as root can't be as strict."""
PROGRAMS = {"tokiod": tokiod, "tokioctl": tokioctl}
HARDENING = re.compile(
    r"(?m)^(?:Protect|Private|Restrict|Lock|Memory(?!High|Max)|NoNew|Capability|Ambient|SystemCall|Remove|Keyring|Device|ProcSubset)\w*=.*$"
)


def by_name(path):
    return path.name


def run(*line):
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture(autouse=True)
def systemd():
    """What Debian's package systemd brings."""
    if shutil.which("systemd-analyze") is None:
        reason = "there is no systemd-analyze: apt-get install systemd"
        pytest.fail(reason) if os.environ.get("CI") == "true" and os.geteuid() == 0 else pytest.skip(reason)


@pytest.fixture
def copies(tmp_path):
    """The units, with programs that are there for sure: the environment below /opt isn't."""
    for path in UNITS.glob("*.*"):
        (tmp_path / path.name).write_text(
            re.sub(r"/opt/tokiod/bin/\w+|/opt/tokiod-agent/bin/tokiod-agent|/usr/sbin/lctl", "/bin/true", path.read_text())
        )
    return tmp_path


def exposure(path):
    """Return systemd's opinion of a unit, from 0 (safe) to 10, and what it finds too loose."""
    said = run("systemd-analyze", "security", "--offline=true", "--no-pager", str(path)).stdout
    overall = re.search(r"Overall exposure level for .*: ([0-9.]+) ", said)
    return float(overall[1]), re.findall(r"(?m)^✗ (\w+)=", said)


def test_systemd_finds_nothing_wrong_with_any(copies):
    done = run("systemd-analyze", "verify", "--man=no", *map(str, [path for path in copies.iterdir() if path.suffix != ".conf"]))
    assert (done.returncode, done.stderr) == (0, "")


def test_it_would_have_found_a_mistake(copies):
    (copies / "tokiod.service").write_text((copies / "tokiod.service").read_text().replace("ProtectSystem=strict", "ProtectSystem=tight"))
    assert "tight" in run("systemd-analyze", "verify", "--man=no", str(copies / "tokiod.service")).stderr


@pytest.mark.parametrize("dropin", DROPINS, ids=by_name)
def test_systemd_finds_nothing_wrong_with_a_drop_in(copies, dropin):
    (copies / "tokiod.service.d").mkdir()
    shutil.copy(dropin, copies / "tokiod.service.d")
    done = run("systemd-analyze", "verify", "--man=no", str(copies / "tokiod.service"))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("service", SERVICES, ids=by_name)
def test_a_unit_is_hardened_and_whatever_is_looser_says_why(service):
    overall, loose = exposure(service)
    assert overall <= (STRICTEST if service in DAEMONS else OF_ROOT)
    comments = "\n".join(re.findall(r"(?m)^#.*|^\w+=.*", "#" + service.read_text().split("looser:", 1)[1]))
    assert [name for name in loose if not re.search(rf"\b{name}\b", comments)] == []


def test_a_unit_without_a_part_of_its_hardening_would_be_noticed(tmp_path):
    weak = tmp_path / "weak.service"
    weak.write_text(re.sub(r"(?m)^(CapabilityBoundingSet|NoNewPrivileges|PrivateUsers)=.*$", "", (UNITS / "tokiod.service").read_text()))
    overall, loose = exposure(weak)
    assert overall > STRICTEST
    assert "NoNewPrivileges" in loose


def test_both_flavours_are_hardened_alike():
    names = ("tokiod", "tokiod-collectors", "tokiod-writer", "tokiod-feed")
    one, collectors, writer, feed = (set(HARDENING.findall((UNITS / f"{name}.service").read_text())) for name in names)
    assert len(one) > 20
    assert one - collectors == {"SystemCallFilter=setpriority"}
    assert collectors - one == set()
    assert one - writer == {"RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6"}
    assert writer - one == {"RestrictAddressFamilies=AF_UNIX", "PrivateNetwork=yes"}
    assert writer - feed == {"SystemCallFilter=setpriority"}
    assert feed - writer == set()


@pytest.mark.parametrize("service", [path for path in DAEMONS if "agent" not in path.name], ids=by_name)
def test_every_command_of_a_unit_is_one_of_ours_with_its_options(service):
    lines = re.findall(r"(?m)^Exec\w+=/opt/tokiod/bin/(.*)$", service.read_text())
    assert len(lines) == 2
    for line in lines:
        program, command, *options = line.split()
        known = {text for parameter in PROGRAMS[program].get_command(None, command).params for text in parameter.opts}
        assert {option for option in options if option.startswith("--")} <= known


def test_the_command_of_the_agents_unit_is_that_of_its_package():
    (line,) = re.findall(r"(?m)^Exec\w+=(.*)$", (UNITS / "tokiod-agent.service").read_text())
    assert line == "/opt/tokiod-agent/bin/tokiod-agent --config /etc/tokiod-agent/agent.toml"
    assert "--config" in {text for parameter in tokiod.get_command(None, "agent").params for text in parameter.opts}


@pytest.mark.parametrize("text", [*UNITS.glob("*.*"), ROOT / "docs" / "install.md"], ids=by_name)
def test_every_file_of_ours_that_is_named_is_there(text):
    ours = r"(?<![\w/])(?:(?:systemd|docs|config|dropins)/[\w./-]*\w\.\w+|tokiod[\w-]*\.(?:service|target)\b(?!\.))"
    named = re.findall(ours, text.read_text())
    places = (ROOT, UNITS)
    assert [name for name in named if not any((place / name).exists() for place in places)] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="giving away directories needs root")
def test_the_user_and_its_directories_are_made(tmp_path):
    (tmp_path / "etc").mkdir()
    made = run("systemd-sysusers", f"--root={tmp_path}", str(UNITS / "tokiod.sysusers.conf"))
    assert (made.returncode, "tokiod:x:" in (tmp_path / "etc" / "passwd").read_text()) == (0, True)
    made = run("systemd-tmpfiles", "--create", f"--root={tmp_path}", str(UNITS / "tokiod.tmpfiles.conf"))
    assert (made.returncode, made.stderr) == (0, "")
    modes = {path: stat.S_IMODE((tmp_path / path).stat().st_mode) for path in ("run/tokiod", "var/lib/tokiod", "etc/tokiod/credentials")}
    assert modes == {"run/tokiod": 0o750, "var/lib/tokiod": 0o750, "etc/tokiod/credentials": 0o700}
    uid = int(re.search(r"(?m)^tokiod:x:(\d+):", (tmp_path / "etc" / "passwd").read_text())[1])
    assert {(tmp_path / path).stat().st_uid for path in ("run/tokiod", "var/lib/tokiod")} == {uid}
    assert (tmp_path / "etc" / "tokiod").stat().st_uid == 0
