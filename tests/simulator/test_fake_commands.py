import asyncio
import subprocess
from contextlib import suppress
from itertools import count
from pathlib import Path

import pytest

from tokiod.simulator.fake_commands import Reply, address, install, serve
from tokiod.simulator.sources import LUSTRE
from tokiod.testing.clock import FakeClock


@pytest.fixture
def run(tmp_path):
    """Return what runs a program that answers by a function, and gives its exit code, stdout and stderr; None where it hangs."""
    numbers = count()

    def run(answer, *arguments, name="lfs", seconds=20):
        # Programs that an earlier run has left would be there before there is anybody to ask.
        programs = tmp_path / str(next(numbers))

        async def both():
            serving = asyncio.ensure_future(serve(answer, FakeClock(1234.5), ("lfs", "lctl"), programs))
            while not (programs / name).exists():
                await asyncio.sleep(0.01)
            process = await asyncio.create_subprocess_exec(str(programs / name), *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            try:
                stdout, stderr = await asyncio.wait_for(process.communicate(), seconds)
            except TimeoutError:
                process.kill()
                await process.wait()
                return None
            finally:
                serving.cancel()
                with suppress(asyncio.CancelledError):
                    await serving
            return process.returncode, stdout, stderr

        return asyncio.run(both())

    return run


def test_a_program_prints_what_it_is_told_and_exits_with_it(run):
    asked = []

    def answer(argv, now):
        asked.append((argv, now))
        return Reply(5, "numbers µ\n" * 50_000, "no such target")

    assert run(answer, "df", "", "-l", "/a b") == (5, "numbers µ\n".encode() * 50_000, b"no such target\n")
    assert run(answer, name="lctl")[0] == 5
    assert asked == [(["lfs", "df", "", "-l", "/a b"], 1234.5), (["lctl"], 1234.5)]


def test_one_that_hangs_prints_nothing(run):
    assert run(lambda *_: Reply(hangs=True), seconds=1.5) is None


def test_what_can_not_be_read_is_said(run):
    def answer(*_):
        raise ValueError("no date")

    assert run(answer, "noon") == (2, b"", b"the simulator can't read lfs noon: no date\n")


def test_programs_that_are_there_can_be_asked_only_while_somebody_answers(tmp_path):
    (tmp_path / "bin").mkdir()
    install(["lfs", "lctl"], tmp_path / "bin", address(tmp_path / "bin", "lfs"))
    assert not LUSTRE.ready(tmp_path, 0)

    async def ask():
        serving = asyncio.ensure_future(serve(lambda *_: Reply(), FakeClock(0.0), ("lfs", "lctl"), tmp_path / "bin"))
        try:
            while not LUSTRE.ready(tmp_path, 0):
                await asyncio.sleep(0.01)
        finally:
            serving.cancel()
            with suppress(asyncio.CancelledError):
                await serving

    asyncio.run(asyncio.wait_for(ask(), 20))
    assert not LUSTRE.ready(tmp_path, 0)


def test_programs_are_put_in_place_of_those_that_are_just_being_run(tmp_path):
    install(["lfs"], tmp_path, tmp_path / "first.socket")
    # Linux lets nobody write to what is executed: here a program of its own stands for the moment in which a script is.
    (tmp_path / "lfs").write_bytes(Path("/bin/sleep").read_bytes())
    with subprocess.Popen([tmp_path / "lfs", "60"]) as running:
        try:
            install(["lfs"], tmp_path, tmp_path / "second.socket")
        finally:
            running.kill()
    assert "second.socket" in (tmp_path / "lfs").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["lfs"]
