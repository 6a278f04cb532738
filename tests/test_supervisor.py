"""A child is kept running, stopped when asked, and not restarted when it says that a person is needed."""

import asyncio
import sys

import pytest

from tokiod.errors import TokiodError
from tokiod.supervisor import Child

APPEND = "import sys; open(sys.argv[1], 'a').write('x')"


def child(code: str, *arguments: object) -> Child:
    return Child("child", [sys.executable, "-c", code, *map(str, arguments)])


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


def test_a_child_that_needs_a_person_is_not_started_again(tmp_path):
    runs = tmp_path / "runs"
    with pytest.raises(TokiodError, match="the child can't run; its message is above"):
        asyncio.run(child(f"{APPEND}; sys.exit(2)", runs).keep())
    assert runs.read_text() == "x"


def test_stopping_asks_with_sigterm_and_waits_for_the_child_to_finish(tmp_path):
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
    monkeypatch.setattr("tokiod.supervisor.STOP_LIMIT", 0.2)
    code = "import signal, sys, pathlib; signal.signal(signal.SIGTERM, signal.SIG_IGN); pathlib.Path(sys.argv[1]).touch(); signal.pause()"

    async def scene() -> int:
        kept = child(code, tmp_path / "ready")
        keeper = asyncio.create_task(kept.keep())
        await until((tmp_path / "ready").exists)
        await kept.stop()
        await keeper
        return kept.process.returncode

    assert asyncio.run(scene()) == -9
