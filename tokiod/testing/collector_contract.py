"""The contract suite of collectors: what holds for every kind of source, as tests that a kind's test class inherits.

    pytest.register_assert_rewrite("tokiod.testing.collector_contract")   # in conftest.py: failures show the compared values

    class TestMyKind(CollectorContract):
        @pytest.fixture
        def collector(self, tmp_path): ...

docs/adding-a-source.md has a whole example. This module needs pytest, which the extra `testing` of tokiod installs.
"""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import pytest

from tokiod.window import Window

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from tokiod.batch import Batch
    from tokiod.collector import Collector, SavedCollector
    from tokiod.window_data import TableRows

T = TypeVar("T")
C = TypeVar("C", bound="Collector")
Samples = dict[str, list[tuple[int, str, float]]]
"""(time, column name, value) of each sample, by dataset."""


async def collected(collector: Collector, window: Window) -> Sequence[Batch]:
    """Return the batches of a window."""
    return (await collector.collect(window)).batches


async def samples(collector: Collector, window: Window) -> Samples:
    """Return the samples of a window in the order of its batches and tables; datasets and tables without samples are left out."""
    found: Samples = {}
    data = await collector.collect(window)
    for batch in data.batches:
        names = [batch.columns[i] for i in batch.column]
        found.setdefault(batch.dataset, []).extend(zip(batch.time.tolist(), names, batch.value.tolist(), strict=True))
    for rows in data.tables:
        found.setdefault(rows.table, []).extend(_of_table(rows))
    return {dataset: cells for dataset, cells in found.items() if cells}


def within(collector: C, use: Callable[[C], Awaitable[T]]) -> T:
    """Run `use(collector)` and close the collector in the same event loop."""

    async def run() -> T:
        try:
            return await use(collector)
        finally:
            await collector.close()

    return asyncio.run(run())


def _of_table(rows: TableRows) -> Iterator[tuple[int, str, float]]:
    """Yield each number of a table as a sample, whose name is the row's texts and the number's column."""
    time, columns = rows.values[0].tolist(), list(zip(rows.columns, rows.values, strict=True))[1:]
    texts = [values.tolist() for _, values in columns if values.dtype.kind == "S"]
    names = [" ".join(str(text) for text in of_row) for of_row in zip(*texts, strict=True)] if texts else [""] * len(rows)
    for column, values in columns:
        if values.dtype.kind != "S":
            yield from zip(time, (f"{name} {column}" for name in names), values.tolist(), strict=True)


