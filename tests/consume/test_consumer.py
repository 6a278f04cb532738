"""A consumer without brokers: how it is interrupted."""

import asyncio
import signal

import pytest

from tokiod.consume import Consumer


def test_an_interrupt_while_a_task_of_the_client_runs_is_not_kept_by_it():
    consumer, tasks = Consumer("127.0.0.1:9092", ["topic"]), []

    async def client():
        await asyncio.sleep(0)
        signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(0.01)
        return "done"

    async def work():
        tasks.append(asyncio.create_task(client()))
        await asyncio.sleep(60)

    with pytest.raises(KeyboardInterrupt):
        consumer._run(work())
    assert consumer._run(asyncio.wait_for(tasks[0], 10)) == "done"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    consumer.close()


def test_a_handler_that_the_program_has_set_is_the_one_that_is_called():
    consumer, called = Consumer("127.0.0.1:9092", ["topic"]), []

    async def work():
        signal.raise_signal(signal.SIGINT)
        await asyncio.sleep(0)
        return "done"

    before = signal.signal(signal.SIGINT, lambda *_: called.append(True))
    try:
        assert consumer._run(work()) == "done"
    finally:
        signal.signal(signal.SIGINT, before)
    assert called == [True]
    consumer.close()
