"""Settings for all tests, and their distribution over the workers of `pytest -n N --no-loadscope-reorder`."""

from __future__ import annotations

import gc
import os
import re
import shutil
import signal
from asyncio.selector_events import _SelectorTransport
from pathlib import Path
from typing import Any

# Before numpy: a spinning thread of OpenBLAS is a third of the processor time of a short process, and most of our programs' children.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import coverage
import pytest
from hypothesis import Phase, settings
from xdist.scheduler import LoadScopeScheduling

# The directories of tests are in memory: six workers that sync to one disk wait for each other, and power losses are simulated anyway.
MEMORY, NEEDED_BYTES = Path("/dev/shm"), 6 << 30
if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > NEEDED_BYTES:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

# Property tests are limited by their number of examples, and play the same ones in each run. A busy machine is not a failure, so an
# example has no time limit. `--hypothesis-profile=explore` plays new ones, and unshrunk ends at the first failure (tests/faults).
settings.register_profile("tokiod", deadline=None, derandomize=True, print_blob=True, max_examples=60)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.register_profile("unshrunk", deadline=None, derandomize=True, report_multiple_bugs=False, phases=[Phase.explicit, Phase.generate])
settings.load_profile("tokiod")

# The shipped suites are not below tests/: their failures show the compared values too.
pytest.register_assert_rewrite("tokiod.testing.collector_contract", "tokiod.testing.sink_contract")

# A shell that starts pytest in the background makes it ignore SIGINT, and so do the programs that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

_kill = os.kill


def _kill_one(pid: int, number: int) -> None:
    """Signal a process. 0, as a lock gives it whose owner is not recorded yet, would be all workers: a stopped run hangs for ever."""
    if pid <= 0:
        raise ValueError(f"signal {number} for process {pid}")
    _kill(pid, number)


os.kill = _kill_one

_init, _repr = _SelectorTransport.__init__, _SelectorTransport.__repr__


def _init_with_test(self: Any, *arguments: Any, **keywords: Any) -> None:
    """Note which test a connection is of: one that is left open is reported during a later test, when it is garbage collected."""
    self._made_in = os.environ.get("PYTEST_CURRENT_TEST", "no test")
    _init(self, *arguments, **keywords)


_SelectorTransport.__init__ = _init_with_test
_SelectorTransport.__repr__ = lambda self: f"{_repr(self)} made in {getattr(self, '_made_in', '')}"

# `make coverage` measures each worker. A worker ends without its exit handlers.
if "COVERAGE_PROCESS_START" in os.environ:
    coverage.process_startup()

MARIADB = tuple(f"tests/system/test_{name}.py" for name in ("golden", "lmt_mariadb", "lmt_stages", "slurm", "source_pages"))
KAFKA = "tests/system/test_kafka_"
FAST = tuple(f"tests/system/test_{name}.py" for name in ("torture", "five_sources", "soak", "midnight", "demo", "healing", "watchdog"))
"""Modules with a fast simulated clock and limits in real time: one at a time, and before all others on the processor."""
OTHERS_NICE = 5
GC_THRESHOLD_OBJECTS = 50_000
FIRST = (FAST, "tests/system/", "")
"""What takes longest begins first. The modules outside tests/system are short, and fill the workers evenly at the end."""


class Scheduling(LoadScopeScheduling):
    """Gives one worker all tests of a module, or of a server: it is started once, and tests may kill it and change its settings."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(FAST):
            return "fast"
        if search := re.search(r"\[(elasticsearch|opensearch)\b", nodeid):
            return search[1]
        if nodeid.startswith(KAFKA):
            return "kafka"
        return "mariadb" if nodeid.startswith(MARIADB) else nodeid.partition("::")[0]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Scheduling:
    return Scheduling(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        items.sort(key=_turn)


def pytest_collection_finish() -> None:
    """Look at new objects alone from now on, and less often: thousands of tests and their modules stay anyway."""
    gc.freeze()
    gc.set_threshold(GC_THRESHOLD_OBJECTS)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Lower the priority of a worker and its later children: that with the fast tests begins with them, and keeps its own until then."""
    if hasattr(item.config, "workerinput") and not item.nodeid.startswith(FAST):
        os.setpriority(os.PRIO_PROCESS, 0, max(OTHERS_NICE, os.getpriority(os.PRIO_PROCESS, 0)))


def pytest_sessionfinish() -> None:
    if measured := coverage.Coverage.current():
        measured.stop()
        measured.save()


def _turn(item: pytest.Item) -> int:
    return next(turn for turn, beginning in enumerate(FIRST) if item.nodeid.startswith(beginning))
