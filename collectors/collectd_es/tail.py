"""The end of an answer: where the next page begins."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from collectors.collectd_es.hits import BROKEN, Response

if TYPE_CHECKING:
    from collectors.collectd_es.hits import Body

_TAIL = 10_000
_LAST_SORT = re.compile(rb'"sort"\s*:\s*(\[[^][]*\])\s*\}\s*\]\s*\}\s*\}\s*\Z')


class _Sorted(msgspec.Struct):
    sort: list[Any] | None = None


_SORTED = msgspec.json.Decoder(Response[_Sorted])


def last_sort(body: Body) -> list[Any] | None:
    """Return the sort values of the last hit of an answer, None where there are none or the answer is broken.

    They are behind its document, and behind them are only closing brackets; so they are found without decoding those of the others.
    """
    tail = bytes(body[-_TAIL:])
    found = _LAST_SORT.search(tail)
    if found is None:
        return _last_sort_of_all(body)
    try:
        return msgspec.json.decode(found[1], type=list[Any])
    except BROKEN:
        return None


def _last_sort_of_all(body: Body) -> list[Any] | None:
    try:
        hits = _SORTED.decode(body).hits.hits
    except BROKEN:
        return None
    return hits[-1].sort if hits else None
