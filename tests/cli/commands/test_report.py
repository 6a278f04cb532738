"""`tokioctl report`: what is in it, what never is, and that one part never stops the others."""

import os
import re
import stat
import subprocess
import sys
import tarfile
from pathlib import Path
from sqlite3 import OperationalError as LedgerError

import pytest
from click.testing import CliRunner

from tokiod.cli.tokioctl import main
from tokiod.cli.tokiod import main as tokiod
from tokiod.reports import support_report

SECRET = "correct-horse-battery"
CONFIG = """\
timezone = "UTC"
[archive]
path = "{directory}/tts/%Y-%m-%d/{{system}}.hdf5"
[[source]]
name = "one"
kind = "collectd_es"
system = "fs"
url = "https://search.example:9200"
index = "cori-collectd-*"
user = "reader"
password_file = "password"
"""


@pytest.fixture
def directory(tmp_path, monkeypatch):
    (tmp_path / "tts").mkdir()
    (tmp_path / "tokiod.toml").write_text(CONFIG.format(directory=tmp_path))
    (tmp_path / "password").write_text(SECRET + "\n")
    (tmp_path / "password").chmod(0o600)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_part_that_fails_in_any_way_is_named_and_stops_no_other(directory, monkeypatch):
    """A damaged ledger, and a file that the daemon removes while the archive is listed."""

    def damaged(*_):
        raise LedgerError("database disk image is malformed")

    (directory / "tts" / "kept.hdf5").touch()
    (directory / "tts" / "gone.hdf5").touch()
    lstat = Path.lstat
    monkeypatch.setattr(Path, "lstat", lambda path: lstat(directory / "absent" if path.name == "gone.hdf5" else path))
    monkeypatch.setattr(support_report.gaps, "gaps", damaged)
    monkeypatch.setattr(support_report, "readable_ledger", damaged)
    assert report(directory).exit_code == 0
    found = contents(directory / "tokiod-report-2018-01-29T080000Z.tar.gz")
    assert found["gaps.json"] == "not available: OperationalError: database disk image is malformed\n"
    assert "kept.hdf5" in found["files.txt"]
    assert "gone.hdf5" not in found["files.txt"]


def report(directory, *options):
    words = ["report", "--config", str(directory / "tokiod.toml"), "--clock", "1517212800@0x0", *options]
    return CliRunner().invoke(main, words, prog_name="tokioctl")


def contents(path):
    with tarfile.open(path) as packed:
        return {entry.name.removeprefix("tokiod-report/"): packed.extractfile(entry).read().decode() for entry in packed}


def test_it_lists_its_contents_and_writes_one_file_for_this_user_alone(directory):
    done = report(directory)
    assert done.exit_code == 0, done.output
    path = directory / "tokiod-report-2018-01-29T080000Z.tar.gz"
    found = contents(path)
    assert list(found) == [line.split()[0] for line in done.stdout.splitlines()[1:-1]]
    assert list(found) == [
        "versions.txt", "configuration.toml", "check.txt", "status.json", "gaps.json", "files.txt", "units.txt", "log.txt"
    ]  # fmt: skip
    assert "Python 3." in found["versions.txt"]
    assert 'password_file = "password"' in found["configuration.toml"]
    assert '"name": "one"' in found["status.json"]
    assert found["gaps.json"] == "not available: there is no ledger yet\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = report(directory)
    assert (again.exit_code, again.stderr) == (2, f"tokioctl: {path.name} exists already: name another file with --output\n")


# A stand-in for journalctl: the log of a program that printed a secret.
JOURNALCTL = f"""\
#!/bin/sh
echo "$@"
echo 'login of reader with {SECRET} failed'
"""


def test_a_secret_is_masked_wherever_it_occurs(directory, monkeypatch):
    (directory / "bin").mkdir()
    (directory / "bin" / "journalctl").write_text(JOURNALCTL)
    (directory / "bin" / "journalctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory / 'bin'}:{os.environ['PATH']}")
    (directory / "tts" / SECRET).write_text("")
    done = report(directory, "--output", "r.tar.gz", "--lines", "7")
    assert done.exit_code == 0, done.output
    found = contents(directory / "r.tar.gz")
    assert "--lines=7" in found["log.txt"]
    assert "login of reader with *** failed" in found["log.txt"]
    assert f"{directory}/tts/***" in found["files.txt"]
    assert [name for name, text in found.items() if SECRET in text] == []


