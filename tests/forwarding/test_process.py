"""The process of a sink, with real signals, and a sink and a clock that the tests make."""

import asyncio
import os
import shutil
import signal
import stat
from collections import Counter
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from structlog.testing import capture_logs
from written_archive import MIDNIGHT, WrittenArchive

from tokiod.change_sink import Acknowledged
from tokiod.config import load as configuration
from tokiod.config.plugins import load_sink
from tokiod.errors import ConfigError, Fatal, TokiodError, Transient
from tokiod.forwarding import process
from tokiod.forwarding.process import POLL_SECONDS, REMOVED_EXIT_CODE, run
from tokiod.published.sinks import SinkState
from tokiod.runtime.backoff import FATAL_RETRY_SECONDS
from tokiod.runtime.secrets import remember
from tokiod.runtime.service import Service
from tokiod.testing import FakeClock

SINK = '[[sink]]\nname = "k"\nkind = "kafka"\nservers = ["127.0.0.1:9"]\ntopic = "t"\n'


class Clock(FakeClock):
    """Its sleeps are over at once, and are kept."""

    def __init__(self, epoch):
        super().__init__(epoch)
        self.slept = []

    async def sleep(self, seconds):
        self.slept.append(seconds)


class Notices(list):
    """What the service manager gets."""

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *said: self.append(" ".join((name, *said)))


class Sink:
    """Does what it is told at its opening and at its sends; ends the process after the last."""

    made = ()

    def __init__(self, section, _site):
        self.section, self.is_closed, self.sent = section, False, 0
        self.steps = self.plan.pop(0) if self.plan else {}
        Sink.made = (*Sink.made, self)

    async def open(self):
        self._do("open")

    async def send(self, blocks):
        self.sent += len(blocks)
        self._do("send")
        return Acknowledged(len(blocks), Counter())

    async def close(self):
        self.is_closed = True
        self._do("close")

    def _do(self, step):
        action = self.steps.get(step, stop if step == "send" else None)
        if isinstance(action, BaseException):
            raise action
        if action is not None:
            action()


def stop():
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.fixture
def archive(tmp_path, monkeypatch):
    made = WrittenArchive(tmp_path, FakeClock(MIDNIGHT + 86400))
    made.configure(SINK)
    made.store(MIDNIGHT + 3600, 5, 2, np.random.default_rng(1))
    made.publish()
    monkeypatch.setattr(load_sink("kafka"), "sink", Sink)
    handlers = [(number, signal.getsignal(number)) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)]
    Sink.made = ()
    yield made
    made.close()
    for number, handler in handlers:
        signal.signal(number, handler)


@pytest.fixture
def play(archive, tmp_path):  # noqa: ARG001 - its files
    """Run the process with what its sinks do one after the other; return its log, the clock, and what the service manager got."""

    def play(*plan, load=lambda: configuration.load(tmp_path / "tokiod.toml")):
        Sink.plan, clock, notices = [*plan], Clock(MIDNIGHT + 86400), Notices()
        with capture_logs() as log:
            run("k", Service(load, notices), clock)
        return log, clock, notices

    return play


def state(tmp_path):
    return msgspec.json.decode((tmp_path / "sinks/k/state.json").read_bytes(), type=SinkState)


def events(log):
    return [(one["event"], one["log_level"]) for one in log if one["event"] != "sink.from_files"]


def test_a_sink_is_tried_again_after_each_failure_and_each_is_logged_once(play, tmp_path, monkeypatch):
    monkeypatch.setattr(process.random, "Random", lambda: SimpleNamespace(uniform=lambda _, high: high))
    no_broker, refused = {"open": Transient("no broker")}, {"open": Fatal("refused")}
    log, clock, notices = play(no_broker, no_broker, refused, {"open": ValueError("x")}, {"send": SystemExit(9)}, {})
    assert events(log) == [
        ("sink.ready", "info"), ("sink.waiting", "warning"), ("sink.fatal", "error"), ("sink.broken", "error"), ("sink.waiting", "warning"),
        ("sink.up", "info"), ("sink.broken", "error"), ("sink.waiting", "warning"), ("sink.up", "info"), ("sink.stopped", "info"),
    ]  # fmt: skip
    reasons = [one["reason"] for one in log if one["event"] in {"sink.waiting", "sink.fatal"}]
    assert reasons == ["no broker", "refused", "fault of the sink: ValueError: x", "fault of the sink: SystemExit: 9"]
    assert clock.slept == [1, 2, FATAL_RETRY_SECONDS, 8, 1]
    assert FATAL_RETRY_SECONDS == 600
    assert [sink.is_closed for sink in Sink.made] == [True] * 6
    assert [one for one in notices if not one.startswith("alive")] == ["ready", "stopping"]
    assert notices[0] == "ready"
    assert "alive waiting, 0 changes and 0 s of the archive to send" in notices
    found = state(tmp_path)
    assert (found.state, found.reason, found.last_error, found.records) == ("stopped", "", reasons[-1], Sink.made[-1].sent)


