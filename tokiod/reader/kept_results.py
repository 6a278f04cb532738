"""Results of functions of column names that are kept: most files of an archive have the same names, and few have very many."""

from __future__ import annotations

from functools import lru_cache, wraps
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

T = TypeVar("T")

FEW_NAMES = 4096
KEPT, KEPT_OF_MANY = 256, 8
"""Results of few names, and of more: 100,000 names of a file take some 10 MB."""


def kept(count: Callable[..., int]) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Keep the last results of a function. count: the names in its arguments, which can be hashed."""

    def decorated(function: Callable[..., T]) -> Callable[..., T]:
        of_few, of_many = lru_cache(KEPT)(function), lru_cache(KEPT_OF_MANY)(function)

        @wraps(function)
        def called(*names: Hashable) -> T:
            return (of_few if count(*names) <= FEW_NAMES else of_many)(*names)

        return called

    return decorated
