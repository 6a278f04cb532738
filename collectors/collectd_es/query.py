"""What an index is queried for: the documents of a window that become cells, by the field names of the index's mapping."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from collectors.collectd_es.datasets import METRICS
from tokiod.errors import Fatal

if TYPE_CHECKING:
    from collections.abc import Iterable

    from collectors.collectd_es.datasets import Fields
    from tokiod.window import Window

MILLISECONDS = 1000
TERMS = ("plugin", "type", "type_instance")
"""The roles of the fields that determine a document's dataset."""

Query = dict[str, Any]
Read = Literal["auto", "scroll", "pit"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The wanted documents. datasets: what they fill; host_prefix, device_prefix: beginnings of hosts' and disks' names, "" for any."""

    datasets: frozenset[str]
    host_prefix: str = ""
    device_prefix: str = ""

    @property
    def filtered(self) -> tuple[str, ...]:
        """The roles of the fields in filters."""
        prefixed = [role for role, prefix in (("host", self.host_prefix), ("plugin_instance", self.device_prefix)) if prefix]
        return *TERMS, *prefixed


def query(window: Window, wanted: Wanted, fields: Fields, names: dict[str, str]) -> Query:
    """Return the query for a window's documents; names: the name of each filtered role's field in filters.

    Times are UTC epoch milliseconds, the window is half-open. All conditions are filters without scores: servers cache them and skip
    shards.
    """
    edges = {"gte": window.start * MILLISECONDS, "lt": window.end * MILLISECONDS, "format": "epoch_millis"}
    conditions: list[Query] = [{"range": {fields.time: edges}}]
    if wanted.host_prefix:
        conditions.append({"prefix": {names["host"]: wanted.host_prefix}})
    conditions.append(_any([one for plugin in METRICS if (one := _plugin(plugin, wanted, names)) is not None]))
    return {"constant_score": {"filter": {"bool": {"filter": conditions}}}}


def _plugin(plugin: str, wanted: Wanted, names: dict[str, str]) -> Query | None:
    kinds = [(t, i) for t, kinds in METRICS[plugin].items() for i, fields in kinds.items() if wanted.datasets & set(fields.values())]
    if not kinds:
        return None
    types, instances = sorted({t for t, _ in kinds}), sorted({i for _, i in kinds if i})
    conditions: list[Query] = [{"term": {names["plugin"]: plugin}}, {"terms": {names["type"]: types}}]
    if instances:
        conditions.append({"terms": {names["type_instance"]: instances}})
    if plugin == "disk" and wanted.device_prefix:
        conditions.append({"prefix": {names["plugin_instance"]: wanted.device_prefix}})
    return {"bool": {"filter": conditions}}


def _any(queries: list[Query]) -> Query:
    return queries[0] if len(queries) == 1 else {"bool": {"should": queries, "minimum_should_match": 1}}


DATES = {"date", "date_nanos"}
EXACT = {"keyword", "constant_keyword", "wildcard"}

Properties = dict[str, Any]
Mapping = dict[str, dict[str, dict[str, dict[str, Any]]]]
"""The answer to GET INDEX/_mapping/field/NAMES: {index: {"mappings": {field: {"mapping": {last part of its name: properties}}}}}"""


def mapped_fields(fields: Fields, roles: Iterable[str]) -> str:
    """Return the fields to query the mapping of, joined by commas: those of some roles and the time."""
    return ",".join(dict.fromkeys([fields.time, *(getattr(fields, role) for role in roles)]))


def usable_names(mapping: Mapping, fields: Fields, roles: Iterable[str], pattern: str) -> dict[str, str]:
    """Return the name of each role's field in filters and sorts; a field that no index has keeps its own.

    A text field itself cannot be used there, its keyword sub-field can. Raises Fatal for a field that cannot be used, or not under the same
    name in all indices.
    """
    found = {role: _properties(mapping, getattr(fields, role)) for role in ("time", *roles)}
    for index, properties in found["time"].items():
        if properties.get("type") not in DATES:
            raise Fatal(f"{index}: {fields.time} is mapped as {properties.get('type')}, not as a date: is it the right fields.time?")
    return {role: _usable(getattr(fields, role), properties, pattern) for role, properties in found.items() if role != "time"}


def unmapped(mapping: Mapping, fields: Fields, roles: Iterable[str]) -> str:
    """Return why a query can't find any document: a filtered field that no index has; empty if all are there."""
    if not _properties(mapping, fields.time):
        return ""  # an index without any document
    missing = [role for role in roles if role != "type_instance" and not _properties(mapping, getattr(fields, role))]
    return "; ".join(f"no index has a field {getattr(fields, role)}: set fields.{role}" for role in missing)


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
        raise Fatal(f"{pattern}: the indices differ on {field}: {where}; name only indices that agree")
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
