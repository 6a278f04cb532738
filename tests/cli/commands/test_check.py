import re
import subprocess
import sys

import pytest
from click.testing import CliRunner

import collectors
from tokiod.cli.commands.check import check_command

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
    monkeypatch.setattr(collectors, "__path__", [*collectors.__path__, str(tmp_path)])
    monkeypatch.chdir(tmp_path)

    def run(text):
        (tmp_path / "tokiod.toml").write_text(text)
        result = CliRunner().invoke(check_command, ["--config", "tokiod.toml"])
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
