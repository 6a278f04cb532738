import json
import logging
import os
import re
import subprocess
import sys
from itertools import pairwise

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from tokiod.runtime import log
from tokiod.runtime import secrets as secret
from tokiod.testing.clock import FakeClock


@pytest.fixture(autouse=True)
def _as_before():
    root = logging.getLogger()
    handlers, level, hook = root.handlers, root.level, sys.excepthook
    yield
    root.handlers, root.level, sys.excepthook = handlers, level, hook
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def lines(capsys):
    """Return the events logged as JSON, less their times, which are checked."""
    events = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    for event in events:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", event.pop("timestamp"))
    return events


def test_events_are_json_lines_without_a_terminal(capsys):
    log.setup()
    log.get_logger().info("window.stored", source="a", cells=3, path=object)
    log.get_logger().debug("window.empty")
    assert lines(capsys) == [{"event": "window.stored", "level": "info", "source": "a", "cells": 3, "path": repr(object)}]


def test_libraries_log_the_same_way_as_we_do(capsys):
    log.setup("warning")
    logging.getLogger("asyncio").warning("slow callback: %s", "x")
    logging.getLogger("asyncio").info("not this")
    log.get_logger().error("source.down", source="a")
    assert lines(capsys) == [
        {"event": "slow callback: x", "level": "warning"},
        {"event": "source.down", "level": "error", "source": "a"},
    ]


def test_a_level_that_changes_holds_for_loggers_that_were_bound_before(capsys):
    log.setup("info")
    bound = log.get_logger().bind(source="a")
    bound.debug("window.stored")
    log.set_level("debug")
    bound.debug("window.stored")
    log.set_level("error")
    bound.warning("source.down")
    assert lines(capsys) == [{"event": "window.stored", "level": "debug", "source": "a"}]
    with pytest.raises(ValueError, match="'loud' is not a log level"):
        log.set_level("loud")


def test_in_the_journal_each_line_begins_with_its_priority(tmp_path):
    code = """
import os, sys
status = os.fstat(2)
os.environ["JOURNAL_STREAM"] = f"{status.st_dev}:{status.st_ino}" if sys.argv[1] == "journal" else "1:1"
from tokiod.runtime import log
log.setup("debug")
for level in ("debug", "info", "warning", "error", "critical"):
    getattr(log.get_logger(), level)("event")
"""
    for where, wanted in (("journal", ["<7>", "<6>", "<4>", "<3>", "<2>"]), ("elsewhere", ['{"e'] * 5)):
        with (tmp_path / where).open("w") as err:
            subprocess.run([sys.executable, "-c", code, where], stderr=err, check=True, timeout=300)
        said = (tmp_path / where).read_text().splitlines()
        assert [line[:3] for line in said] == wanted
        assert all(json.loads(line[line.index("{") :])["event"] == "event" for line in said)


def test_setup_again_replaces_what_was_set_up(capsys):
    log.setup("debug")
    log.setup("error")
    log.get_logger().warning("source.down")
    log.get_logger().error("source.lost")
    assert lines(capsys) == [{"event": "source.lost", "level": "error"}]


def test_what_is_bound_to_a_task_is_in_its_events(capsys):
    log.setup()
    with structlog.contextvars.bound_contextvars(source="a"):
        log.get_logger().info("window.stored")
    assert lines(capsys) == [{"event": "window.stored", "level": "info", "source": "a"}]


def test_people_on_a_terminal_get_lines_of_keys_and_values(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    log.setup()
    log.get_logger().info("window.stored", source="a", cells=3)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().err)
    assert re.fullmatch(r"\S+Z \[info +\] window.stored +cells=3 source=a\n", plain)


def test_json_on_request_also_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    log.setup("info", json=True)
    log.get_logger().info("window.stored")
    assert lines(capsys) == [{"event": "window.stored", "level": "info"}]


def test_an_unknown_level_is_refused():
    with pytest.raises(ValueError, match=r"^'loud' is not a log level$"):
        log.setup("loud")


