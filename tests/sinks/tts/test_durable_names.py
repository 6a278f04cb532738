"""A rename is durable once its directory is synced: whatever fails in between, nothing acknowledged is lost, no good file quarantined."""

import errno
import os
import random
from contextlib import suppress

import archive_model as model
import pytest
from archive_model import NAMES
from faulty_archive import ROWS, FaultyArchive
from faulty_files import SimulatedKill

from tokiod.sink import QuarantinedFile

NEIGHBOURS = (model.EPOCH - model.DAY, model.EPOCH + 2 * model.DAY)
"""The span of a day's unsynced file: the neighbours' windows wrote to it, too."""

STAGES = {
    "created": lambda archive: archive.store(0, 8, NAMES[:2]),
    "grown": lambda archive: archive.store(8, 12),
    "stored": lambda archive: archive.store(12, 14),
    "sealed": lambda archive: archive.seal(),
    "reopened": lambda archive: archive.store(14, 17),
    "sealed again": lambda archive: archive.seal(),
    "reopened again": lambda archive: archive.store(17, 20),
}


def run_all(archive):
    for stage in STAGES.values():
        stage(archive)
    archive.sink.close()


def steps_of(directory):
    """Which file operations of all stages are to fail: of several of a kind in a row the first and the last."""
    return [step for step, _ in chances_of(directory)]


def chances_of(directory):
    """The same steps, and how many power losses to try after each: eight where a rename is done and its directory not synced, else one."""
    archive = FaultyArchive(directory)
    run_all(archive)
    done = ["", *archive.files.operations, ""]
    assert done.count("rename") == len(STAGES) - 1
    steps = [step for step in range(1, len(done) - 1) if not done[step - 1] == done[step] == done[step + 1]]
    return [(step, 8 if "rename" in done[max(1, step - 2) : step] and done[step] == "fsync_directory" else 1) for step in steps]


@pytest.mark.parametrize("part", range(4))
def test_whichever_operation_fails_nothing_acknowledged_is_lost_and_only_a_failed_sync_sets_a_file_aside(tmp_path_factory, part):
    for step in steps_of(tmp_path_factory.mktemp("count"))[part::4]:
        archive, chance = FaultyArchive(tmp_path_factory.mktemp("failing")), random.Random(step)
        archive.files.fail_at(step, errno.EIO)
        for stage in list(STAGES.values())[: chance.randint(1, len(STAGES))]:
            stage(archive)
        archive.check_all()
        if archive.files.operations[step - 1 : step] != ["fdatasync"]:
            assert archive.aside == [], step
        archive.files.power_loss(step)
        archive.check()


@pytest.mark.parametrize("part", range(4))
def test_wherever_a_process_is_killed_its_successor_acknowledges_only_what_a_power_loss_leaves(tmp_path_factory, part):
    for step, chances in chances_of(tmp_path_factory.mktemp("count"))[part::4]:
        for chance in range(chances):
            archive = FaultyArchive(tmp_path_factory.mktemp("killed"))
            archive.files.kill_at(step)
            with pytest.raises(SimulatedKill):
                run_all(archive)
            archive.restart()
            archive.store(*random.Random(step + chance).choice([(0, 8), (8, 14), (0, ROWS)]))
            archive.files.power_loss(step + chance)
            archive.check()


# ---- each outcome by itself


def grown(archive):
    archive.store(0, 8, NAMES[:2])
    return lambda: archive.attempt(8, 12)


def created(archive):
    return lambda: archive.attempt(0, 8)


def reopened(archive):
    archive.store(0, 8)
    archive.seal()
    return lambda: archive.attempt(8, 12)


def last_sync(files, begun):
    """Which fsync_directory, counted from `begun`, follows the last rename."""
    done = files.operations[begun:]
    last = len(done) - 1 - done[::-1].index("rename")
    return done[: last + 2].count("fsync_directory")


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("change", [created, grown, reopened])
def test_while_a_new_name_can_not_be_synced_its_window_is_not_acknowledged_and_the_file_stays(tmp_path_factory, change, seed):
    rehearsal = FaultyArchive(tmp_path_factory.mktemp("rehearsal"))
    attempt = change(rehearsal)
    begun = len(rehearsal.files.operations)
    assert attempt()
    nth = last_sync(rehearsal.files, begun)

    archive = FaultyArchive(tmp_path_factory.mktemp("archive"))
    attempt = change(archive)
    for late in range(3):
        archive.files.fail("fsync_directory", nth + late, errno.EIO)
    assert not attempt()
    (one,) = archive.failed
    assert (one.system, (one.window.start, one.window.end), one.path) == ("fs", NEIGHBOURS, str(archive.path))
    assert one.reason == f"[Errno 5] the directory can't be synced: Input/output error: '{archive.path.parent}'"
    archive.store(0, ROWS)
    assert archive.aside == []
    archive.check_all()
    archive.files.power_loss(seed)
    archive.check()


