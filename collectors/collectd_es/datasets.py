"""Which datasets collectd's metrics fill, and what a site calls the fields of the documents."""

from __future__ import annotations

from typing import Annotated

import msgspec

_CPU = {
    "idle": {"value": "dataservers/cpuload"},
    "user": {"value": "dataservers/cpuuser"},
    "system": {"value": "dataservers/cpusys"},
}
METRICS = {
    "disk": {
        "disk_octets": {"": {"read": "datatargets/readrates", "write": "datatargets/writerates"}},
        "disk_ops": {"": {"read": "datatargets/readoprates", "write": "datatargets/writeoprates"}},
    },
    "memory": {
        "memory": {
            "cached": {"value": "dataservers/memcached"},
            "buffered": {"value": "dataservers/membuffered"},
            "free": {"value": "dataservers/memfree"},
            "used": {"value": "dataservers/memused"},
            "slab_recl": {"value": "dataservers/memslab"},
            "slab_unrecl": {"value": "dataservers/memslab_unrecl"},
        }
    },
    "cpu": {"percent": _CPU, "cpu": _CPU},
    "aggregation": {"percent": _CPU, "cpu": _CPU},
}
"""plugin, type, type instance, and the field that holds the values of each dataset."""

JIFFIES_TYPE = "cpu"
"""Jiffies per second of a core, which is percent: Linux counts 100 jiffies in a second on every machine that has an archive."""

DATASETS = tuple(dict.fromkeys(d for types in METRICS.values() for kinds in types.values() for of in kinds.values() for d in of.values()))
MEANS = frozenset(of["value"] for of in _CPU.values())
"""Means over a host's cores."""
COMPLEMENTS = frozenset({"dataservers/cpuload"})
"""Of these, 100 minus the value is stored: busy is the complement of idle."""

COUNTED = {f"datatargets/{way}{what}rates": f"datatargets/{way}{what or 'byte'}s" for way in ("read", "write") for what in ("", "op")}
"""The dataset of a disk's counters, by that of its rates."""

NAMES = ("plugin", "host", "type", "plugin_instance", "type_instance")
"""The texts that name a series: a few thousand different ones in billions of documents."""

NUMBERS = ("value", "read", "write")

FieldName = Annotated[str, msgspec.Meta(pattern=r"\A[^.\0]+(\.[^.\0]+)*\Z", max_length=200)]


class Fields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The names of the fields. A dot leads into an object: "host.name" is {"host": {"name": ...}}."""

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
        """Return the path to a field through a document's objects."""
        return tuple(str(getattr(self, role)).split("."))


def faults(fields: Fields) -> list[str]:
    """Return the contradictions between names, each as "field: sentence"."""
    paths = {role: fields.path(role) for role in fields.__struct_fields__}
    first = {path: role for role, path in reversed(paths.items())}
    same = [(role, first[path]) for role, path in paths.items() if first[path] != role]
    inside = [(role, first[path[:n]]) for role, path in paths.items() for n in range(1, len(path)) if path[:n] in first]
    return [
        *(f"{role}: {getattr(fields, role)!r} is already the name of {other}" for role, other in same),
        *(f"{role}: {getattr(fields, role)!r} can't be inside {other}, which is a plain field" for role, other in inside),
    ]
