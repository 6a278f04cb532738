"""Generate the manual pages, docs/man/*.1, from the commands: one for each program and each command."""

from __future__ import annotations

import inspect
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from docs.generate.cli import EXITS, commands
from tokiod.cli.common.examples import HEADING

if TYPE_CHECKING:
    from collections.abc import Iterator

_VERBATIM = "\b\n"
"""Starts a paragraph whose lines click does not join."""
_EXIT = re.compile(r"\s*Exit (\d.*)\Z", re.DOTALL)
_STATUS = re.compile(r"(?:^|[,;] )(\d+) ")


def pages() -> dict[str, str]:
    """Return every page by its file name."""
    return {f"{name.replace(' ', '-')}.1": _page(name, command, context) for name, command, context in commands()}


def _page(name: str, command: click.Command, context: click.Context) -> str:
    text = inspect.cleandoc(command.help or "")
    exits = _EXIT.search(text)
    head, _, body = (text[: exits.start()] if exits else text).partition("\n\n")
    title = name.replace(" ", "-")
    lines = [f'.TH "{title.upper()}" "1" "" "tokiod" "tokiod"', ".SH NAME", f"{_plain(title)} \\- {_plain(_unfilled(head).rstrip('.'))}"]
    lines += [".SH SYNOPSIS", f".B {_plain(name)}", *(_plain(piece) for piece in command.collect_usage_pieces(context))]
    lines += [".SH DESCRIPTION", *_paragraphs(head), *_paragraphs(body)]
    lines += _options(command, context)
    if isinstance(command, click.Group):
        lines += [".SH COMMANDS", *_subcommands(name, command, context)]
    lines += [".SH EXAMPLES", *_examples(command)]
    lines += [".SH EXIT STATUS", *_exits(exits[1] if exits else "")]
    lines += [".SH SEE ALSO", *(f".BR {_plain(other)} (1)" for other in _beside(name))]
    return "\n".join(lines) + "\n"


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    options = [param for param in command.get_params(context) if isinstance(param, click.Option)]
    yield ".SH OPTIONS"
    for option, text in filter(None, (option.get_help_record(context) for option in options)):
        yield from (".TP", f".B {_plain(option)}", _plain(_unfilled(text)))


def _subcommands(name: str, group: click.Group, context: click.Context) -> Iterator[str]:
    for one in group.list_commands(context):
        command = group.get_command(context, one)
        if command is not None and not command.hidden:
            yield from (".TP", f".BR {_plain(f'{name} {one}'.replace(' ', '-'))} (1)", _plain(command.get_short_help_str(120)))


def _examples(command: click.Command) -> Iterator[str]:
    listed = inspect.cleandoc((command.epilog or "").removeprefix(_VERBATIM)).splitlines()
    yield from (".nf", *(_plain(line.strip()) for line in listed if line != HEADING), ".fi")


def _exits(text: str) -> Iterator[str]:
    """Yield the exit codes of a command's help, and those of all commands."""
    own = {int(number): meaning.strip(" ,;.") for number, meaning in _codes(text)}
    for number, meaning in sorted((({130: EXITS[130]} | own) if own else EXITS).items()):
        yield from (".TP", f".B {number}", _plain(_unfilled(meaning)))


def _codes(text: str) -> Iterator[tuple[str, str]]:
    found = list(_STATUS.finditer(text))
    for i, one in enumerate(found):
        yield one[1], text[one.end() : found[i + 1].start() if i + 1 < len(found) else None]


def _beside(name: str) -> list[str]:
    program, _, rest = name.partition(" ")
    return [program] if rest else [one for one in ("tokiod", "tokioctl") if one != program]


def _paragraphs(text: str) -> Iterator[str]:
    for paragraph in filter(None, text.split("\n\n")):
        if paragraph.startswith(_VERBATIM):
            yield from (".PP", ".nf", *(_plain(line) for line in paragraph.removeprefix(_VERBATIM).splitlines()), ".fi")
        else:
            yield from (".PP", _plain(_unfilled(paragraph)))


def _unfilled(text: str) -> str:
    return " ".join(text.split())


def _plain(text: str) -> str:
    """Escape what roff would take for its own."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text


def write(directory: Path) -> None:
    """Write all pages, and delete those of commands that are no more."""
    directory.mkdir(parents=True, exist_ok=True)
    made = pages()
    for old in directory.glob("*.1"):
        if old.name not in made:
            old.unlink()
    for name, text in made.items():
        (directory / name).write_text(text)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
