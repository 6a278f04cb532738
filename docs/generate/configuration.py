"""Generate docs/configuration.md and the manual page tokiod.toml(5) from the structs and option() beside their fields."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import click
import msgspec

from tokiod.change_sink import SinkConfig
from tokiod.collector import SourceConfig
from tokiod.config import plugins
from tokiod.config.hosts import HostConfig
from tokiod.config.schema import Config
from tokiod.config.watched_folder import Watched
from tokiod.units import Duration, DurationOrNever, Size

RELOAD, RESTARTING, SINK = "reload", "reload (the processes restart)", "reload of the sink"
"""What makes a change take effect: of a source, of most other keys, of a sink."""
_HEAD = """\
# Configuration

`make docs` generates this page and the manual page tokiod.toml(5) from the code. The configuration is one TOML file,
`/etc/tokiod/tokiod.toml`; [config](../config) has commented examples. Unknown keys are errors. `tokiod check` reports all errors, each with
its line. Time spans are written "30s", "5m", "1h", "90d", sizes "64 MiB". A `*_file` option names a file with a secret: a
systemd credential of that name, else a file in `secrets`. A `*_env` option names an environment variable.

A change takes effect at the next start, and without a restart of the daemon at `tokioctl reload` or `systemctl reload tokiod`: of a
source at once, of other keys by a restart of the daemon's processes, which loses no data.
"""
_MAN_HEAD = r""".TH "TOKIOD.TOML" "5" "" "tokiod" "tokiod"
.ad l
.SH NAME
tokiod.toml \- configuration of tokiod
.SH SYNOPSIS
/etc/tokiod/tokiod.toml
.SH DESCRIPTION
One TOML file. Unknown keys are errors. tokiod\-check(1) reports all errors, each with its line. Time spans are written "30s", "5m", "1h",
"90d", sizes "64 MiB". A *_file option names a file with a secret: a systemd credential of that name, else a file in "secrets". A *_env
option names an environment variable.
.PP
A change takes effect at the next start, and at tokioctl\-reload(1), unless a key states otherwise.
"""
_MAN_TAIL = r""".SH EXAMPLES
.nf
timezone = "America/Los_Angeles"

[archive]
path = "/var/lib/tokiod/tts/%Y\-%m\-%d/{system}.hdf5"

