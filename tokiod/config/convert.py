"""Convert TOML tables to typed structs. tokiod.config.checks checks their meaning.

msgspec stops at the first error, but all errors are to be reported at once. So a table is converted field by field. A value that can't
be converted becomes a Fault with its key; the other values are checked further.
"""

from __future__ import annotations

import re
import sys
from functools import lru_cache, partial
from inspect import get_annotations
from pathlib import Path
from types import NoneType, SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import urlsplit

import msgspec

from tokiod.errors import nearest
from tokiod.units import Duration, Size

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from tokiod.config.toml_lines import Key

    Shaped = tuple[Any, list["Fault"]]

_EXAMPLES = {
    "timezone": '"America/Los_Angeles"',
    "path": '"/var/lib/tokiod/tts/%Y-%m-%d/{system}.hdf5"',
    "kind": '"lmt"',
    "name": '"cscratch-lmt"',
    "system": '"cscratch"',
}
"""Of keys that must be set, by name."""
_TYPES = {bool: "true or false", int: "an integer", float: "a number", str: "text in quotes", list: "an array", dict: "a table"}
_CONVERTED = {"bool": bool, "int": int, "float": float, "str": str, "array": list, "object": dict}
"""The types of TOML, by msgspec's names for them."""
# Most patterns are for errors. They are texts, which `re` compiles once when they are used: each takes up to 0.2 ms of a start.
_EXPECTED = r"[Ee]xpected (\w+)(?: \| null)?(?:, got (\w+))?"
_ENUM = r"[Ii]nvalid enum value (.*?)(?: - at .*)?"
_BARE = r"[A-Za-z0-9_-]+"
_HIDDEN_KEYS = r"(?i)(^|[&;])(pass\w*|pwd|token|secret|api_?key)="
_T = TypeVar("_T", bound=msgspec.Struct)


class Fault(msgspec.Struct, frozen=True):
    """One error: its key, a sentence, and the key of the other value in a conflict."""

    key: Key
    sentence: str
    other: Key = ()


def fields(
    table: object, struct: type[msgspec.Struct], key: Key, own: Mapping[str, Callable[..., Shaped]] | None = None
) -> tuple[dict[str, Any], list[Fault]]:
    """Convert a TOML table to the fields of a struct. Return the valid fields, and a Fault for each invalid one.

    A table inside it returns its valid part and its Faults too. (TOML has no null: None means "not valid".)
    own: converters for fields that need their own.
    """
    if not isinstance(table, dict):
        return {}, [Fault(key, f"expected a table, got {toml_type(table)}")]
    known = _fields(struct)
    values: dict[str, Any] = {}
    faults = [Fault((*key, name), f"unknown key{nearest_key(name, known)}") for name in table if name not in known]
    faults += [Fault((*key, name), _missing(field)) for name, field in known.items() if field.required and name not in table]
    for name in table:
        if field := known.get(name):
            convert = own[name] if own and name in own else partial(_value, field)
            value, wrong = convert(table[name], key=(*key, name))
            faults += wrong
            if value is not None:
                values[field.name] = value
    return values, faults


def build(struct: type[_T], values: dict[str, Any], key: Key) -> tuple[_T | None, list[Fault]]:
    """Return a struct of valid fields, or None if a required one is missing. An error of the struct is a Fault of the whole table."""
    if any(field.required and field.name not in values for field in _fields(struct).values()):
        return None, []
    try:
        return struct(**values), []
    except (ValueError, TypeError) as error:
        return None, [Fault(key, str(error))]


# msgspec.structs.fields() evaluates all annotations of a struct. That takes 2 ms of every start, and a table has few of the keys.
class _Field(msgspec.Struct, frozen=True):
    """A field of a struct; key: its name in a table."""

    owner: type[msgspec.Struct]
    name: str
    key: str
    required: bool

    @property
    def annotation(self) -> Any:
        """Its annotation, evaluated."""
        return _annotation(self.owner, self.name)[0]

    @property
    def struct(self) -> type[msgspec.Struct] | None:
        """The struct that it is, or may be; None where it is something else."""
        return _annotation(self.owner, self.name)[1]


# Many sources have few kinds.
@lru_cache(maxsize=64)
def _fields(struct: type[msgspec.Struct]) -> dict[str, _Field]:
    """Return the fields of a struct by their names in a table."""
    names, keys, defaults = struct.__struct_fields__, struct.__struct_encode_fields__, struct.__struct_defaults__
    defaults = (msgspec.NODEFAULT,) * (len(names) - len(defaults)) + defaults
    fields = zip(names, keys, defaults, strict=True)
    return {key: _Field(struct, name, key, default is msgspec.NODEFAULT) for name, key, default in fields}


