"""Work that requests share: one call for those that wait, and never the answer of work that had begun before."""

import asyncio
import threading

import pytest

from tokiod.web.shared_work import SharedWork


@pytest.fixture
def work():
    made = SharedWork(1)
    yield made
    made.close()


class Gated:
    """A function that waits until it may return; it returns how often it was called before."""

    def __init__(self):
        self.calls, self.begun, self.may_end = 0, threading.Event(), threading.Event()

    def __call__(self):
        self.calls += 1
        self.begun.set()
        assert self.may_end.wait(10)
        return self.calls


def test_requests_that_come_before_the_work_begins_share_it_and_later_ones_do_not(work):
    gated = Gated()

    async def asked():
        first = asyncio.create_task(work.result("picture", gated))
        await asyncio.to_thread(gated.begun.wait, 10)
        later = [asyncio.create_task(work.result("picture", gated)) for _ in range(90)]
        other = asyncio.create_task(work.result("other", gated))
        await asyncio.sleep(0)
        assert (len(work), work.waits("picture"), work.waits("nothing")) == (3, True, False)
        gated.may_end.set()
        return await asyncio.gather(first, *later, other)

    assert asyncio.run(asked()) == [1, *[2] * 90, 3]
    assert (len(work), work.waits("picture")) == (0, False)


def test_a_client_that_goes_away_ends_the_work_of_no_other(work):
    gated = Gated()

    async def asked():
        busy = asyncio.create_task(work.result("busy", gated))
        await asyncio.to_thread(gated.begun.wait, 10)
        gone, staying = (asyncio.create_task(work.result("picture", gated)) for _ in range(2))
        await asyncio.sleep(0)
        gone.cancel()
        gated.may_end.set()
        return await asyncio.gather(busy, gone, staying, return_exceptions=True)

    first, second, third = asyncio.run(asked())
    assert (first, type(second), third) == (1, asyncio.CancelledError, 2)


def test_all_who_share_work_get_its_error_and_the_next_request_tries_again(work):
    def fails():
        raise ValueError("no file")

    async def asked():
        found = await asyncio.gather(*(work.result("picture", fails) for _ in range(3)), return_exceptions=True)
        return found, await work.result("picture", lambda: 7)

    found, again = asyncio.run(asked())
    assert ([str(one) for one in found], again) == (["no file"] * 3, 7)
