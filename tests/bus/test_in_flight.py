"""Bounds on windows and bytes, first come first served, and attempts that only go up."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokiod.bus.in_flight import InFlightWindows
from tokiod.errors import Refusal
from tokiod.window import Window
from tokiod.window_data import WindowMeta
from tokiod.window_result import Stored

STORED = Stored(1, {})


def window(number, nbytes=0):
    return WindowMeta("src", "lmt", "s", Window(number, number + 1)), [[b"bytes"]], nbytes


async def turns(count=5):
    for _ in range(count):
        await asyncio.sleep(0)


async def sent(windows, count):
    return [attempt for attempt, _ in [await windows.next() for _ in range(count)]]


def test_an_answer_reaches_the_submitter_of_its_window():
    async def main():
        windows = InFlightWindows(4, 1000)
        first, second = await windows.add(*window(1)), await windows.add(*window(2))
        one, two = await sent(windows, 2)
        windows.resolve(two, Refusal("disk full", "retry"))
        windows.resolve(one, STORED)
        assert await first == STORED
        assert ((refusal := await second).message, refusal.when) == ("disk full", "retry")
        assert (len(windows), windows.nbytes) == (0, 0)

    asyncio.run(main())


def test_an_answer_to_no_current_attempt_is_ignored():
    async def main():
        windows = InFlightWindows(4, 1000)
        answer = await windows.add(*window(1, 200))
        (attempt,) = await sent(windows, 1)
        windows.resolve(attempt + 1, STORED)
        assert (len(windows), windows.nbytes, answer.done()) == (1, 200, False)
        answer.cancel()
        for _ in range(2):
            windows.resolve(attempt, STORED)
            assert (len(windows), windows.nbytes) == (0, 0)

    asyncio.run(main())


def test_no_more_windows_than_allowed_until_one_is_answered():
    async def main():
        windows = InFlightWindows(2, 1000)
        tasks = [asyncio.create_task(windows.add(*window(n))) for n in range(4)]
        await turns()
        assert [task.done() for task in tasks] == [True, True, False, False]
        windows.resolve((await sent(windows, 1))[0], STORED)
        await turns()
        assert [task.done() for task in tasks] == [True, True, True, False]
        tasks[3].cancel()

    asyncio.run(main())


def test_a_window_of_more_than_the_bytes_allowed_goes_alone_and_is_not_overtaken():
    async def main():
        windows = InFlightWindows(4, 1000)
        tasks = [asyncio.create_task(windows.add(*window(n, nbytes))) for n, nbytes in enumerate([400, 5000, 20, 20])]
        await turns()
        assert [task.done() for task in tasks] == [True, False, False, False]
        windows.resolve((await sent(windows, 1))[0], STORED)
        await turns()
        assert [task.done() for task in tasks] == [True, True, False, False]
        assert windows.nbytes == 5000
        windows.resolve((await sent(windows, 1))[0], STORED)
        await turns()
        assert all(task.done() for task in tasks)

    asyncio.run(main())


def test_a_cancelled_submission_leaves_the_queue_in_order():
    async def main():
        windows = InFlightWindows(1, 1000)
        tasks = [asyncio.create_task(windows.add(*window(n))) for n in range(3)]
        await turns()
        tasks[1].cancel()
        await turns()
        windows.resolve((await sent(windows, 1))[0], STORED)
        await turns()
        assert tasks[2].done()
        assert (await windows.next())[1].meta.window == Window(2, 3)

    asyncio.run(main())


def test_renewed_windows_keep_their_order_and_get_higher_attempts_and_only_sent_ones_count_as_resent():
    async def main():
        windows = InFlightWindows(4, 1000)
        answers = [await windows.add(*window(n)) for n in range(3)]
        before = await sent(windows, 2)
        windows.renew()
        after = [await windows.next() for _ in range(3)]
        assert [one.meta.window.start for _, one in after] == [0, 1, 2]
        assert min(attempt for attempt, _ in after) > max(before)
        assert windows.resent == 2
        for attempt in before:
            windows.resolve(attempt, STORED)
        assert len(windows) == 3
        assert not any(answer.done() for answer in answers)

    asyncio.run(main())


def test_a_window_answered_before_it_was_sent_again_is_not_sent():
    async def main():
        windows = InFlightWindows(4, 1000)
        await windows.add(*window(1))
        await windows.add(*window(2))
        windows.resolve(1, STORED)
        assert (await windows.next())[1].meta.window == Window(2, 3)

    asyncio.run(main())


def test_cancel_cancels_every_answer():
    async def main():
        windows = InFlightWindows(4, 1000)
        answer = await windows.add(*window(1))
        windows.cancel()
        with pytest.raises(asyncio.CancelledError):
            await answer

    asyncio.run(main())


@given(st.lists(st.integers(0, 70), max_size=30), st.integers(1, 4), st.randoms())
def test_the_bounds_hold_at_every_step_and_everything_gets_through_in_order(sizes, max_windows, random):
    async def main():
        windows = InFlightWindows(max_windows, 1000)
        tasks = [asyncio.create_task(windows.add(*window(n, size * 20))) for n, size in enumerate(sizes)]
        order, under_way = [], {}
        while len(order) < len(sizes) or under_way:
            await turns()
            assert len(windows) <= max_windows
            assert windows.nbytes <= 1000 or len(windows) == 1
            while len(under_way) < len(windows):
                attempt, one = await windows.next()
                under_way[attempt] = one.meta.window.start
                order.append(one.meta.window.start)
            attempt = random.choice(list(under_way))
            windows.resolve(attempt, STORED)
            del under_way[attempt]
        assert order == list(range(len(sizes)))
        assert all([(await task).done() for task in tasks])
        assert windows.nbytes == 0

    asyncio.run(main())
