"""What is asked of another process: each answer reaches its request, and what belongs to none is known as such."""

import asyncio

import numpy as np
import pytest
from many_hosts import in_loop

from tokiod.batch import Batch
from tokiod.crossing.asking import KEPT_ENDED, Asking, RemoteFault, Unasked
from tokiod.crossing.dialogue import Cancel, Collect, Count, Counted, Data, Failed
from tokiod.crossing.parts import encoded
from tokiod.errors import Fatal, Malformed, NotYet, Refusal, Transient
from tokiod.window_data import WindowData

VALUES = np.arange(12.0)
WINDOW = WindowData([Batch("g/d", "gauge", 5, ("a",), np.arange(12) * 5, np.zeros(12, np.uint32), VALUES)], 12)


@pytest.fixture
def sent():
    return []


@pytest.fixture
def asking(sent):
    return Asking("host zone-b", sent.append, " (on host zone-b)")


def collect(number):
    return Collect(number, "src", 1, 0, 60, 5.0, "lmt", "fs")


def count(number):
    return Count(number, "src", 1, 0, 60, 5.0)


async def asked(asking, make=collect):
    """Return a request that has been sent."""
    request = asyncio.create_task(asking.ask(make))
    await asyncio.sleep(0)
    return request


def parts(number):
    """Return the window as the answers to a request."""
    found = encoded("src", WINDOW, 40)
    return [(Data(number, part, len(found)), frames) for part, frames in enumerate(found)]


@in_loop
async def test_a_window_reaches_its_request_in_whatever_order_its_parts_come(asking, sent):
    first, second = await asked(asking), await asked(asking)
    assert sent == [collect(1), collect(2)]
    for here, there in zip(parts(1), reversed(parts(2)), strict=True):
        assert not first.done()
        asking.answered(*here)
        asking.answered(*there)
    for data in (await first, await second):
        assert (data.records, data.batches[0].value.tolist()) == (12, VALUES.tolist())
    assert sent == [collect(1), collect(2)]


@in_loop
async def test_a_count_reaches_its_request(asking):
    requests = [await asked(asking, count) for _ in range(2)]
    asking.answered(Counted(2, None))
    asking.answered(Counted(1, 7))
    assert [await one for one in requests] == [7, None]


@pytest.mark.parametrize("arrived", [0, 1], ids=["before an answer", "after a part"])
@in_loop
async def test_a_request_that_is_cancelled_is_cancelled_there_once_and_its_late_answers_are_known(asking, sent, arrived):
    request = await asked(asking)
    for part in parts(1)[:arrived]:
        asking.answered(*part)
    request.cancel()
    # Between the cancellation and the turn of the request.
    asking.answered(*parts(1)[-1])
    with pytest.raises(asyncio.CancelledError):
        await request
    assert sent == [collect(1), Cancel(1)]
    for part in parts(1):
        asking.answered(*part)
    asking.answered(Failed(1, "transient", "cancelled"))
    asking.fail_all("the peer has gone")
    assert (sent, asking._joining.nbytes) == ([collect(1), Cancel(1)], 0)


@in_loop
async def test_a_request_that_took_too_long_is_cancelled_there_too(asking, sent):
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await asking.ask(collect)
    assert sent == [collect(1), Cancel(1)]


@in_loop
async def test_an_answer_that_was_not_asked_for_is_known_as_such(asking):
    request = await asked(asking)
    for answer in (Counted(2, 3), Failed(0, "fatal", ""), Data(-1, 0, 1)):
        with pytest.raises(Unasked, match=f"^an answer to request {answer.id}$"):
            asking.answered(answer)
    assert not request.done()
    request.cancel()


@pytest.mark.parametrize(
    ("make", "answer", "kinds"),
    [(count, Data(1, 0, 1), "Data for a request of Count"), (collect, Counted(1, 3), "Counted for a request of Collect")],
    ids=["data for a count", "a count for data"],
)
@in_loop
async def test_an_answer_to_another_question_was_not_asked_for_and_fails_its_request(asking, sent, make, answer, kinds):
    request = await asked(asking, make)
    with pytest.raises(Unasked, match=r"^an answer to another question than request 1$"):
        asking.answered(answer)
    with pytest.raises(Transient, match=f"^host zone-b sent {kinds}$"):
        await request
    assert sent == [make(1)]


