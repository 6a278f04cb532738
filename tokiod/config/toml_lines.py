"""Find the line of each key of a TOML text, which tomllib does not report."""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_left

Key = tuple[str | int, ...]
"""The path to a value: ("source", 0, "window") is the key `window` of the first [[source]]."""

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"""(?:"{0,2})' + r"|'''.*?'''(?:'{0,2})" + r'|"(?:\\.|[^"\\\n])*"' + r"|'[^'\n]*'",
    re.DOTALL,
)
_WORD = re.compile(r"[A-Za-z0-9_-]+")
_SCALAR = re.compile(r"[^,\]}#\n]*")


def places(text: str) -> dict[Key, int]:
    """Return the first line, from 1, of each table, key and array item of a TOML text.

    The text must be valid TOML: nothing is checked here.
    """
    scan = _Scan(text)
    scan.document()
    return scan.lines


def line(lines: dict[Key, int], key: Key) -> int | None:
    """Return the line of a key, or of the nearest table around a missing key; None at the top level."""
    while key and key not in lines:
        key = key[:-1]
    return lines.get(key)


class _Scan:
    """A scan of a valid TOML text that records keys and skips values."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.lines: dict[Key, int] = {}
        self._ends = [match.start() for match in re.finditer("\n", text)]
        self._tables: dict[Key, int] = {}

    def document(self) -> None:
        """Scan all statements."""
        table: Key = ()
        self._take(_BLANK)
        while self.at < len(self.text):
            if self.text[self.at] == "[":
                table = self._header()
            else:
                self._pair(table)
            self._take(_BLANK)

    def _header(self) -> Key:
        brackets = 2 if self.text.startswith("[[", self.at) else 1
        self.at += brackets
        self._take(_BLANK)
        start = self.at
        *parents, name = self._names()
        self.at += brackets
        table: Key = ()
        for parent in parents:
            table = self._newest((*table, parent), start)
        table = (*table, name)
        if brackets == 1:
            return self._newest(table, start)
        self._tables[table] = self._tables.get(table, 0) + 1
        return self._newest(table, start)

    def _newest(self, table: Key, start: int) -> Key:
        self._mark(table, start)
        if table in self._tables:
            table = (*table, self._tables[table] - 1)
            self._mark(table, start)
        return table

    def _pair(self, table: Key) -> None:
        start = self.at
        for name in self._names():
            table = (*table, name)
            self._mark(table, start)
        self.at += 1
        self._value(table)

    def _names(self) -> list[str]:
        names = [self._name()]
        while self.text[self.at] == ".":
            self.at += 1
            self._take(_BLANK)
            names.append(self._name())
        return names

    def _name(self) -> str:
        name = self._take(_WORD) or tomllib.loads(f"name = {self._take(_STRING)}")["name"]
        self._take(_BLANK)
        return str(name)

    def _value(self, key: Key) -> None:
        self._take(_BLANK)
        match self.text[self.at]:
            case "[":
                self._items(key)
            case "{":
                self._inline(key)
            case '"' | "'":
                self._take(_STRING)
            case _:
                self._take(_SCALAR)

    def _items(self, key: Key) -> None:
        count = 0
        while not self._closes("]"):
            self._mark((*key, count), self.at)
            self._value((*key, count))
            count += 1

    def _inline(self, table: Key) -> None:
        while not self._closes("}"):
            self._pair(table)

    def _closes(self, bracket: str) -> bool:
        """Skip the opening bracket or a comma. Return whether the closing bracket follows, and skip it."""
        self._take(_BLANK)
        if self.text[self.at] in "[{,":
            self.at += 1
            self._take(_BLANK)
        if self.text[self.at] != bracket:
            return False
        self.at += 1
        return True

    def _mark(self, key: Key, at: int) -> None:
        self.lines.setdefault(key, bisect_left(self._ends, at) + 1)

    def _take(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.text, self.at)
        if match is None:
            return ""
        self.at = match.end()
        return match[0]
