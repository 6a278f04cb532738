"""Completion as the shells ask for it: by the program itself, with the names of the configuration."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from terminal import Terminal

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
        ("tokioctl stat", ["status"]),
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
        checked = subprocess.run([shell, "-n"], input=done.stdout, capture_output=True, text=True, check=False, timeout=100)
        assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize(("incomplete", "kind"), [("", "plain"), ("c", "plain"), ("day", "file"), ("./", "file")])
def test_a_file_is_completed_where_a_system_is_not_meant(config, incomplete, kind):
    """Both cannot be: bash takes either a list of words or its own of files."""
    env = {
        "COMP_WORDS": f"tokioctl plot {incomplete}",
        "COMP_CWORD": "2",
        "_TOKIOCTL_COMPLETE": "bash_complete",
        "TOKIOD_CONFIG": str(config),
    }
    done = CliRunner(env=env).invoke(main, prog_name="tokioctl")
    assert {line.partition(",")[0] for line in done.stdout.split()} == {kind}


# ---- what happens when somebody presses the key


SET_UP = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], 'eval "$(tokioctl completion bash)"'),
    "zsh": (["zsh", "-f", "-i"], 'autoload -Uz compinit; compinit -u -D; eval "$(tokioctl completion zsh)"'),
}
LINES = {
    "tokioctl once csc": "tokioctl once cscratch-lmt",
    "tokioctl archive lmt ./lmt.sq": "tokioctl archive lmt ./lmt.sqlite3",
    "tokioctl verify project-lmt 1 2 --data": "tokioctl verify project-lmt 1 2 --dataset",
    "tokiod che": "tokiod check",
}


@pytest.fixture
def env(tmp_path, config):
    """A place for both programs, with a saved file beside them."""
    for program in ("tokioctl", "tokiod"):
        path = tmp_path / program
        path.write_text(f"#!{sys.executable}\nfrom tokiod.cli.{program} import main\nmain(prog_name={program!r})\n")
        path.chmod(0o755)
    (tmp_path / "lmt.sqlite3").touch()
    mine = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "TOKIOD_CONFIG": str(config), "PYTHONPATH": str(Path.cwd())}
    return {**os.environ, **mine, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path / "config"), "TERM": "dumb", "PS1": "$ "}


def needs(shell):
    if shutil.which(shell) is None:
        reason = f"{shell} is not installed: apt-get install {shell}"
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)


@pytest.mark.system
@pytest.mark.parametrize("shell", SET_UP)
def test_the_tab_key_completes_what_a_person_types(shell, env, tmp_path):
    needs(shell)
    command, set_up = SET_UP[shell]
    with Terminal(command, env, columns=200, cwd=tmp_path) as terminal:
        terminal.type(f"{set_up}; echo re''ady\r", "\nready")
        for typed, completed in LINES.items():
            # The line is printed, not run; a word that is whole is followed by a space.
            terminal.type(f"{typed}\t", completed)
            terminal.type("\x01echo \r", f"\n{completed}")


@pytest.mark.system
def test_fish_completes_both_programs_from_the_first_moment(env, tmp_path):
    needs("fish")
    (tmp_path / "config" / "fish").mkdir(parents=True)
    (tmp_path / "config" / "fish" / "config.fish").write_text("tokioctl completion fish | source\n")
    for typed, completed in LINES.items():
        ask = ["fish", "--command", f"complete --do-complete {typed!r}"]
        done = subprocess.run(ask, capture_output=True, text=True, check=False, timeout=300, env=env, cwd=tmp_path)
        assert (done.returncode, done.stderr) == (0, "")
        assert completed.split()[-1] in [line.partition("\t")[0] for line in done.stdout.splitlines()]
