"""After the block no task runs, whether it succeeded, failed or was cancelled."""

import asyncio

import pytest

from tokiod.toolkit.tasks import started


async def finish(value):
    await asyncio.sleep(0)
    return value


async def fail():
    await asyncio.sleep(0)
    raise ValueError("failed")


async def hang(ended):
    try:
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0)
        ended.append(True)


async def gathered(*coroutines):
    async with started(coroutines) as tasks:
        return await asyncio.gather(*tasks)


def test_the_results_come_in_order():
    assert asyncio.run(gathered(finish(1), finish(2))) == [1, 2]


def test_after_a_failure_the_other_tasks_have_ended():
    ended = []
    with pytest.raises(ValueError, match="failed"):
        asyncio.run(gathered(hang(ended), fail(), hang(ended)))
    assert ended == [True, True]


def test_after_a_cancellation_all_tasks_have_ended():
    async def cancelled(ended):
        task = asyncio.ensure_future(gathered(hang(ended), hang(ended)))
        await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return task.cancelled(), ended

    assert asyncio.run(cancelled([])) == (True, [True, True])
