"""The command reference, docs/cli.md, made from the commands themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tokiod.cli.common.base import HELP
from tokiod.cli.tokioctl import main as tokioctl
from tokiod.cli.tokiod import main as tokiod

if TYPE_CHECKING:
    from collections.abc import Iterator


EXITS = {
    0: "fine, or done",
    1: "an answer that is not the good one: degraded, incomplete, different, not ready, failed on the way",
    2: "a mistake in the call or the configuration, or what was asked for is not there; one sentence on stderr says which",
    130: "ended by Ctrl-C before it was done",
}
"""What exit codes mean everywhere; each command's help says what it means by them."""

_HEAD = """\
# Commands

Made by `make docs`, as are the manual pages in [man](man). What is printed goes to stdout, what is said about it to stderr; neither holds
colours or bars where it is not a terminal. `--json` prints one line of JSON, times in UTC epoch seconds; schemas are in [json](json).
Times given may be local to the site or have an offset. `tokioctl completion` tells a shell how to complete all this.

| exit code | everywhere means |
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