def test_a_failure_whose_reason_has_a_secret_is_logged_once_without_it(play):
    remember("correct horse")
    refused = {"open": Transient("correct horse is refused")}
    log, *_ = play(refused, refused, {})
    assert [one["reason"] for one in log if one["event"] == "sink.waiting"] == ["*** is refused"]


def test_a_failure_of_closing_is_logged_and_a_hanging_one_is_ended(play, monkeypatch):
    class Hanging(Sink):
        async def close(self):
            self.is_closed = True
            await asyncio.sleep(3600)

    log, *_ = play({"send": Transient("gone"), "close": ValueError("x")}, {})
    assert ("sink.close_failed", "error") in events(log)
    assert len(Sink.made) == 2
    monkeypatch.setattr(load_sink("kafka"), "sink", Hanging)
    monkeypatch.setattr(process, "CLOSE_SECONDS", 0.01)
    log, *_ = play({"open": Transient("gone")}, {"open": stop})
    assert events(log)[-1] == ("sink.stopped", "info")
    assert Sink.made[-1].is_closed


def hang_up():
    os.kill(os.getpid(), signal.SIGHUP)


def test_a_reload_makes_a_new_sink_of_the_new_section_and_one_with_errors_changes_nothing(play, tmp_path):
    found = iter([SINK, None, SINK.replace('topic = "t"', 'topic = "u"')])
    path = tmp_path / "tokiod.toml"

    def load():
        section = next(found)
        if section is None:
            raise ConfigError(["a fault"])
        path.write_text(path.read_text().partition("[[sink]]")[0] + section)
        return configuration.load(path)

    def refused():
        hang_up()
        asyncio.get_running_loop().call_later(0.2, hang_up)

    log, clock, notices = play({"send": refused}, {"open": stop}, load=load)
    assert [one["faults"] for one in log if one["event"] == "config.refused"] == [["a fault"]]
    assert [sink.section.topic for sink in Sink.made] == ["t", "u"]
    assert [one for one in notices if not one.startswith("alive")] == ["ready", "reloading", "ready", "reloading", "ready", "stopping"]
    assert clock.slept == []


def test_a_reload_ends_the_wait_for_a_sink_that_failed(play, monkeypatch):
    async def sleep(_, _seconds):
        hang_up()
        await asyncio.sleep(3600)

    monkeypatch.setattr(Clock, "sleep", sleep)
    play({"open": Fatal("refused")}, {})
    assert [sink.is_closed for sink in Sink.made] == [True, True]


def test_a_reload_ends_one_wait_and_not_the_next_ones_and_no_wait_leaves_a_task(play, monkeypatch):
    slept, tasks = [], []

    async def sleep(_, _seconds):
        if not slept:
            hang_up()
        slept.append("begun")
        await asyncio.sleep(3600 if len(slept) == 1 else 0.05)
        slept.append("over")

    def fail():
        tasks.append(len(asyncio.all_tasks()))
        raise Transient("no broker")

    monkeypatch.setattr(Clock, "sleep", sleep)
    play(*[{"open": fail}] * 4, {"open": lambda: tasks.append(len(asyncio.all_tasks()))})
    assert slept == ["begun", *["begun", "over"] * 3]
    assert max(tasks) == 3, "this one, the signs of life, and one that is cancelled"


@pytest.mark.parametrize("is_gone", [False, True])
def test_a_sink_that_is_no_longer_configured_is_removed_with_its_state(play, tmp_path, is_gone):
    path = tmp_path / "tokiod.toml"

    def removed():
        if is_gone:
            shutil.rmtree(tmp_path / "sinks/k")
        path.write_text(path.read_text().partition("[[sink]]")[0])
        hang_up()

    with pytest.raises(SystemExit) as ended:
        play({"send": removed})
    assert ended.value.code == REMOVED_EXIT_CODE
    assert not (tmp_path / "sinks/k").exists()