@in_loop
async def test_so_many_requests_that_have_ended_are_known_and_no_more(asking):
    for number in range(1, KEPT_ENDED + 2):
        request = await asked(asking, count)
        asking.answered(Counted(number, 0))
        await request
    asking.answered(Counted(2, 0))
    with pytest.raises(Unasked):
        asking.answered(Counted(1, 0))


@pytest.mark.parametrize(
    ("answer", "frames", "sentence"),
    [
        (Data(1, 5, 5), [b""], "parts: part 5 of 5"),
        (Data(1, 1, 3), [b""], "parts: 3 parts, and 2 by another part of the same window"),
        (Data(1, 1, 2), [b"\xff" * 4], "header: 4294967295 bytes expected, "),
    ],
    ids=["a part beyond the parts", "another number of parts", "bytes that are no window"],
)
@in_loop
async def test_a_malformed_window_fails_its_request_for_now_and_its_other_parts_are_ignored(asking, sent, answer, frames, sentence):
    request = await asked(asking)
    asking.answered(Data(1, 0, 2), [b"\xff" * 4])
    with pytest.raises(Malformed, match=sentence):
        asking.answered(answer, frames)
    asking.answered(Data(1, 1, 2), [b"the rest"])
    with pytest.raises(Transient, match=f"^host zone-b sent a malformed window: {sentence}"):
        await request
    asking.answered(Data(1, 1, 2), [b"the rest"])
    assert (sent, asking._joining.nbytes) == ([collect(1)], 0)


@in_loop
async def test_a_window_that_is_dropped_for_others_fails_its_request_for_now(asking):
    asking._joining.max_bytes = 5000
    requests = [await asked(asking) for _ in range(3)]
    for number in (1, 2, 3):
        asking.answered(Data(number, 0, 2), [bytes(1000)])
    with pytest.raises(Transient, match=r"^host zone-b sent windows of over 5000 bytes at the same time$"):
        await requests[0]
    assert not any(request.done() for request in requests[1:])
    asking.fail_all("the end")
    await asyncio.gather(*requests, return_exceptions=True)


@in_loop
async def test_all_requests_fail_when_the_peer_goes_and_what_they_had_is_forgotten(asking, sent):
    requests = [await asked(asking), await asked(asking, count)]
    asking.answered(*parts(1)[0])
    asking.fail_all("host zone-b is unreachable")
    for request in requests:
        with pytest.raises(Transient, match=r"^host zone-b is unreachable$"):
            await request
    assert (len(sent), asking._joining.nbytes) == (2, 0)


@in_loop
async def test_what_can_not_be_sent_fails_and_a_cancellation_that_can_not_be_sent_is_one(sent):
    reached = [True]

    def send(message):
        if not reached[0]:
            raise Transient("host zone-b is unreachable")
        sent.append(message)

    asking = Asking("host zone-b", send)
    request = await asked(asking)
    reached[0] = False
    with pytest.raises(Transient, match=r"^host zone-b is unreachable$"):
        await asking.ask(collect)
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    assert (sent, asking._requests) == ([collect(1)], {})


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        ("transient", Transient), ("not_yet", NotYet), ("timeout", TimeoutError), ("fatal", Fatal), ("bug", RemoteFault),
        ("rejected", Refusal),
    ],
)  # fmt: skip
@in_loop
async def test_a_failure_there_is_the_same_failure_here_with_the_place(asking, outcome, kind):
    request = await asked(asking)
    asking.answered(Failed(1, outcome, "no luck", 1_700_000_000))
    with pytest.raises(kind) as caught:
        await request
    assert (type(caught.value), str(caught.value)) == (kind, "no luck (on host zone-b)")
    assert getattr(caught.value, "ended_at", None) == (1_700_000_000 if isinstance(caught.value, Transient) else None)
