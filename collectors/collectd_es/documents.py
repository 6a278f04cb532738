"""One document in any form that has one meaning. The usual form is decoded without this module.

numbers        1.5    "1.5"    [1.5]            texts          "0"    0    ["0"]
names          {"host": {"name": ...}}    {"host.name": ...}
host           fields.host, or host.name, host, host.hostname; source next to timestamp, as Graylog stores it
type           fields.type, or type, as write_http stores it
values         value, read, write, or values[] and dsnames[], as write_http stores them
time           fields.time, or timestamp and time; a text, or seconds or milliseconds since 1970
{"collectd": {"plugin": P, "type": T, P: {T: {"read": ...}}}}       as rsyslog and Fluentd store it for oVirt and OpenShift
{"_source": ...}    {"fields": {NAME: [...]}}    the document alone    a hit, one of the search API's fields, a line of Logstash's file
"""

from __future__ import annotations

import datetime as dt
import json
import math
import re
from typing import TYPE_CHECKING, Any

import msgspec

from collectors.collectd_es.datasets import METRICS, NUMBERS, Fields

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tokiod.dropped import Dropped

NO_SOURCE = "no document"
NO_TEXT = "name that is not a text"
NO_NUMBER = "value that is not a number"
NOT_FINITE = "value that is not finite"

MILLISECONDS_FROM = 10**11
"""Larger times are milliseconds: as seconds they would be after the year 5138, smaller ones as milliseconds before 1974."""
MAX_SECONDS = 253_402_300_800
_DECIMAL = re.compile(r"[-+]?(?:\d{1,25}\.?\d{0,25}|\.\d{1,25})(?:[eE][-+]?\d{1,3})?", re.ASCII)
_GRAYLOG = re.compile(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d\.\d{3})", re.ASCII)
_ALIASES = {"host": (("host", "name"), ("host",), ("host", "hostname")), "type": (("type",),), "time": (("timestamp",), ("time",))}


