"""A process that uses too much memory frees it, and ends where that is not enough: with the real memory of this one."""

import mmap
import re
from contextlib import closing

import pytest
from structlog.testing import capture_logs

from tokiod.runtime.resident_memory import OVERLOADED_EXIT_CODE, ResidentMemory

MIB = 1 << 20


@pytest.fixture
def memory():
    with closing(ResidentMemory()) as memory:
        yield memory


@pytest.fixture
def used():
    """64 MiB that a process uses, and can free."""
    with mmap.mmap(-1, 64 * MIB) as used:
        used.write(bytes([1]) * len(used))
        yield used


@pytest.mark.parametrize(("share", "relieved"), [(0.25, []), (0.75, ["relieved"])], ids=["below half of it", "above half of it"])
def test_a_process_below_its_limit_ends_only_from_half_of_it_on_what_costs_too_much(memory, share, relieved):
    seen = []
    memory.limit(int(memory.nbytes() / share), lambda: seen.append("relieved"), pytest.fail, "feed")
    assert seen == relieved


def test_a_process_over_its_limit_frees_memory_and_works_on(memory, used):
    reasons, limit = [], memory.nbytes() - 32 * MIB

    def free(reason):
        reasons.append(reason)
        used.close()

    memory.limit(limit, lambda: None, free, "feed")
    assert memory.nbytes() < limit
    assert [re.sub(r"\d+", "N", reason) for reason in reasons] == ["N MiB of memory are used, the limit is N MiB"]


def test_a_process_that_can_not_free_enough_ends_and_says_so(memory, used):
    with capture_logs() as logs, pytest.raises(SystemExit) as ended:
        memory.limit(memory.nbytes() - len(used), lambda: None, lambda _reason: None, "hub")
    assert ended.value.code == OVERLOADED_EXIT_CODE
    assert [(log["event"], log["log_level"]) for log in logs] == [("hub.ended", "critical")]
    assert re.fullmatch(r"\d+ MiB of memory are still used; the hub is started again", logs[0]["reason"])
