"""Which dataset each of collectd's metrics fills."""

from __future__ import annotations

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
    "cpu": {
        "percent": {
            "idle": {"value": "dataservers/cpuload"},
            "user": {"value": "dataservers/cpuuser"},
            "system": {"value": "dataservers/cpusys"},
        }
    },
}
"""plugin, type, type instance, and the field of each dataset's values."""

DATASETS = tuple(d for types in METRICS.values() for kinds in types.values() for fields in kinds.values() for d in fields.values())
MEANS = frozenset(METRICS["cpu"]["percent"][kind]["value"] for kind in ("idle", "user", "system"))
"""A cell of these is the mean over the cores of a host."""

COMPLEMENTS = frozenset({"dataservers/cpuload"})
"""Of these, 100 minus the value is stored: busy is what is not idle."""
