"""Output of commands. Names and messages come from servers, files and users: nothing in them may control the terminal."""

from __future__ import annotations

import re
from typing import Any

import click
import msgspec

_LINE_CHARACTERS = {"\n", "\t"}


def printable(text: str) -> str:
    r"""Return the text with each character that is not printable as an escape, such as \x1b. Newlines and tabs stay."""
    return text if text.isprintable() else "".join(map(_escaped, text))


def echo(text: object = "", *, err: bool = False, newline: bool = True) -> None:
    """Print a line, or a piece of one, to stdout or stderr."""
    click.echo(printable(str(text)), err=err, nl=newline)  # noqa: TID251 - the one place


def echo_json(value: Any) -> None:
    """Print a value as one line of JSON. JSON escapes ASCII control characters; the others that are not printable are escaped here."""
    text = msgspec.json.encode(value).decode()
    click.echo(re.sub(r"[^\x00-\x7e]", _json_escaped, text))  # noqa: TID251 - the one place


def _escaped(character: str) -> str:
    if character.isprintable() or character in _LINE_CHARACTERS:
        return character
    return character.encode("unicode_escape", "surrogatepass").decode()


def _json_escaped(match: re.Match[str]) -> str:
    character = match[0]
    if character.isprintable():
        return character
    units = character.encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
