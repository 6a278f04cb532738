import os
import re
import subprocess
import sys

import lmt_database
import pytest
from click.testing import CliRunner
from commanded import configured
from users import ENVIRONMENT, SERVICE, USERS, need_users, open_directory, python

import collectors
from tokiod.cli.commands.check import check_command
from tokiod.config import load as configuration

PLUGIN = """
import msgspec
from tokiod.collector import SourceConfig

class Config(SourceConfig):
    password_file: str = ""
    step = 5
    def datasets(self):
        return frozenset({"datatargets/readbytes", "datatargets/writebytes"})

class Saved(msgspec.Struct): pass
def live(config, site): raise NotImplementedError
def saved(inputs, options, site): raise NotImplementedError
"""
SITE = """\
timezone = "UTC"
[archive]
path = "/tts/%Y-%m-%d/{system}.hdf5"
"""
SOURCE = '[[source]]\nname = "NAME"\nkind = "checktree"\nsystem = "SYSTEM"\npassword_file = "pw"\n'


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run the command on a file of these words."""
    (tmp_path / "checktree.py").write_text(PLUGIN)
    (tmp_path / "pw").write_text("a secret")
    monkeypatch.setattr(collectors, "__path__", [*collectors.__path__, str(tmp_path)])
    monkeypatch.chdir(tmp_path)

    def run(text, *options):
        (tmp_path / "tokiod.toml").write_text(text)
        result = CliRunner().invoke(check_command, [*options, "--config", "tokiod.toml"])
        return result.exit_code, result.stdout, result.stderr

    yield run
    sys.modules.pop("collectors.checktree", None)


def stanza(name, system):
    return SOURCE.replace("NAME", name).replace("SYSTEM", system)


def test_a_fine_file_is_summed_up(run):
    assert run(SITE + stanza("a", "one") + stanza("b", "two")) == (
        0,
        "tokiod.toml: OK: 2 sources, 2 systems, 4 datasets, one file per UTC day under /tts\n",
        "",
    )


def test_a_site_without_sources_is_fine_with_a_warning(run):
    assert run(SITE) == (
        0,
        "tokiod.toml: OK: 0 sources, 0 systems, 0 datasets, one file per UTC day under /tts\n",
        "tokiod.toml: warning: no [[source]] section: the daemon collects no data\n",
    )


def test_every_fault_is_on_stderr_with_exit_2(run):
    code, out, err = run(SITE.replace("UTC", "UTX") + stanza("a", "one") + stanza("a", "one"))
    assert (code, out) == (2, "")
    assert err == (
        'tokiod.toml:1: timezone: unknown time zone \'UTX\'; write a zone such as "America/Los_Angeles" or "UTC"\n'
        "tokiod.toml:9: source a: datatargets/readbytes and 1 more of one is also filled by source a (line 4)\n"
        "tokiod.toml:10: source a: name: another source has the same name (line 5)\n"
    )


def test_a_password_in_the_file_is_not_shown(run):
    code, out, err = run(SITE + stanza("a", "one") + 'password = "hunter-2-marked"\n')
    assert (code, out) == (2, "")
    assert re.fullmatch(r"tokiod.toml:9: source a: password: unknown key, did you mean password_file\?\n", err)


def test_a_missing_file_is_a_line_and_no_traceback(tmp_path):
    code = "from tokiod.cli.commands.check import check_command; check_command()"
    command = [sys.executable, "-c", code, "--config", str(tmp_path / "none.toml")]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    told = f"{tmp_path}/none.toml: No such file or directory (--config or TOKIOD_CONFIG names another)\n"
    assert (result.returncode, result.stdout, result.stderr) == (2, "", told)


LMT = '[[source]]\nname = "lmt"\nkind = "lmt"\nsystem = "fs"\nurl = "sqlite://{0}/lmt.sqlite3"\nsettle = "90s"\n'
FILES = """\
[[source]]
name = "files"
kind = "mmperfmon"
system = "ngf"
watch = "{0}/in"
[[source]]
name = "es"
kind = "collectd_es"
system = "bb"
url = "https://localhost"
user = "reader"
password_file = "es-password"
tls_ca = "{0}/ca.pem"
[[source]]
name = "now"
kind = "lustre"
system = "now"
mounts = ["/mnt"]
lfs = ["/nowhere/lfs"]
"""


def test_what_is_missing_on_this_machine_is_a_warning_that_names_it(run, tmp_path):
    (tmp_path / "file").write_text("")
    code, _, err = run(SITE.replace("/tts", f"{tmp_path}/file/tts") + (LMT + FILES).format(tmp_path))
    assert code == 0
    assert [line.removeprefix("tokiod.toml: warning: ") for line in err.splitlines()] == [
        f"archive.path: {tmp_path}/file is not a directory",
        f"source lmt: url: {tmp_path}/lmt.sqlite3: No such file or directory",
        f"source files: watch: {tmp_path}/in does not exist",
        f"source es: password_file: no file {tmp_path}/es-password or {tmp_path}/credentials/es-password",
        f"source es: tls_ca: {tmp_path}/ca.pem: No such file or directory",
        "source now: lfs: command /nowhere/lfs not found",
        "source now: lctl: command lctl not found",
    ]


def test_the_effective_configuration_has_every_key_with_the_line_that_sets_it_and_is_valid(run, tmp_path):
    lmt_database.save(tmp_path / "lmt.sqlite3", lmt_database.tables(61))
    text = SITE + LMT.format(tmp_path) + 'empty_after = "never"\nmax_rate = { bytes = 2e10 }\nretention = "36h"\n'
    code, out, err = run(text, "--show")
    assert (code, err.count("OK: ")) == (0, 1)
    lines = dict(line.rsplit("  # ", 1) for line in out.splitlines() if "  # " in line)
    origins = {line.strip(): origin for line, origin in lines.items()}
    assert origins['timezone = "UTC"'] == "tokiod.toml:1"
    assert origins['log_level = "info"'] == "default"
    assert origins['settle = "90s"'] == "tokiod.toml:9"
    assert origins['window = "1m"'] == "default"
    assert origins['empty_after = "never"'] == "tokiod.toml:10"
    assert origins['retention = "36h"'] == "tokiod.toml:12"
    assert origins['max_bytes = "64 MiB"'] == "default"
    before = configuration.load(tmp_path / "tokiod.toml")
    (tmp_path / "shown.toml").write_text(out)
    assert configuration.load(tmp_path / "shown.toml") == before


def test_connect_queries_every_source_and_names_those_that_fail_or_have_no_record(run, tmp_path):
    lmt_database.save(tmp_path / "lmt.sqlite3", lmt_database.tables(121))
    clock = ("--clock", f"{lmt_database.START + 400}@0x0", "--connect")
    site = SITE.replace("UTC", "America/Los_Angeles")
    code, out, err = run(site + LMT.format(tmp_path), *clock)
    assert (code, err) == (0, "")
    assert re.search(r"^lmt \[.*\): \d{3,} cells in .* s; nothing was stored$", out, re.MULTILINE)
    code, out, err = run(site + (LMT + LMT.replace('"fs"', '"gs"').replace('"lmt"\nkind', '"other"\nkind')).format(tmp_path), *clock)
    assert (code, out.count(" cells"), err) == (0, 2, "")
    (tmp_path / "lmt.sqlite3").unlink()
    code, out, err = run(site + LMT.format(tmp_path), *clock)
    assert (code, out.count(" cells")) == (1, 0)
    assert re.search(rf"^lmt: .*{tmp_path}/lmt.sqlite3", err, re.MULTILINE)


LCTL = """\
#!/bin/sh
printf 'obdfilter.fs-OST0000.job_stats=\\njob_stats:\\n- job_id: 7\\n  snapshot_time: %d\\n' "$(date +%s)"
printf '  write_bytes: { samples: 2, unit: bytes, min: 1, max: 1, sum: 2 }\\n'
"""
JOBS = """\
[[source]]
name = "jobs"
kind = "lustre_jobstats"
system = "fs"
servers = ["oss1"]
lctl = ["%s/lctl"]
"""


def test_rows_of_a_table_are_records_as_cells_are(run, tmp_path):
    (tmp_path / "lctl").write_text(LCTL)
    (tmp_path / "lctl").chmod(0o755)
    code, out, err = run(SITE + JOBS % tmp_path, "--connect")
    assert (code, err) == (0, ""), out
    assert re.search(r"^jobs \[.*\): [1-9] rows in .* s; nothing was stored$", out, re.MULTILINE)
    assert "OK: 1 source, 1 system, 1 dataset, " in out


def test_an_archive_that_is_read_only_here_is_no_warning_because_units_have_it_so_on_purpose():
    """As in the unit of the collectors: the directory is the user's own, and the mount is read-only."""
    need_users()
    with open_directory() as directory:
        archive = directory / "tts"
        archive.mkdir()
        os.chown(archive, SERVICE, SERVICE)
        path = configured(directory)
        check = [python(), "-P", "-m", "tokiod.cli.tokiod", "check", "--config", path]
        script = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$@"'
        line = ["unshare", "--mount", "sh", "-c", script, archive, *USERS["service"].command(*check)]
        done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=300, env=ENVIRONMENT)
        assert done.returncode == 0, done.stderr
        assert "archive.path" not in done.stderr
        archive.chmod(0o500)
        denied = USERS["service"].run(*check)
        assert f"archive.path: no permission to write to {archive}" in denied.stderr


