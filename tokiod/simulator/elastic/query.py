"""What a reader of collectd's documents asks Elasticsearch for: which indices, one per UTC day, which series, and which span of time.

What isn't understood is refused, as a server refuses it, and never taken for something else.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
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


PAGE = 10_000
"""Documents of a page at most: the default of index.max_result_window."""

_ORDERS = ("_doc", "_shard_doc")


@dataclass(frozen=True, slots=True)
class Request:
    """What a search asks for beside its query. tracked: up to which number of documents all are counted; None: none are."""

    query: dict[str, Any] | None
    size: int
    ordered: bool
    after: int
    slice: tuple[int, int]
    tracked: int | None
    pit: dict[str, str] | None


def read(body: dict[str, Any], *, scroll: bool) -> Request:
    """Return a search request; raises Refused for what a server refuses, and for what only this one can't do."""
    given = dict(body)
    request = Request(
        query=given.pop("query", None),
        size=_size(given.pop("size", 10)),
        ordered=_ordered(given.pop("sort", [])),
        after=int(given.pop("search_after", [-1])[0]),
        slice=_slice(given.pop("slice", {"id": 0, "max": 1})),
        tracked=_tracked(given.pop("track_total_hits", scroll or PAGE)),
        pit=given.pop("pit", None),
    )
    if scroll and (request.tracked is None or request.after >= 0):
        raise _illegal("disabling [track_total_hits] and using [search_after] is not allowed in a scroll context")
    if not _whole(given.pop("_source", True)):
        raise _illegal(f"the simulator tells whole documents only: [_source] must be true or name all of {sorted(FIELDS)}")
    if unknown := given.keys() - {"timeout", "allow_partial_search_results"}:
        raise Refused(400, "parsing_exception", f"unknown key for the simulator's search: {sorted(unknown)}")
    return request


def _size(size: int) -> int:
    if size > PAGE:
        raise _illegal(f"Result window is too large, from + size must be less than or equal to: [{PAGE}] but was [{size}].")
    return size


def _ordered(sort: Any) -> bool:
    """Return whether the index's order is asked for, the only one there is."""
    orders = sort if isinstance(sort, list) else [sort]
    for order in orders:
        name, direction = next(iter(order.items())) if isinstance(order, dict) else (order, "asc")
        direction = direction.get("order", "asc") if isinstance(direction, dict) else direction
        if name not in _ORDERS or direction != "asc":
            raise _illegal(f"the simulator sorts by {' and '.join(_ORDERS)} only, ascending, not by [{order}]")
    return bool(orders)


def _slice(given: dict[str, int]) -> tuple[int, int]:
    if not 0 <= given["id"] < given["max"]:
        raise _illegal("max must be greater than id")
    return given["id"], given["max"]


def _tracked(given: bool | int) -> int | None:  # noqa: FBT001 - JSON's
    if isinstance(given, bool):
        return 2**62 if given else None
    return given


def _whole(source: Any) -> bool:
    if isinstance(source, bool):
        return source
    wanted = source.get("includes", ["*"]) if isinstance(source, dict) else [source] if isinstance(source, str) else source
    return all(any(fnmatchcase(field, pattern) for pattern in wanted) for field in FIELDS)


def _illegal(reason: str) -> Refused:
    return Refused(400, "illegal_argument_exception", reason)


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
