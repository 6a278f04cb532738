"""From the bus into the file: cells unsynced, a commit, a late window into a full day, strewn cells."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from unittest import mock

import numpy as np

from sinks.tts.day_files import DayFiles
from sinks.tts.sink import TtsSink
from tests.bench.measure import Row, paired, rated, timed
from tokiod.archive.layout import daily
from tokiod.batch import Batch
from tokiod.clock import SystemClock
from tokiod.crossing.codec import decode
from tokiod.crossing.parts import PART_BYTES, encoded
from tokiod.ledger import changes
from tokiod.ledger.ledger import Ledger, StoredEntry
from tokiod.tts.schema import DATASETS
from tokiod.window import Calendar, Window
from tokiod.window_data import Collected, WindowData, WindowMeta

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

START = 1_517_184_000
STEP = 5
WIDTH = 248
ROWS = 86400 // STEP
HEIGHT = 12
"""Rows of a window of one minute."""

GAUGES = tuple(d for d in DATASETS if d.startswith(("dataservers/", "fullness/", "failover/", "datatargets/")))[:26]
COUNTERS = tuple(d for d in DATASETS if d.startswith("mdtargets/") and d.endswith("s"))[8:22]
NAMES = tuple(f"fs-OST{i:04x}" for i in range(WIDTH))


def batch(dataset: str, first: int, height: int, form: str = "gauge") -> Batch:
    row = np.repeat(np.arange(first, first + height), WIDTH)
    value = 1000 * row + np.tile(np.arange(WIDTH), height)
    column = np.tile(np.arange(WIDTH, dtype=np.uint32), height)
    return Batch(dataset, form, STEP, NAMES, START + row * STEP, column, value if form == "counter" else value.astype(np.float64))


def window(batches: list[Batch], first: int, height: int) -> Collected:
    return Collected(WindowMeta("fs-lmt", "lmt", "fs", Window(START + first * STEP, START + (first + height) * STEP)), batches)


def sink_in(directory: Path, *, compare: bool) -> TtsSink:
    layout = daily(Calendar("UTC"), lambda day, system: directory / f"{day.date}" / f"{system}.hdf5")
    return TtsSink(DayFiles(layout, SystemClock(), compare=compare))


def rows(directory: Path, *, quick: bool) -> Iterator[Row]:
    yield from from_the_bus(directory, quick=quick)
    yield from commits(directory, quick=quick)


def from_the_bus(directory: Path, *, quick: bool) -> Iterator[Row]:
    cases = [("gauge", 12, False), ("gauge", 120, False), ("gauge", 120, True), ("gauge", 720, True), ("counter", 120, True)]
    for form, height, compare in cases[1:3] if quick else cases:
        pair = _bus(directory / f"bus-{form}-{height}-{compare}", form, height, compare=compare)
        cells = WIDTH * (ROWS // 4 // height * height)
        what = f"bus to file, unsynced, {WIDTH * height} {form} cells a message" + (", telling what changed" if compare else "")
        target = "for information" if form == "counter" else "at most 1.2"
        yield rated(what, "M cells/s", cells / 1e6, pair, target)


def _bus(directory: Path, form: str, height: int, *, compare: bool) -> tuple[float, float, float]:
    dataset = COUNTERS[0] if form == "counter" else GAUGES[0]
    sink = sink_in(directory, compare=compare)
    parts = [batch(dataset, first, height, form) for first in range(0, ROWS // 4 // height * height, height)]
    messages = [[bytes(frame) for frame in frames] for part in parts for frames in encoded("fs-lmt", WindowData([part]), PART_BYTES)]
    memory = np.full((ROWS, WIDTH), -0.0)
    cells = [((part.time - START) // STEP, part.column, part.value) for part in parts]
    sink.apply(window([*decode(messages[0]).batches], 0, height))

    def floor() -> None:
        for row, column, value in cells:
            memory[row, column] = value

    def ours() -> None:
        for number, frames in enumerate(messages):
            sink.apply(window([*decode(frames).batches], number * height, height))

    pair = paired(floor, ours, 7)
    sink.close()
    return pair


def commits(directory: Path, *, quick: bool) -> Iterator[Row]:
    forms = {"26 gauges": [(d, "gauge") for d in GAUGES]}
    if not quick:
        forms["12 gauges and 14 counters"] = [(d, "gauge") for d in GAUGES[:12]] + [(d, "counter") for d in COUNTERS]
    for name, datasets in forms.items():
        place = directory / f"commit-{len(datasets)}-{datasets[-1][1]}"
        sink = sink_in(place, compare=True)
        width = sum(5 if form == "counter" else 1 for _, form in datasets)
        fill(sink, datasets, 240)
        what = f"{HEIGHT} rows x {WIDTH} columns, {name}"
        yield timed(f"a commit of {what}, synced", "ms", 1e3, _commit(sink, place, datasets, 240), "at most 2")
        if quick:
            sink.close()
            continue
        fill(sink, datasets, ROWS)
        yield timed(
            f"the same, late into a full day ({width} x {ROWS} x {WIDTH})",
            "ms",
            1e3,
            _commit(sink, place, datasets, 9000),
            "at most 2, 5 ms",
        )
        pair = _logged(sink, place, datasets, ROWS // 2)
        yield timed(f"a commit of {what}, with the ledger, to one without its change log", "ms", 1e3, pair, "at most 1.02")
        if datasets[-1][1] == "gauge":
            yield timed("10,000 strewn cells into a full day, synced", "ms", 1e3, _strewn(sink, place), "60 ms")
        sink.close()


def fill(sink: TtsSink, datasets: list[tuple[str, str]], end: int) -> None:
    """Fill rows up to `end`, an hour at a time."""
    for first in range(0, end, 720):
        height = min(720, end - first)
        sink.apply(window([batch(dataset, first, height, form) for dataset, form in datasets], first, height))
    sink.commit()


def _commit(sink: TtsSink, place: Path, datasets: list[tuple[str, str]], first: int) -> tuple[float, float, float]:
    """Against pwrite and fdatasync of the same bytes alone: cells, and for counters raw."""
    turn = iter(range(10**6))
    fd = _plain_file(place)
    blocks = len(datasets) + sum(form == "counter" for _, form in datasets)
    block = np.random.default_rng(1).bytes(HEIGHT * WIDTH * 8)

    def floor() -> None:
        at = (first + next(turn) % 400 * HEIGHT) * WIDTH * 8
        for number in range(blocks):
            os.pwrite(fd, block, number * 600 * HEIGHT * WIDTH * 8 + at % (600 * HEIGHT * WIDTH * 8))
        os.fdatasync(fd)

    windows = iter(
        [
            window([changed(batch(d, row, HEIGHT, form)) for d, form in datasets], row, HEIGHT)
            for row in range(first, first + 40 * HEIGHT, HEIGHT)
        ]
    )

    def ours() -> None:
        sink.apply(next(windows))
        assert sink.commit() == []

    pair = paired(floor, ours, 30)
    os.close(fd)
    return pair


def _logged(sink: TtsSink, place: Path, datasets: list[tuple[str, str]], first: int) -> tuple[float, float, float]:
    """Against the same commit without the change log."""
    span = range(first, first + 420 * HEIGHT, HEIGHT)
    windows = iter([window([changed(batch(d, row, HEIGHT, form)) for d, form in datasets], row, HEIGHT) for row in span])

    with Ledger.open(place / "ledger.sqlite3") as ledger:

        def commit() -> None:
            one = next(windows)
            applied = sink.apply(one)
            assert sink.commit() == []
            ledger.store([StoredEntry(one.meta, applied.cells, computed=tuple(applied.computed))], START)

        def floor() -> None:
            with mock.patch.object(changes, "record", lambda *_: None):  # noqa: PT008 - a mock costs more than the log
                commit()

        return paired(floor, commit, 200)


def changed(part: Batch) -> Batch:
    """Return other values than fill() wrote, and other differences of them, so that every cell is something to write."""
    more = 1 + (part.time - part.time[0]) // STEP
    return Batch(part.dataset, part.form, part.step, part.columns, part.time, part.column, part.value + more.astype(part.value.dtype))


def _strewn(sink: TtsSink, place: Path) -> tuple[float, float, float]:
    rng = np.random.default_rng(7)
    fd = _plain_file(place)

    def places() -> tuple[np.ndarray, np.ndarray]:
        cell = np.sort(rng.choice(ROWS * WIDTH, 10_000, replace=False))
        return cell // WIDTH, (cell % WIDTH).astype(np.uint32)

    def floor() -> None:
        row, column = places()
        for at in ((row * WIDTH + column) * 8).tolist():
            os.pwrite(fd, b"12345678", at)
        os.fdatasync(fd)

    def ours() -> None:
        row, column = places()
        part = Batch(GAUGES[0], "gauge", STEP, NAMES, START + row * STEP, column, rng.random(10_000))
        sink.apply(window([part], 0, ROWS))
        sink.commit()

    pair = paired(floor, ours, 7)
    os.close(fd)
    return pair


def _plain_file(place: Path) -> int:
    """Return a preallocated, written file for the floor."""
    fd = os.open(place / "floor", os.O_RDWR | os.O_CREAT)
    size = 40 * 600 * HEIGHT * WIDTH * 8
    for start in range(0, size, 2**24):
        os.pwrite(fd, bytes(min(2**24, size - start)), start)
    os.fsync(fd)
    return fd
