import json
import logging
import os
import re
import socket
import struct
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from tokiod.metrics import catalogue
from tokiod.runtime import log
from tokiod.runtime import secrets as secret
from tokiod.runtime.log_sentences import SENTENCES
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
    for where, wanted in (("journal", ["<7>event", "<6>event", "<4>event", "<3>event", "<2>event"]), ("elsewhere", ["{"] * 5)):
        with (tmp_path / where).open("w") as err:
            subprocess.run([sys.executable, "-c", code, where], stderr=err, check=True, timeout=300)
        said = (tmp_path / where).read_text().splitlines()
        assert [line if where == "journal" else line[:1] for line in said] == wanted


JOURNAL = """
import os, sys
status = os.fstat(2)
os.environ["JOURNAL_STREAM"] = f"{status.st_dev}:{status.st_ino}"
from tokiod.runtime import journal, log
journal.JOURNAL_SOCKET = sys.argv[1]
log.setup("info")
log.get_logger().warning("window.failed", source="one-lmt", window="[a, b)", error="no route\\nto host", times=12)
try:
    raise ValueError("bad")
except ValueError:
    log.get_logger().exception("backfill.broken", source="one-lmt")
log.get_logger().info("x" * 1_000_000)
"""


def fields_of(datagram):
    """Return the fields of a message of the journal's native protocol."""
    found = {}
    while datagram:
        line, _, datagram = datagram.partition(b"\n")
        key, equals, value = line.partition(b"=")
        if not equals:
            (length,) = struct.unpack_from("<Q", datagram)
            value, datagram = datagram[8 : 8 + length], datagram[9 + length :]
        found[key.decode()] = value.decode()
    return found


def test_the_journal_receives_a_sentence_with_fields_and_stderr_what_is_too_long_for_it(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal, (tmp_path / "err").open("w") as err:
        journal.bind(str(tmp_path / "socket"))
        journal.settimeout(60)
        subprocess.run([sys.executable, "-c", JOURNAL, str(tmp_path / "socket")], stderr=err, check=True, timeout=300)
        failed, broken = (fields_of(journal.recv(1 << 20)) for _ in range(2))
    assert failed == {
        "MESSAGE": "one-lmt: [a, b) failed: no route\\nto host (12 times) [window.failed]",
        "PRIORITY": "4",
        "SYSLOG_IDENTIFIER": "tokiod",
        "TOKIOD_EVENT": "window.failed",
        "TOKIOD_SOURCE": "one-lmt",
        "TOKIOD_WINDOW": "[a, b)",
        "TOKIOD_ERROR": "no route\nto host",
        "TOKIOD_TIMES": "12",
    }
    assert broken["MESSAGE"].startswith("one-lmt: the backfill failed by a fault in tokiod [backfill.broken]\nTraceback ")
    assert (tmp_path / "err").read_text() == "<6>" + "x" * 1_000_000 + "\n"


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


@pytest.mark.parametrize("form", [None, "text"])
def test_people_get_a_sentence_with_time_level_and_the_name_of_the_event(capsys, monkeypatch, form):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: form is None)
    monkeypatch.setenv("NO_COLOR", "1")
    log.setup(form=form)
    log.get_logger().warning("source.down", source="a", state="waiting", reason="no route\n2018-01-01 forged line \x1b[2J")
    log.get_logger().info("unknown.event", source="a", cells=3)
    down, unknown = capsys.readouterr().err.splitlines()
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ warning  a: waiting: no route\\n2018-01-01 forged line \\x1b\[2J \[source.down\]", down
    )
    assert unknown[21:] == "info     unknown.event source=a cells=3"


def test_every_event_in_the_code_has_a_sentence_of_its_own_fields():
    pattern = re.compile(r"""(?:log|_log|get_logger\(\))\.(?:debug|info|warning|error|critical|exception)\(\s*"([a-z]+\.[a-z_]+)\"""")
    root = Path(log.__file__).parents[2]
    texts = [path.read_text("utf-8") for name in ("tokiod", "sinks", "collectors") for path in (root / name).rglob("*.py")]
    named = {event for text in texts for event in pattern.findall(text)} - {"window.stored"}
    assert named
    assert named - SENTENCES.keys() == set()
    composed = {f"file.{prefix}{change}" for change in catalogue.CHANGES for prefix in ("", "not_")}
    composed |= {f"{name}.{what}" for name in ("bus", "feed", "hosts", "hub") for what in ("accepted", "refused")}
    composed |= {"feed.ended", "hub.ended", "relay.ended", "sink.fatal", "sink.waiting"}
    assert SENTENCES.keys() - named - composed == {"window.stored"}


def test_no_library_has_a_handler_of_its_own_once_the_daemons_processes_are_imported():
    code = """
import logging
from tokiod.runtime import log
log.setup()
import tokiod.polling.process, tokiod.writer.process, tokiod.feed_proxy.process
import tokiod.supervisor.supervisor, tokiod.supervisor.metrics_http
import collectors.lmt, collectors.collectd_es, tokiod.toolkit.search_server, collectors.lmt.client_mysql, collectors.esnet_snmp.client
import warnings
warnings.warn("a library warns")
loggers = [one for one in logging.Logger.manager.loggerDict.values() if isinstance(one, logging.Logger)]
kept = [one.name for one in loggers for handler in one.handlers if not isinstance(handler, logging.NullHandler)]
print(kept, logging.lastResort is not None)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.startswith("[] ")
    (line,) = done.stderr.splitlines()
    assert "a library warns" in json.loads(line)["event"]


def test_json_on_request_also_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    log.setup("info", "json")
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
