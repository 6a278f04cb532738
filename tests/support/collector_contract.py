"""What holds for every collector. A collector's test class inherits it and makes collectors and windows; that is all it takes."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise

import numpy as np
import pytest

from tokiod.window import Window


async def collected(collector, window):
    return (await collector.collect(window)).batches


async def samples(collector, window):
    """{dataset: [(time, column name, value)]}, of what a window yields, as it comes."""
    found = {}
    for batch in await collected(collector, window):
        names = [batch.columns[i] for i in batch.column]
        found.setdefault(batch.dataset, []).extend(zip(batch.time.tolist(), names, batch.value.tolist(), strict=True))
    return {dataset: cells for dataset, cells in found.items() if cells}


async def _figures(collector, window):
    """What the source counts of a window, and how many records are read of it."""
    records = (await collector.collect(window)).records
    return await collector.count(window), records


def _cut(window, step, chance):
    """Some windows that touch, anywhere in a window."""
    edges = range(window.start, window.end + 1, step)
    return [Window(*part) for part in pairwise(sorted(chance.sample(edges, min(len(edges), chance.randrange(2, 7)))))]


def _joined(parts):
    return Window(parts[0].start, parts[-1].end)


def within(collector, use):
    """Run `use(collector)` and close the collector in the same loop."""

    async def run():
        try:
            return await use(collector)
        finally:
            await collector.close()

    return asyncio.run(run())


class CollectorContract:
    """Inherit, and define `collector` (a fixture that makes a new one over data that don't change), `saved` and `window`.

    collector: a function without arguments that returns the live collector; saved: the same over saved files, or None where there is
    no such thing; window: a Window that holds samples; datasets: what the collector's Config says it fills.
    """

    turns = 40
    """How many turns of the event loop a collect may take before it is cancelled."""

    @pytest.fixture
    def saved(self):
        return None

    def test_a_window_holds_samples_of_every_dataset_and_of_no_other(self, collector, window, datasets):
        assert set(within(collector(), lambda c: samples(c, window))) == datasets

    def test_asking_twice_gives_the_same(self, collector, window):
        async def twice(c):
            return await samples(c, window), await samples(c, window)

        first, second = within(collector(), twice)
        assert first == second

    def test_two_collectors_give_the_same(self, collector, window):
        assert within(collector(), lambda c: samples(c, window)) == within(collector(), lambda c: samples(c, window))

    @pytest.mark.parametrize("seed", range(5))
    def test_windows_split_in_any_way_and_asked_in_any_order_give_the_same_samples(self, collector, window, seed):
        async def in_pieces(c):
            chance = random.Random(seed)
            edges = range(window.start + c.step, window.end, c.step)
            cuts = sorted(chance.sample(edges, min(len(edges), chance.randrange(1, 6))))
            pieces = [Window(*edge) for edge in zip([window.start, *cuts], [*cuts, window.end], strict=True)]
            chance.shuffle(pieces)
            found = {}
            for piece in pieces:
                for dataset, cells in (await samples(c, piece)).items():
                    found.setdefault(dataset, []).extend(cells)
            return {dataset: sorted(cells) for dataset, cells in found.items()}

        whole = within(collector(), lambda c: samples(c, window))
        assert within(collector(), in_pieces) == {dataset: sorted(cells) for dataset, cells in whole.items()}

    def test_samples_lie_in_the_window_each_cell_once_row_by_row(self, collector, window):
        async def batches(c):
            return c.step, await collected(c, window)

        step, found = within(collector(), batches)
        assert len({batch.dataset for batch in found}) == len(found)
        for batch in found:
            assert batch.step == step
            assert len(set(batch.columns)) == len(batch.columns)
            assert ((batch.time >= window.start) & (batch.time < window.end)).all()
            cell = (batch.time - window.start) // step * len(batch.columns) + batch.column
            assert (np.diff(cell) > 0).all()

    def test_arrays_have_the_types_that_a_batch_promises(self, collector, window):
        for batch in within(collector(), lambda c: collected(c, window)):
            wanted = np.int64, np.uint32, np.int64 if batch.form == "counter" else np.float64
            assert (batch.time.dtype, batch.column.dtype, batch.value.dtype) == wanted
            assert len(batch.time) == len(batch.column) == len(batch.value)
            assert np.isfinite(batch.value).all()

    def test_columns_are_the_same_in_a_window_without_samples(self, collector, window):
        empty = Window(window.start - window.seconds, window.start)

        async def both(c):
            return [{batch.dataset: batch.columns for batch in await collected(c, w)} for w in (window, empty)]

        full, without = within(collector(), both)
        assert full == without
        assert within(collector(), lambda c: samples(c, empty)) == {}

    def test_saved_files_give_the_same_as_the_live_source(self, collector, saved, window):
        if saved is None:
            pytest.skip("this kind has no saved files")
        assert within(saved(), lambda c: samples(c, window)) == within(collector(), lambda c: samples(c, window))

    def test_saved_files_tell_spans_that_hold_every_sample(self, saved, window):
        if saved is None:
            pytest.skip("this kind has no saved files")

        async def both(c):
            found = {}
            for span in await c.spans():
                for dataset, cells in (await samples(c, Window(span.start // c.step * c.step, -(-span.end // c.step) * c.step))).items():
                    found.setdefault(dataset, []).extend(cells)
            return found, await samples(c, Window(window.start - window.seconds, window.end + window.seconds))

        in_spans, whole = within(saved(), both)
        assert {dataset: sorted(cells) for dataset, cells in in_spans.items()} == {
            dataset: sorted(cells) for dataset, cells in whole.items()
        }

    def test_cancelled_at_any_turn_it_stays_usable(self, collector, window):
        async def cancelled_each_turn(c):
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

    def test_cancelled_at_any_moment_it_stays_usable(self, collector, window):
        async def cancelled_now_and_then(c):
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

    # What was collected window by window is counted many windows at once, and by verify and backfill collected in other windows again.
    @pytest.mark.parametrize("seed", range(3))
    def test_a_count_is_what_was_read_of_the_window_or_of_its_parts_whatever_they_are(self, collector, window, seed):
        async def figures(c):
            parts = _cut(window, c.step, random.Random(seed))
            return [await _figures(c, one) for one in (_joined(parts), *parts, _joined(parts))]

        whole, *of_parts, again = within(collector(), figures)
        assert again == whole
        for total, *some in zip(whole, *of_parts, strict=True):
            assert total == (None if None in some else sum(some))
        assert None in whole or whole[0] == whole[1]

    def test_a_window_with_samples_has_records(self, collector, window):
        assert all(figure is None or figure > 0 for figure in within(collector(), lambda c: _figures(c, window)))

    def test_closing_twice_is_allowed(self, collector, window):
        async def closed(c):
            found = await samples(c, window)
            await c.close()
            return found

        assert within(collector(), closed)
