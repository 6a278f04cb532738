"""A child is kept running, killed when it hangs, stopped on request, and not restarted when its exit code asks for an operator."""

import asyncio
import os
import signal
import sys
import time
from contextlib import asynccontextmanager

import pytest
from structlog.testing import capture_logs

from tokiod.config import load as configuration
from tokiod.errors import TokiodError
from tokiod.supervisor.child_group import NAMES, ChildGroup
from tokiod.supervisor.child_process import ChildProcess
from tokiod.supervisor.supervisor import secret_variables

APPEND = "import sys; open(sys.argv[1], 'a').write('x')"


def child(code: str, *arguments: object) -> ChildProcess:
    return ChildProcess("child", [sys.executable, "-c", code, *map(str, arguments)])


async def until(condition) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


def test_a_child_that_dies_is_started_again_until_it_is_stopped(tmp_path):
    runs = tmp_path / "runs"

    async def scene() -> None:
        kept = child(APPEND, runs)
        keeper = asyncio.create_task(kept.keep())
        await until(lambda: runs.exists() and len(runs.read_text()) >= 3)
        await kept.stop()
        await keeper

    asyncio.run(scene())


def test_a_child_that_needs_an_operator_is_not_started_again(tmp_path):
    runs = tmp_path / "runs"
    with pytest.raises(TokiodError, match=r"the child failed to start \(see above\)"):
        asyncio.run(child(f"{APPEND}; sys.exit(2)", runs).keep())
    assert runs.read_text() == "x"


def test_stop_sends_sigterm_and_waits_for_the_child_to_finish(tmp_path):
    done = tmp_path / "done"
    code = """
import signal, sys, pathlib
def stop(*_):
    pathlib.Path(sys.argv[1]).write_text("finished")
    sys.exit(0)
signal.signal(signal.SIGTERM, stop)
pathlib.Path(sys.argv[2]).touch()
signal.pause()
"""

    async def scene() -> None:
        kept = child(code, done, tmp_path / "ready")
        keeper = asyncio.create_task(kept.keep())
        await until((tmp_path / "ready").exists)
        await kept.stop()
        await keeper
        assert kept.process.returncode == 0

    asyncio.run(scene())
    assert done.read_text() == "finished"


def test_a_child_that_will_not_stop_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr("tokiod.supervisor.child_process.STOP_LIMIT_SECONDS", 0.2)
    code = "import signal, sys, pathlib; signal.signal(signal.SIGTERM, signal.SIG_IGN); pathlib.Path(sys.argv[1]).touch(); signal.pause()"

    async def scene() -> int:
        kept = child(code, tmp_path / "ready")
        keeper = asyncio.create_task(kept.keep())
        await until((tmp_path / "ready").exists)
        await kept.stop()
        await keeper
        return kept.process.returncode

    assert asyncio.run(scene()) == -9


NOTIFIES = """
import os, signal, sys, time
from pathlib import Path
from tokiod.runtime.sd_notify import Notifier
notifier = Notifier.take(os.environ)
signal.signal(signal.SIGHUP, lambda *_: (notifier.reloading(), notifier.ready()) if sys.argv[2] == "reloads" else None)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
with Path(sys.argv[1]).open("a") as file:
    file.write("x")
notifier.ready()
while sys.argv[2] != "hangs":
    notifier.alive("at work")
    time.sleep(0.02)
signal.pause()
"""


def notifying(runs, how, watchdog):
    return ChildProcess("child", [sys.executable, "-c", NOTIFIES, str(runs), how], watchdog=watchdog)


@asynccontextmanager
async def kept(child):
    keeper = asyncio.create_task(child.keep())
    try:
        yield keeper
    finally:
        await child.stop()
        await keeper


def test_a_child_that_reports_no_progress_is_killed_within_twice_its_time_and_started_again(tmp_path):
    async def scene() -> list[float]:
        child = notifying(tmp_path / "runs", "hangs", 0.6)
        async with kept(child):
            await until(lambda: child.is_ready)
            begun = time.monotonic()
            with capture_logs() as logs:
                await until(lambda: child.starts == 2)
            hung = next(log for log in logs if log["event"] == "child.hung")
            assert hung["silent_for"] < 2 * 0.6
            return [time.monotonic() - begun, child.starts]

    seconds, starts = asyncio.run(scene())
    assert starts == 2
    assert seconds < 2 * 0.6 + 0.5  # and what a loaded machine needs to start a process


