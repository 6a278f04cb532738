"""Parts: a window's bytes in messages of bounded size, and windows joined from them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast

import msgspec

from tokiod.crossing.codec import encode
from tokiod.errors import Malformed, Refusal
from tokiod.window import MAX_WINDOW_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Sequence

    from tokiod.crossing.codec import Frame
    from tokiod.window_data import WindowData

PART_BYTES = 2 << 20
"""Of a part on a Unix socket."""
MAX_INCOMPLETE_BYTES = MAX_WINDOW_BYTES + (64 << 20)
"""Of the parts of all incomplete windows of a peer or a process: the largest window, and what is counted for each of its frames."""
SMALL_BYTES = 16 << 10
"""Of a piece that is copied into a frame with others: a frame of its own costs more."""
MAX_SETTLED_WINDOWS = 1024
FRAME_OVERHEAD_BYTES = 1024
"""Counted for a frame in addition to its bytes, roughly, and for a part without one: what is empty needs memory too."""


class Head(Protocol):
    """What a part is a part of: its number, of how many, and of which attempt at its window; a later attempt has a higher number.

    A msgspec struct, which is the same for all parts of an attempt but for their number.
    """

    @property
    def attempt(self) -> int: ...  # noqa: D102
    @property
    def part(self) -> int: ...  # noqa: D102
    @property
    def parts(self) -> int: ...  # noqa: D102


K = TypeVar("K", bound="Hashable")
H = TypeVar("H", bound="Head")


def cut(pieces: Iterable[Frame], size: int) -> list[list[Frame]]:
    """Return the frames of each part, of at most `size` bytes together.

    A piece is cut only where it is longer than that. Small pieces are joined; frames of others are views of them.
    """
    parts: list[list[Frame]] = [[]]
    room = size
    small: list[Frame] = []
    for piece in pieces:
        for start in range(0, len(piece), size):
            frame = memoryview(piece)[start : start + size]
            if len(frame) > room:
                _flush(small, parts[-1])
                parts.append([])
                room = size
            room -= len(frame)
            if len(frame) > SMALL_BYTES:
                _flush(small, parts[-1])
                parts[-1].append(frame)
            else:
                small.append(frame)
    _flush(small, parts[-1])
    return parts


def _flush(small: list[Frame], part: list[Frame]) -> None:
    if small:
        part.append(b"".join(small))
        small.clear()


def encoded(source: str, data: WindowData, size: int) -> list[list[Frame]]:
    """Return the frames of each part of a window. Raises Refusal for one that can never cross: too large, or no one would decode it."""
    check_size(source, sum(batch.nbytes for batch in data.batches) + sum(rows.nbytes for rows in data.tables))
    try:
        return cut(encode(data), size)
    except Malformed as error:
        raise Refusal(f"source {source}: {error}", "never") from None


def check_size(source: str, nbytes: int) -> None:
    """Raise Refusal for a window of more bytes than any may have."""
    if nbytes > MAX_WINDOW_BYTES:
        raise Refusal(f"source {source}: {_too_large(nbytes, MAX_WINDOW_BYTES)}", "never")


def _too_large(nbytes: int, limit: int) -> str:
    sizes = f"{nbytes / (1 << 20):.0f} MiB or more, the limit is {limit / (1 << 20):.0f} MiB"
    return f"a window of {sizes}: set a shorter `window` in its section"


def _without_part(head: Head) -> Any:
    return msgspec.structs.replace(cast("msgspec.Struct", head), part=0)


class Incomplete(msgspec.Struct, Generic[K, H], eq=False):
    """An attempt at a window with some of its parts. head: of the part that came first."""

    key: K
    head: H
    frames: dict[int, Sequence[Frame]] = msgspec.field(default_factory=dict)
    nbytes: int = 0


class Joining(Generic[K, H]):
    """The parts of incomplete windows: a window is taken as a whole or not at all.

    A window has a key, which names who sends it. Repetition and order do not matter: only the newest attempt at each window is kept; a part
    that is known already, or belongs to a settled attempt (completed or refused), is dropped and counted. The settled attempts of the last
    MAX_SETTLED_WINDOWS windows are known; an older one would be stored again, which changes nothing either.
    Memory is bounded: a window is refused once its parts take more than `max_bytes`, and pop_excess() drops the windows that have waited
    longest while all parts take more than that.
    """

    def __init__(self, max_bytes: int = MAX_INCOMPLETE_BYTES) -> None:
        self.max_bytes = max_bytes
        self.nbytes = 0
        self.dropped: Counter[str] = Counter()
        self._incomplete: dict[K, Incomplete[K, H]] = {}
        self._settled: dict[K, int] = {}

    def __len__(self) -> int:
        return len(self._incomplete)

    def add(self, key: K, head: H, frames: Sequence[Frame]) -> tuple[H, list[Frame]] | None:
        """Take a part; return the window's bytes if they are complete now, with the head that came first.

        Raises Malformed for a part that contradicts itself or others, Refusal for one that makes its window too large.
        """
        if head.part >= head.parts:
            raise Malformed("parts", f"part {head.part} of {head.parts}")
        if self._is_stale(key, head.attempt):
            self.dropped["stale"] += 1
            return None
        known = self._incomplete.get(key)
        if known is None or known.head.attempt < head.attempt:
            self._drop(key)
            known = self._incomplete[key] = Incomplete(key, head)
        if head.parts != known.head.parts:
            raise Malformed("parts", f"{head.parts} parts, and {known.head.parts} by another part of the same window")
        if _without_part(head) != _without_part(known.head):
            raise Malformed("parts", f"part {head.part} contradicts part {known.head.part} of the same window")
        if head.part in known.frames:
            self.dropped["duplicate"] += 1
            return None
        nbytes = sum(map(len, frames)) + FRAME_OVERHEAD_BYTES * max(1, len(frames))
        known.frames[head.part] = frames
        known.nbytes += nbytes
        self.nbytes += nbytes
        if len(known.frames) == head.parts:
            self.settle(key, head.attempt)
            return known.head, [frame for part in range(head.parts) for frame in known.frames[part]]
        if known.nbytes > self.max_bytes:
            raise Refusal(_too_large(known.nbytes, self.max_bytes), "never")
        return None

    def settle(self, key: K, attempt: int) -> None:
        """Forget the parts of an attempt at a window; the remaining ones, and those of earlier attempts, are dropped when they come."""
        if self._is_stale(key, attempt):
            return
        self._drop(key)
        self._settled.pop(key, None)
        self._settled[key] = attempt
        if len(self._settled) > MAX_SETTLED_WINDOWS:
            del self._settled[next(iter(self._settled))]

    def forget(self, is_gone: Callable[[K], bool] = lambda _key: True) -> None:
        """Drop all that is known of some keys."""
        for key in [*filter(is_gone, self._incomplete)]:
            self._drop(key)
        self._settled = {key: attempt for key, attempt in self._settled.items() if not is_gone(key)}

    def pop_excess(self, max_bytes: int | None = None) -> list[Incomplete[K, H]]:
        """Settle the oldest incomplete windows until the rest fits into `max_bytes`, by default self.max_bytes, and return them."""
        excess, most = [], self.max_bytes if max_bytes is None else max_bytes
        while self.nbytes > most:
            oldest = next(iter(self._incomplete.values()))
            self.settle(oldest.key, oldest.head.attempt)
            self.dropped["excess"] += 1
            excess.append(oldest)
        return excess

    def _is_stale(self, key: K, attempt: int) -> bool:
        known = self._incomplete.get(key)
        newest = known.head.attempt if known else 0
        return attempt < newest or attempt <= self._settled.get(key, -1)

    def _drop(self, key: K) -> None:
        if (known := self._incomplete.pop(key, None)) is not None:
            self.nbytes -= known.nbytes
