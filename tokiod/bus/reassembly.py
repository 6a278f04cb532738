"""Pieces of windows on their way to being whole."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tokiod.errors import Malformed
from tokiod.window_data import Collected

if TYPE_CHECKING:
    from tokiod.batch import Batch
    from tokiod.bus.wire import Header, Piece
    from tokiod.window_data import WindowMeta

REMEMBERED = 1024
OVERHEAD = 1024
"""Bytes that a piece takes beside its arrays, roughly: empty ones must not be free."""

Key = tuple[bytes, str, int, int]
"""peer, source, start, end"""


@dataclass(frozen=True, slots=True, eq=False)
class Arrived:
    """A window that is whole. piece: its first one to arrive; peer: the connection it came through."""

    collected: Collected
    piece: Piece
    peer: bytes


@dataclass(slots=True, eq=False)
class Partial:
    """An attempt at a window of which pieces are missing."""

    peer: bytes
    meta: WindowMeta
    piece: Piece
    batches: dict[int, Batch | None] = field(default_factory=dict)
    nbytes: int = 0

    def whole(self) -> Arrived | None:
        """Return the window once every part is there, its batches in the order of the parts."""
        if len(self.batches) < self.piece.parts:
            return None
        batches = [batch for _, batch in sorted(self.batches.items()) if batch is not None]
        return Arrived(Collected(self.meta, batches), self.piece, self.peer)


class Staging:
    """A window is applied whole or not at all, so its pieces wait here for each other.

    What a sender does twice or out of order must not matter: of each window only the newest attempt is kept, a piece that is there
    already or of an attempt that is settled (handed over, refused) is dropped and counted. The settled attempts of the last
    REMEMBERED windows are known; an older one would be applied again, which changes nothing either.
    Memory is bounded: pop_excess() gives up the windows that have waited longest once more than `max_bytes` are staged.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.nbytes = 0
        self.dropped: Counter[str] = Counter()
        self._partial: dict[Key, Partial] = {}
        self._settled: dict[Key, int] = {}

    def __len__(self) -> int:
        return len(self._partial)

    def add(self, peer: bytes, header: Header, batch: Batch | None) -> Arrived | None:
        """Take a piece; returns its window if that is now whole. Raises Malformed for a piece that contradicts itself or others."""
        piece, meta = _checked(header)
        key = _key(peer, piece)
        if self._is_stale(key, piece):
            self.dropped["stale"] += 1
            return None
        partial = self._partial.get(key)
        if partial is None or partial.piece.attempt < piece.attempt:
            self._drop(key)
            partial = self._partial[key] = Partial(peer, meta, piece)
        if (meta.system, piece.kind, piece.parts) != (partial.meta.system, partial.meta.kind, partial.piece.parts):
            raise Malformed("parts", f"pieces of {piece.source} {meta.window} disagree on system, kind or number of parts")
        if piece.part in partial.batches:
            self.dropped["duplicate"] += 1
            return None
        self._put(partial, piece.part, batch)
        arrived = partial.whole()
        if arrived:
            self.settle(peer, piece)
        return arrived

    def settle(self, peer: bytes, piece: Piece) -> None:
        """Let go of an attempt at a window: its remaining pieces, and those of attempts before it, are dropped as they come."""
        key = _key(peer, piece)
        if self._is_stale(key, piece):
            return
        self._drop(key)
        self._settled.pop(key, None)
        self._settled[key] = piece.attempt
        if len(self._settled) > REMEMBERED:
            del self._settled[next(iter(self._settled))]

    def forget(self, peer: bytes) -> None:
        """Drop all that came through a connection."""
        for key in [key for key in self._partial if key[0] == peer]:
            self._drop(key)
        self._settled = {key: attempt for key, attempt in self._settled.items() if key[0] != peer}

    def pop_excess(self) -> list[Partial]:
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

    def _put(self, partial: Partial, part: int, batch: Batch | None) -> None:
        nbytes = OVERHEAD + (0 if batch is None else batch.nbytes)
        partial.batches[part] = batch
        partial.nbytes += nbytes
        self.nbytes += nbytes

    def _drop(self, key: Key) -> None:
        partial = self._partial.pop(key, None)
        if partial:
            self.nbytes -= partial.nbytes


def _key(peer: bytes, piece: Piece) -> Key:
    return peer, piece.source, piece.start, piece.end


def _checked(header: Header) -> tuple[Piece, WindowMeta]:
    piece = header.piece
    if piece is None:
        raise Malformed("piece", "a message that is no piece of a window")
    if piece.part >= piece.parts:
        raise Malformed("parts", f"part {piece.part} of {piece.parts} of {piece.source}")
    try:
        return piece, piece.meta(header.system)
    except ValueError as error:
        raise Malformed("window", str(error)) from None
