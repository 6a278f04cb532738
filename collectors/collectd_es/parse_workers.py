"""Parse the pages of a file, in worker processes where there are many."""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from collectors.collectd_es.parse import Decoder, Samples
from collectors.collectd_es.saved_inputs import MAX_PAGE_BYTES, Brackets, Piece, as_list, joined, pieces
from collectors.collectd_es.series import Series
from tokiod.errors import Fatal, Malformed
from tokiod.toolkit.worker_pool import FilesInMemory, Workers
from tokiod.toolkit.worker_pool import workers as processes

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from collectors.collectd_es.datasets import Fields
    from collectors.collectd_es.series import Name

MIN_BYTES_FOR_WORKERS = 8 << 20
"""Smaller files do not use workers: a worker takes a third of a second to start."""

PIECES_PER_WORKER = 2
"""Pieces that are submitted to each worker."""


@dataclass(frozen=True, slots=True)
class NameRules:
    """What all decoders of a source share: patterns of host and device names, the names of fields, and what values are."""

    hosts: re.Pattern[str] | None
    devices: re.Pattern[str] | None
    fields: Fields
    counters: bool = False

    def series(self) -> Series:
        """Return a table of names without any."""
        return Series(self.hosts, self.devices, counters=self.counters)


@dataclass(frozen=True, slots=True)
class Parsed:
    """process: the owner of the samples' numbers; names: its new ones, from number `first` on; samples: None if the piece is no page."""

    process: int
    first: int
    names: list[Name]
    samples: Samples | None
    reason: str = ""


class _Parser:
    """A decoder with its own table of names, each of which it reports once."""

    def __init__(self, rules: NameRules) -> None:
        self._series = rules.series()
        self._decoder = Decoder(self._series, rules.fields)
        self._sent = 0

    def parse(self, piece: Piece) -> Parsed:
        samples, reason = None, ""
        try:
            samples = self._samples(piece)
        except Malformed as error:
            reason = str(error)
        first, names = self._sent, self._series.names(self._sent)
        self._sent += len(names)
        return Parsed(os.getpid(), first, names, samples, reason)

    def _samples(self, piece: Piece) -> Samples:
        data = piece.data or b""
        if piece.form == "answer":
            return self._decoder.answer(data).samples
        return self._decoder.hits(as_list(data) if piece.form == "hits" else data)


class _Numbers:
    """Maps the numbers of other tables to ours."""

    def __init__(self, series: Series) -> None:
        self._series = series
        self._tables: dict[int, NDArray[np.uint32]] = {}

    def learn(self, parsed: Parsed) -> NDArray[np.uint32]:
        """Add a process's new names, if they are not known; return its table."""
        table = self._tables.get(parsed.process, np.empty(0, np.uint32))
        if parsed.names and parsed.first == len(table):
            table = self._tables[parsed.process] = np.append(table, np.array(self._series.numbers(parsed.names), np.uint32))
        return table

    def ours(self, parsed: Parsed, samples: Samples) -> Samples:
        """Return a process's samples with our numbers."""
        return replace(samples, series=self.learn(parsed)[samples.series])


class Parsing:
    """Parses the files of a source, all in the same worker processes where they are large. Names are learned once.

    workers: processes for large files, 0 for none. close() ends them.
    """

    def __init__(self, rules: NameRules, series: Series, workers: int) -> None:
        self._workers = workers
        self._rules = rules
        self._numbers = _Numbers(series)
        self._parser = _Parser(rules)
        self._processes = ExitStack()
        self._files = self._processes.enter_context(closing(FilesInMemory()))
        self._pool: Workers | None = None

    def start(self, paths: Sequence[Path]) -> None:
        """Start the processes if a file will need them: they take a third of a second, in which other things can be done."""
        # What fails here fails again when the files are parsed, and is reported then.
        with suppress(OSError):
            if any(self._is_large(path) for path in paths):
                self._started()

    def parsed(self, path: Path, on_read: Callable[[int], None]) -> Iterator[Samples]:
        """Yield the samples of a file's pages. on_read: called with the number of bytes read.

        Raises Fatal for a broken file, or when a worker was killed; OSError.
        """
        if not self._is_large(path):
            yield from _in_order(_Pieces(path, pieces(path, on_read), lambda piece: lambda: self._parser.parse(piece), 1), self._numbers)
            return
        pool = self._started()

        def submitted(piece: Piece) -> Callable[[], Parsed]:
            if piece.data is None:
                return pool.submit(_parse, str(path), piece).result
            alone = replace(piece, start=0, stop=len(piece.data), data=None)
            return self._files.submit(pool, _parse, piece.data, alone).result

        try:
            coming = pieces(path, on_read, copied=False)
            yield from _in_order(_Pieces(path, coming, submitted, PIECES_PER_WORKER * self._workers), self._numbers)
        except BrokenProcessPool:
            raise Fatal(f"{path}: a worker process has died: did it run out of memory?") from None

    def close(self) -> None:
        """End the processes."""
        self._processes.close()

    def _is_large(self, path: Path) -> bool:
        return self._workers > 0 and path.stat().st_size >= MIN_BYTES_FOR_WORKERS

    # They read the pieces of a plain file themselves, which is cheaper than sending them. They end with this process.
    def _started(self) -> Workers:
        if self._pool is None:
            self._pool = self._processes.enter_context(processes(self._workers, _begin, self._rules))
        return self._pool