ASKED = '[[source]]\nname = "{}"\nkind = "lustre_jobstats"\nsystem = "{}"\nservers = {}\n'


def test_two_sources_that_ask_one_server_for_the_jobs_of_a_system_are_refused(run):
    first = ASKED.format("a", "fs", '["oss1", "oss2", "mds1"]')
    code, _, err = run(SITE + first + ASKED.format("b", "fs", '["mds1", "oss2", "oss3"]'))
    assert (code, err) == (
        2, "tokiod.toml:9: source b: mds1 and 1 more of fs is asked by source a too: rows of jobs would be stored twice (line 4)\n"
    )  # fmt: skip
    for other in (ASKED.format("b", "fs", '["oss3"]'), ASKED.format("b", "fs2", '["oss1"]')):
        assert run(SITE + first + other)[0] == 0


@pytest.mark.parametrize(("one", "two", "is_fine"), [("fs1", "fs2", True), ("fs1", "fs1", False), ("", "fs1", False), ("fs1", "", False)])
def test_sources_of_one_server_may_share_it_by_file_systems(run, one, two, is_fine):
    sources = [ASKED.format(name, "fs", '["mds1", "oss1"]') + f'filesystem = "{of}"\n' * bool(of) for name, of in (("a", one), ("b", two))]
    code, _, err = run(SITE + "".join(sources))
    assert (code, "source b: mds1/fs1 and 1 more of fs is asked by source a too" in err) == ((0, False) if is_fine else (2, True))


def test_two_sources_of_the_nodes_of_a_system_are_refused_also_with_other_metrics(run):
    nodes = '[[source]]\nname = "{0}"\nkind = "nodes"\nsystem = "c.nodes"\nmetrics = ["{0}"]\n'
    hub = '[hub]\nendpoint = "tcp://0.0.0.0:5561"\nsecret_key_file = "/etc/hub.key"\nclasses = { c = ["nid*"] }\n'
    code, _, err = run(SITE + nodes.format("cpu_user") + nodes.format("cpu_idle") + hub)
    assert (code, "source cpu_idle: the hub of c.nodes is asked by source cpu_user too: rows of jobs would be stored twice" in err) == (
        2,
        True,
    )
