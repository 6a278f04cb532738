"""The contract suite of sinks that the change log feeds: what holds for every kind, as tests that a kind's test class inherits.

    pytest.register_assert_rewrite("tokiod.testing.sink_contract")   # in conftest.py: failures show the compared values

    class TestMySink(SinkContract):
        @pytest.fixture
        def sink(self, receiver): ...

docs/adding-a-sink.md has a whole example. This module needs pytest, which the extra `testing` of tokiod installs.
"""

from __future__ import annotations

import asyncio
import datetime as dt
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest

from tokiod.change_sink import Acknowledged, Block
from tokiod.errors import Transient
from tokiod.window import Window

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from tokiod.change_sink import ChangeSink, DaySink

Held = dict[tuple[str, int], dict[str, float]]
"""What a receiver holds of a system: the cells of each row by dataset and epoch second, without those that are missing, and without rows
that have only such."""

SYSTEM, EPOCH = "cscratch", 1_767_225_600
START = 1_767_261_600
"""A whole hour, in UTC."""
STEPS = {"datatargets/readbytes": 5, "datatargets/writebytes": 5, "fullness/bytes": 60}
UNITS = {"datatargets/readbytes": "bytes", "datatargets/writebytes": "bytes", "fullness/bytes": "bytes"}


def rows_of(dataset: str, window: Window, revision: int, columns: int = 7, seed: int = 0) -> Block:
    """Return rows of a dataset that look random, some cells of which are missing, zero, negative, very large or very small."""
    step = STEPS[dataset]
    chance = np.random.default_rng([seed, revision, window.start, len(dataset)])
    values = np.floor(chance.random((window.seconds // step, columns)) * 1e9) / 8
    values[chance.random(values.shape) < 0.2] = np.nan  # noqa: PLR2004 - a share
    for special in (0.0, -1.5, 1e300, 5e-324, 2.0**53 + 2):
        values[chance.integers(len(values)), chance.integers(columns)] = special
    names = tuple(f"OST{i:04x}" for i in range(columns))
    return Block(SYSTEM, dataset, window.start, step, names, values, UNITS[dataset], revision, EPOCH)


def span_of(window: Window, revision: int, columns: int = 7, seed: int = 0) -> list[Block]:
    """Return the rows of all datasets in a window."""
    return [rows_of(dataset, window, revision, columns, seed) for dataset in STEPS]


def missing_of(blocks: Sequence[Block], revision: int) -> list[Block]:
    """Return the same rows as of a span that is not stored any more."""
    return [_changed(one, np.full_like(one.values, np.nan), one.columns, revision) for one in blocks]


def held_of(blocks: Sequence[Block]) -> Held:
    """Return what a receiver holds that received blocks in this order."""
    found: Held = {}
    newest: dict[tuple[str, int], int] = {}
    for block in blocks:
        for time, row in zip(block.times.tolist(), block.values.tolist(), strict=True):
            key = block.dataset, time
            if block.revision >= newest.get(key, 0):
                newest[key] = block.revision
                found[key] = {name: value for name, value in zip(block.columns, row, strict=True) if value == value}  # noqa: PLR0124 - NaN
    return {key: cells for key, cells in found.items() if cells}


def _changed(block: Block, values: NDArray[np.float64], columns: tuple[str, ...], revision: int) -> Block:
    return Block(block.system, block.dataset, block.start, block.step, columns, values, block.units, revision, block.epoch)


async def _sent(sink: ChangeSink, spans: Sequence[Sequence[Block]]) -> Acknowledged:
    total = Acknowledged()
    try:
        await sink.open()
        for blocks in spans:
            total.add(await sink.send(blocks))
    finally:
        await sink.close()
    return total


class SinkContract:
    """The tests of a kind that takes rows. Inherit it and define these fixtures.

    sink: a function without arguments that returns a new ChangeSink; all of them have one receiver, which is empty at first.
    held: a function without arguments that returns what the receiver holds of the system SYSTEM, as Held.
    unreachable: the same as sink for a receiver that does not answer; without it, its test is skipped.
    window: a Window of a minute or more that the kind's `window` divides.
    """

    turns = 40
    """Turns of the event loop after which a call is cancelled, at most."""

    @pytest.fixture
    def sink(self) -> Callable[[], ChangeSink]:
        """Return what makes a sink."""
        raise NotImplementedError(f"{type(self).__name__} must define the fixture `sink`")

    @pytest.fixture
    def held(self) -> Callable[[], Held]:
        """Return what reads the receiver."""
        raise NotImplementedError(f"{type(self).__name__} must define the fixture `held`")

    @pytest.fixture
    def unreachable(self) -> Callable[[], ChangeSink] | None:
        """Return what makes a sink without a receiver, None where there is nothing of the kind."""
        return None

    @pytest.fixture
    def window(self) -> Window:
        """Return the window of the rows."""
        return Window(START, START + 120)

    def test_the_receiver_holds_each_cell(self, sink: Callable[[], ChangeSink], held: Callable[[], Held], window: Window) -> None:
        blocks = span_of(window, 10)
        done = asyncio.run(_sent(sink(), [blocks]))
        assert done.records > 0
        assert not done.rejected
        assert held() == held_of(blocks)

    def test_a_higher_revision_replaces_rows_whole(self, sink: Callable[[], ChangeSink], held: Callable[[], Held], window: Window) -> None:
        first, second = span_of(window, 10), span_of(window, 11, columns=5, seed=1)
        asyncio.run(_sent(sink(), [first, second]))
        assert held() == held_of([*first, *second])

    def test_a_lower_revision_that_comes_later_changes_nothing(
        self, sink: Callable[[], ChangeSink], held: Callable[[], Held], window: Window
    ) -> None:
        old, new = span_of(window, 10), span_of(window, 11, seed=1)
        asyncio.run(_sent(sink(), [new, old]))
        assert held() == held_of(new)

    def test_of_the_same_revision_the_last_rows_count(
        self, sink: Callable[[], ChangeSink], held: Callable[[], Held], window: Window
    ) -> None:
        first, second = span_of(window, 10), span_of(window, 10, seed=1)
        asyncio.run(_sent(sink(), [first, second]))
        assert held() == held_of(second)

    def test_the_same_rows_twice_are_held_once(self, sink: Callable[[], ChangeSink], held: Callable[[], Held], window: Window) -> None:
        blocks = span_of(window, 10)
        asyncio.run(_sent(sink(), [blocks, blocks]))
        asyncio.run(_sent(sink(), [blocks]))
        assert held() == held_of(blocks)

    def test_rows_that_are_no_longer_stored_are_missing_until_they_come_again(
        self, sink: Callable[[], ChangeSink], held: Callable[[], Held], window: Window
    ) -> None:
        blocks = span_of(window, 10)
        asyncio.run(_sent(sink(), [blocks, missing_of(blocks, 11)]))
        assert held() == {}
        again = span_of(window, 12, seed=2)
        asyncio.run(_sent(sink(), [again]))
        assert held() == held_of(again)

    def test_rows_without_any_column_are_missing(self, sink: Callable[[], ChangeSink], held: Callable[[], Held], window: Window) -> None:
        blocks = span_of(window, 10)
        without = [_changed(one, np.empty((one.rows, 0)), (), 11) for one in blocks]
        asyncio.run(_sent(sink(), [blocks, without]))
        assert held() == {}

    def test_windows_in_any_order_give_the_same_as_one(
        self, sink: Callable[[], ChangeSink], held: Callable[[], Held], window: Window
    ) -> None:
        later = [Window(window.start + n * window.seconds, window.end + n * window.seconds) for n in range(4)]
        spans = [span_of(one, 10 + n) for n, one in enumerate(later)]
        asyncio.run(_sent(sink(), [spans[n] for n in (2, 0, 3, 1)]))
        assert held() == held_of([block for blocks in spans for block in blocks])

    def test_a_part_of_a_longer_span_is_replaced(self, sink: Callable[[], ChangeSink], held: Callable[[], Held], window: Window) -> None:
        whole = span_of(Window(window.start, window.start + 5 * window.seconds), 10)
        part = span_of(Window(window.start + window.seconds, window.start + 2 * window.seconds), 11, seed=1)
        asyncio.run(_sent(sink(), [whole, part]))
        assert held() == held_of([*whole, *part])

    def test_thousands_of_columns(self, sink: Callable[[], ChangeSink], held: Callable[[], Held], window: Window) -> None:
        blocks = span_of(window, 10, columns=3000)
        asyncio.run(_sent(sink(), [blocks]))
        assert held() == held_of(blocks)

    def test_arrays_are_not_changed(self, sink: Callable[[], ChangeSink], window: Window) -> None:
        blocks = span_of(window, 10)
        before = [one.values.copy() for one in blocks]
        for one in blocks:
            one.values.flags.writeable = False
        asyncio.run(_sent(sink(), [blocks]))
        assert all(np.array_equal(one.values, copy, equal_nan=True) for one, copy in zip(blocks, before, strict=True))

    def test_cancelled_at_any_turn_the_next_sink_sends_all(
        self, sink: Callable[[], ChangeSink], held: Callable[[], Held], window: Window
    ) -> None:
        blocks = span_of(window, 10)

        async def cancelled() -> None:
            for turns in range(0, self.turns, 4):
                task = asyncio.ensure_future(_sent(sink(), [blocks]))
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait({task})
            await _sent(sink(), [blocks])

        asyncio.run(cancelled())
        assert held() == held_of(blocks)

    def test_cancelled_at_any_moment_the_next_sink_sends_all(
        self, sink: Callable[[], ChangeSink], held: Callable[[], Held], window: Window
    ) -> None:
        blocks = span_of(window, 10)

        async def cancelled_now_and_then() -> None:
            seconds = 0.0005
            while True:
                try:
                    async with asyncio.timeout(seconds):
                        await _sent(sink(), [blocks])
                except TimeoutError:
                    seconds *= 1.25
                else:
                    return

        asyncio.run(cancelled_now_and_then())
        assert held() == held_of(blocks)

    def test_a_receiver_that_does_not_answer_is_transient(self, unreachable: Callable[[], ChangeSink] | None, window: Window) -> None:
        if unreachable is None:
            pytest.skip("this kind has no receiver that may not answer")
        with pytest.raises((Transient, TimeoutError)) as caught:
            asyncio.run(_sent(unreachable(), [span_of(window, 10)]))
        assert isinstance(caught.value, TimeoutError) or str(caught.value)

    def test_closed_without_any_row_and_twice(self, sink: Callable[[], ChangeSink]) -> None:
        async def closed() -> None:
            never_opened, empty = sink(), sink()
            await never_opened.close()
            await empty.open()
            await empty.close()
            await empty.close()

        asyncio.run(closed())


class Day(msgspec.Struct, frozen=True):
    """A sealed day whose cells look random."""

    date: dt.date
    revision: int
    seed: int = 0
    hours: int = 24
    columns: int = 7
    system: str = SYSTEM
    epoch: int = EPOCH

    @property
    def window(self) -> Window:
        """The span of the day, whose time zone is UTC."""
        start = int(dt.datetime.combine(self.date, dt.time(), dt.UTC).timestamp())
        return Window(start, start + 3600 * self.hours)

    @property
    def datasets(self) -> tuple[str, ...]:
        """The names of the datasets."""
        return tuple(STEPS)

    def whole(self, dataset: str) -> Block:
        """Return all rows of a dataset."""
        return rows_of(dataset, self.window, self.revision, self.columns, self.seed)

    def blocks(self, dataset: str, rows: int) -> Iterator[Block]:
        """Yield the rows of a dataset."""
        whole = self.whole(dataset)
        for first, last in pairwise([*range(0, whole.rows, rows), whole.rows]):
            yield Block(
                whole.system, dataset, whole.start + first * whole.step, whole.step, whole.columns, whole.values[first:last], whole.units,
                whole.revision, whole.epoch,
            )  # fmt: skip


HeldDay = dict[str, tuple[list[int], dict[str, list[float | None]]]]
"""What a receiver holds of a day: by dataset the epoch seconds of its rows, and the cells of each column, None where missing."""


def day_of(day: Day) -> HeldDay:
    """Return what a receiver holds of a day that it stored."""
    found: HeldDay = {}
    for dataset in day.datasets:
        whole = day.whole(dataset)
        cells = {name: _cells(whole.values[:, i]) for i, name in enumerate(whole.columns)}
        found[dataset] = whole.times.tolist(), cells
    return found


def _cells(column: NDArray[np.float64]) -> list[float | None]:
    return [None if np.isnan(value) else float(value) for value in column]


class DaySinkContract:
    """The tests of a kind that takes sealed days. Inherit it and define these fixtures.

    sink: a function without arguments that returns a new DaySink; all of them have one receiver, which is empty at first.
    held: a function of a date that returns what the receiver holds of that day of the system SYSTEM, as HeldDay; {} for nothing.
    """

    date = dt.date(2026, 1, 1)

    @pytest.fixture
    def sink(self) -> Callable[[], DaySink]:
        """Return what makes a sink."""
        raise NotImplementedError(f"{type(self).__name__} must define the fixture `sink`")

    @pytest.fixture
    def held(self) -> Callable[[dt.date], HeldDay]:
        """Return what reads the receiver."""
        raise NotImplementedError(f"{type(self).__name__} must define the fixture `held`")

    def test_the_receiver_holds_each_cell_of_a_day(self, sink: Callable[[], DaySink], held: Callable[[dt.date], HeldDay]) -> None:
        day = Day(self.date, 10)
        done = asyncio.run(_stored(sink(), [day]))
        assert done.records > 0
        assert not done.rejected
        assert held(self.date) == day_of(day)

    @pytest.mark.parametrize("hours", [23, 25])
    def test_days_of_another_length(self, sink: Callable[[], DaySink], held: Callable[[dt.date], HeldDay], hours: int) -> None:
        day = Day(self.date, 10, hours=hours)
        asyncio.run(_stored(sink(), [day]))
        assert held(self.date) == day_of(day)

    def test_a_day_that_was_sealed_again_replaces_what_is_held(
        self, sink: Callable[[], DaySink], held: Callable[[dt.date], HeldDay]
    ) -> None:
        first, second = Day(self.date, 10, columns=9), Day(self.date, 12, seed=1)

        async def sealed_again(one: DaySink) -> None:
            try:
                await one.open()
                await one.store(first)
                await one.reopened(SYSTEM, self.date, 11)
                await one.store(second)
            finally:
                await one.close()

        asyncio.run(sealed_again(sink()))
        assert held(self.date) == day_of(second)

    def test_days_are_held_beside_each_other(self, sink: Callable[[], DaySink], held: Callable[[dt.date], HeldDay]) -> None:
        days = [Day(self.date + dt.timedelta(days=n), 10 + n) for n in (2, 0, 1)]
        asyncio.run(_stored(sink(), days))
        for day in days:
            assert held(day.date) == day_of(day)
        assert held(self.date - dt.timedelta(days=1)) == {}

    def test_a_day_twice_is_held_once(self, sink: Callable[[], DaySink], held: Callable[[dt.date], HeldDay]) -> None:
        day = Day(self.date, 10)
        asyncio.run(_stored(sink(), [day, day]))
        asyncio.run(_stored(sink(), [day]))
        assert held(self.date) == day_of(day)

    def test_reopening_a_day_that_was_never_stored_is_no_error(self, sink: Callable[[], DaySink]) -> None:
        async def reopened(one: DaySink) -> None:
            try:
                await one.open()
                await one.reopened(SYSTEM, self.date, 11)
            finally:
                await one.close()

        asyncio.run(reopened(sink()))

    def test_cancelled_at_any_moment_the_next_sink_stores_it(self, sink: Callable[[], DaySink], held: Callable[[dt.date], HeldDay]) -> None:
        day = Day(self.date, 10)

        async def cancelled() -> None:
            for milliseconds in (0, 1, 2, 5, 10, 20, 50, 100):
                task = asyncio.ensure_future(_stored(sink(), [day]))
                await asyncio.wait({task}, timeout=milliseconds / 1000)
                task.cancel()
                await asyncio.wait({task})
            await _stored(sink(), [day])

        asyncio.run(cancelled())
        assert held(self.date) == day_of(day)


async def _stored(sink: DaySink, days: Sequence[Day]) -> Acknowledged:
    total = Acknowledged()
    try:
        await sink.open()
        for day in days:
            total.add(await sink.store(day))
    finally:
        await sink.close()
    return total