[[source]]
name = "cscratch\-lmt"
kind = "lmt"
system = "cscratch"
url = "mysql://lwatchclient@lmt1/filesystem_snx11168"
password_file = "lmt\-password"
.fi
.SH SEE ALSO
.BR tokiod\-check (1),
.BR tokioctl\-reload (1)
"""
_TABLES = {
    "archive": "Where the files are, and when they are sealed.",
    "bus": "From the collectors to the writer.",
    "feed": "From the writer to subscribers: the changed cells, as the archive holds them. See docs/feed.md.",
    "hub": "Where the agents of compute nodes connect. See docs/nodes.md.",
    "web": "Where `tokiod web` serves the live page and its API. See docs/web.md.",
    "site": "What commands that answer questions about jobs must know of the site.",
    "jobs": "What the job table holds of users, and for how long. See docs/sources/lustre_jobstats.md.",
    "metrics": "Serves /metrics for Prometheus, /healthz and /readyz for monitoring. Without this table nothing is counted or served.",
}
_LISTS = {"host", "source", "sink"}
"""Keys with a section for each."""
_NAMES = {
    str: "text",
    int: "integer",
    float: "number",
    bool: "true, false",
    Duration: "time span",
    DurationOrNever: 'time span or "never"',
    Size: "size",
    Path: "path",
}


@dataclass(frozen=True, slots=True)
class Entry:
    """A key. kind: its type; values: its range; default: as TOML, empty for a key that is required or has no default; example: as TOML."""

    name: str
    kind: str
    values: str
    default: str
    example: str
    sentence: str
    effect: str
    required: bool


@dataclass(frozen=True, slots=True)
class Section:
    """A table of the configuration."""

    title: str
    text: str
    entries: list[Entry]


def sections() -> list[Section]:
    """Return all tables, in the order of the page. Raises KeyError for a key without an explanation."""
    tables = {field.name: _struct(field.type) for field in msgspec.structs.fields(Config) if field.name not in _LISTS}
    found = [Section("Top level", "", entries(Config, RESTARTING, skip={*filter(tables.get, tables), *_LISTS}))]
    found += [Section(f"[{name}]", _TABLES[name], entries(struct, RESTARTING)) for name, struct in tables.items() if struct]
    text = "One section for each host, where sources are collected on several. Without one, all run on this machine. See docs/hosts.md."
    found.append(Section("[[host]]", text, entries(HostConfig, RESTARTING)))
    common = {field.name for field in msgspec.structs.fields(SourceConfig)}
    text = "One section for each source. Several sources may fill one system, each with its own datasets."
    found.append(Section("[[source]]", text, entries(SourceConfig, RELOAD)))
    found += _of_kinds("source", SourceConfig, plugins.SOURCES, RELOAD)
    text = (
        "A section with `watch` collects files of its kind instead. It has the keys name, kind and system, those below, and the options of "
        "`tokioctl archive KIND` as keys. See docs/watch.md."
    )
    found.append(Section("[[source]] of a watched folder", text, entries(Watched, RELOAD, skip=common)))
    found.append(
        Section("[[sink]]", "One section for each sink, which `tokiod sink NAME` runs. See docs/sinks.md.", entries(SinkConfig, SINK))
    )
    return found + _of_kinds("sink", SinkConfig, plugins.SINKS, SINK)


def _of_kinds(name: str, common: type[msgspec.Struct], family: plugins.Family, effect: str) -> list[Section]:
    """Return the sections of the own keys of each kind of source, or of sink. common: what their structs add to."""
    directory = "config/sinks" if name == "sink" else "config"
    known, found = {field.name: field for field in msgspec.structs.fields(common)}, []
    for kind in family.kinds():
        struct = family.load(kind).Config
        same = {field.name for field in msgspec.structs.fields(struct) if field.name in known and field.type == known[field.name].type}
        text = f"In addition to the keys of every {name}; {directory}/{kind}.toml is an example section."
        found.append(Section(f'[[{name}]] of kind = "{kind}"', text, entries(struct, effect, skip=same)))
    return found


def entries(struct: type[msgspec.Struct], effect: str, skip: set[str] = frozenset()) -> list[Entry]:  # type: ignore[assignment]
    """Return the keys of a struct. effect: of those that state none. Raises KeyError for a key without an explanation."""
    return [_entry(field, effect) for field in msgspec.structs.fields(struct) if field.name not in skip]


def _entry(field: msgspec.structs.FieldInfo, effect: str) -> Entry:
    inner, metas = _unwrapped(field.type)
    described = next((meta for meta in metas if meta.description), None)
    if described is None:
        raise KeyError(f"{field.name} has no option() with a sentence beside it")
    given = described.extra or {}
    default = "" if field.required else _toml(_default(field), inner)
    bounds = next(filter(None, map(_bounds, metas)), "")
    return Entry(
        name=field.name,
        kind=_type(inner),
        values=given.get("values") or bounds,
        default=default,
        example=(described.examples or [default])[0],
        sentence=described.description or "",
        effect=given.get("effect") or effect,
        required=field.required,
    )


def _default(field: msgspec.structs.FieldInfo) -> Any:
    return field.default_factory() if field.default is msgspec.NODEFAULT else field.default


def _unwrapped(given: Any) -> tuple[Any, list[msgspec.Meta]]:
    """Return a type without annotations, and these."""
    if get_origin(given) is Annotated:
        inner, *metas = get_args(given)
        return inner, [meta for meta in metas if isinstance(meta, msgspec.Meta)]
    return given, []


def _bounds(meta: msgspec.Meta) -> str:
    if meta.gt is not None:
        return f"greater than {meta.gt:g}" if meta.le is None else f"greater than {meta.gt:g}, up to {meta.le:g}"
    if meta.ge is not None:
        return f"{meta.ge:g} or more" if meta.le is None else f"{meta.ge:g} to {meta.le:g}"
    return ""


def page() -> str:
    """Return the page as Markdown."""
    return _HEAD + "".join(_markdown(section) for section in sections())


def _markdown(section: Section) -> str:
    rows = [
        " | ".join(
            (
                f"| `{one.name}`",
                _cell("; ".join(filter(None, (one.kind, one.values)))),
                _code(one.default) or ("required" if one.required else ""),
                _code(one.example),
                _cell(one.sentence),
                f"{one.effect} |",
            )
        )
        for one in section.entries
    ]
    head = ["| key | values | default | example | | takes effect |", "| --- | --- | --- | --- | --- | --- |"]
    return "\n".join(["", f"## {section.title}", "", *([section.text, ""] if section.text else []), *head, *rows, ""])


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _code(text: str) -> str:
    return f"`{_cell(text)}`" if text else ""


def manual_page() -> str:
    """Return tokiod.toml(5) for troff."""
    return _MAN_HEAD + "".join(_roff(section) for section in sections()) + _MAN_TAIL


def _roff(section: Section) -> str:
    lines = [f'.SH "{_plain(section.title.upper())}"', *([_plain(section.text)] if section.text else [])]
    for one in section.entries:
        default = f"Default: {one.default}." if one.default else "Required." if one.required else "No default."
        facts = [f"Values: {'; '.join(filter(None, (one.kind, one.values)))}.", default]
        facts += [f"Example: {one.name} = {one.example}."] if one.example not in {"", one.default} else []
        facts += [f"Takes effect: {one.effect}."] if one.effect not in {RELOAD, RESTARTING} else []
        lines += [".TP", f".B {_plain(one.name)}", _plain(one.sentence), ".br", _plain(" ".join(facts))]
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """Escape what roff would take for its own."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return f"\\&{text}" if text.startswith((".", "'")) else text


