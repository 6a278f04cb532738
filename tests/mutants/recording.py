"""A plugin of pytest: records which test functions execute which lines of some modules, and how long each takes.

    pytest -p tests.mutants.recording --recorded-of=MODULE... --recorded-in=JSON

What a process executes that a test starts is not recorded, nor what a module does when the tests import it.
"""

from __future__ import annotations

import json
import warnings
from collections import defaultdict
from pathlib import Path

import coverage
import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--recorded-of", action="append", default=[], metavar="MODULE")
    parser.addoption("--recorded-in", metavar="JSON")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Recording(config))


def function(nodeid: str) -> str:
    """Return a test's id without its parameters."""
    return nodeid.partition("[")[0]


class Recording:
    """Measures with one context for each test function."""

    def __init__(self, config: pytest.Config) -> None:
        self._of = {name: str(Path(name).absolute()) for name in config.getoption("--recorded-of")}
        self._in = Path(config.getoption("--recorded-in"))
        self._measured = coverage.Coverage(data_file=None, include=list(self._of.values()), config_file=False)
        self._measured.set_option("run:core", "ctrace")  # the other core notices only the first test that executes a line
        self._seconds: dict[str, float] = defaultdict(float)

    def pytest_collection_finish(self) -> None:
        self._measured.start()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self._measured.switch_context(function(item.nodeid))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[function(report.nodeid)] += report.duration

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        with warnings.catch_warnings(action="ignore"):  # that there is nothing, or that a test traced on its own
            self._measured.stop()
            data = self._measured.get_data()
        lines = {
            name: {line: [test for test in tests if test] for line, tests in data.contexts_by_lineno(path).items()}
            for name, path in self._of.items()
        }
        self._in.write_text(json.dumps({"lines": lines, "seconds": self._seconds}))
