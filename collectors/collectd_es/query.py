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
"""The fields, by role, that tell which dataset a document is of."""

Query = dict[str, Any]
Read = Literal["auto", "scroll", "pit"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which documents. datasets: what they become; host_prefix, device_prefix: how hosts' and disks' names begin, "" for any."""

    datasets: frozenset[str]
    host_prefix: str = ""
    device_prefix: str = ""

    @property
    def filtered(self) -> tuple[str, ...]:
        """The roles of the fields that are filtered by."""
        prefixed = [role for role, prefix in (("host", self.host_prefix), ("plugin_instance", self.device_prefix)) if prefix]
        return *TERMS, *prefixed


def query(window: Window, wanted: Wanted, fields: Fields, names: dict[str, str]) -> Query:
    """Return the query for a window's documents; names: what each filtered role's field is called in filters.

    Times are UTC epoch milliseconds, the window is half-open. No scores: everything is a filter, which servers cache and skip shards by.
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
