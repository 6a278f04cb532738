"""Real folders and the real inotify; the clock runs fifty times as fast."""

import asyncio
import os
import subprocess
import time
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tokiod.clock import SimulatedClock
from tokiod.polling.watch.beneath import REJECTED, found_at
from tokiod.polling.watch.folder import Folder, pyinotify

RATE = 50.0


@asynccontextmanager
async def watching(path, scan=1e6):
    folder = Folder(path, SimulatedClock(0.0, time.time(), RATE), scan)
    with folder.watched():
        yield folder


async def names(folder):
    while not (found := await folder.finished()):
        pass
    return [one.path.name for one in found]


async def nothing(folder, seconds=0.4):
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(names(folder), seconds)


def run(scenario):
    return asyncio.run(asyncio.wait_for(scenario(), 60))


def test_files_from_before_the_watch_are_returned_once_oldest_first(tmp_path):
    for age, name in enumerate(["young", "middle", "old"]):
        (tmp_path / name).write_text(name)
        os.utime(tmp_path / name, ns=(0, 10**9 * (100 - age)))

    async def scenario():
        async with watching(tmp_path) as folder:
            found = await names(folder)
            await nothing(folder)
            return found

    assert run(scenario) == ["old", "middle", "young"]


def test_a_file_is_returned_when_it_is_closed_and_not_while_it_is_written(tmp_path):
    async def scenario():
        async with watching(tmp_path) as folder:
            await nothing(folder)
            with (tmp_path / "one").open("w") as file:
                file.write("half")
                file.flush()
                await nothing(folder)
                file.write(" and half")
            return await names(folder)

    assert run(scenario) == ["one"]


def test_a_file_that_is_moved_in_is_returned(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "one").write_text("1")

    async def scenario():
        async with watching(tmp_path / "in") as folder:
            await nothing(folder)
            (tmp_path / "one").rename(tmp_path / "in" / "one")
            return await names(folder)

    assert run(scenario) == ["one"]


def test_a_file_that_is_found_while_it_grows_is_returned_when_it_stops(tmp_path):
    async def scenario():
        with (tmp_path / "grows").open("w", buffering=1) as file:
            async with watching(tmp_path, scan=1.0) as folder:
                waiting = asyncio.ensure_future(names(folder))
                for _ in range(20):
                    file.write("a line\n")
                    await asyncio.sleep(0.03)
                    assert not waiting.done()
                size = file.tell()
                found = await waiting
                assert (tmp_path / "grows").stat().st_size == size
        return found

    assert run(scenario) == ["grows"]


def test_a_file_that_has_changed_is_returned_again(tmp_path):
    async def scenario():
        async with watching(tmp_path, scan=10.0) as folder:
            (tmp_path / "one").write_text("1")
            first = await names(folder)
            await nothing(folder)
            (tmp_path / "one").write_text("12")
            return first, await names(folder)

    assert run(scenario) == (["one"], ["one"])


def test_subfolders_are_watched_too_also_new_ones(tmp_path):
    (tmp_path / "early").mkdir()

    async def scenario():
        async with watching(tmp_path) as folder:
            await nothing(folder)
            (tmp_path / "early" / "one").write_text("1")
            found = await names(folder)
            (tmp_path / "late" / "deep").mkdir(parents=True)
            (tmp_path / "late" / "deep" / "two").write_text("2")
            return found + await names(folder)

    assert run(scenario) == ["one", "two"]


def test_hidden_unfinished_and_rejected_files_links_and_fifos_are_not_returned(tmp_path):
    (tmp_path / REJECTED).mkdir()
    (tmp_path / ".sync").mkdir()

    async def scenario():
        async with watching(tmp_path, scan=10.0) as folder:
            for name in (".one.XyZ", "two.part", "three.tmp", "four~", f"{REJECTED}/five", ".sync/six"):
                (tmp_path / name).write_text(name)
            (tmp_path / "seven").symlink_to(tmp_path / "two.part")
            os.mkfifo(tmp_path / "eight")
            await nothing(folder, 0.8)
            (tmp_path / "two.part").rename(tmp_path / "two")
            return await names(folder)

    assert run(scenario) == ["two"]


def test_without_inotify_events_scans_find_everything(tmp_path, monkeypatch):
    monkeypatch.setattr("tokiod.polling.watch.folder._MASK", pyinotify.IN_ATTRIB)  # as on a network file system

    async def scenario():
        async with watching(tmp_path, scan=10.0) as folder:
            await nothing(folder)
            (tmp_path / "one").write_text("1")
            return await names(folder)

    assert run(scenario) == ["one"]