@lru_cache(maxsize=1024)
def _annotation(struct: type[msgspec.Struct], name: str) -> tuple[Any, type[msgspec.Struct] | None]:
    owner = next(base for base in struct.__mro__ if name in get_annotations(base))
    one = SimpleNamespace(__annotations__={name: get_annotations(owner)[name]})
    of = get_type_hints(one, vars(sys.modules[owner.__module__]), vars(owner), include_extras=True)[name]
    return of, _struct(of)


def nearest_key(name: str, known: Iterable[str]) -> str:
    """Return ", did you mean X?" for the known key that is meant: of several that `name` begins, that of a file is the safest."""
    longer = [key for key in known if key.startswith(f"{name}_")]
    return f", did you mean {min(longer, key=lambda key: not key.endswith('_file'))}?" if longer else nearest(name, known)


def toml_type(value: object) -> str:
    """Return the name of a value's type in TOML."""
    return _TYPES.get(type(value), "a date or a time")


def _missing(field: _Field) -> str:
    if field.struct is not None:
        return f"missing; write a section [{field.key}]"
    return f"missing; for example {field.key} = {_EXAMPLES[field.key]}" if field.key in _EXAMPLES else "missing"


def label(key: Key) -> str:
    """Format a key as TOML does: tls.ca, ops[2]."""
    text = ""
    for part in key:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += ("." if text else "") + (part if re.fullmatch(_BARE, part) else msgspec.json.encode(part).decode())
    return text


def secrets_in_urls(value: object, key: Key) -> Iterator[Fault]:
    """Yield a Fault for each URL in a table that holds a password. The Fault does not show it."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from secrets_in_urls(item, (*key, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from secrets_in_urls(item, (*key, index))
    elif isinstance(value, str) and _holds_secret(value):
        yield Fault(key, "a URL must not contain a secret: put it into a file or the environment and name that")


def _holds_secret(text: str) -> bool:
    if "@" not in text and "?" not in text:  # most values; to split one takes 7 us
        return False
    try:
        url = urlsplit(text)
        url.port  # noqa: B018 - a password with a slash in it ends up as the port
    except ValueError:
        return "://" in text and "@" in text
    if url.netloc.endswith(":") and "@" in text:  # a password that begins with a slash
        return True
    return url.password is not None or re.search(_HIDDEN_KEYS, url.query) is not None


def _value(field: _Field, value: object, key: Key) -> Shaped:
    if field.struct is not None:
        values, faults = fields(value, field.struct, key)
        whole, refused = build(field.struct, values, key)
        return whole, faults or refused
    try:
        return msgspec.convert(value, field.annotation, dec_hook=_own_type), []
    except msgspec.ValidationError as error:
        return None, [Fault(key, _sentence(error, field.annotation))]


def _struct(of: Any) -> type[msgspec.Struct] | None:
    """Return the struct of a type that is a struct or an optional struct, else None."""
    of = get_args(of)[0] if get_origin(of) is Annotated else of
    (one,) = set(get_args(of)) - {NoneType} if NoneType in get_args(of) and len(get_args(of)) == 2 else {of}  # noqa: PLR2004 - it or None
    return one if isinstance(one, type) and issubclass(one, msgspec.Struct) else None


def _own_type(of: type, value: object) -> object:
    if issubclass(of, (Duration, Size)):
        return of.parse(value)
    if issubclass(of, Path) and isinstance(value, str):
        return of(value)
    raise ValueError(f"expected {of.__name__}, got {type(value).__name__}")


def _sentence(error: msgspec.ValidationError, of: Any) -> str:
    text = str(error).replace("`$", "`").replace("`", "")
    if (match := re.fullmatch(_ENUM, text)) and (words := list(_words(of))):
        return f"expected {', '.join(words[:-1])} or {words[-1]}, got {match[1]}{nearest(match[1].strip(chr(39)), words)}"
    text = re.sub(_EXPECTED, _expectation, text)
    return text[0].lower() + text[1:]


def _expectation(match: re.Match[str]) -> str:
    expected, given = (_TYPES[_CONVERTED[name]] if name in _CONVERTED else name for name in match.groups())
    return f"expected {expected}, got {given}" if given else f"expected {expected}"


def _words(of: Any) -> Iterator[str]:
    """Yield the words that a type allows, wherever they are in it."""
    for part in get_args(of):
        yield from [str(part)] if get_origin(of) is Literal else _words(part)
