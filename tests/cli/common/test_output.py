"""Text from servers, files and users can't control the terminal of an administrator, nor a terminal that shows `--json`."""

import json

import click
import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as st

from tokiod.cli.common.base import Failed
from tokiod.cli.common.output import echo_json, printable
from tokiod.cli.common.tables import line, show, table

TITLE = "e\x1b]0;owned\x07"
"""A file name that sets the title of a terminal."""
BACK = "a\x9b2K\u202eb\x7f"
"""A C1 control sequence, a right-to-left override, DEL."""


@given(st.text())
@example(TITLE + BACK)
def test_what_is_printed_is_printable_and_printable_text_is_unchanged(text):
    shown = printable(text)
    assert all(character.isprintable() or character in "\n\t" for character in shown)
    assert shown == text or not text.isprintable()


def test_an_escape_shows_which_character_it_was():
    assert printable(TITLE) == r"e\x1b]0;owned\x07"
    assert printable(BACK) == r"a\x9b2K\u202eb\x7f"
    assert printable("Zürich\tOST\n") == "Zürich\tOST\n"


@given(st.text(st.characters(exclude_categories=["Cs"])))
@example(BACK + "\U000e0001")
def test_json_is_printable_and_holds_the_same_text(text):
    @click.command()
    def command():
        echo_json({"name": text})

    out = CliRunner().invoke(command).stdout
    assert all(character.isprintable() or character == "\n" for character in out)
    assert json.loads(out) == {"name": text}


@pytest.mark.parametrize("text", [TITLE, BACK])
def test_an_error_a_table_and_a_status_line_are_printable(text, capsys):
    Failed(text).show()
    made = table("name")
    made.add_row(text)
    show(made, line(text))
    printed = capsys.readouterr()
    assert printed.err == f"tokiod: {printable(text)}\n"
    assert printed.out.count(printable(text)) == 2
    assert all(character.isprintable() or character == "\n" for character in printed.out + printed.err)
