"""Describe errors of TOML's syntax by what to write instead. tomllib names the characters that it expected.

No message contains a value: it could be a password.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_PLACE = re.compile(r"(?P<fault>.*) \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)", re.DOTALL)
_PAIR = re.compile(r"\s*(?P<key>[\w.\"'-]+)\s*=\s*(?P<value>[^#]*)")
_HEADER = re.compile(r"\s*\[+\s*(?P<name>[^\[\]]*?)\s*\]")
_WORD = re.compile(r"[A-Za-z_]")
_QUOTES = 'text needs quotation marks: {key} = "..."'
_UNCLOSED = "a closing quotation mark is missing"
_REMEDIES = {
    "Illegal character '\\n'": _UNCLOSED,
    'Expected "\'"': _UNCLOSED,
    "Unterminated string": _UNCLOSED,
    "Expected '=' after a key in a key/value pair": "expected key = value",
    "Expected ']' at the end of a table declaration": "a closing bracket is missing: [section]",
    "Expected ']]' at the end of an array declaration": "closing brackets are missing: [[section]]",
    "Unclosed array": "the array before this is not closed by ]",
    "Unclosed inline table": "a table in braces must be in one line",
    "Unescaped '\\' in a string": "write \\\\ for a backslash, or use single quotation marks",
}


class SyntaxFault(NamedTuple):
    """An error of syntax: its line, from 1, None if unknown, and a sentence."""

    line: int | None
    sentence: str


def describe(text: str, error: str) -> SyntaxFault:
    """Return the place of an error of tomllib in a text, and what to write instead where that is known."""
    match = _PLACE.fullmatch(error)
    if match is None:
        return SyntaxFault(None, error)
    lines = text.splitlines()
    if match["line"] is None:
        return SyntaxFault(len(lines), f"{_REMEDIES.get(match['fault'], match['fault'])}, at the end of the file")
    number = int(match["line"])
    sentence = _sentence(match["fault"], lines, number)
    return SyntaxFault(number, sentence or f"{match['fault']} (column {match['column']})")


def _sentence(fault: str, lines: list[str], number: int) -> str | None:
    line = lines[number - 1] if number <= len(lines) else ""
    if fault.startswith(("Cannot declare", "Cannot overwrite")) and (header := _HEADER.match(line)):
        return _declared_twice(lines, number, header["name"])
    if (pair := _PAIR.match(line)) is None:
        return _REMEDIES.get(fault)
    if fault == "Cannot overwrite a value":
        return f"{pair['key']} is set twice{_first_of(lines, number, pair['key'])}"
    if fault in {"Invalid value", "Expected newline or end of document after a statement"}:
        return _of_value(fault, pair["key"], pair["value"].strip())
    return _REMEDIES.get(fault)


def _of_value(fault: str, key: str, value: str) -> str | None:
    if not value:
        return f"{key} has no value"
    if value.lower() in {"true", "false"}:
        return f"write {key} = {value.lower()}"
    if fault == "Invalid value" and _WORD.match(value):
        return _QUOTES.format(key=key)
    if re.fullmatch(r"\d+\s*[A-Za-z]+", value):
        return _QUOTES.format(key=key)
    return "write one key = value in a line" if "=" in value else None


def _declared_twice(lines: list[str], number: int, name: str) -> str:
    earlier = [(at, line) for at, line in enumerate(lines[: number - 1], 1) if (match := _HEADER.match(line)) and match["name"] == name]
    first = f" (line {earlier[0][0]})" if earlier else ""
    if any(line.lstrip().startswith("[[") for line in (lines[number - 1], *(line for _, line in earlier))):
        return f"write [[{name}]] for each section of this name{first}"
    return f"section [{name}] is there twice{first}"


def _first_of(lines: list[str], number: int, key: str) -> str:
    for at in range(number - 1, 0, -1):
        if _HEADER.match(lines[at - 1]):
            break
        if (pair := _PAIR.match(lines[at - 1])) and pair["key"] == key:
            return f" (line {at})"
    return ""
