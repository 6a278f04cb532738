"""Generate docs/configuration.md: types and defaults from the structs, explanations from the commented files in config/."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

import click
import msgspec

from tokiod.collector import SourceConfig
from tokiod.config import plugins
from tokiod.config.load import Config
from tokiod.units import Duration, DurationOrNever, Size

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEAD = """\
# Configuration

`make docs` generates this page from the code and from the example files in [config](../config). The configuration is one TOML file,
`/etc/tokiod/tokiod.toml`. Unknown keys are errors. `tokiod check` reports all errors, each with its line; `tokioctl reload` loads the file
into a running daemon. Time spans are written "30s", "5m", "1h", "90d", sizes "64 MiB". A `*_file` option names a file with a secret: a
systemd credential of that name, else a file in `secrets`. A `*_env` option names an environment variable.
"""

_KEY = re.compile(r"#?([a-z_0-9]+) = .*")
_OTHER = re.compile(r"# ([a-z_0-9]+) = .*")
_TABLE = re.compile(r"\[+([a-z]+)\]+")
_NAMES = {str: "text", int: "integer", float: "number", bool: "true, false", Duration: "time span", Size: "size", Path: "path"}
_NAMES[DurationOrNever] = 'time span or "never"'


def main() -> None:
    """Print the page. Run it in the root directory of the checkout."""
    click.echo(settings(Path("config")), nl=False)


def settings(directory: Path) -> str:
    """Return the page as Markdown. directory: that of the commented files. Raises KeyError for a key that no file explains."""
    words = explained((directory / "tokiod.toml").read_text("utf-8"))
    tables = {field.name: _struct(field.type) for field in msgspec.structs.fields(Config) if field.name != "source"}
    sections = [("Top level", "", _lines(Config, words, "", skip={*filter(tables.get, tables), "source"}))]
    sections += [(f"[{name}]", words.get((name, ""), ""), _lines(struct, words, name)) for name, struct in tables.items() if struct]
    sections += [("[[source]]", words["source", ""], _lines(SourceConfig, words, "source"))]
    for path in example_sections(directory):
        kind, own = path.stem, words | explained(path.read_text("utf-8"))
        struct = plugins.load(kind).Config
        common = {field.name: field.default for field in msgspec.structs.fields(SourceConfig)}
        same = {field.name for field in msgspec.structs.fields(struct) if field.name in common and field.default == common[field.name]}
        text = f"In addition to the keys of every source; [config/{kind}.toml](../config/{kind}.toml) is an example section."
        sections.append((f'[[source]] of kind = "{kind}"', text, _lines(struct, own, "source", skip=same)))
    return _HEAD + "".join(_section(*section) for section in sections)


def example_sections(directory: Path) -> list[Path]:
    """Return the example files of the kinds, in alphabetical order."""
    return sorted(path for path in directory.glob("*.toml") if path.stem != "tokiod")


def explained(text: str) -> dict[tuple[str, str], str]:
    """Return the comment above each (table, key) of a commented TOML file, and above each table as (table, "").

    Consecutive keys share the comment above the first; `# key = value` is an alternative key.
    """
    found: dict[tuple[str, str], str] = {}
    table, words, is_fresh = "", list[str](), True
    for line in text.splitlines():
        if match := _KEY.fullmatch(line):
            found[table, match[1]] = " ".join(words)
            is_fresh = True
        elif match := _TABLE.fullmatch(line):
            table = match[1]
            found[table, ""] = " ".join(words)
            words = []
        elif match := _OTHER.fullmatch(line):
            found[table, match[1]] = " ".join(words)
        elif line.startswith("# "):
            words = [line[2:]] if is_fresh else [*words, line[2:]]
            is_fresh = False
        elif not line:
            words, is_fresh = [], True
    return found


def _lines(struct: type[msgspec.Struct], words: dict[tuple[str, str], str], table: str, skip: set[str] = frozenset()) -> Iterator[str]:  # type: ignore[assignment]
    for field in msgspec.structs.fields(struct):
        if field.name not in skip:
            default = "" if field.required else _toml(field.default, field.type)
            yield f"| `{field.name}` | {_type(field.type)} | {default} | {_words(field.name, table, words)} |"


def _words(name: str, table: str, words: dict[tuple[str, str], str]) -> str:
    """Return the comment above a key, else the comment that names it."""
    named = (text for (other, _), text in words.items() if other == table and re.search(rf"\b{name}\b", text))
    text = words.get((table, name)) or next(named, "")
    if not text and (table, name) not in words:
        raise KeyError(f"{table}.{name} has no comment in config/")
    return text


def _section(title: str, text: str, lines: Iterator[str]) -> str:
    table = "\n".join(["| key | is | default | |", "| --- | --- | --- | --- |", *lines])
    return "\n".join(["", f"## {title}", "", *([text, ""] if text else []), table, ""])


def _struct(given: Any) -> type[msgspec.Struct] | None:
    found = [one for one in (given, *get_args(given)) if isinstance(one, type) and issubclass(one, msgspec.Struct)]
    return found[0] if found else None


def _type(given: Any) -> str:
    if get_origin(given) is Literal:
        return " or ".join(f'`"{one}"`' for one in get_args(given))
    if given in _NAMES:
        return _NAMES[given]
    if (struct := _struct(given)) is not None:
        return f"table: {', '.join(struct.__struct_fields__)}"
    inner = [one for one in get_args(given) if one not in {type(None), Ellipsis}]
    if get_origin(given) is tuple:
        return f"list: {_type(inner[0])}"
    return _type(inner[0]) if inner else "text"


def _toml(value: Any, given: Any) -> str:
    if value is None or value is msgspec.NODEFAULT:
        return ""
    if given is Duration or isinstance(value, Duration):
        return f'`"{_span(value)}"`'
    if isinstance(value, Size):
        return f'`"{value >> 20} MiB"`'
    if isinstance(value, msgspec.Struct):
        return f"`{{ {', '.join(f'{name} = {_plain(one)}' for name, one in msgspec.structs.asdict(value).items())} }}`"
    if isinstance(value, tuple):
        return f"`[{', '.join(_toml(one, type(one)).strip('`') for one in value)}]`"
    return f"`{msgspec.json.encode(str(value) if isinstance(value, Path) else value).decode()}`"


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else msgspec.json.encode(value).decode()


def _span(seconds: int) -> str:
    unit, letter = next((unit, letter) for unit, letter in ((86400, "d"), (3600, "h"), (60, "m"), (1, "s")) if seconds % unit == 0)
    return f"{seconds // unit}{letter}"


if __name__ == "__main__":
    main()
