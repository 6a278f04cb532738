"""The indices of a simulated site, one per UTC day: their names, and how their fields are mapped."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

import numpy as np

from tokiod.simulator.elastic.query import Refused

PREFIX = "cori-collectd-"
DAY = 86_400_000
"""Milliseconds."""

SHARDS = 2
"""Of each index."""

_TEXT = {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}}
_NUMBER = {"type": "float"}
FIELDS: dict[str, dict[str, Any]] = {
    "@timestamp": {"type": "date"},
    **dict.fromkeys(("hostname", "plugin", "collectd_type", "plugin_instance", "type_instance"), _TEXT),
    **dict.fromkeys(("read", "write", "value"), _NUMBER),
}
"""What Elasticsearch makes of collectd's documents by itself."""


def index_name(day: int) -> str:
    """Return the name of the index for a UTC day since 1970."""
    return f"{PREFIX}{np.datetime64(day, 'D').item():%Y.%m.%d}"


def resolve(pattern: str, days: range, *, ignore_unavailable: bool) -> range:
    """Return those of the days whose indices a pattern of names and wildcards means.

    Raises Refused for a name without an index, and for days that do not follow each other, which no reader of windows asks for.
    """
    names = {index_name(day): day for day in days}
    found: set[int] = set()
    for part in pattern.split(","):
        matches = {day for name, day in names.items() if part == "_all" or fnmatchcase(name, part)}
        if not matches and not set(part) & set("*?") and not ignore_unavailable:
            raise Refused(404, "index_not_found_exception", f"no such index [{part}]")
        found |= matches
    if found and len(found) != max(found) - min(found) + 1:
        raise Refused(400, "illegal_argument_exception", f"the simulator searches consecutive days only, not [{pattern}]")
    return range(min(found), max(found) + 1) if found else range(0)


def field_mappings(fields: str, days: range) -> dict[str, Any]:
    """Return the answer to GET INDEX/_mapping/field/FIELDS."""
    known: dict[str, tuple[str, dict[str, Any]]] = {}
    for name, mapping in FIELDS.items():
        known[name] = (name, mapping)
        known.update({f"{name}.{leaf}": (leaf, inner) for leaf, inner in mapping.get("fields", {}).items()})
    found = {
        name: {"full_name": name, "mapping": {leaf: mapping}}
        for name, (leaf, mapping) in known.items()
        if any(fnmatchcase(name, field) for field in fields.split(","))
    }
    return {index_name(day): {"mappings": found} for day in days}
