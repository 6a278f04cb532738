"""The files that the ledger knows: which of them are missing, after a restart and in an archive that was moved, too."""

import pytest

from tokiod.ledger.known_files import KnownFile
from tokiod.ledger.ledger import Ledger
from tokiod.window import Window


def always(_system):
    return 0


@pytest.fixture
def ledger(tmp_path):
    with Ledger.open(tmp_path / "ledger") as one:
        yield one


def test_missing_files_are_those_that_are_not_there_oldest_first(ledger, tmp_path):
    files = [KnownFile(tmp_path / f"day-{n}" / "fs.hdf5", "fs", Window(n * 86400, (n + 1) * 86400)) for n in (2, 0, 1, 3)]
    known = ledger.known_files(tmp_path)
    known.add(files)
    files[0].path.parent.mkdir()
    files[0].path.touch()
    assert known.missing(always) == [files[1], files[2], files[3]]
    assert known.missing(always, {str(files[2].path)}) == [files[1], files[3]]
    known.remove(files[3])
    assert ledger.known_files(tmp_path).missing(always) == [files[1], files[2]]
    assert [known.at(one.path) for one in files] == [*files[:3], None]
    assert [one.path in known for one in files] == [True, True, True, False]
    assert [one.path for one in ledger.known_files(tmp_path / "moved").missing(always)] == [
        tmp_path / "moved" / f"day-{n}" / "fs.hdf5" for n in (0, 1, 2)
    ]


def test_a_file_of_a_time_that_no_source_holds_any_more_stays_known_and_is_not_missing(ledger, tmp_path):
    files = [KnownFile(tmp_path / f"{name}-{n}", name, Window(n * 86400, (n + 1) * 86400)) for name in ("fs", "gpfs") for n in (0, 1)]
    known = ledger.known_files(tmp_path)
    known.add(files)
    assert known.missing({"fs": 86400.0, "gpfs": 86399.0}.__getitem__) == [files[2], files[1], files[3]]
    assert known.missing(always) == [files[0], files[2], files[1], files[3]]
