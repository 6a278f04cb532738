"""docs/cli.md tells of every command, as it is."""

from pathlib import Path

from docs.generate.cli import reference


def test_the_command_reference_is_that_of_the_commands():
    page = Path(__file__).parents[3] / "docs" / "cli.md"
    assert page.read_text() == reference(), "run `make docs`"