def test_a_child_that_is_frozen_is_killed_and_started_again(tmp_path):
    async def scene() -> int:
        child = notifying(tmp_path / "runs", "works", 0.6)
        async with kept(child):
            await until(lambda: child.is_ready and child.status == "at work")
            frozen = child.process.pid
            os.kill(frozen, signal.SIGSTOP)
            await until(lambda: child.process.pid != frozen and child.is_ready)
            return child.starts

    assert asyncio.run(scene()) == 2


def test_a_child_that_works_is_left_alone_also_when_its_supervisor_stood_still(tmp_path):
    async def scene() -> tuple[int, bool]:
        child = notifying(tmp_path / "runs", "works", 0.6)
        async with kept(child):
            await until(lambda: child.is_ready)
            time.sleep(1.5)  # noqa: ASYNC251 - that is the point
            await asyncio.sleep(1.5)
            return child.starts, child.is_alive

    assert asyncio.run(scene()) == (1, True)


def test_a_reload_ends_when_the_child_reports_ready(tmp_path):
    async def scene() -> int:
        child = notifying(tmp_path / "runs", "reloads", 30)
        async with kept(child):
            await until(lambda: child.is_ready)
            for _ in range(20):
                await child.reload()
                assert child.is_ready
            return child.starts

    assert asyncio.run(scene()) == 1


def test_a_child_that_dies_of_a_reload_has_reloaded_when_it_is_back(tmp_path):
    async def scene() -> int:
        # As the supervisor does, which handles it; under nohup it is ignored, and that is inherited.
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, lambda: None)
        child = ChildProcess(
            "child", [sys.executable, "-c", NOTIFIES.replace("signal.SIGHUP", "signal.SIGUSR1"), str(tmp_path / "runs"), "works"]
        )
        async with kept(child):
            await until(lambda: child.is_ready)
            await child.reload()
            await until(lambda: child.is_ready)
            return child.starts

    assert asyncio.run(scene()) == 2


def test_a_reload_that_never_ends_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr("tokiod.supervisor.child_process.RELOAD_LIMIT_SECONDS", 0.2)

    async def scene() -> None:
        child = notifying(tmp_path / "runs", "works", 30)
        async with kept(child):
            await until(lambda: child.is_ready)
            await child.reload()

    with pytest.raises(TokiodError, match="the child has not applied the configuration within 0 s"):
        asyncio.run(scene())


def test_a_child_does_not_get_the_environment_variables_that_are_hidden_from_it(tmp_path, monkeypatch):
    monkeypatch.setenv("LMT_PASSWORD", "planted")
    monkeypatch.setenv("OTHER", "visible")
    code = (
        "import os, sys, pathlib; seen = [os.environ.get(name) for name in ('LMT_PASSWORD', 'OTHER')]; "
        "pathlib.Path(sys.argv[1]).write_text(str(seen)); sys.exit(2)"
    )
    kept = child(code, tmp_path / "seen")
    kept.hidden = frozenset({"LMT_PASSWORD"})
    with pytest.raises(TokiodError):
        asyncio.run(kept.keep())
    assert (tmp_path / "seen").read_text() == "[None, 'visible']"


def test_the_variables_of_all_sources_with_secrets_are_hidden_from_all_but_the_collectors(tmp_path):
    path = tmp_path / "tokiod.toml"
    path.write_text(
        f'timezone = "UTC"\n[archive]\npath = "{tmp_path}/%Y-%m-%d/{{system}}.hdf5"\n[[source]]\nname = "a"\nkind = "lmt"\nsystem = "s"\n'
        'url = "mysql://reader@db.example.org/filesystem_s"\npassword_env = "LMT_PASSWORD"\ntls = true\n'
    )
    assert secret_variables(configuration.load(path)) == {"LMT_PASSWORD"}
    group = ChildGroup(30.0)

    async def scene():
        group.start([], frozenset({"LMT_PASSWORD"}))
        hidden = {one.name: one.hidden for one in group._children}
        for keeper in group.keepers:
            keeper.cancel()
        await asyncio.gather(*group.keepers, return_exceptions=True)
        return hidden

    hidden = asyncio.run(scene())
    assert hidden == {name: frozenset() if name == "collectors" else {"LMT_PASSWORD"} for name in NAMES}


def test_a_child_that_dies_after_a_slow_start_is_started_later_and_later():
    async def scene() -> None:
        kept = child("import time; time.sleep(1.1)")
        keeper = asyncio.create_task(kept.keep())
        await until(lambda: kept.starts >= 4)
        await kept.stop()
        await keeper

    with capture_logs() as logs:
        asyncio.run(scene())
    waits = [log["restart_in"] for log in logs if log["event"] == "child.died"]
    assert waits == sorted(set(waits))
