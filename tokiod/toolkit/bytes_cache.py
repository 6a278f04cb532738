"""A cache of results for bytes, bounded by the bytes of its keys: a number of keys bounds nothing, since each may be a whole file."""

from __future__ import annotations

import threading
from collections import OrderedDict
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

P = ParamSpec("P")
T = TypeVar("T")


def cached_for_bytes(max_bytes: int) -> Callable[[Callable[Concatenate[bytes, P], T]], Callable[Concatenate[bytes, P], T]]:
    """Keep the results of a function for its latest arguments, the first of which is bytes; all those bytes are `max_bytes` at most."""

    def decorate(function: Callable[Concatenate[bytes, P], T]) -> Callable[Concatenate[bytes, P], T]:
        kept: OrderedDict[tuple[bytes, Hashable], T] = OrderedDict()
        lock = threading.Lock()
        size = 0

        @wraps(function)
        def cached(data: bytes, /, *args: P.args, **kwargs: P.kwargs) -> T:
            nonlocal size
            key = data, args
            with lock:
                if key in kept:
                    kept.move_to_end(key)
                    return kept[key]
            result = function(data, *args, **kwargs)
            if len(data) <= max_bytes:
                with lock:
                    if key not in kept:
                        size += len(data)
                    kept[key] = result
                    while size > max_bytes:
                        oldest = kept.popitem(last=False)[0][0]
                        size -= len(oldest)
            return result

        return cached

    return decorate
