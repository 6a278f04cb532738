"""Describe the faults of a configuration by their places in its file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokiod.config import checks
from tokiod.config.convert import label
from tokiod.config.toml_lines import line, places

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tokiod.config.convert import Fault
    from tokiod.config.toml_lines import Key


def fault_lines(path: Path, text: str, document: dict[str, Any], faults: Iterable[Fault]) -> list[str]:
    """Return a sentence for each fault of a configuration, in the order of the file: file:line: where: what."""
    lines = places(text)
    found = sorted((line(lines, fault.key) or 0, _line(document, fault, lines)) for fault in faults)
    return list(dict.fromkeys(f"{path}:{number}: {sentence}" if number else f"{path}: {sentence}" for number, sentence in found))


def _line(document: dict[str, Any], fault: Fault, lines: dict[Key, int]) -> str:
    other = line(lines, fault.other)
    see = f" (line {other})" if other else ""
    return f"{_where(document, fault.key)}{fault.sentence}{see}".replace("\n", " ")


def _where(document: dict[str, Any], key: Key) -> str:
    """Format a key for a message: `source cscratch-lmt: window: `."""
    head, rest = key[:1], key[1:]
    words = [label(head)]
    if head in {("source",), ("sink",), ("host",)} and rest:
        words = [f"{head[0]} {_name(document[head[0]][rest[0]], rest[0])}"]
        rest = rest[1:]
    return "".join(f"{word}: " for word in [*words, label(rest)] if word)


def _name(section: Any, index: Any) -> str:
    name = section.get("name") if isinstance(section, dict) else None
    return name if isinstance(name, str) and checks.is_name(name) else f"#{index + 1}"