@pytest.mark.parametrize("seed", range(4))
def test_a_day_whose_sealed_name_can_not_be_synced_is_sealed_and_may_be_live_again_after_a_power_loss(tmp_path, seed):
    archive = FaultyArchive(tmp_path)
    archive.store(0, ROWS)
    archive.files.fail("fsync_directory", 1, errno.EIO)
    archive.seal()
    assert archive.form == "sealed"
    assert (archive.aside, archive.failed, archive.files.operations.count("rename")) == ([], [], 2)
    if seed % 2:
        archive.store(0, 4)
        assert (archive.aside, archive.failed) == ([], [])
    archive.files.power_loss(seed)
    archive.check_all()


@pytest.mark.parametrize("failing", ["fsync_directory", "rename"])
def test_a_salvaged_copy_is_never_set_aside_by_what_failed_with_the_file_that_it_replaced(tmp_path, failing):
    archive = FaultyArchive(tmp_path)
    for row in range(10):
        archive.store(row, row + 1)
    archive.files.fail("fdatasync", 1, errno.EIO)
    archive.files.fail(failing, 1, errno.EIO)
    assert not archive.attempt(10, 11)
    assert [(type(one), one.path, one.salvaged) for one in archive.failed] == [(QuarantinedFile, str(archive.path), True)]
    archive.store(10, 11)
    assert len(archive.failed) == 1
    assert archive.aside == ["fs.hdf5.aside-20180129T000000Z"]
    archive.check_all()


def test_without_hard_links_a_file_is_renamed_before_its_copy_takes_its_place(tmp_path):
    archive = FaultyArchive(tmp_path)
    archive.store(0, 8)
    archive.files.fail("fdatasync", 1, errno.EIO)
    archive.files.fail("link", 1, errno.EPERM)
    assert not archive.attempt(8, 12)
    assert [(one.aside, one.salvaged) for one in archive.failed] == [(f"{archive.path}.aside-20180129T000000Z", True)]
    assert archive.aside == ["fs.hdf5.aside-20180129T000000Z"]
    archive.store(8, 12)
    archive.check_all()


def test_a_file_that_gets_no_other_name_is_replaced_by_its_copy(tmp_path):
    archive = FaultyArchive(tmp_path)
    archive.store(0, 8)
    archive.files.fail("fdatasync", 1, errno.EIO)
    archive.files.fail("link", 1, errno.EPERM)
    archive.files.fail("rename", 1, errno.EIO)
    assert not archive.attempt(8, 12)
    assert [(one.aside, one.salvaged) for one in archive.failed] == [("", True)]
    archive.store(8, 12)
    archive.check_all()


@pytest.mark.parametrize("power", [False, True])
def test_wherever_a_process_is_killed_while_it_quarantines_a_file_nothing_acknowledged_is_missing(tmp_path_factory, power):
    step = 0
    while True:
        step += 1
        archive = FaultyArchive(tmp_path_factory.mktemp("killed"))
        archive.store(0, 8)
        archive.files.fail("fdatasync", 1, errno.EIO)
        begun = len(archive.files.operations)
        archive.files.kill_at(step)
        with suppress(SimulatedKill):
            archive.attempt(8, 12)
        if len(archive.files.operations) < begun + step:
            break
        archive.restart()
        archive.check()
        archive.store(8, 12)
        if power:
            archive.files.power_loss(step)
            archive.check()
        else:
            archive.check_all()
    assert step > 12


@pytest.mark.parametrize("part", range(2))
def test_whatever_fails_while_a_file_is_quarantined_the_windows_that_are_reported_as_stored_are(tmp_path_factory, part):
    step = part
    while True:
        step += 2
        archive = FaultyArchive(tmp_path_factory.mktemp("quarantined"))
        archive.store(0, 8)
        archive.files.fail("fdatasync", 1, errno.EIO)
        begun = len(archive.files.operations)
        archive.files.fail_at(step, errno.EIO)
        archive.attempt(8, 12)
        if len(archive.files.operations) < begun + step:
            break
        if any(isinstance(one, QuarantinedFile) and not one.salvaged for one in archive.failed):
            archive.acknowledged = {name: {} for name in NAMES}
            archive.store(0, 8)
        archive.store(8, 12)
        archive.check_all()
        archive.files.power_loss(step)
        archive.check()
    assert step > 12


def test_a_server_that_does_not_answer_proves_nothing_against_a_file(tmp_path):
    archive = FaultyArchive(tmp_path)
    archive.store(0, 8)
    for operation in ("stat", "fstat"):
        for nth in (1, 2):
            archive.files.fail(operation, nth, errno.ESTALE)
            assert not archive.attempt(8, 12)
            archive.failed.clear()
            archive.store(8, 12)
    assert (archive.failed, archive.aside) == ([], [])
    archive.check_all()


def test_a_second_link_to_a_live_file_is_harmless(tmp_path):
    archive = FaultyArchive(tmp_path / "archive")
    archive.store(0, 8)
    os.link(archive.path, tmp_path / "backup")
    archive.store(8, 12)
    (tmp_path / "backup").unlink()
    archive.store(12, 16)
    assert (archive.failed, archive.aside) == ([], [])


def test_a_directory_that_a_killed_process_made_is_synced_before_a_file_is_created_in_it(tmp_path):
    archive = FaultyArchive(tmp_path)
    archive.path.parent.mkdir()
    archive.store(0, 8)
    done = archive.files.operations
    assert done[: done.index("rename")].count("fsync_directory") == 1
