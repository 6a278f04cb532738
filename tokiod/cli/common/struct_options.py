"""Command-line options made from a msgspec struct, so that a kind declares its options once, in its Saved struct."""

from __future__ import annotations

import types
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import click
import msgspec

from tokiod.config import convert


def options_of(struct: type[msgspec.Struct]) -> list[click.Option]:
    """Return an option for each field. A Literal is a choice, a tuple is repeatable, a bool is a flag, a struct of numbers is a list.

    Meta's description is the help.
    """
    return [_option(field) for field in msgspec.structs.fields(struct)]


class _Numbers(click.ParamType):  # type: ignore[type-arg] # generic from click 8.4 on only
    """A struct of numbers, written as bytes=5e10,operations=1e7; those that are not named keep their defaults."""

    def __init__(self, struct: type[msgspec.Struct]) -> None:
        self._struct = struct
        self.name = ",".join(f"{field}=NUMBER" for field in struct.__struct_fields__)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> msgspec.Struct:
        if isinstance(value, msgspec.Struct):
            return value
        try:
            given = {name: float(number) for name, _, number in (part.partition("=") for part in value.split(","))}
        except ValueError:
            self.fail(f"{value!r} is not of the form {self.name}, as in {numbers(self._struct())}", param, ctx)
        values, faults = convert.fields(given, self._struct, ())
        if faults:
            self.fail("; ".join(f"{convert.label(fault.key)}: {fault.sentence}" for fault in faults), param, ctx)
        return self._struct(**values)


def numbers(struct: msgspec.Struct) -> str:
    """Return a struct of numbers as it is written."""
    return ",".join(f"{name}={number:g}" for name, number in msgspec.structs.asdict(struct).items())


def _option(field: msgspec.structs.FieldInfo) -> click.Option:
    kind, description = _plain(field.type)
    default = None if field.default is msgspec.NODEFAULT else field.default
    keywords: dict[str, Any] = {"default": default, "show_default": default is not None, "required": field.required, "help": description}
    if get_origin(kind) is Literal:
        keywords["type"] = click.Choice(list(get_args(kind)))
    elif get_origin(kind) is tuple:
        keywords |= {"type": get_args(kind)[0], "multiple": True}
    elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        keywords["type"] = _Numbers(kind)
        keywords["metavar"] = keywords["type"].name
        if default is not None:
            keywords["show_default"] = numbers(default)
    elif kind is bool:
        keywords["is_flag"] = True
    else:
        keywords["type"] = kind
    return click.Option([f"--{field.name.replace('_', '-')}"], **keywords)


def _plain(kind: Any) -> tuple[Any, str | None]:
    """Return a type without None and annotations, and the description in its annotations."""
    description = None
    while get_origin(kind) in (Annotated, Union, types.UnionType):
        if get_origin(kind) is Annotated:
            kind, *metadata = get_args(kind)
            description = next((m.description for m in metadata if isinstance(m, msgspec.Meta) and m.description), description)
        else:
            kind = next(t for t in get_args(kind) if t is not type(None))
    return kind, description