EVERY_TABLE = """
[bus]
secret_key_file = "bus.key_secret"
client_secret_key_file = "collectors.key_secret"
[feed]
secret_key_file = "feed.key_secret"
clients = "clients"
[hub]
endpoint = "tcp://0.0.0.0:5561"
secret_key_file = "hub.key_secret"
clients = "clients"
classes = { compute = ["nid*"] }
[web]
secret_key_file = "web.key_secret"
feed_key_file = "feed.key"
[jobs]
users = "hashed"
key_file = "jobs.key"
[[host]]
name = "admin1"
endpoint = "tcp://10.0.0.1:5562"
[[sink]]
name = "search"
kind = "elasticsearch"
url = "https://search.example:9200"
user = "writer"
password_file = "sink-password"
"""


def test_secrets_of_every_table_are_masked_in_the_log_of_every_unit(directory, monkeypatch):
    monkeypatch.setenv("PATH", f"{directory / 'bin'}:{os.environ['PATH']}")
    path, keys = directory / "tokiod.toml", []
    path.write_text(path.read_text() + EVERY_TABLE)
    for name in ("bus", "collectors", "feed", "hub", "web", "admin1"):
        assert CliRunner().invoke(tokiod, ["keygen", str(directory), name]).exit_code == 0
        keys.append(re.search('secret-key = "(.*)"', (directory / f"{name}.key_secret").read_text())[1])
    for name in ("jobs.key", "sink-password"):
        keys.append(f"a secret of {name}")
        (directory / name).write_text(keys[-1])
    (directory / "printed").write_text("\n".join(keys))
    (directory / "bin").mkdir()
    (directory / "bin" / "journalctl").write_text(f'#!/bin/sh\necho "$@"\ncat {directory}/printed\n')
    (directory / "bin" / "journalctl").chmod(0o755)
    assert report(directory, "--output", "r.tar.gz").exit_code == 0
    log = contents(directory / "r.tar.gz")["log.txt"]
    assert log.splitlines()[1:] == ["***"] * len(keys)
    units = {path.name for path in (Path(__file__).parents[3] / "systemd").glob("*.service")} - {
        "tokiod-agent.service",
        "tokiod-lctl@.service",
    }
    asked = {word.removeprefix("--unit=").replace("@*", "@") for word in log.splitlines()[0].split() if word.startswith("--unit=")}
    assert asked == units | {"tokiod.target"}


def test_a_configuration_that_can_not_be_read_is_a_part_like_others(directory):
    (directory / "tokiod.toml").write_text("timezon = 1\n")
    done = report(directory, "--output", "r.tar.gz")
    assert done.exit_code == 0, done.output
    found = contents(directory / "r.tar.gz")
    assert "timezon" in found["configuration.txt"]
    assert set(found) == {"versions.txt", "configuration.txt", "units.txt", "log.txt"}


def test_a_part_that_can_not_be_made_says_why_and_stops_no_other(directory):
    ledger = directory / "tts" / ".tokiod" / "ledger.sqlite3"
    ledger.parent.mkdir()
    ledger.write_bytes(b"no database" * 1000)
    found = contents(directory / "r.tar.gz") if report(directory, "--output", "r.tar.gz").exit_code == 0 else {}
    assert found["gaps.json"].startswith("not available: ")
    assert str(ledger) in found["files.txt"]


def test_a_place_that_can_not_be_written_is_a_sentence(directory):
    done = report(directory, "--output", "/proc/report.tar.gz")
    assert done.exit_code == 2
    assert done.stderr.startswith("tokioctl: cannot write /proc/report.tar.gz: ")
    assert done.stderr.count("\n") == 1


def test_a_disk_that_fills_up_is_a_sentence_and_leaves_no_part_of_a_report(directory):
    words = [sys.executable, "-m", "tokiod.cli.tokioctl", "report", "--config", "tokiod.toml", "--output", "r.tar.gz"]
    limited = ["sh", "-c", 'ulimit -f 0; exec "$@"', "sh", *words]
    done = subprocess.run(limited, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 2
    assert done.stderr.endswith(": cannot write r.tar.gz: File too large; name another file with --output\n")
    assert done.stderr.count("\n") == 1
    assert not (directory / "r.tar.gz").exists()
