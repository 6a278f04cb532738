"""The manual pages in docs/man are those of the commands, and roff that man takes without a word."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from docs.generate.cli import commands
from docs.generate.man import pages, write

DIRECTORY = Path(__file__).parents[3] / "docs" / "man"
NAMES = sorted(pages())


def test_the_pages_are_those_of_the_commands_and_no_other_is_there():
    there = {path.name: path.read_text() for path in DIRECTORY.iterdir()}
    assert there == pages(), "run `make docs`"


def test_every_command_and_every_option_has_its_place_and_every_command_its_exits():
    made = pages()
    assert len(made) == len(list(commands()))
    for name, command, _ in commands():
        page = made[f"{name.replace(' ', '-')}.1"].replace("\\-", "-")
        for param in command.params:
            hidden = getattr(param, "hidden", False) or param.param_type_name == "argument"
            assert hidden or all(option in page for option in param.opts), (name, param.opts)
        assert ".SH EXIT STATUS\n.TP\n.B " in page


@pytest.mark.parametrize("name", NAMES)
def test_man_shows_a_page_without_a_warning(name, tmp_path):
    if shutil.which("groff") is None:
        reason = "groff is not installed: apt-get install groff-base"
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
    (tmp_path / name).write_text(pages()[name])
    command = ["groff", "-man", "-Tutf8", "-ww", "-P-cbou", str(tmp_path / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=150)
    assert (done.returncode, done.stderr) == (0, "")
    for section in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "SEE ALSO"):
        assert f"\n{section}\n" in done.stdout


def test_pages_of_commands_that_are_no_more_are_deleted(tmp_path):
    (tmp_path / "tokioctl-gone.1").write_text("")
    write(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == NAMES
