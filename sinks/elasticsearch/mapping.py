"""The templates of the indices: strict, so that nothing but the known metrics gets a field."""

from __future__ import annotations

from typing import Any

from tokiod.tts.schema import UNITS

KEYWORD, DOUBLE = {"type": "keyword"}, {"type": "double"}
FIELDS: dict[str, Any] = {
    "@timestamp": {"type": "date", "format": "epoch_second"},
    "system": KEYWORD,
    "group": KEYWORD,
    "component": KEYWORD,
    "step": {"type": "integer"},
    "revision": {"type": "long"},
}
"""Of each document, besides its metrics. A metric has the name of its dataset without the group, and is absent where it is missing."""


def templates(prefix: str) -> dict[str, dict[str, Any]]:
    """Return the index templates by name."""
    metrics = {name.partition("/")[2]: DOUBLE for name in UNITS}
    rejected = {"index": KEYWORD, "id": KEYWORD, "reason": KEYWORD, "document": {"type": "keyword", "index": False, "doc_values": False}}
    return {
        prefix: _template(f"{prefix}-*-*.*", metrics | FIELDS),
        f"{prefix}.rejected": _template(f"{prefix}.rejected", {"@timestamp": FIELDS["@timestamp"], **rejected}),
    }


def _template(pattern: str, fields: dict[str, Any]) -> dict[str, Any]:
    mappings = {"dynamic": "strict", "properties": fields}
    return {"index_patterns": [pattern], "priority": 200, "template": {"mappings": mappings}}
