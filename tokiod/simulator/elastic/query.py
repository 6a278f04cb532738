"""Elasticsearch's query language, as far as a reader of collectd's documents needs it: which series, and which span of time.

What isn't understood is refused, as a server refuses it, and never taken for something else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from tokiod.errors import TokiodError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

TIME = "@timestamp"

_EVER = (-(2**62), 2**62)


class Refused(TokiodError):  # noqa: N818 - what happens to a request
    """A request that is answered with an HTTP status and Elasticsearch's kind of error."""

    def __init__(self, status: int, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.kind = kind


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """What a query asks for: series: bool[series of all hosts]; the half-open span of time in UTC epoch milliseconds."""

    series: NDArray[np.bool_]
    start: int = _EVER[0]
    end: int = _EVER[1]

    def __and__(self, other: Selection) -> Selection:
        return Selection(self.series & other.series, max(self.start, other.start), min(self.end, other.end))

    @property
    def timeless(self) -> bool:
        """Whether no time is asked for: only then can it be one of several or be turned round."""
        return (self.start, self.end) == _EVER


class Names:
    """The names in all documents: by field, the text that each series has there ("" where its documents don't have the field)."""

    def __init__(self, fields: dict[str, list[str]]) -> None:
        self.fields = frozenset(fields)
        self.all = np.ones(len(next(iter(fields.values()))), bool)
        self._unique = {field: np.unique(texts, return_inverse=True) for field, texts in fields.items()}

    def where(self, field: str, matches: Callable[[str], bool]) -> Selection:
        """Return the series whose text matches, in a field or in its sub-field for exact text; no series has a field that is unknown."""
        known = self._unique.get(field.removesuffix(".keyword"))
        if known is None:
            return Selection(~self.all)
        texts, inverse = known
        return Selection(np.array([text != "" and matches(text) for text in texts.tolist()])[inverse])


def select(names: Names, query: dict[str, Any] | None) -> Selection:
    """Return what a query asks for; raises Refused for what this server doesn't understand."""
    if not query:
        return Selection(names.all)
    if len(query) != 1:
        raise _unparsable(f"[{'] ['.join(query)}] malformed query, expected [END_OBJECT]")
    ((kind, body),) = query.items()
    if kind not in _KINDS:
        raise _unparsable(f"unknown query [{kind}]")
    try:
        return _KINDS[kind](names, body)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _unparsable(f"[{kind}] malformed query: {error!r}") from error


def _match_all(names: Names, _body: dict[str, Any]) -> Selection:
    return Selection(names.all)


def _constant_score(names: Names, body: dict[str, Any]) -> Selection:
    return select(names, body["filter"])


def _bool(names: Names, body: dict[str, Any]) -> Selection:
    found = Selection(names.all)
    for query in (*_listed(body, "must"), *_listed(body, "filter")):
        found &= select(names, query)
    for query in _listed(body, "must_not"):
        found &= Selection(~_timeless(names, query))
    if should := [_timeless(names, query) for query in _listed(body, "should")]:
        # One of them must match only where nothing else must, unless it is said.
        wanted = int(body.get("minimum_should_match", "must" not in body and "filter" not in body))
        found &= Selection(np.sum(should, axis=0) >= wanted)
    return found


def _timeless(names: Names, query: dict[str, Any]) -> NDArray[np.bool_]:
    found = select(names, query)
    if not found.timeless:
        raise _unparsable("the simulator understands a range only where it must hold")
    return found.series


def _term(names: Names, body: dict[str, Any]) -> Selection:
    field, value = _field(body, "value")
    return names.where(field, lambda text: text == str(value))


def _terms(names: Names, body: dict[str, Any]) -> Selection:
    field, values = _field({name: given for name, given in body.items() if name != "boost"}, "value")
    return names.where(field, set(map(str, values)).__contains__)


def _prefix(names: Names, body: dict[str, Any]) -> Selection:
    field, value = _field(body, "value")
    return names.where(field, lambda text: text.startswith(value))


def _regexp(names: Names, body: dict[str, Any]) -> Selection:
    # Lucene's expressions are anchored at both ends. Expressions with another meaning in Python are not used as filters of hosts.
    field, value = _field(body, "value")
    try:
        expression = re.compile(value)
    except re.error as error:
        raise _unparsable(f"failed to parse regexp [{value}]: {error}") from None
    return names.where(field, lambda text: expression.fullmatch(text) is not None)


def _exists(names: Names, body: dict[str, Any]) -> Selection:
    return Selection(names.all) if body["field"] == TIME else names.where(body["field"], bool)


def _range(names: Names, body: dict[str, Any]) -> Selection:
    ((field, bounds),) = body.items()
    if field != TIME:
        raise _unparsable(f"the simulator understands a range over [{TIME}] only, not over [{field}]")
    unit = bounds.get("format", "epoch_millis")
    if unknown := bounds.keys() - {"gte", "gt", "lt", "lte", "format", "boost"}:
        raise _unparsable(f"[range] query does not support {sorted(unknown)}")
    times = {name: _milliseconds(bound, unit) for name, bound in bounds.items() if name not in ("format", "boost")}
    starts = [times[name] + (name == "gt") for name in ("gte", "gt") if name in times]
    ends = [times[name] + (name == "lte") for name in ("lte", "lt") if name in times]
    return Selection(names.all, max(starts, default=_EVER[0]), min(ends, default=_EVER[1]))


_KINDS: dict[str, Callable[[Names, dict[str, Any]], Selection]] = {
    "match_all": _match_all, "constant_score": _constant_score, "bool": _bool, "term": _term, "terms": _terms, "prefix": _prefix,
    "regexp": _regexp, "exists": _exists, "range": _range,
}  # fmt: skip


def _unparsable(reason: str) -> Refused:
    return Refused(400, "parsing_exception", reason)


def _listed(body: dict[str, Any], occurrence: str) -> list[dict[str, Any]]:
    queries = body.get(occurrence, [])
    return queries if isinstance(queries, list) else [queries]


def _field(body: dict[str, Any], key: str) -> tuple[str, Any]:
    """Return the field and the value of {field: value} and of {field: {"value": value}}."""
    ((field, given),) = body.items()
    return field, given[key] if isinstance(given, dict) else given


def _milliseconds(bound: Any, unit: str) -> int:
    if unit == "epoch_second":
        return int(bound) * 1000
    if isinstance(bound, int) or bound.isdigit():
        return int(bound)
    moment = datetime.fromisoformat(bound)
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
