"""The effective configuration as TOML: every key with its value, and where that comes from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tokiod.config import toml_lines
from tokiod.runtime.secrets import mask
from tokiod.units import NEVER, Duration, Size

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tokiod.config.schema import Config
    from tokiod.config.toml_lines import Key

ORIGIN_COLUMN = 60
_DURATIONS = (("d", 86400), ("h", 3600), ("m", 60))
_SIZES = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


def lines(path: Path, text: str, config: Config) -> Iterator[str]:
    """Yield the lines. path, text: of the file that the configuration was read from."""
    known = toml_lines.places(text)
    tables = {name: value for name in config.__struct_fields__ if isinstance(value := getattr(config, name), msgspec.Struct)}
    sections = {"host": config.host, "source": config.source, "sink": config.sink}
    plain = [name for name in config.__struct_fields__ if name not in tables and name not in sections and getattr(config, name) is not None]
    for name in plain:
        yield _line(path, known, (name,), getattr(config, name))
    for name, table in tables.items():
        yield from ("", f"[{name}]", *(_line(path, known, (name, key), getattr(table, key)) for key in _set_keys(table)))
    for name, of_kinds in sections.items():
        for index, section in enumerate(of_kinds):
            yield from ("", f"[[{name}]]")
            yield from (_line(path, known, (name, index, key), getattr(section, key)) for key in _set_keys(section))


def _set_keys(table: msgspec.Struct) -> Iterator[str]:
    return (key for key in table.__struct_fields__ if getattr(table, key) is not None)


def _line(path: Path, known: dict[Key, int], key: Key, value: Any) -> str:
    origin = f"{path.name}:{known[key]}" if key in known else "default"
    return mask(f"{f'{key[-1]} = {toml(value)}':<{ORIGIN_COLUMN}}  # {origin}")


def toml(value: Any) -> str:
    """Return a value as TOML writes it."""
    if isinstance(value, (msgspec.Struct, dict)):
        table = msgspec.structs.asdict(value) if isinstance(value, msgspec.Struct) else value
        return "{ " + ", ".join(f"{_quoted(name)} = {toml(one)}" for name, one in table.items()) + " }"
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(map(toml, value)) + "]"
    return _quoted(value) if isinstance(value, (str, Path)) else _number(value)


def _number(value: float) -> str:
    if isinstance(value, Duration):
        return '"never"' if value >= NEVER else _scaled(value, _DURATIONS, "s", "")
    if isinstance(value, Size):
        return _scaled(value, _SIZES, "B", " ")
    return str(value).lower()


def _quoted(value: object) -> str:
    return msgspec.json.encode(str(value)).decode()


def _scaled(number: int, units: tuple[tuple[str, int], ...], smallest: str, space: str) -> str:
    unit, size = next(((unit, size) for unit, size in units if number and number % size == 0), (smallest, 1))
    return f'"{number // size}{space}{unit}"'
