"""Which names documents' fields have in filters and sorts: a text's own can't be used, its keyword's can."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokiod.errors import Fatal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from collectors.collectd_es.fields import Fields

DATES = {"date", "date_nanos"}
EXACT = {"keyword", "constant_keyword", "wildcard"}

Properties = dict[str, Any]
Mapping = dict[str, dict[str, dict[str, dict[str, Any]]]]
"""The answer to GET INDEX/_mapping/field/NAMES: {index: {"mappings": {field: {"mapping": {last part of its name: properties}}}}}"""


def asked_for(fields: Fields, roles: Iterable[str]) -> str:
    """Return the names to ask the mapping of, joined by commas: those of some roles and the time's."""
    return ",".join(dict.fromkeys([fields.time, *(getattr(fields, role) for role in roles)]))


def usable_names(mapping: Mapping, fields: Fields, roles: Iterable[str], pattern: str) -> dict[str, str]:
    """Return what the field of each role is called in filters and sorts. A field that no index has may be called anything.

    Raises Fatal for one that can't be used, or not in all of the indices under the same name.
    """
    found = {role: _properties(mapping, getattr(fields, role)) for role in ("time", *roles)}
    for index, properties in found["time"].items():
        if properties.get("type") not in DATES:
            raise Fatal(f"{index}: {fields.time} is no date but {properties.get('type')}, so no time can be asked for; is it fields.time?")
    return {role: _usable(getattr(fields, role), properties, pattern) for role, properties in found.items() if role != "time"}


def _properties(mapping: Mapping, field: str) -> dict[str, Properties]:
    """Return a field's properties in each index that has it."""
    found: dict[str, dict[str, Properties]] = {
        index: whole.get("mappings", {}).get(field, {}).get("mapping", {}) for index, whole in mapping.items()
    }
    return {index: next(iter(leaf.values())) for index, leaf in found.items() if leaf}


def _usable(field: str, properties: dict[str, Properties], pattern: str) -> str:
    names = {_name(index, field, one): index for index, one in properties.items()}
    if len(names) > 1:
        where = ", ".join(f"{name} in {index}" for name, index in sorted(names.items()))
        raise Fatal(f"{pattern}: the indices don't agree on {field}: it is {where}; name only indices that do")
    return next(iter(names), field)


def _name(index: str, field: str, properties: Properties) -> str:
    if properties.get("type") in EXACT and properties.get("index", True) and properties.get("doc_values", True):
        return field
    for name, inner in properties.get("fields", {}).items():
        if inner.get("type") in EXACT:
            return f"{field}.{name}"
    raise Fatal(
        f"{index}: {field} is mapped as {properties.get('type')} and can't be filtered or sorted exactly: map it as keyword,"
        f" or give it a sub-field {field}.keyword"
    )
