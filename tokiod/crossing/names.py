"""The names in a window, as any process may send them: checked once, not per window. It needs no numpy."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated

import msgspec

from tokiod.errors import Malformed

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_NAME_LENGTH = 400
"""Characters of a column's name."""
MAX_FEW_COLUMNS, MAX_FEW_BYTES, MAX_MANY_BYTES = 1_000, 16 << 10, 2 << 20
"""Up to which the names of a dataset are kept for 256 datasets; longer ones only for 8, and the longest not at all."""

_NAME = "[A-Za-z0-9][A-Za-z0-9_.-]*"
_is_name = re.compile(_NAME).fullmatch
_is_dataset = re.compile(rf"{_NAME}/{_NAME}").fullmatch
MAX_LENGTH = 200
Name = Annotated[str, msgspec.Meta(max_length=MAX_LENGTH)]
"""What check_names() takes; of a dataset, what check_dataset() takes."""
Printable = Annotated[str, msgspec.Meta(pattern=r"\A[!-~]+\Z", max_length=200)]
Reason = Annotated[str, msgspec.Meta(max_length=200)]
ColumnName = Annotated[str, msgspec.Meta(pattern=r"\A[a-z][a-z0-9_.]*\Z", max_length=60)]
"""Of a table. These types bound what another process sends: valid file names, printable words."""


# A source's names are the same in every window: matching, joining and splitting them is done once. Each cache is small enough for a peer
# that sends other names each time.
@lru_cache(maxsize=256)
def check_names(*names: str) -> None:
    """Raise Malformed for what is not a name of a source, kind or system."""
    for name in names:
        if len(name) > MAX_LENGTH or not _is_name(name):
            what = f"a name of a source, kind or system, of at most {MAX_LENGTH} characters"
            raise Malformed("header", f"{name[:MAX_LENGTH]!r} is not {what}")


@lru_cache(maxsize=256)
def check_dataset(name: str) -> None:
    """Raise Malformed for what is not a name of a dataset."""
    if not _is_dataset(name):
        raise Malformed("header", f"{name!r} is not a name of a dataset")


@lru_cache(maxsize=64)
def check_columns(columns: tuple[str, ...]) -> None:
    """Raise Malformed for columns with names that are empty, too long, not printable, or twice there."""
    for number, name in enumerate(columns):
        if not name or len(name) > MAX_NAME_LENGTH or not name.isprintable():
            shown = repr(name) if len(name) <= MAX_NAME_LENGTH else f"{name[:40]!r}... of {len(name)} characters"
            raise Malformed("columns", f"column {number}, {shown}: expected 1 to {MAX_NAME_LENGTH} printable characters")
    if len(set(columns)) != len(columns):
        raise Malformed("columns", "a column name is a duplicate")


def joined(columns: tuple[str, ...]) -> bytes:
    """Return the names of columns, joined by newlines."""
    return (_joined_few if len(columns) <= MAX_FEW_COLUMNS else _joined_many)(columns)


def split(names: bytes) -> tuple[str, ...]:
    """Return the columns of joined names; equal bytes give the same tuple, unless they are the longest. Raises Malformed."""
    return (_split_few if len(names) <= MAX_FEW_BYTES else _split_many if len(names) <= MAX_MANY_BYTES else _split)(names)


def _join(columns: Sequence[str]) -> bytes:
    return "\n".join(columns).encode()


def _split(names: bytes) -> tuple[str, ...]:
    try:
        columns = tuple(names.decode().split("\n")) if names else ()
    except UnicodeDecodeError as error:
        raise Malformed("columns", str(error)) from None
    check_columns.__wrapped__(columns)
    return columns


_joined_few, _joined_many = lru_cache(maxsize=256)(_join), lru_cache(maxsize=8)(_join)
_split_few, _split_many = lru_cache(maxsize=256)(_split), lru_cache(maxsize=8)(_split)
