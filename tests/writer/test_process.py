"""How the writer's process opens the archive."""

import os
import re
import sqlite3
import subprocess
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from collectors import lmt, lustre
from tokiod.config.load import ArchiveConfig, load
from tokiod.ledger.ledger import Ledger
from tokiod.runtime.sd_notify import Notifier
from tokiod.supervisor.child_process import EXIT_NEEDS_OPERATOR
from tokiod.testing.clock import FakeClock
from tokiod.writer import process as writing

NOON = 1_517_126_400 + 12 * 3600
LMT = lmt.Config(name="l", kind="lmt", system="s", url="sqlite:///x")
LUSTRE = lustre.Config(name="m", kind="lustre", system="t", mounts=("/a",))


@pytest.mark.parametrize(("sources", "full"), [((LMT,), False), ((LMT, LUSTRE), True), ((), False)])
def test_what_can_not_be_had_again_has_every_transaction_of_the_ledger_synced(tmp_path, monkeypatch, sources, full):
    asked = []

    def opened(_path, _now, *, full, **_host):
        asked.append(full)
        raise InterruptedError

    monkeypatch.setattr(Ledger, "open_or_quarantine", opened)
    archive = ArchiveConfig(path=f"{tmp_path}/tts/%Y-%m-%d/{{system}}.hdf5")
    config = SimpleNamespace(archive=archive, source=sources, run=tmp_path)
    with pytest.raises(InterruptedError):
        writing.run(lambda: config, SimpleNamespace(time=lambda: 0.0), Notifier(), lambda: True, lambda: False)
    assert asked == [full]


def test_a_writer_whose_ledger_is_out_of_reach_ends_as_one_that_is_to_be_started_again(tmp_path, monkeypatch):
    monkeypatch.setattr("tokiod.ledger.database.BUSY_SECONDS", 0.1)
    archive = ArchiveConfig(path=f"{tmp_path}/tts/%Y-%m-%d/{{system}}.hdf5")
    Ledger.open(archive.ledger).close()
    with closing(sqlite3.connect(archive.ledger, isolation_level=None)) as holder:
        holder.execute("PRAGMA locking_mode = EXCLUSIVE")
        holder.execute("BEGIN EXCLUSIVE")
        with capture_logs() as logs, pytest.raises(SystemExit) as ended:
            writing.run(
                lambda: SimpleNamespace(archive=archive, source=(), run=tmp_path), FakeClock(0), Notifier(), lambda: True, lambda: False
            )
    assert ended.value.code == writing.RESTART_EXIT_CODE != EXIT_NEEDS_OPERATOR
    assert [log["event"] for log in logs] == ["writer.failed"]


@pytest.fixture
def disk(tmp_path):
    """A file system without a free inode, and what frees so many."""
    place = tmp_path / "tts"
    place.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m,nr_inodes=20", "tmpfs", place], check=False).returncode:
        pytest.skip("a small disk can't be mounted here")
    junk = []
    with suppress(OSError):
        for number in range(20):
            (place / f"junk-{number}").touch()
            junk.append(place / f"junk-{number}")

    def free(inodes):
        for path in junk[:inodes]:
            path.unlink()
        del junk[:inodes]

    yield place, free
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_writer_on_a_disk_without_inodes_names_them_and_is_started_again_until_there_are(tmp_path, disk):
    place, free = disk
    (tmp_path / "run").mkdir()
    endpoints = f'[bus]\nendpoint = "ipc://{tmp_path}/run/private/bus"\n[feed]\nendpoint = "ipc://{tmp_path}/run/feed"\n'
    (tmp_path / "tokiod.toml").write_text(f'timezone = "UTC"\n[archive]\npath = "{place}/%Y-%m-%d/{{system}}.hdf5"\n{endpoints}')
    config = load(tmp_path / "tokiod.toml")
    reasons = []
    for _ in range(20):
        with capture_logs() as logs, suppress(SystemExit):
            writing.run(lambda: config, FakeClock(NOON), Notifier(), lambda: True, lambda: False)
        if logs[-1]["event"] == "writer.stopped":
            break
        reasons.append(logs[-1])
        free(1)
    assert "writer.ready" in {log["event"] for log in logs}
    assert {(log["event"], log["log_level"], log["reason"]) for log in reasons} == {("writer.failed", "error", "it is started again")}
    remedy = r"No space left on device: (/\S+); no inode is free on its file system: remove files, or enlarge it"
    found = [re.fullmatch(rf"(can't lock the archive|the ledger can't be opened): {remedy}", log["error"]) for log in reasons]
    assert all(found), reasons
    assert list(dict.fromkeys(Path(match[2]).name for match in found)) == ["lock", "ledger.sqlite3"]
