"""What is asked of an index: the documents of a window that become cells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from collectors.collectd_es.metrics import METRICS

if TYPE_CHECKING:
    from collectors.collectd_es.fields import Fields
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
