"""Generate the command reference, docs/cli.md, from the commands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tokiod.cli.common.base import HELP
from tokiod.cli.tokioctl import main as tokioctl
from tokiod.cli.tokiod import main as tokiod

if TYPE_CHECKING:
    from collections.abc import Iterator


EXITS = {
    0: "success",
    1: "a negative result: degraded, incomplete, different, not ready, failed",
    2: "an error in the call or the configuration, or the requested data does not exist; stderr has one sentence",
    130: "ended by Ctrl-C",
}
"""The meaning of exit codes in all commands; the help of each command has details."""

_HEAD = """\
# Commands

`make docs` generates this page and the manual pages in [man](man). Results go to stdout, messages to stderr; both are without colours
and progress bars if they are not a terminal. `--json` prints one line of JSON, times in UTC epoch seconds; schemas are in [json](json).
Times on the command line are local to the site or have an offset. `tokioctl completion` prints completion scripts for shells.

| exit code | meaning |
| --- | --- |
"""


def reference() -> str:
    """Return every command's help as one Markdown page."""
    codes = "".join(f"| {code} | {meaning} |\n" for code, meaning in EXITS.items())
    return _HEAD + codes + "\n" + "\n".join(_section(name, command, context) for name, command, context in commands())


def commands() -> Iterator[tuple[str, click.Command, click.Context]]:
    """Yield both programs and all their commands, each with its full name."""
    for command, name in ((tokiod, "tokiod"), (tokioctl, "tokioctl")):
        yield from _commands(command, name)


def _commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command, click.Context]]:
    context = click.Context(command, info_name=name, terminal_width=100, max_content_width=100, help_option_names=HELP)
    yield name, command, context
    if isinstance(command, click.Group):
        for sub in command.list_commands(context):
            found = command.get_command(context, sub)
            if found is not None and not found.hidden:
                yield from _commands(found, f"{name} {sub}")


def _section(name: str, command: click.Command, context: click.Context) -> str:
    return f"## {name}\n\n```text\n{command.get_help(context)}\n```\n"


if __name__ == "__main__":
    click.echo(reference(), nl=False)
