"""Settings for all tests, and their distribution over the workers of `pytest -n N --no-loadscope-reorder`."""

from __future__ import annotations

import fcntl
import os
import re
import signal
from typing import TYPE_CHECKING

import coverage
import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from collections.abc import Iterator

# Property tests are limited by their number of examples, and play the same ones in each run. A busy machine is not a failure, so an
# example has no time limit. `--hypothesis-profile=explore` plays new ones.
settings.register_profile("tokiod", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile("tokiod")

# The shipped suite is not below tests/: its failures show the compared values too.
pytest.register_assert_rewrite("tokiod.testing.collector_contract")

# A shell that starts pytest in the background makes it ignore SIGINT, and so do the programs that tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# `make coverage` measures each worker. A worker ends without its exit handlers.
if "COVERAGE_PROCESS_START" in os.environ:
    coverage.process_startup()

FIRST = ("tests/model/", "tests/system/")
"""What takes longest begins first. The other modules are short, and fill the workers evenly at the end."""
MARIADB = {f"tests/system/test_{name}.py" for name in ("golden", "lmt_mariadb", "source_pages")}
QUIET = tuple(f"tests/system/test_{name}" for name in ("five_sources.py", "healing.py", "watchdog.py::test_a_source_that_is_down"))
"""Tests with a fast clock and limits in real time: they run last, while no other worker runs a test."""


class Scheduling(LoadScopeScheduling):
    """Gives one worker all tests of a module, or of a server: it is started once, and tests may kill it and change its settings."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(QUIET):
            return "quiet"
        if search := re.search(r"\[(elasticsearch|opensearch)\b", nodeid):
            return search[1]
        module = nodeid.partition("::")[0]
        return "mariadb" if module in MARIADB else module


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Scheduling:
    return Scheduling(config, log)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        items.sort(key=_turn)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Run a quiet test while no other worker runs any. Workers have their temporary directories side by side."""
    with (item.config._tmp_path_factory.getbasetemp().parent / "quiet").open("w") as lock:
        if hasattr(item.config, "workerinput"):
            fcntl.flock(lock, fcntl.LOCK_EX if item.nodeid.startswith(QUIET) else fcntl.LOCK_SH)
        return (yield)


def pytest_sessionfinish() -> None:
    if measured := coverage.Coverage.current():
        measured.stop()
        measured.save()


def _turn(item: pytest.Item) -> int:
    if item.nodeid.startswith(QUIET):
        return len(FIRST) + 1
    return next((number for number, directory in enumerate(FIRST) if item.nodeid.startswith(directory)), len(FIRST))