class Source(msgspec.Struct, gc=False, order=False, eq=False):
    """One document: "" for a missing text and NaN for a missing number, None for null.

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


ROLES = Source.__struct_fields__
REQUIRED = frozenset({"time", "host", "plugin", "type"})
"""What every document of collectd has."""


def read_untyped(hit: Any, fields: Fields, dropped: Dropped) -> Source | None:
    """Read one hit that json or msgspec decoded to dicts; None where it is unusable, which is counted in `dropped`."""
    document = _document(hit, fields)
    if document is None:
        dropped.add(NO_SOURCE, 1, _shown(hit), "save whole hits, with their _source")
        return None
    found = _found(document, fields)
    texts = {role: _text(value) for role, value in found.items() if role not in NUMBERS}
    texts["time"] = _time(found["time"], is_utc=_at(document, fields.path("time")) is None)
    for role, text in texts.items():
        if text is None:
            dropped.add(NO_TEXT, 1, f"{role} {_shown(found[role])}", f"set fields.{role} (--{role.replace('_', '-')}-field)")
            return None
    for role in ("plugin", "type", "host"):
        if not texts[role] and (role == "plugin" or texts["plugin"] in METRICS):
            dropped.add(f"no {role}", 1, _shown(document), f"set fields.{role} (--{role}-field)")
            return None
    source = msgspec.convert(texts, Source)
    faults = {role: _number(source, role, found[role]) for role in NUMBERS}
    for role, fault in faults.items():
        if fault:
            dropped.add(fault, 1, f"{role} {_shown(found[role])} of {described(source)}")
    is_lost = any(faults.values()) and not any(math.isfinite(getattr(source, role)) for role in NUMBERS if found[role] is not None)
    return None if is_lost else source


def wanted_fields(fields: Fields) -> tuple[str, ...]:
    """Return the names of all fields that a document may have its parts in."""
    others = (*(".".join(path) for paths in _ALIASES.values() for path in paths), "source", "collectd", "values", "dsnames")
    return tuple(dict.fromkeys((*(getattr(fields, role) for role in ROLES), *others)))


def described(source: Source) -> str:
    """Return what a document measures as collectd writes it: HOST/PLUGIN-INSTANCE/TYPE-INSTANCE."""
    pairs = ((source.plugin, source.plugin_instance), (source.type, source.type_instance))
    return "/".join([source.host, *("-".join(part for part in pair if part) for pair in pairs)])


def _document(hit: Any, fields: Fields) -> dict[str, Any] | None:
    if not isinstance(hit, dict):
        return None
    for name in ("_source", "fields"):
        if isinstance(document := hit.get(name), dict):
            return document
    is_bare = "_source" not in hit and isinstance(_found(hit, fields)["plugin"], str)
    return hit if is_bare else None


def _found(document: dict[str, Any], fields: Fields) -> dict[str, Any]:
    """Return what a document has for each role, None where it has nothing."""
    found = {role: _only(_at(document, fields.path(role))) for role in ROLES}
    inner = document.get("collectd")
    if found["plugin"] is None and isinstance(inner, dict):
        found |= _unrolled(inner)
    if found["host"] is None and "timestamp" in document and found["time"] is None:
        found["host"] = document.get("source")
    for role, paths in _ALIASES.items():
        others = (_only(_at(document, path)) for path in paths if found[role] is None)
        found[role] = next((other for other in others if other is not None and not isinstance(other, dict)), found[role])
    values, names = document.get("values"), document.get("dsnames")
    if isinstance(values, list) and isinstance(names, list) and len(values) == len(names):
        found |= {role: value for role, value in zip(names, values, strict=True) if role in NUMBERS and found[role] is None}
    return found


def _unrolled(inner: dict[str, Any]) -> dict[str, Any]:
    found = {role: _only(inner.get(role)) for role in ("plugin", "type", "plugin_instance", "type_instance")}
    values = _at(inner, (str(found["plugin"]), str(found["type"])))
    return found | ({role: _only(values.get(role)) for role in NUMBERS} if isinstance(values, dict) else {"value": _only(values)})


def _at(document: Any, path: tuple[str, ...]) -> Any:
    """Return what is at a path, each part of which may be a name in an object, or one with dots for several parts."""
    if not path:
        return document
    if not isinstance(document, dict):
        return None
    for count in range(1, len(path) + 1):
        found = _at(document.get(".".join(path[:count])), path[count:])
        if found is not None:
            return found
    return None


def _only(value: Any) -> Any:
    """Return the one element of a list: for Elasticsearch they are the same."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _text(value: Any) -> str | None:
    if value is None:
        return ""
    is_integer = isinstance(value, int) and not isinstance(value, bool) and abs(value) < MAX_SECONDS
    return str(value) if is_integer or isinstance(value, str) else None


def _time(value: Any, *, is_utc: bool) -> str | None:
    """Return a time as text, None for anything else. is_utc: it was found in Graylog's field, which is in UTC without saying so."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _graylog(value) if is_utc and isinstance(value, str) else _text(value)
    return epoch_text(value)


def _graylog(text: str) -> str:
    found = _GRAYLOG.fullmatch(text)
    return text if found is None else f"{found[1]}T{found[2]}Z"


def epoch_text(value: float) -> str:
    """Return the time stamp of seconds or milliseconds since 1970; the number as text if it is no time."""
    milliseconds = math.floor(value if abs(value) >= MILLISECONDS_FROM else value * 1000 + 1e-4) if math.isfinite(value) else -1
    if not 0 <= milliseconds < MAX_SECONDS * 1000:
        return str(value)
    moment = dt.datetime.fromtimestamp(milliseconds // 1000, dt.UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03}Z"


def other_time(text: str, time_field: str) -> str:
    """Return a time stamp of another form, in a field, as ISO 8601; the text if it has no meaning of its own."""
    if _DECIMAL.fullmatch(text):
        return epoch_text(float(text))
    return _graylog(text) if time_field == "timestamp" else text


def _number(source: Source, role: str, value: Any) -> str:
    """Set a number of a document; return the reason if it is unusable."""
    if value is None:
        return ""
    if isinstance(value, str) and _DECIMAL.fullmatch(value):
        value = float(value)
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


def _shown(value: Mapping[str, Any] | Any) -> str:
    return json.dumps(value, default=str)
