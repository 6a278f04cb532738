"""What files of tokiod 0.1.0 lack: the state before the day, and cells by the rule of differences that crosses midnight.

0.1.0 kept the last sample of the day before instead of a state, without its row. It counts as a sample in row -1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tokiod.tts.counters.difference_rule import Differences
from tokiod.tts.layout import STATE_ROWS
from tokiod.tts.schema import ABSENT, NO_ROW, missing
from tokiod.tts.sealed.sealed_counter import state_after
from tokiod.tts.sealed.sealed_neighbour import computed_ends

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from tokiod.tts.layout import MatrixLocation
    from tokiod.tts.live.create import Content, Pause
    from tokiod.tts.live.live_file import LiveFile
    from tokiod.tts.live.matrix import Matrix
    from tokiod.tts.spec import FileSpec

    Limit = Callable[[FileSpec], FileSpec]
    """Sets max_step of the counters of a spec."""
    Int = NDArray[np.int64]

BLOCK_CELLS = 1 << 18
"""Cells handled at once."""


def content_of_outdated(live: LiveFile) -> Content:
    """Return the content that a live file takes over from one of 0.1.0, opened by open_outdated()."""

    def fill(location: MatrixLocation, start: int, block: Int) -> None:
        if location.kind == "cells":
            live.cells[location.dataset].read(start, start + len(block), block.view(np.float64))
        elif location.kind == "raw":
            live.raw[location.dataset].read(start + 1, start + 1 + len(block), block)
        elif location.kind == "span":
            span = live.span[location.dataset].read(0, 2) - 1
            span = np.where((span < 0) | (span >= live.cells[location.dataset].rows), NO_ROW, span)
            block[...] = span[start : start + len(block)]
        else:
            block[...] = state_after(live.raw[location.dataset].read(0, 1)[0])[start : start + len(block)]

    return fill


def has_all_samples(live: LiveFile) -> bool:
    """Return whether each filled cell of the counters of a file of 0.1.0 has the sample that closes it."""
    return all(
        not (~missing(live.cells[name].read(start, stop)) & (raw.read(start + 2, stop + 2) == ABSENT)).any()
        for name, raw in live.raw.items()
        for start, stop in _blocks(live.cells[name])
    )


def unlimited(spec: FileSpec) -> FileSpec:
    """Return a spec as it is."""
    return spec


def convert(live: LiveFile, before: Path | None, pause: Pause) -> None:
    """Complete a live file with the content of one of 0.1.0, durably: the state before the day, and the cells that follow from it.

    before: the file of the day before, whose state is used if 0.1.0 sealed it.
    """
    if before is not None:
        take_state_of_sealed(live, before, live.raw)
    # Without all samples, cells that they do not give would be lost.
    if not live.sealed_raw:
        _recompute(live, pause)
    live.commit()


def _recompute(live: LiveFile, pause: Pause) -> None:
    """Write span and cells of all counters anew, from their samples and the states before the day."""
    for name, raw in live.raw.items():
        differences = Differences(live.begin[name].read(0, STATE_ROWS), 0, live.spec.rule(name))
        first, last = np.full(raw.width, NO_ROW), np.full(raw.width, NO_ROW)
        for start, stop in _blocks(raw):
            samples = raw.read(start, stop)
            cells, _ = differences.feed(samples)
            top = max(start, 1)
            live.cells[name].write_rows(top - 1, cells[top - start :])
            own = samples[: raw.rows - 1 - start]
            new = (first == NO_ROW) & (own > 0).any(axis=0)
            first[new] = start + (own[:, new] > 0).argmax(axis=0)
            sampled = (own != ABSENT).any(axis=0)
            last[sampled] = start + len(own) - 1 - (own[::-1, sampled] != ABSENT).argmax(axis=0)
            pause()
        live.span[name].write_rows(0, np.stack([first, last]))


def take_state_of_sealed(live: LiveFile, before: Path, datasets: Iterable[str]) -> None:
    """Write the states that follow from the day before, if 0.1.0 sealed it; the sink finds out about others."""
    spec, datasets = live.spec, list(datasets)
    rules, steps = {name: spec.rule(name) for name in datasets}, {name: spec.step(name) for name in datasets}
    for name, (names, state) in computed_ends(before, rules, steps).items():
        live.begin[name].write_rows(0, aligned(state, names, live.begin[name].columns))


def aligned(state: Int, names: tuple[str, ...], wanted: tuple[str, ...]) -> Int:
    """Return the columns `wanted` of states or samples i8[n, columns] of other columns, ABSENT where they are not among them."""
    if names == wanted:
        return state
    place = {name: i for i, name in enumerate(names)}
    here = np.fromiter((place.get(name, -1) for name in wanted), np.intp, len(wanted))
    found = np.full((len(state), len(wanted)), ABSENT)
    found[:, here >= 0] = state[:, here[here >= 0]]
    return found


def _blocks(matrix: Matrix) -> Iterator[tuple[int, int]]:
    tall = max(1, BLOCK_CELLS // matrix.width)
    for start in range(0, matrix.rows, tall):
        yield start, min(start + tall, matrix.rows)
