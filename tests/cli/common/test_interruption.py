"""One Ctrl-C ends a command, also where Python discards its KeyboardInterrupt."""

import os
import signal

import pytest

from tokiod.cli.commands import tail
from tokiod.cli.common.interruption import Interruption
from tokiod.subscribe.subscriber import Stalled


class Discarding:
    """Its destructor is interrupted; Python prints the exception and goes on."""

    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        for _ in range(1000):
            pass


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_tail_ends_at_the_next_event_where_the_exception_was_discarded():
    seen = []

    def events():
        for number in range(10):
            seen.append(number)
            if number == 2:
                Discarding()
            yield Stalled(5.0)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), Interruption() as interruption:
        tail._follow(events(), print, "ipc:///none", interruption)
    assert seen == [0, 1, 2]
    assert signal.getsignal(signal.SIGINT) is before


def test_an_exception_that_is_not_discarded_ends_it_at_once():
    with pytest.raises(KeyboardInterrupt), Interruption():
        signal.raise_signal(signal.SIGINT)
