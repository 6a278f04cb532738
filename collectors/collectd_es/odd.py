"""Documents that the typed decoders refuse: what of them can be used, and why the rest can't."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from collectors.collectd_es.fields import NUMBERS, ROLES, Fields, Source

if TYPE_CHECKING:
    from collections import Counter

NO_SOURCE, NO_TEXT, NO_NUMBER, NOT_FINITE = "no document", "no text where a name belongs", "no number where a value belongs", "not finite"


def salvage(hit: Any, fields: Fields, dropped: Counter[str]) -> Source | None:
    """Read one hit that json or msgspec made dicts of; None where nothing of it can be used, which is counted in `dropped`."""
    document = hit.get("_source") if isinstance(hit, dict) else None
    if not isinstance(document, dict):
        dropped[NO_SOURCE] += 1
        return None
    found = {role: _at(document, fields.path(role)) for role in ROLES}
    texts: dict[str, Any] = {role: value for role, value in found.items() if isinstance(value, str) and role not in NUMBERS}
    source = Source(**texts)
    if any(not isinstance(value, str | None) for role, value in found.items() if role not in NUMBERS):
        dropped[NO_TEXT] += 1
        return None
    faults = {role: _number(source, role, found[role]) for role in NUMBERS}
    wrong = [fault for fault in faults.values() if fault]
    dropped.update(wrong)
    return None if wrong and not any(math.isfinite(getattr(source, role)) for role in NUMBERS if found[role] is not None) else source


def _at(document: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        document = document.get(name) if isinstance(document, dict) else None
    return document


def _number(source: Source, role: str, value: Any) -> str:
    """Set a number of a document; return why not."""
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return NO_NUMBER
    try:
        number = float(value)
    except OverflowError:
        return NOT_FINITE
    if not math.isfinite(number):
        return NOT_FINITE
    setattr(source, role, number)
    return ""