class CollectorContract:
    """The tests of a kind. Inherit it and define these fixtures.

    collector: a function without arguments that returns a new live collector; the data that it reads must not change meanwhile.
    saved: the same for saved files with the same data; without it, the tests of saved files are skipped.
    window: a Window that holds samples of every dataset. The window of the same length before it must hold none.
    datasets: the names of the datasets and tables, as Config.datasets() and Config.tables return them.
    """

    turns = 40
    """Turns of the event loop after which a collect is cancelled, at most."""

    @pytest.fixture
    def collector(self) -> Callable[[], Collector]:
        """Return what makes a live collector."""
        raise NotImplementedError(f"{type(self).__name__} must define the fixture `collector`")

    @pytest.fixture
    def saved(self) -> Callable[[], SavedCollector] | None:
        """Return what makes a collector of saved files, None where there are none."""
        return None

    @pytest.fixture
    def window(self) -> Window:
        """Return the window that is collected."""
        raise NotImplementedError(f"{type(self).__name__} must define the fixture `window`")

    @pytest.fixture
    def datasets(self) -> frozenset[str]:
        """Return the names of the datasets."""
        raise NotImplementedError(f"{type(self).__name__} must define the fixture `datasets`")

    def test_a_window_holds_samples_of_every_dataset_and_of_no_other(
        self, collector: Callable[[], Collector], window: Window, datasets: frozenset[str]
    ) -> None:
        assert set(within(collector(), lambda c: samples(c, window))) == datasets

    def test_collecting_twice_returns_the_same(self, collector: Callable[[], Collector], window: Window) -> None:
        async def twice(c: Collector) -> tuple[Samples, Samples]:
            return await samples(c, window), await samples(c, window)

        first, second = within(collector(), twice)
        assert first == second

    def test_two_collectors_return_the_same(self, collector: Callable[[], Collector], window: Window) -> None:
        assert within(collector(), lambda c: samples(c, window)) == within(collector(), lambda c: samples(c, window))

    @pytest.mark.parametrize("seed", range(5))
    def test_windows_split_in_any_way_and_collected_in_any_order_give_the_same_samples(
        self, collector: Callable[[], Collector], window: Window, seed: int
    ) -> None:
        async def in_pieces(c: Collector) -> Samples:
            chance = random.Random(seed)
            edges = range(window.start + c.step, window.end, c.step)
            cuts = sorted(chance.sample(edges, min(len(edges), chance.randrange(1, 6))))
            pieces = [Window(*edge) for edge in zip([window.start, *cuts], [*cuts, window.end], strict=True)]
            chance.shuffle(pieces)
            return _sorted([await samples(c, piece) for piece in pieces])

        whole = within(collector(), lambda c: samples(c, window))
        assert within(collector(), in_pieces) == _sorted([whole])

    def test_samples_lie_in_the_window_each_cell_once_row_by_row(self, collector: Callable[[], Collector], window: Window) -> None:
        async def batches(c: Collector) -> tuple[int, Sequence[Batch]]:
            return c.step, await collected(c, window)

        step, found = within(collector(), batches)
        assert len({batch.dataset for batch in found}) == len(found)
        for batch in found:
            assert batch.step == step
            assert len(set(batch.columns)) == len(batch.columns)
            assert ((batch.time >= window.start) & (batch.time < window.end)).all()
            cell = (batch.time - window.start) // step * len(batch.columns) + batch.column
            assert (np.diff(cell) > 0).all()

    def test_arrays_have_the_types_that_a_batch_promises(self, collector: Callable[[], Collector], window: Window) -> None:
        for batch in within(collector(), lambda c: collected(c, window)):
            value = "int64" if batch.form == "counter" else "float64"
            assert [array.dtype.name for array in (batch.time, batch.column, batch.value)] == ["int64", "uint32", value]
            assert len(batch.time) == len(batch.column) == len(batch.value)
            assert np.isfinite(batch.value).all()

    def test_a_kind_of_tables_returns_each_of_them(
        self, collector: Callable[[], Collector], window: Window, datasets: frozenset[str]
    ) -> None:
        data = within(collector(), lambda c: c.collect(window))
        assert not data.tables or {rows.table for rows in data.tables} <= datasets
        assert len({rows.table for rows in data.tables}) == len(data.tables)
        for rows in data.tables:
            assert {values.dtype.str[1:] if values.dtype.kind == "i" else values.dtype.kind for values in rows.values} <= {"i8", "S"}
            assert (rows.values[0] < window.end).all()
            assert all(values.tobytes().isascii() for values in rows.values if values.dtype.kind == "S")

    def test_columns_are_the_same_in_a_window_without_samples(self, collector: Callable[[], Collector], window: Window) -> None:
        empty = Window(window.start - window.seconds, window.start)

        async def both(c: Collector) -> list[dict[str, tuple[str, ...]]]:
            return [{batch.dataset: batch.columns for batch in await collected(c, one)} for one in (window, empty)]

        full, without = within(collector(), both)
        assert full == without
        assert within(collector(), lambda c: samples(c, empty)) == {}

    def test_saved_files_give_the_same_as_the_live_source(
        self, collector: Callable[[], Collector], saved: Callable[[], SavedCollector] | None, window: Window
    ) -> None:
        if saved is None:
            pytest.skip("this kind has no saved files")
        assert within(saved(), lambda c: samples(c, window)) == within(collector(), lambda c: samples(c, window))

    def test_spans_of_saved_files_hold_every_sample(self, saved: Callable[[], SavedCollector] | None, window: Window) -> None:
        if saved is None:
            pytest.skip("this kind has no saved files")

        async def both(c: SavedCollector) -> tuple[Samples, Samples]:
            spans = [Window(span.start // c.step * c.step, -(-span.end // c.step) * c.step) for span in await c.spans()]
            around = Window(window.start - window.seconds, window.end + window.seconds)
            return _sorted([await samples(c, span) for span in spans]), _sorted([await samples(c, around)])

        in_spans, whole = within(saved(), both)
        assert in_spans == whole

    def test_cancelled_at_any_turn_it_stays_usable(self, collector: Callable[[], Collector], window: Window) -> None:
        async def cancelled_each_turn(c: Collector) -> list[Samples]:
            results = []
            for turns in range(self.turns):
                task = asyncio.ensure_future(samples(c, window))
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait({task})
                if turns % 8 == 0:
                    results.append(await samples(c, window))
            return results

        whole = within(collector(), lambda c: samples(c, window))
        assert within(collector(), cancelled_each_turn) == [whole] * len(range(0, self.turns, 8))

    def test_cancelled_at_any_moment_it_stays_usable(self, collector: Callable[[], Collector], window: Window) -> None:
        async def cancelled_now_and_then(c: Collector) -> Samples:
            seconds = 0.0005
            while True:
                try:
                    async with asyncio.timeout(seconds):
                        await samples(c, window)
                except TimeoutError:
                    seconds *= 1.5
                else:
                    return await samples(c, window)

        assert within(collector(), cancelled_now_and_then) == within(collector(), lambda c: samples(c, window))

    # A recount counts many windows at once; verify and backfill collect other windows than live polling did.
    @pytest.mark.parametrize("seed", range(3))
    def test_a_count_is_that_of_its_parts_and_how_many_records_they_have(
        self, collector: Callable[[], Collector], window: Window, seed: int
    ) -> None:
        async def figures(c: Collector) -> list[tuple[int | None, int | None]]:
            parts = _cut(window, c.step, random.Random(seed))
            return [await _figures(c, one) for one in (_joined(parts), *parts, _joined(parts))]

        whole, *of_parts, again = within(collector(), figures)
        assert again == whole
        for total, *some in zip(whole, *of_parts, strict=True):
            assert total == (None if None in some else sum(one or 0 for one in some))
        assert None in whole or whole[0] == whole[1]

    def test_a_window_with_samples_has_records(self, collector: Callable[[], Collector], window: Window) -> None:
        assert all(figure is None or figure > 0 for figure in within(collector(), lambda c: _figures(c, window)))

    def test_closing_twice_is_allowed(self, collector: Callable[[], Collector], window: Window) -> None:
        async def closed(c: Collector) -> Samples:
            found = await samples(c, window)
            await c.close()
            return found

        assert within(collector(), closed)


async def _figures(collector: Collector, window: Window) -> tuple[int | None, int | None]:
    """Return how many records the source counts in a window, and how many were read of it."""
    records = (await collector.collect(window)).records
    return await collector.count(window), records


def _sorted(parts: Sequence[Samples]) -> Samples:
    """Return the samples of several windows together, sorted."""
    found: Samples = {}
    for part in parts:
        for dataset, cells in part.items():
            found.setdefault(dataset, []).extend(cells)
    return {dataset: sorted(cells) for dataset, cells in found.items()}


def _cut(window: Window, step: int, chance: random.Random) -> list[Window]:
    """Return windows that touch each other, anywhere in a window."""
    edges = range(window.start, window.end + 1, step)
    return [Window(*part) for part in pairwise(sorted(chance.sample(edges, min(len(edges), chance.randrange(2, 7)))))]


def _joined(parts: Sequence[Window]) -> Window:
    return Window(parts[0].start, parts[-1].end)
