"""A search request's body, read: what of it this server can do, and a refusal for the rest."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from tokiod.simulator.elastic.indices import FIELDS
from tokiod.simulator.elastic.query import Refused

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