def test_an_idle_process_looks_at_the_log_each_half_second(play, monkeypatch):
    looks = []
    step = process.RowFollower.step

    async def counted(self, sink):
        looks.append(asyncio.get_running_loop().time())
        more = await step(self, sink)
        if len(looks) == 5:
            hang_up()  # it looks again at once, and then as before
        if len(looks) == 9:
            stop()
        return more

    monkeypatch.setattr(process.RowFollower, "step", counted)
    play({"send": lambda: None})
    # The first start puts all into the backlog, the second step sends it, and the third finds nothing.
    pauses = [after - before for before, after in pairwise(looks)]
    del pauses[4], pauses[:2]
    assert min(pauses) >= POLL_SECONDS * 0.9 == 0.45


def test_a_sink_is_shown_as_what_it_is_from_its_start_on(play, tmp_path, monkeypatch):
    seen, signs, write_if_due = [], [], process.ShownState.write_if_due

    def noted(shown, *, is_changed):
        signs.append(is_changed)
        write_if_due(shown, is_changed=is_changed)

    def look(error=None):
        seen.append(state(tmp_path))
        if error is not None:
            raise error

    monkeypatch.setattr(process.ShownState, "write_if_due", noted)
    play({"open": lambda: look(Transient("no broker"))}, {"open": look, "send": lambda: look() or stop()})
    assert [(one.state, one.reason, one.last_error) for one in seen] == [
        ("running", "", ""), ("waiting", "no broker", "no broker"), ("running", "", "no broker"),
    ]  # fmt: skip
    assert signs[0] is False, "the first sign of life is written as one"


def test_the_service_manager_knows_the_times_and_the_exit_code_of_a_sink():
    unit = (Path(__file__).parents[2] / "systemd/tokiod-sink@.service").read_text()
    said = {name: value for name, _, value in (line.partition("=") for line in unit.splitlines()) if value}
    assert said["RestartPreventExitStatus"] == said["SuccessExitStatus"] == str(REMOVED_EXIT_CODE)
    assert process.BEAT_SECONDS == 2.0 < int(said["WatchdogSec"]) / 3
    assert process.CLOSE_SECONDS == 5.0 < int(said["TimeoutStopSec"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_sink_ends_at_either_signal_and_leaves_no_temporary_file(play, tmp_path, number):
    (tmp_path / "sinks/k").mkdir(parents=True)
    (tmp_path / "sinks/k/.cursor.json.tmp").write_text("half")
    log, *_ = play({"send": lambda: os.kill(os.getpid(), number)})
    assert events(log)[-1] == ("sink.stopped", "info")
    assert sorted(path.name for path in (tmp_path / "sinks/k").iterdir()) == ["cursor.json", "datasets.json", "lock", "state.json"]
    assert stat.S_IMODE((tmp_path / "sinks/k/lock").stat().st_mode) == 0o600


def test_a_directory_is_of_one_process_and_of_a_sink_that_is_configured(play, tmp_path):
    with pytest.raises(ConfigError, match="unknown sink 'j'"):
        run("j", Service(lambda: configuration.load(tmp_path / "tokiod.toml"), Notices()), Clock(MIDNIGHT))
    play({})
    fd = process._locked(tmp_path / "sinks/k", "k")
    (tmp_path / "sinks/k/.cursor.json.tmp").write_text("half")
    opened = sorted(Path("/proc/self/fd").iterdir())
    with pytest.raises(TokiodError, match="another process runs the sink k; stop it first"):
        play({})
    assert sorted(Path("/proc/self/fd").iterdir()) == opened
    assert (tmp_path / "sinks/k/.cursor.json.tmp").read_text() == "half"  # the other process is about to rename it
    os.close(fd)
    play({"open": stop})


def test_a_state_directory_that_can_not_be_made_or_locked_is_an_error_that_names_it(play, tmp_path):
    (tmp_path / "sinks").write_text("")
    with pytest.raises(TokiodError, match=r"the state directory .*/sinks/k can't be used: "):
        play({})
    (tmp_path / "sinks").unlink()
    (tmp_path / "sinks/k/lock").mkdir(parents=True)
    with pytest.raises(TokiodError, match="k/lock can't be opened: Is a directory"):
        play({})


def test_a_kind_whose_package_is_missing_is_fatal_and_says_how_to_install_it(play, monkeypatch):
    monkeypatch.setattr(process, "find_spec", lambda _: None)
    monkeypatch.setattr(Clock, "sleep", lambda *_: asyncio.sleep(0, stop()))
    log, *_ = play()
    (reason,) = [one["reason"] for one in log if one["event"] == "sink.fatal"]
    assert reason == "the kind kafka needs aiokafka: pip install 'tokiod[kafka]' into tokiod's environment"
    assert Sink.made == ()
