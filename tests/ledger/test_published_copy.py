"""The copy of the ledger for readers: it follows the ledger, and no reader can keep the ledger from being written."""

import os
import subprocess

import pytest
from ledger_entries import NOW, config, entry
from users import READERS, SERVICE, USERS, need_users, open_directory, python

from tokiod.config.sections import ArchiveConfig
from tokiod.errors import TokiodError
from tokiod.ledger.ledger import Ledger
from tokiod.ledger.published_copy import COPY_SECONDS, readable_ledger

LOCK = """
import fcntl, os, signal, struct, sys
fd = os.open(sys.argv[1], os.O_RDONLY)
fcntl.fcntl(fd, fcntl.F_SETLK, struct.pack("hhqqi4x", fcntl.F_RDLCK, 0, 120, 1, 0))
print("locked", flush=True)
signal.pause()
"""
"""Takes a read lock on the byte of the -shm file whose lock a transaction needs."""
STORED = """
import pathlib, sys
from tokiod.ledger.ledger import Ledger
with Ledger.open_readonly(pathlib.Path(sys.argv[1])) as ledger:
    print([tuple(pair) for pair in ledger.stored("lmt")])
"""


class Site:
    """An archive with an open ledger and its copy; `now` is the clock's time."""

    def __init__(self, directory):
        self.archive = ArchiveConfig(path=f"{directory}/tts/%Y-%m-%d/{{system}}.hdf5")
        self.archive.ledger_copy.parent.mkdir(mode=0o750, parents=True)
        self.ledger = Ledger.open(self.archive.ledger)
        self.ledger.register(config(), 0)
        self.now = 0.0
        self.copy = self.ledger.published_copy(self.archive.ledger_copy, lambda: self.now)

    def copied(self):
        with Ledger.open_readonly(self.archive.ledger_copy) as copy:
            return [tuple(pair) for pair in copy.stored("lmt")]


@pytest.fixture
def site(tmp_path):
    made = Site(tmp_path)
    with made.ledger:
        yield made


def test_it_follows_the_ledger_within_seconds_also_what_another_process_wrote(site):
    site.copy.refresh_if_due()
    assert site.copied() == []
    site.ledger.store([entry(0, 60)], NOW)
    site.copy.refresh_if_due()
    assert site.copied() == []
    site.now += COPY_SECONDS
    site.copy.refresh_if_due()
    assert site.copied() == [(0, 60)]
    with Ledger.open(site.archive.ledger) as other:
        other.store([entry(60, 120)], NOW)
    site.copy.refresh()
    assert site.copied() == [(0, 120)]


def test_it_is_not_written_again_while_nothing_changes(site):
    site.copy.refresh()
    inode = site.archive.ledger_copy.stat().st_ino
    site.copy.refresh()
    assert site.archive.ledger_copy.stat().st_ino == inode


def test_a_copy_that_fails_leaves_the_older_one(site):
    site.copy.refresh()
    site.ledger.store([entry(0, 60)], NOW)
    (site.archive.ledger_copy.parent / ".ledger.sqlite3.tmp").mkdir()
    with pytest.raises(OSError, match="directory"):
        site.copy.refresh()
    assert site.copied() == []
    (site.archive.ledger_copy.parent / ".ledger.sqlite3.tmp").rmdir()
    site.copy.refresh()
    assert site.copied() == [(0, 60)]


def test_a_reader_reads_the_copy_and_can_not_lock_the_ledger(monkeypatch):
    need_users()
    monkeypatch.setattr("tokiod.ledger.database.BUSY_SECONDS", 0.2)
    with open_directory() as directory:
        site = Site(directory)
        with site.ledger:
            site.ledger.store([entry(0, 60)], NOW)
            site.copy.refresh()
            os.chown(directory / "tts", 0, READERS)
            for path in (site.archive.ledger_copy, site.archive.ledger_copy.parent):
                os.chown(path, SERVICE, READERS)
            assert USERS["reader"].python(STORED, site.archive.ledger_copy).stdout == "[(0, 60)]\n"
            for path in (f"{site.archive.ledger}-shm", site.archive.ledger):
                attack = USERS["reader"].python(LOCK, path)
                assert (attack.returncode, "PermissionError" in attack.stderr) == (1, True)
            holder = subprocess.Popen(
                USERS["reader"].command(python(), "-c", LOCK, site.archive.ledger_copy), stdout=subprocess.PIPE, cwd="/"
            )
            with holder:
                try:
                    assert holder.stdout.readline() == b"locked\n"
                    site.ledger.store([entry(60, 120)], NOW)
                    site.copy.refresh()
                finally:
                    holder.kill()
            assert site.copied() == [(0, 120)]


def test_which_file_a_user_reads():
    need_users()
    code = """
import sys
from tokiod.config.sections import ArchiveConfig
from tokiod.ledger.published_copy import readable_ledger
print(readable_ledger(ArchiveConfig(path=sys.argv[1])))
"""
    with open_directory() as directory:
        archive = ArchiveConfig(path=f"{directory}/tts/%Y-%m-%d/{{system}}.hdf5")
        assert readable_ledger(archive) is None
        site = Site(directory)
        site.ledger.close()
        assert readable_ledger(archive) == archive.ledger
        denied = USERS["reader"].python(code, archive.path)
        assert f"no permission to read the archive {archive.root}" in denied.stderr
        with Ledger.open(archive.ledger) as ledger:
            ledger.published_copy(archive.ledger_copy, lambda: 0.0).refresh()
        for path in (archive.root, archive.ledger_copy.parent, archive.ledger_copy):
            os.chown(path, SERVICE, READERS)
        archive.root.chmod(0o750)
        archive.ledger_copy.chmod(0o640)
        assert USERS["reader"].python(code, archive.path).stdout == f"{archive.ledger_copy}\n"
        assert "no permission to read the archive" in USERS["outsider"].python(code, archive.path).stderr
        with pytest.raises(TokiodError, match="no ledger"):
            Ledger.open_readonly(archive.root / "missing")
