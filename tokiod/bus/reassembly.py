"""Reassembly: windows from their pieces."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from tokiod.bus.pieces import joined, joined_rows, too_large
from tokiod.errors import Malformed
from tokiod.window_data import Collected, TableRows

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tokiod.batch import Batch
    from tokiod.bus.header import Header, Piece
    from tokiod.window_data import WindowMeta

MAX_SETTLED_WINDOWS = 1024
PIECE_OVERHEAD_BYTES, NAME_OVERHEAD_BYTES = 1024, 100
"""Counted for a piece in addition to its arrays, for a name in addition to its letters, roughly: pieces without cells need memory too."""

Key = tuple[bytes, str, int, int]
"""peer, source, start, end"""


class Arrived(msgspec.Struct, frozen=True, eq=False):
    """A complete window. piece: the first one that arrived; peer: its connection."""

    collected: Collected
    piece: Piece
    peer: bytes


class PartialWindow(msgspec.Struct, eq=False):
    """An attempt at a window, with some of its pieces."""

    peer: bytes
    meta: WindowMeta
    piece: Piece
    contents: dict[int, Batch | TableRows | None] = msgspec.field(default_factory=dict)
    nbytes: int = 0
    _columns: set[int] = msgspec.field(default_factory=set)

    def put(self, part: int, content: Batch | TableRows | None) -> int:
        """Keep a piece; return the bytes that it takes. Pieces with the same names mostly share them: these count once."""
        nbytes = PIECE_OVERHEAD_BYTES + (0 if self.contents else _names_bytes(self.piece.dropped))
        if content is not None:
            nbytes += content.nbytes
            if id(content.columns) not in self._columns:
                self._columns.add(id(content.columns))
                nbytes += _names_bytes(content.columns)
        self.contents[part] = content
        self.nbytes += nbytes
        return nbytes

    def completed(self) -> Arrived | None:
        """Return the window if it has all of its parts, in their order. Raises Malformed for pieces that don't fit together."""
        if len(self.contents) < self.piece.parts:
            return None
        in_order = [one for part in range(self.piece.parts) if (one := self.contents[part]) is not None]
        batches = joined(one for one in in_order if not isinstance(one, TableRows))
        tables = joined_rows(one for one in in_order if isinstance(one, TableRows))
        return Arrived(Collected(self.meta, batches, tables), self.piece, self.peer)


class Reassembly:
    """The pieces of incomplete windows: the writer stores a window as a whole or not at all.

    Repetition and order do not matter: only the newest attempt at each window is kept; a piece that is known already, or belongs to a
    settled attempt (completed or refused), is dropped and counted. The settled attempts of the last MAX_SETTLED_WINDOWS windows are known;
    an older one would be stored again, which changes nothing either.
    Memory is bounded: a window is refused once its pieces take more than `max_bytes`, and pop_excess() drops the windows that have waited
    longest while all pieces take more than that.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.nbytes = 0
        self.dropped: Counter[str] = Counter()
        self._partial: dict[Key, PartialWindow] = {}
        self._settled: dict[Key, int] = {}

    def __len__(self) -> int:
        return len(self._partial)

    def add(self, peer: bytes, header: Header, content: Batch | TableRows | None) -> Arrived | None:
        """Add a piece; return its window if it is complete now.

        Raises Malformed for a piece that contradicts itself or others, Refusal for one that makes its window too large.
        """
        piece, meta = _checked(header)
        key = _key(peer, piece)
        if self._is_stale(key, piece):
            self.dropped["stale"] += 1
            return None
        partial = self._partial.get(key)
        if partial is None or partial.piece.attempt < piece.attempt:
            self._drop(key)
            partial = self._partial[key] = PartialWindow(peer, meta, piece)
        if (meta.system, piece.kind, piece.parts) != (partial.meta.system, partial.meta.kind, partial.piece.parts):
            raise Malformed("parts", f"pieces of {piece.source} {meta.window} disagree on system, kind or number of parts")
        if piece.part in partial.contents:
            self.dropped["duplicate"] += 1
            return None
        self.nbytes += partial.put(piece.part, content)
        arrived = partial.completed()
        if arrived:
            self.settle(peer, piece)
        elif partial.nbytes > self.max_bytes:
            raise too_large(piece.source, partial.nbytes, self.max_bytes)
        return arrived

    def settle(self, peer: bytes, piece: Piece) -> None:
        """Forget the pieces of an attempt at a window; the remaining ones, and those of earlier attempts, are dropped when they come."""
        key = _key(peer, piece)
        if self._is_stale(key, piece):
            return
        self._drop(key)
        self._settled.pop(key, None)
        self._settled[key] = piece.attempt
        if len(self._settled) > MAX_SETTLED_WINDOWS:
            del self._settled[next(iter(self._settled))]

    def forget(self, peer: bytes) -> None:
        """Drop all pieces of a connection."""
        for key in [key for key in self._partial if key[0] == peer]:
            self._drop(key)
        self._settled = {key: attempt for key, attempt in self._settled.items() if key[0] != peer}

    def pop_excess(self) -> list[PartialWindow]:
        """Settle the oldest incomplete windows until the rest fits into `max_bytes`, and return them."""
        excess = []
        while self.nbytes > self.max_bytes:
            partial = next(iter(self._partial.values()))
            self.settle(partial.peer, partial.piece)
            self.dropped["excess"] += 1
            excess.append(partial)
        return excess

    def _is_stale(self, key: Key, piece: Piece) -> bool:
        partial = self._partial.get(key)
        newest = partial.piece.attempt if partial else 0
        return piece.attempt < newest or piece.attempt <= self._settled.get(key, -1)

    def _drop(self, key: Key) -> None:
        partial = self._partial.pop(key, None)
        if partial:
            self.nbytes -= partial.nbytes


def _names_bytes(names: Iterable[str]) -> int:
    return sum(len(name) + NAME_OVERHEAD_BYTES for name in names)


def _key(peer: bytes, piece: Piece) -> Key:
    return peer, piece.source, piece.start, piece.end


def _checked(header: Header) -> tuple[Piece, WindowMeta]:
    piece = header.piece
    if piece is None:
        raise Malformed("piece", "not a piece of a window")
    if piece.part >= piece.parts:
        raise Malformed("parts", f"part {piece.part} of {piece.parts} of {piece.source}")
    try:
        return piece, piece.meta(header.system)
    except ValueError as error:
        raise Malformed("window", str(error)) from None
