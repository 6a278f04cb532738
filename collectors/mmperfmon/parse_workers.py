"""Parse outputs, in worker processes too where there are many."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from collectors.mmperfmon.parse import parse_all
from collectors.mmperfmon.saved_inputs import pieces
from tokiod.errors import Fatal
from tokiod.toolkit.worker_pool import FilesInMemory, workers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from collectors.mmperfmon.parse_legend import Output

PIECES_PER_WORKER = 2
"""Pieces that are submitted to each worker."""
MAX_WAITING_PIECES = 16
"""Parsed pieces that may wait for an earlier one; as numbers they take a quarter of their text."""


# Instead of waiting, this process parses as well: so the third of a second that a worker takes to start is not lost, and on two cores there
# is only one to start.
def parsed(path: Path, coming: Iterable[bytes], count: int) -> Iterator[Output]:
    """Yield parsed outputs in their order, with `count` workers. Raises Fatal when a worker was killed."""
    try:
        with closing(FilesInMemory()) as files, workers(count) as pool:
            yield from _in_order(pieces(coming), partial(files.submit, pool, _parse_from), count * PIECES_PER_WORKER)
    except BrokenProcessPool:
        raise Fatal(f"{path}: a worker process has died: did it run out of memory?") from None


def _in_order(of_outputs: Iterable[list[bytes]], submit: Callable[..., Future[list[Output]]], ahead: int) -> Iterator[Output]:
    waiting: deque[Future[list[Output]]] = deque()
    for piece in of_outputs:
        while waiting and (waiting[0].done() or len(waiting) >= MAX_WAITING_PIECES):
            yield from waiting.popleft().result()
        if sum(not future.done() for future in waiting) < ahead:
            waiting.append(submit(b"".join(piece), [len(data) for data in piece]))
        else:
            here: Future[list[Output]] = Future()
            here.set_result(parse_all(piece))
            waiting.append(here)
    for future in waiting:
        yield from future.result()


def _parse_from(path: str, lengths: list[int]) -> list[Output]:
    with open(path, "rb") as file:  # noqa: PTH123 - not a path on a disk
        return parse_all([file.read(length) for length in lengths])
