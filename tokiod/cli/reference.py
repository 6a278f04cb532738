"""The command reference, docs/cli.md, made from the commands themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tokiod.cli.tokioctl import main as tokioctl
from tokiod.cli.tokiod import main as tokiod

if TYPE_CHECKING:
    from collections.abc import Iterator


def reference() -> str:
    """Return every command's help as one Markdown page."""
    pages = [page for command, name in ((tokiod, "tokiod"), (tokioctl, "tokioctl")) for page in _pages(command, name)]
    return (
        "# Commands\n\nMade by `make docs`; exit codes: 0 fine, 1 degraded or different, 2 a mistake in the call or nothing there.\n\n"
        + "\n".join(pages)
    )


def _pages(command: click.Command, name: str) -> Iterator[str]:
    context = click.Context(command, info_name=name, terminal_width=100, max_content_width=100)
    yield f"## {name}\n\n```text\n{command.get_help(context)}\n```\n"
    if isinstance(command, click.Group):
        for sub in command.list_commands(context):
            found = command.get_command(context, sub)
            if found is not None and not found.hidden:
                yield from _pages(found, f"{name} {sub}")


if __name__ == "__main__":
    click.echo(reference(), nl=False)
