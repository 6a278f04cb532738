"""What a site calls the fields of collectd's documents, and the typed documents that follow from it."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

FieldName = Annotated[str, msgspec.Meta(pattern=r"\A[^.\0]+(\.[^.\0]+)*\Z", max_length=200)]


class Fields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The names of the fields; a dot goes into a nested object: "host.name" is {"host": {"name": ...}}."""

    time: FieldName = "@timestamp"
    host: FieldName = "hostname"
    plugin: FieldName = "plugin"
    type: FieldName = "collectd_type"
    type_instance: FieldName = "type_instance"
    plugin_instance: FieldName = "plugin_instance"
    value: FieldName = "value"
    read: FieldName = "read"
    write: FieldName = "write"

    def path(self, role: str) -> tuple[str, ...]:
        """Return the way to a field through a document's objects."""
        return tuple(str(getattr(self, role)).split("."))


class Source(msgspec.Struct, gc=False, order=False, eq=False):
    """One document as it stands: "" for a text and NaN for a number that isn't there, None for a null.

    time: ISO 8601; value: of memory and cpu; read, write: of disk.
    """

    plugin: str = ""
    read: float | None = math.nan
    time: str = ""
    host: str = ""
    write: float | None = math.nan
    value: float | None = math.nan
    type: str = ""
    plugin_instance: str = ""
    type_instance: str = ""


NAMES = ("plugin", "host", "type", "plugin_instance", "type_instance")
"""The texts that name a series: of a few thousand different ones in billions of documents."""

NUMBERS = ("value", "read", "write")
ROLES = Source.__struct_fields__

Tree = dict[str, "Tree | str"]


def faults(fields: Fields) -> list[str]:
    """Return what is wrong between the names, each as "field: sentence"."""
    paths = {role: fields.path(role) for role in fields.__struct_fields__}
    first = {path: role for role, path in reversed(paths.items())}
    same = [(role, first[path]) for role, path in paths.items() if first[path] != role]
    inside = [(role, first[path[:n]]) for role, path in paths.items() for n in range(1, len(path)) if path[:n] in first]
    return [
        *(f"{role}: {getattr(fields, role)!r} is the name of {other} already" for role, other in same),
        *(f"{role}: {getattr(fields, role)!r} can't be inside {other}, which is a field of its own" for role, other in inside),
    ]


def document_type(fields: Fields, known: Mapping[str, Collection[str]]) -> tuple[type[Any], Callable[[Any], Source] | None]:
    """Make the struct that one document is decoded into, and what flattens it to a Source, None where it has Source's attributes.

    known: the values that may occur in some of NAMES; others fail validation. Naming them costs the decoder no string and no hash
    per document. msgspec compares keys in the order of the struct's fields, so theirs is that of the documents of the capture.
    """
    tree: Tree = {}
    for role in ROLES:
        *way, last = fields.path(role)
        place: Any = tree
        for name in way:
            place = place.setdefault(name, {})
        place[last] = role
    attributes: dict[str, str] = {}
    struct = _struct(tree, known, "", attributes)
    if all(attribute == role for role, attribute in attributes.items()):
        return struct, None
    pick = operator.attrgetter(*(attributes[role] for role in ROLES))
    return struct, lambda document: Source(*pick(document))


def _struct(tree: Tree, known: Mapping[str, Collection[str]], prefix: str, attributes: dict[str, str]) -> type[Any]:
    members: list[tuple[str, Any, Any]] = []
    for number, (name, what) in enumerate(tree.items()):
        if isinstance(what, str):
            attributes[what] = prefix + what
            members.append((what, _annotation(what, known), msgspec.field(name=name, default=math.nan if what in NUMBERS else "")))
        else:
            inner = _struct(what, known, f"{prefix}object{number}.", attributes)
            members.append((f"object{number}", inner, msgspec.field(name=name, default=inner())))
    return msgspec.defstruct("Document", members, gc=False, frozen=True, eq=False)


def _annotation(role: str, known: Mapping[str, Collection[str]]) -> Any:
    if role in NUMBERS:
        return float | None
    return Literal[tuple(known[role])] if known.get(role) else str