class _Pieces:
    """The pieces of a file, some of them parsed ahead; in order."""

    def __init__(self, path: Path, coming: Iterator[Piece], submit: Callable[[Piece], Callable[[], Parsed]], ahead: int) -> None:
        self.path = path
        self._coming = coming
        self._submit = submit
        self._ahead = ahead
        self._waiting: deque[tuple[Piece, Callable[[], Parsed]]] = deque()

    def next(self) -> tuple[Piece, Parsed] | None:
        """Return the next piece and its result; None at the end."""
        taken = self._take()
        return None if taken is None else (taken[0], taken[1]())

    def next_part(self, numbers: _Numbers) -> Piece | None:
        """Return the next piece, None at the end. It is not parsed, unless by a worker ahead: that may have seen new names in it."""
        taken = self._take()
        if taken is None:
            return None
        if self._ahead > 1:
            numbers.learn(taken[1]())
        return taken[0]

    def _take(self) -> tuple[Piece, Callable[[], Parsed]] | None:
        while len(self._waiting) < self._ahead and (piece := next(self._coming, None)) is not None:
            self._waiting.append((piece, self._submit(piece)))
        return self._waiting.popleft() if self._waiting else None

    def again(self, piece: Piece, numbers: _Numbers) -> Parsed:
        """Parse a joined piece. Names that its worker saw first are added before, though they come later in the file."""
        for _, answer in self._waiting:
            numbers.learn(answer())
        return self._submit(piece)()


def _in_order(coming: _Pieces, numbers: _Numbers) -> Iterator[Samples]:
    while (found := coming.next()) is not None:
        piece, parsed = found
        if parsed.samples is None:
            numbers.learn(parsed)
            piece = _joined(coming, numbers, piece, parsed.reason)
            parsed = coming.again(piece, numbers)
        if parsed.samples is None:
            raise _not_a_page(coming, piece, parsed.reason)
        yield numbers.ours(parsed, parsed.samples)


# Parsing again after each joined piece would take time in the square of their number. A piece can only be a page where its brackets are
# balanced, which takes one pass over each piece.
def _joined(coming: _Pieces, numbers: _Numbers, piece: Piece, reason: str) -> Piece:
    """Join the next pieces to one that is not a page, until its brackets are balanced."""
    brackets, parts = Brackets(), [piece]
    brackets.add(_bytes(coming.path, piece))
    while not brackets.balanced:
        following = coming.next_part(numbers) if parts[-1].stop - piece.start < MAX_PAGE_BYTES else None
        if following is None:
            raise _not_a_page(coming, piece, reason)
        brackets.add(parts[-1].between + _bytes(coming.path, following))
        parts.append(following)
    if len(parts) == 1:
        raise _not_a_page(coming, piece, reason)
    return joined(parts)


def _bytes(path: Path, piece: Piece) -> bytes:
    if piece.data is not None:
        return piece.data
    with path.open("rb") as file:
        file.seek(piece.start)
        return file.read(piece.stop - piece.start)


def _not_a_page(coming: _Pieces, piece: Piece, reason: str) -> Fatal:
    return Fatal(f"{coming.path}: byte {piece.start}: not a page: {reason}")


_parsers: list[_Parser] = []


def _begin(rules: NameRules) -> None:
    _parsers.append(_Parser(rules))


def _parse(path: str, piece: Piece) -> Parsed:
    return _parsers[0].parse(replace(piece, data=_bytes(Path(path), piece)))
