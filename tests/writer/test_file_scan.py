"""Files are opened once, a few between two windows, and seen to change."""

import os
from pathlib import Path

import pytest

from tokiod.testing.clock import FakeClock
from tokiod.tts.live.create import create
from tokiod.tts.sealed.seal import seal
from tokiod.tts.spec import FileSpec, GroupSpec, MatrixSpec
from tokiod.writer.file_scan import FILES_PER_TURN, FileScan

START = 1_541_376_000
SPEC = FileSpec(START, START + 3600, {"dataservers": GroupSpec(60, "lmt")}, {"dataservers/cpuload": MatrixSpec(("oss1",), counter=False)})


@pytest.fixture
def scan():
    return FileScan(lambda path, start: (path.stem, start), FakeClock(0))


@pytest.fixture
def paths(tmp_path):
    """Many files, the later the younger."""
    first = tmp_path / "0.hdf5"
    create(first, SPEC, created=START)
    made = [first]
    for number in range(1, 3 * FILES_PER_TURN):
        path = tmp_path / f"{number}.hdf5"
        path.write_bytes(first.read_bytes())
        os.utime(path, (START + number, START + number))
        made.append(path)
    os.utime(first, (START, START))
    return made


def begin(scan, paths, now):
    scan.begin(map(str, paths), now)


def test_between_two_windows_only_a_few_are_opened_the_youngest_first(scan, paths):
    begin(scan, paths, 1.0)
    assert list(scan.files()) == []
    assert [scan.open_some(1.0), set(scan.names)] == [False, set(map(str, paths[-FILES_PER_TURN:]))]
    assert [scan.open_some(1.0), scan.open_some(1.0), scan.open_some(1.0)] == [False, True, True]
    assert set(scan.names) == set(map(str, paths))
    assert all(one.is_live and one.changed_at == 1.0 for one in scan.files())
    assert [one.slot for one in scan.files()] == [(Path(name).stem, START) for name in scan.names]


def test_what_was_read_is_not_opened_again_and_is_seen_to_change(paths):
    opened, few = [], paths[:3]
    scan = FileScan(lambda path, _start: opened.append(path), FakeClock(0))
    begin(scan, few, 1.0)
    assert scan.open_some(1.0)
    os.utime(few[1], (START + 99, START + 99))
    begin(scan, few, 2.0)
    assert scan.open_some(2.0)
    changed_at = dict(zip(scan.names, (one.changed_at for one in scan.files()), strict=True))
    assert [changed_at[str(path)] for path in few] == [1.0, 2.0, 1.0]
    assert sorted(opened) == few


def test_another_file_under_the_name_is_read_and_one_that_is_gone_is_forgotten(scan, paths):
    one, two, three = paths[:3]
    begin(scan, [one, two, three], 1.0)
    scan.open_some(1.0)
    seal(one, one, START)
    two.unlink()
    three.unlink()
    three.write_text("no TTS file")
    begin(scan, [one, two, three], 2.0)
    assert scan.open_some(2.0)
    assert (list(scan.names), [found.is_live for found in scan.files()]) == ([str(one)], [False])


def test_another_file_with_the_inode_of_a_removed_one_is_read(scan, paths):
    """A file system may give the new file the same inode; here the file is overwritten, which keeps it on every file system."""
    begin(scan, paths[:1], 1.0)
    scan.open_some(1.0)
    paths[0].write_text("no TTS file")
    begin(scan, paths[:1], 2.0)
    assert scan.open_some(2.0)
    assert list(scan.files()) == []
