"""Pages of a file to samples, in other processes where there are many."""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from collectors.collectd_es.parse import Decoder, Samples
from collectors.collectd_es.saved_inputs import LONGEST, Piece, pieces
from collectors.collectd_es.series import Series
from tokiod.errors import Fatal, Malformed
from tokiod.toolkit.worker_pool import workers as processes

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from collectors.collectd_es.datasets import Fields
    from collectors.collectd_es.series import Name

FEW = 8 << 20
"""Bytes of a file that is not worth a process: it takes a third of a second to start."""

AHEAD = 2
"""Pieces on their way to each process."""


@dataclass(frozen=True, slots=True)
class Shapes:
    """What all decoders of a source have in common: what hosts and devices look like, and what fields are called."""

    hosts: re.Pattern[str] | None
    devices: re.Pattern[str] | None
    fields: Fields


@dataclass(frozen=True, slots=True)
class Parsed:
    """process: whose numbers the samples have; names: those that are new to it, from number `first` on; samples: None for no page."""

    process: int
    first: int
    names: list[Name]
    samples: Samples | None
    reason: str = ""


class _Parser:
    """A decoder with a table of names of its own, of which it tells each once."""

    def __init__(self, shapes: Shapes) -> None:
        self._series = Series(shapes.hosts, shapes.devices)
        self._decoder = Decoder(self._series, shapes.fields)
        self._told = 0

    def parse(self, piece: Piece) -> Parsed:
        samples, reason = None, ""
        try:
            samples = self._samples(piece)
        except Malformed as error:
            reason = str(error)
        first, names = self._told, self._series.names(self._told)
        self._told += len(names)
        return Parsed(os.getpid(), first, names, samples, reason)

    def _samples(self, piece: Piece) -> Samples:
        data = piece.data or b""
        if piece.form == "answer":
            return self._decoder.answer(data).samples
        return self._decoder.hits(b"[" + data + b"]" if piece.form == "hits" else data)


class _Numbers:
    """Which of our numbers each number of another table is."""

    def __init__(self, series: Series) -> None:
        self._series = series
        self._tables: dict[int, NDArray[np.uint32]] = {}

    def learn(self, parsed: Parsed) -> NDArray[np.uint32]:
        """Take in a process's new names, if they are not known; returns its table."""
        table = self._tables.get(parsed.process, np.empty(0, np.uint32))
        if parsed.names and parsed.first == len(table):
            table = self._tables[parsed.process] = np.concatenate([table, self._series.merge(parsed.names)])
        return table

    def ours(self, parsed: Parsed, samples: Samples) -> Samples:
        """Return a process's samples with our numbers."""
        return replace(samples, series=self.learn(parsed)[samples.series])


def parsed(path: Path, shapes: Shapes, series: Series, workers: int, seen: Callable[[int], None]) -> Iterator[Samples]:
    """Yield the samples of a file's pages, numbered by `series`.

    workers: processes to use for a file that is worth it, 0 for none; seen: called with the bytes that were read.
    Raises Fatal for a file that is broken, or when a process was killed; OSError.
    """
    if not workers or path.stat().st_size < FEW:
        parser = _Parser(shapes)
        yield from _in_order(_Pieces(path, pieces(path, seen), lambda piece: lambda: parser.parse(piece), 1), series)
        return
    try:
        with _pool(shapes, workers, path) as submitted:
            yield from _in_order(_Pieces(path, pieces(path, seen, copied=False), submitted, AHEAD * workers), series)
    except BrokenProcessPool:
        raise Fatal(f"{path}: a process that parsed it is gone: was it killed, for want of memory?") from None


class _Pieces:
    """The pieces of a file, a few of them being parsed ahead; in order."""

    def __init__(self, path: Path, coming: Iterator[Piece], submit: Callable[[Piece], Callable[[], Parsed]], ahead: int) -> None:
        self.path = path
        self._coming = coming
        self._submit = submit
        self._ahead = ahead
        self._waiting: deque[tuple[Piece, Callable[[], Parsed]]] = deque()

    def next(self) -> tuple[Piece, Parsed] | None:
        """Return the next piece and what it was parsed to; None at the end."""
        while len(self._waiting) < self._ahead and (piece := next(self._coming, None)) is not None:
            self._waiting.append((piece, self._submit(piece)))
        if not self._waiting:
            return None
        piece, answer = self._waiting.popleft()
        return piece, answer()

    def again(self, piece: Piece, numbers: _Numbers) -> Parsed:
        """Parse a piece that was joined out of others; what its process saw before is learnt first, though it comes later in the file."""
        for _, answer in self._waiting:
            numbers.learn(answer())
        return self._submit(piece)()


def _in_order(coming: _Pieces, series: Series) -> Iterator[Samples]:
    numbers = _Numbers(series)
    while (found := coming.next()) is not None:
        piece, parsed = found
        while parsed.samples is None:
            numbers.learn(parsed)
            piece, parsed = _joined(coming, numbers, piece, parsed.reason)
        yield numbers.ours(parsed, parsed.samples)


def _joined(coming: _Pieces, numbers: _Numbers, piece: Piece, reason: str) -> tuple[Piece, Parsed]:
    """Join the next piece to one that is no page by itself."""
    following = coming.next() if piece.stop - piece.start < LONGEST else None
    if following is None:
        raise Fatal(f"{coming.path}: byte {piece.start}: no page begins here: {reason}")
    numbers.learn(following[1])
    whole = piece.joined(following[0])
    return whole, coming.again(whole, numbers)


@contextmanager
def _pool(shapes: Shapes, workers: int, path: Path) -> Iterator[Callable[[Piece], Callable[[], Parsed]]]:
    """Start processes that parse; they end with the block, and with us.

    Of a plain file they read the pieces themselves, which is cheaper than sending them.
    """
    with processes(workers, _begin, shapes) as pool:

        def submitted(piece: Piece) -> Callable[[], Parsed]:
            return pool.submit(_parse, piece, str(path)).result

        yield submitted


_parsers: list[_Parser] = []


def _begin(shapes: Shapes) -> None:
    _parsers.append(_Parser(shapes))


def _parse(piece: Piece, path: str) -> Parsed:
    if piece.data is None:
        with Path(path).open("rb") as file:
            file.seek(piece.start)
            piece = replace(piece, data=file.read(piece.stop - piece.start))
    return _parsers[0].parse(piece)