@pytest.mark.parametrize("terminal", [False, True])
def test_a_traceback_shows_the_way_but_no_locals_and_no_secret(capsys, tmp_path, monkeypatch, terminal):
    monkeypatch.setattr(secret, "_spellings", set())
    monkeypatch.setenv("TOKIOD_TEST_SECRET", 'hunter-2"marked')
    password = secret.secret("env:TOKIOD_TEST_SECRET", tmp_path)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
    log.setup()

    def connect(password):
        a_local = "a value of a local".upper()
        raise ConnectionError(f"can't log in with {password}: {len(a_local)}")

    try:
        connect(password)
    except ConnectionError:
        log.get_logger().exception("source.failed", url=f"mysql://u:{password}@h", given=[str(password)], kept=password)
        logging.getLogger("driver").exception("failed with %s", password)
    text = capsys.readouterr().err
    text = re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert text.count("in connect\n" if terminal else r"in connect\n") == 2
    assert text.count("can't log in with ***: 18") == 2
    assert "mysql://u:***@h" in text
    assert "failed with ***" in text
    assert "hunter" not in text
    assert "A VALUE OF A LOCAL" not in text


def test_what_ends_a_process_is_logged_without_secrets_too(tmp_path):
    script = tmp_path / "dies.py"
    script.write_text(
        """
from pathlib import Path
from tokiod.runtime import log, secrets as secret

log.setup()
password = secret.secret("env:TOKIOD_TEST_SECRET", Path())
raise SystemError("refused: " + password)
"""
    )
    environment = os.environ | {"TOKIOD_TEST_SECRET": "hunter-2-marked"}
    result = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=False)
    event = json.loads(result.stderr)
    assert (result.returncode, result.stdout, event["event"], event["level"]) == (1, "", "process.crashed", "critical")
    assert event["exception"].splitlines()[-1] == "SystemError: refused: ***"


def test_repeats_are_logged_at_once_and_then_once_per_interval_with_their_count():
    clock = FakeClock()
    repeats = log.Repeats(clock, interval=60)
    told = []
    for _ in range(200):
        told.append(repeats("down"))
        clock._move(clock.monotonic() + 1)
    assert told == [1, *[0] * 59, 60, *[0] * 59, 60, *[0] * 59, 60, *[0] * 19]


def test_a_series_that_ended_is_logged_at_once_when_it_returns():
    clock = FakeClock()
    repeats = log.Repeats(clock)
    assert [repeats("down"), repeats("down"), repeats("down"), repeats("other")] == [1, 0, 0, 1]
    assert [repeats.forget("down"), repeats.forget("down"), repeats.forget("never")] == [2, 0, 0]
    assert [repeats("down"), repeats("other")] == [1, 0]


def test_a_wall_clock_that_jumps_changes_nothing():
    clock = FakeClock()
    repeats = log.Repeats(clock)
    assert repeats("down") == 1
    clock.jump(1e6)
    assert repeats("down") == 0
    clock.jump(-2e6)
    assert repeats("down") == 0


def test_errors_that_all_differ_cost_no_memory():
    repeats = log.Repeats(FakeClock(), keys=10)
    assert [repeats(n) for n in range(1000)] == [1] * 1000
    assert len(repeats._seen) == 10


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 20)), max_size=60))
def test_no_event_is_lost_from_the_counts_and_no_event_is_logged_too_often(events):
    clock = FakeClock()
    repeats = log.Repeats(clock, interval=30)
    told = {"a": [], "b": []}
    for key, pause in events:
        clock._move(clock.monotonic() + pause)
        if times := repeats(key):
            told[key].append((clock.monotonic(), times))
    for key, series in told.items():
        assert sum(times for _, times in series) + repeats.forget(key) == [k for k, _ in events].count(key)
        assert all(later - earlier >= 30 for (earlier, _), (later, _) in pairwise(series))
