"""Outputs to tables, in other processes too where there are many."""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING

from collectors.mmperfmon.parse import parse
from tokiod.errors import Fatal
from tokiod.toolkit.worker_pool import workers

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from concurrent.futures import Executor
    from pathlib import Path

    from collectors.mmperfmon.parse_legend import Output

PIECE = 1 << 20
"""Bytes of outputs that are parsed at a time."""
AHEAD = 2
"""Pieces on their way to each process."""
WAITING = 64
"""Pieces that may wait for one before them: as numbers they are a quarter of their text."""


# Who would only wait for the others parses as well: so the third of a second that a process takes to start is no time lost, and on two
# cores there is only one to start.
def parsed(path: Path, coming: Iterable[bytes], count: int) -> Iterator[Output]:
    """Parse outputs with the help of some processes; yields in the order of their coming. Raises Fatal when a process was killed."""
    try:
        with workers(count) as pool:
            yield from _in_order(_pieces(coming), pool, count * AHEAD)
    except BrokenProcessPool:
        raise Fatal(f"{path}: a process that parsed it is gone: was it killed, for want of memory?") from None


def _in_order(pieces: Iterable[list[bytes]], pool: Executor, ahead: int) -> Iterator[Output]:
    waiting: deque[Future[list[Output]]] = deque()
    for piece in pieces:
        while waiting and (waiting[0].done() or len(waiting) >= WAITING):
            yield from waiting.popleft().result()
        if sum(not future.done() for future in waiting) < ahead:
            waiting.append(_submitted(pool, piece))
        else:
            here: Future[list[Output]] = Future()
            here.set_result(_parsed(piece))
            waiting.append(here)
    for future in waiting:
        yield from future.result()


def _pieces(coming: Iterable[bytes]) -> Iterator[list[bytes]]:
    piece, length = [], 0
    for data in coming:
        piece.append(data)
        length += len(data)
        if length >= PIECE:
            yield piece
            piece, length = [], 0
    yield piece


# A pipe takes 64 KiB at a time, and for each of them a thread of ours would have to wait for the parser to let it run; a file in memory is
# written at once, and is gone with us.
def _submitted(pool: Executor, piece: list[bytes]) -> Future[list[Output]]:
    file = os.fdopen(os.memfd_create("tokiod-outputs"), "wb")
    try:
        file.write(b"".join(piece))
        file.flush()
        future = pool.submit(_parsed_of, f"/proc/{os.getpid()}/fd/{file.fileno()}", [len(data) for data in piece])
    except BaseException:
        file.close()  # a pool whose process was killed takes nothing any more
        raise
    future.add_done_callback(lambda _: file.close())
    return future


def _parsed_of(path: str, lengths: list[int]) -> list[Output]:
    with open(path, "rb") as file:  # noqa: PTH123 - no place of a file
        return _parsed([file.read(length) for length in lengths])


def _parsed(piece: list[bytes]) -> list[Output]:
    return [parse(data) for data in piece]