def test_an_overflow_of_the_kernels_queue_is_followed_by_a_scan(tmp_path):
    """Made to happen: the loop doesn't read while more events come than the queue holds."""
    queued = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if queued > 40_000:
        pytest.skip(f"a queue of {queued} events is too long to be filled here")

    async def scenario():
        async with watching(tmp_path) as folder:
            await nothing(folder)
            for _ in range(queued // 2 + 500):
                for name in ("same", "other"):  # the same event twice running counts once
                    os.close(os.open(tmp_path / name, os.O_WRONLY | os.O_CREAT, 0o644))
            (tmp_path / "last").write_text("never reported")
            found = set()
            while found != {"same", "other", "last"}:
                found |= set(await names(folder))

    run(scenario)


def test_a_missing_folder_is_an_error(tmp_path):
    async def scenario():
        async with watching(tmp_path / "missing") as folder:
            await folder.finished()

    with pytest.raises(FileNotFoundError):
        run(scenario)


def test_a_deleted_file_is_not_found(tmp_path):
    assert found_at(tmp_path, tmp_path / "missing") is None


def test_a_file_that_is_still_written_is_not_returned_because_another_is_closed(tmp_path):
    async def scenario():
        with (tmp_path / "slow").open("w") as slow:
            slow.write("half")
            slow.flush()
            async with watching(tmp_path) as folder:
                waiting = asyncio.ensure_future(names(folder))
                await asyncio.sleep(0.02)
                (tmp_path / "other").write_text("whole")
                first = await waiting
                slow.write(" and half")
                slow.flush()
        return first

    assert run(scenario) == ["other"]


def test_a_scan_knows_all_existing_files_also_those_that_were_not_returned(tmp_path):
    (tmp_path / "early").write_text("1")

    async def scenario():
        async with watching(tmp_path) as folder:
            waiting = asyncio.ensure_future(names(folder))
            await asyncio.sleep(0.02)
            (tmp_path / "late").write_text("2")
            found = await waiting
            return found, {path.name for path in folder.existing}

    assert run(scenario) == (["late"], {"early", "late"})


def test_after_the_first_scan_and_once_files_are_gone_none_are_returned_unless_others_are_to_come(tmp_path):
    async def scenario():
        async with watching(tmp_path, scan=10.0) as folder:
            assert (await folder.finished(), folder.existing) == ([], {})
            for name in ("one", "two", "three"):
                (tmp_path / name).write_text("1")
            assert sorted(await names(folder)) == ["one", "three", "two"]
            (tmp_path / "one").unlink()
            assert (await folder.finished(), {path.name for path in folder.existing}) == ([], {"two", "three"})
            (tmp_path / "two").unlink()
            os.utime(tmp_path / "three", (1, 1))
            assert [one.path.name for one in await folder.finished()] == ["three"]
            assert folder.existing.keys() == {tmp_path / "three"}
            await nothing(folder, 0.5)

    run(scenario)


def test_a_file_that_is_to_be_tried_again_is_returned_by_a_later_scan(tmp_path):
    (tmp_path / "one").write_text("1")

    async def scenario():
        async with watching(tmp_path, scan=10.0) as folder:
            (found,) = await folder.finished()
            folder.retry(found)
            again = await names(folder)
            await nothing(folder, 0.3)
            folder.return_all()
            return again, await names(folder)

    assert run(scenario) == (["one"], ["one"])


def test_names_that_are_not_utf_8_stop_no_other_file(tmp_path):
    odd = os.fsdecode(b"odd-\xff")

    async def scenario():
        async with watching(tmp_path) as folder:
            await nothing(folder)
            (tmp_path / odd).write_text("1")
            (tmp_path / "after").write_text("2")  # in the same read of events
            (tmp_path / f"{odd}.d").mkdir()
            (tmp_path / f"{odd}.d" / "inside").write_text("3")
            found = set()
            while len(found) < 3:
                found |= set(await names(folder))
            return found

    assert run(scenario) == {odd, "after", "inside"}


def test_a_thousand_nested_directories_stop_no_other_file(tmp_path, request):
    inner = os.open(tmp_path, os.O_RDONLY)
    request.addfinalizer(lambda: subprocess.run(["rm", "-rf", tmp_path / "d"], check=True))  # pytest itself can't delete it
    for _ in range(1100):
        os.mkdir("d", dir_fd=inner)
        deeper = os.open("d", os.O_RDONLY, dir_fd=inner)
        os.close(inner)
        inner = deeper
    os.close(inner)
    (tmp_path / "one").write_text("1")

    async def scenario():
        async with watching(tmp_path) as folder:
            found = await names(folder)
            assert folder.existing is None
            return found

    assert run(scenario) == ["one"]


def test_links_to_files_and_directories_and_files_with_two_names_are_not_returned(tmp_path):
    outside, folder_path = tmp_path / "outside", tmp_path / "in"
    outside.mkdir()
    folder_path.mkdir()
    (outside / "secret").write_text("1")
    (folder_path / "directory").symlink_to(outside)
    (folder_path / "file").symlink_to(outside / "secret")
    os.link(outside / "secret", folder_path / "hard")
    (folder_path / "own").write_text("2")

    async def scenario():
        async with watching(folder_path) as folder:
            return await names(folder)

    assert run(scenario) == ["own"]
