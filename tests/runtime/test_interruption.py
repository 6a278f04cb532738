"""One Ctrl-C ends a command, also where Python discards its KeyboardInterrupt."""

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import textwrap
import weakref

import pytest

from tokiod.cli.commands import status, tail
from tokiod.cli.common.base import INTERRUPTED, PlainGroup
from tokiod.runtime.interruption import held_interrupts, lasting_interrupts, run_until_interrupted
from tokiod.subscribe.subscriber import Stalled


def interrupt():
    os.kill(os.getpid(), signal.SIGINT)
    for _ in range(1000):
        pass


class Discarding:
    def __del__(self):
        interrupt()


class Plain:
    pass


def in_a_destructor():
    Discarding()


def in_a_weak_reference():
    one = Plain()
    reference = weakref.ref(one, lambda _: interrupt())
    del one
    assert reference() is None


def in_a_native_callback():
    compare = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(lambda _one, _two: interrupt() or 0)
    ctypes.CDLL(None).qsort(ctypes.create_string_buffer(b"ba"), ctypes.c_size_t(2), ctypes.c_size_t(1), compare)


DISCARDS = [in_a_destructor, in_a_weak_reference, in_a_native_callback]


def events(discard):
    """Yield events for ever; the third one is interrupted."""
    number = 0
    while True:
        number += 1
        if number == 3:
            discard()
        yield Stalled(5.0)


@pytest.mark.parametrize("discard", DISCARDS)
def test_a_command_ends_where_its_interrupt_was_discarded(discard):
    group = PlainGroup("group")

    @group.command("follow")
    def follow():
        tail._follow(events(discard), print, "ipc:///none")

    hook, handlers = sys.unraisablehook, [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGALRM)]
    with pytest.raises(SystemExit) as ended:
        group.main(["follow"], standalone_mode=False)
    assert ended.value.code == INTERRUPTED
    assert sys.unraisablehook is hook
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGALRM)] == handlers


@pytest.mark.parametrize("discard", DISCARDS)
def test_status_watched_ends_where_its_interrupt_was_discarded(discard):
    counted = events(discard)
    with pytest.raises(SystemExit) as ended, lasting_interrupts():
        status._print(lambda _: None, lambda: next(counted), is_watched=True)
    assert ended.value.code == 0


def test_an_interrupt_that_is_discarded_again_and_again_ends_the_command_at_last():
    remaining = [Discarding() for _ in range(3)]

    def work():
        while True:
            if remaining:
                remaining.pop()

    with pytest.raises(KeyboardInterrupt), lasting_interrupts():
        work()


def test_what_the_command_handles_is_not_raised_again():
    with lasting_interrupts():
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        for _ in range(10):
            signal.sigtimedwait([signal.SIGALRM], 0.02)


def test_a_held_interrupt_is_raised_at_the_end():
    done = []

    def work():
        with held_interrupts():
            signal.raise_signal(signal.SIGINT)
            done.append("the rest")
        done.append("what follows")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["the rest"]
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_an_interrupt_of_what_is_awaited_comes_between_two_callbacks():
    seen = []

    async def work():
        waiting = asyncio.get_running_loop().create_future()

        def callback():
            signal.raise_signal(signal.SIGINT)
            seen.append(waiting.cancelled())

        asyncio.get_running_loop().call_soon(callback)
        try:
            await waiting
        finally:
            seen.append("ended")

    with pytest.raises(KeyboardInterrupt):
        run_until_interrupted(work())
    assert seen == [False, "ended"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_interrupt_ends_what_does_not_yield():
    async def work():
        loop = asyncio.get_running_loop()
        try:
            loop.call_soon(signal.raise_signal, signal.SIGINT)
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            interrupt()
            raise AssertionError("not ended") from None

    with pytest.raises(KeyboardInterrupt):
        run_until_interrupted(work())


def test_what_is_awaited_may_end_by_itself_or_be_cancelled():
    async def cancelled():
        raise asyncio.CancelledError

    assert run_until_interrupted(asyncio.sleep(0, "done")) == "done"
    with pytest.raises(asyncio.CancelledError):
        run_until_interrupted(cancelled())


def test_other_exceptions_in_destructors_are_reported_as_ever():
    code = """
        from tokiod.runtime.interruption import lasting_interrupts
        class Failing:
            def __del__(self):
                raise ValueError("odd")
        with lasting_interrupts():
            Failing()
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True, timeout=300)
    assert "Exception ignored in: <function Failing.__del__" in done.stderr
    assert "ValueError: odd" in done.stderr
