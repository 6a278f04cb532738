"""Completion as the shells ask for it: by the program itself, with the names of the configuration."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tokiod.cli.tokioctl import main

CONFIG = """\
timezone = "UTC"
[archive]
path = "/nowhere/%Y-%m-%d/{system}.hdf5"
[[source]]
name = "cscratch-lmt"
kind = "lmt"
system = "cscratch"
url = "sqlite:///none"
[[source]]
name = "project-lmt"
kind = "lmt"
system = "project"
url = "sqlite:///none"
"""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "tokiod.toml"
    path.write_text(CONFIG)
    return path


def completed(line, config=None):
    """Ask as bash does: all words, and which one is being written."""
    words = line.split(" ")
    env = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1), "_TOKIOCTL_COMPLETE": "bash_complete"}
    env |= {"TOKIOD_CONFIG": str(config)} if config else {}
    done = CliRunner(env=env).invoke(main, prog_name="tokioctl")
    return [item.partition(",")[2] for item in done.stdout.splitlines() if item]


@pytest.mark.parametrize(
    ("line", "items"),
    [
        ("tokioctl once c", ["cscratch-lmt"]),
        ("tokioctl gaps cscratch-lmt p", ["project-lmt"]),
        ("tokioctl backfill pro", ["project-lmt"]),
        ("tokioctl verify ", ["cscratch-lmt", "project-lmt"]),
        ("tokioctl seal 2018-01-28 ", ["cscratch", "project"]),
        ("tokioctl plot c", ["cscratch"]),
        ("tokioctl plot cscratch fullness/bytes", ["fullness/bytes", "fullness/bytestotal"]),
        ("tokioctl tail project/datatargets/readb", ["project/datatargets/readbytes"]),
        ("tokioctl verify x 1 2 --dataset dataservers/cpul", ["dataservers/cpuload"]),
        ("tokioctl sta", ["status"]),
        ("tokioctl status --js", ["--json"]),
        ("tokioctl completion z", ["zsh"]),
    ],
)
def test_names_of_the_configuration_commands_and_options_are_completed(config, line, items):
    assert completed(line, config) == items


def test_the_configuration_that_the_line_names_is_the_one_that_is_read(config):
    assert completed(f"tokioctl once --config {config} pro") == ["project-lmt"]


def test_without_a_configuration_nothing_is_completed_and_nothing_said(tmp_path):
    assert completed("tokioctl once ", tmp_path / "none.toml") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_takes_the_script_and_it_is_of_both_programs(shell):
    done = CliRunner().invoke(main, ["completion", shell])
    assert done.exit_code == 0
    assert all(f"_{program}_COMPLETE={shell}_complete" in done.stdout for program in ("TOKIOCTL", "TOKIOD"))
    if shutil.which(shell):
        checked = subprocess.run([shell, "-n"], input=done.stdout, capture_output=True, text=True, check=False, timeout=20)
        assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.system
def test_bash_completes_a_source_as_a_person_would_have_it(config, tmp_path):
    """A bash of its own evaluates the script and calls what it registers."""
    program = tmp_path / "tokioctl"
    program.write_text(f"#!{sys.executable}\nfrom tokiod.cli.tokioctl import main\nmain(prog_name='tokioctl')\n")
    program.chmod(0o755)
    script = """\
eval "$(tokioctl completion bash)"
COMP_WORDS=(tokioctl once cscr) COMP_CWORD=2
_tokioctl_completion tokioctl
echo "${COMPREPLY[@]}"
"""
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "TOKIOD_CONFIG": str(config), "PYTHONPATH": str(Path.cwd())}
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, timeout=60, env=env)
    assert (done.returncode, done.stdout) == (0, "cscratch-lmt\n"), done.stderr
