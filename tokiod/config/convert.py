"""Shape first, meaning second: TOML tables become typed structs here, and what they mean is looked at in tokiod.config.checks.

msgspec stops at the first thing that is wrong. Someone who writes a configuration wants to hear of all of them, so a table is
converted field by field, and what can't be converted becomes a Fault with its key; the rest goes on to be checked.
"""

from __future__ import annotations

import re
from functools import lru_cache, partial
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, get_args
from urllib.parse import urlsplit

import msgspec

from tokiod.units import Duration, Size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from tokiod.config.toml_lines import Key

    Shaped = tuple[Any, list["Fault"]]

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_SECRET_IN_QUERY = re.compile(r"(?i)(^|[&;])(pass\w*|pwd|token|secret|api_?key)=")
_T = TypeVar("_T", bound=msgspec.Struct)


class Fault(NamedTuple):
    """One thing that is wrong: where, what, and the other offender where there are two."""

    key: Key
    sentence: str
    other: Key = ()


def fields(
    table: object, struct: type[msgspec.Struct], key: Key, own: Mapping[str, Callable[..., Shaped]] | None = None
) -> tuple[dict[str, Any], list[Fault]]:
    """Convert a TOML table to the fields of a struct; return those that are fine, and a Fault for each that is not.

    A table within it comes with what is fine of it too, so both may be said of one field. (TOML has no null: None is "not fine".)
    own: how to convert the fields that only their struct understands.
    """
    if not isinstance(table, dict):
        return {}, [Fault(key, f"expected a table, got {type(table).__name__}")]
    known = {field.encode_name: field for field in _fields(struct)}
    values: dict[str, Any] = {}
    faults = [Fault((*key, name), f"unknown key{nearest(name, known)}") for name in table if name not in known]
    faults += [Fault((*key, name), "missing") for name, field in known.items() if field.required and name not in table]
    for name in table:
        if field := known.get(name):
            convert = (own or {}).get(name, partial(_value, of=field.type))
            value, wrong = convert(table[name], key=(*key, name))
            faults += wrong
            values |= {} if value is None else {field.name: value}
    return values, faults


def build(struct: type[_T], values: dict[str, Any], key: Key) -> tuple[_T | None, list[Fault]]:
    """Make a struct of fields that are fine, if all it needs are there; what it refuses itself is a Fault of the whole table."""
    if any(field.required and field.name not in values for field in _fields(struct)):
        return None, []
    try:
        return struct(**values), []
    except (ValueError, TypeError) as error:
        return None, [Fault(key, str(error))]


# Reading the annotations of a struct takes a millisecond, and twenty sources are of few kinds.
@lru_cache(maxsize=64)
def _fields(struct: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(struct)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ", did you mean X?" for the known name that is most like this one, or nothing."""
    import difflib  # noqa: PLC0415 - 2 ms, for all who mistype nothing

    found = difflib.get_close_matches(name, list(known), n=1)
    return f", did you mean {found[0]}?" if found else ""


def label(key: Key) -> str:
    """Write a key the way TOML does: tls.ca, ops[2]."""
    text = ""
    for part in key:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += ("." if text else "") + (part if _BARE.fullmatch(part) else msgspec.json.encode(part).decode())
    return text


def told_secrets(value: object, key: Key) -> Iterator[Fault]:
    """Find the URLs in a table that hold a password, which nothing may print."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from told_secrets(item, (*key, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from told_secrets(item, (*key, index))
    elif isinstance(value, str) and _tells_secret(value):
        yield Fault(key, "a URL must not hold a secret: put it into a file, or into the environment, and name that instead")


def _tells_secret(text: str) -> bool:
    try:
        url = urlsplit(text)
        url.port  # noqa: B018 - a password with a slash in it ends up as the port
    except ValueError:
        return "://" in text and "@" in text
    if url.netloc.endswith(":") and "@" in text:  # a password that begins with a slash
        return True
    return url.password is not None or _SECRET_IN_QUERY.search(url.query) is not None


def _value(value: object, key: Key, of: Any) -> Shaped:
    if (struct := _struct(of)) is not None:
        values, faults = fields(value, struct, key)
        whole, refused = build(struct, values, key)
        return whole, faults or refused
    try:
        return msgspec.convert(value, of, dec_hook=_own_type), []
    except msgspec.ValidationError as error:
        return None, [Fault(key, _sentence(error))]


def _struct(of: Any) -> type[msgspec.Struct] | None:
    """Return the struct that a type is, or that may be left out."""
    (one,) = set(get_args(of)) - {NoneType} if NoneType in get_args(of) and len(get_args(of)) == 2 else {of}  # noqa: PLR2004 - it or None
    return one if isinstance(one, type) and issubclass(one, msgspec.Struct) else None


def _own_type(of: type, value: object) -> object:
    if issubclass(of, (Duration, Size)):
        return of.parse(value)
    if issubclass(of, Path) and isinstance(value, str):
        return of(value)
    raise ValueError(f"expected {of.__name__}, got {type(value).__name__}")


def _sentence(error: msgspec.ValidationError) -> str:
    text = str(error).replace("`$", "`").replace("`", "")
    return text[0].lower() + text[1:]