def _struct(given: Any) -> type[msgspec.Struct] | None:
    found = [one for one in (given, *get_args(given)) if isinstance(one, type) and issubclass(one, msgspec.Struct)]
    return found[0] if found else None


def _type(given: Any) -> str:
    if get_origin(given) is Literal:
        return " or ".join(f'"{one}"' for one in get_args(given))
    if given in _NAMES:
        return _NAMES[given]
    if (struct := _struct(given)) is not None:
        return f"table: {', '.join(struct.__struct_fields__)}"
    inner = [one for one in get_args(given) if one not in {NoneType, Ellipsis}]
    if get_origin(given) is tuple:
        return f"list: {_type(inner[0])}"
    if get_origin(given) is dict:
        return "table"
    return _type(inner[0]) if inner else "text"


def _toml(value: Any, given: Any) -> str:
    if value is None:
        return ""
    if given is Duration or isinstance(value, Duration):
        return f'"{_span(value)}"'
    if isinstance(value, Size):
        return f'"{value >> 20} MiB"'
    if isinstance(value, (msgspec.Struct, dict)):
        items = msgspec.structs.asdict(value) if isinstance(value, msgspec.Struct) else value
        return f"{{ {', '.join(f'{name} = {_plain_value(one)}' for name, one in items.items())} }}" if items else "{}"
    if isinstance(value, tuple):
        return f"[{', '.join(_toml(one, type(one)) for one in value)}]"
    return msgspec.json.encode(str(value) if isinstance(value, Path) else value).decode()


def _plain_value(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else msgspec.json.encode(value).decode()


def _span(seconds: int) -> str:
    unit, letter = next((unit, letter) for unit, letter in ((86400, "d"), (3600, "h"), (60, "m"), (1, "s")) if seconds % unit == 0)
    return f"{seconds // unit}{letter}"


if __name__ == "__main__":
    click.echo(manual_page() if sys.argv[1:] == ["--man"] else page(), nl=False)
