"""How the writer's process opens the archive."""

import errno
import os
import re
import sqlite3
import subprocess
from contextlib import closing, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec import structs
from structlog.testing import capture_logs

from collectors import lmt, lustre
from tokiod.archive.seal_marker import is_marked, mark
from tokiod.config.load import load
from tokiod.config.sections import ArchiveConfig
from tokiod.errors import ConfigError, TokiodError
from tokiod.ledger.ledger import Ledger, StoredEntry
from tokiod.runtime.sd_notify import Notifier
from tokiod.runtime.service import Service
from tokiod.supervisor.child_process import EXIT_NEEDS_OPERATOR
from tokiod.testing.clock import FakeClock
from tokiod.tts.live.create import create
from tokiod.tts.live.files import Files
from tokiod.tts.sealed.seal import sealed_spec
from tokiod.tts.spec import FileSpec, GroupSpec, MatrixSpec
from tokiod.window import Calendar, Window
from tokiod.window_data import WindowMeta
from tokiod.writer import process as writing

DAY = 86400
NOON = 1_517_126_400 + 12 * 3600
LMT = lmt.Config(name="l", kind="lmt", system="s", url="sqlite:///x")
LUSTRE = lustre.Config(name="m", kind="lustre", system="t", mounts=("/a",))


def stopped(config):
    """A service that is to stop before its first turn."""
    service = Service(lambda: config)
    service.request_stop()
    return service


@pytest.mark.parametrize(("sources", "full"), [((LMT,), False), ((LMT, LUSTRE), True), ((), False)])
def test_what_can_not_be_had_again_has_every_transaction_of_the_ledger_synced(tmp_path, monkeypatch, sources, full):
    asked = []

    def opened(_path, _now, *, full, **_host):
        asked.append(full)
        raise InterruptedError

    monkeypatch.setattr(Ledger, "open_or_quarantine", opened)
    archive = ArchiveConfig(path=f"{tmp_path}/tts/%Y-%m-%d/{{system}}.hdf5")
    config = SimpleNamespace(archive=archive, source=sources, run=tmp_path, stages=tmp_path)
    with pytest.raises(InterruptedError):
        writing.run(stopped(config), SimpleNamespace(time=lambda: 0.0))
    assert asked == [full]


def test_a_writer_whose_ledger_is_out_of_reach_ends_as_one_that_is_to_be_started_again(tmp_path, monkeypatch):
    monkeypatch.setattr("tokiod.ledger.database.BUSY_SECONDS", 0.1)
    archive = ArchiveConfig(path=f"{tmp_path}/tts/%Y-%m-%d/{{system}}.hdf5")
    Ledger.open(archive.ledger).close()
    with closing(sqlite3.connect(archive.ledger, isolation_level=None)) as holder:
        holder.execute("PRAGMA locking_mode = EXCLUSIVE")
        holder.execute("BEGIN EXCLUSIVE")
        with capture_logs() as logs, pytest.raises(SystemExit) as ended:
            writing.run(stopped(SimpleNamespace(archive=archive, source=(), run=tmp_path, stages=tmp_path)), FakeClock(0))
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


def configuration(directory, archive, run):
    """A site without sources. archive, run: the directories of the files, and of the bus."""
    (directory / "run").mkdir()
    endpoints = f'[bus]\nendpoint = "ipc://{run}/bus"\n[feed]\nendpoint = "ipc://{directory}/run/feed"\n'
    path = directory / "tokiod.toml"
    path.write_text(f'timezone = "UTC"\nsite.names = {{ fs = "one" }}\n[archive]\npath = "{archive}/%Y-%m-%d/{{system}}.hdf5"\n{endpoints}')
    return load(path)


def test_a_writer_on_a_disk_without_inodes_names_them_and_is_started_again_until_there_are(tmp_path, disk):
    place, free = disk
    config = configuration(tmp_path, place, tmp_path / "run" / "private")
    reasons = []
    for _ in range(20):
        with capture_logs() as logs, suppress(SystemExit):
            writing.run(stopped(config), FakeClock(NOON))
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


def test_a_directory_of_the_bus_that_can_not_be_made_is_named(tmp_path, disk):
    place, _ = disk
    config = configuration(tmp_path, tmp_path / "archive", place / "private")
    with capture_logs() as logs, pytest.raises(SystemExit) as ended:
        writing.run(stopped(config), FakeClock(NOON))
    assert ended.value.code == writing.RESTART_EXIT_CODE
    assert logs[-1]["error"].startswith("the directory of the bus can't be made: No space left on device")


def test_a_directory_of_the_bus_without_a_parent_needs_an_operator(tmp_path):
    config = configuration(tmp_path, tmp_path / "archive", tmp_path / "missing" / "private")
    with pytest.raises(TokiodError, match=r"private can't be made: No such file or directory; its parent must exist and be writable"):
        writing.run(stopped(config), FakeClock(NOON))


class Denied(Files):
    """A disk with one file that this user may read and not write."""

    def __init__(self, denied):
        self.denied = denied

    def open(self, path, flags=os.O_RDWR):
        if path == self.denied and flags & os.O_RDWR:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return super().open(path, flags)


def test_a_day_that_is_sealed_at_the_stop_is_a_change_and_one_that_can_not_be_sealed_is_none(tmp_path):
    config = configuration(tmp_path, tmp_path / "archive", tmp_path / "run" / "private")
    days = [Calendar("UTC").day(NOON - number * DAY) for number in (3, 1)]
    paths = [config.archive.file(day, "fs") for day in days]
    for day, path in zip(days, paths, strict=True):
        path.parent.mkdir(parents=True)
        spec = FileSpec(
            day.start, day.end, {"dataservers": GroupSpec(3600, "x")}, {"dataservers/cpuload": MatrixSpec(("a",), counter=False)}
        )
        create(path, spec, created=0)
        mark(path)
    with writing.WriterProcess(stopped(config), FakeClock(NOON), writing.Host(files=Denied(paths[0]))) as writer:
        writer.serve()
    assert [(sealed_spec(path) is not None, is_marked(path)) for path in paths] == [(False, True), (True, False)]
    with Ledger.open(config.archive.ledger) as ledger:
        changes = [(one.system, one.window.start, one.kind) for one in ledger.changes.after(0, 10)]
        assert sorted(changes[:2]) == [("fs", day.start, "rows") for day in days]
        assert changes[2:] == [("fs", days[1].start, "sealed")]


class Turns(Notifier):
    """Has the writer stop after its first turn."""

    service: Service = None

    def alive(self, _status=""):
        self.service.request_stop()


@pytest.mark.parametrize("is_valid", [True, False])
def test_a_reload_with_errors_changes_nothing(tmp_path, is_valid):
    config = configuration(tmp_path, tmp_path / "archive", tmp_path / "run" / "private")
    answers = iter([config, config] if is_valid else [config])

    def read():
        for answer in answers:
            return answer
        raise ConfigError(["tokiod.toml:1: nonsense: unknown key"])

    notifier = Turns()
    notifier.service = service = Service(read, notifier)
    service.request_reload()
    with capture_logs() as logs:
        writing.run(service, FakeClock(NOON))
    refused = [log["faults"] for log in logs if log["event"] == "config.refused"]
    assert refused == ([] if is_valid else [["tokiod.toml:1: nonsense: unknown key"]])
    assert (logs[-1]["event"], next(answers, None)) == ("writer.stopped", None)


def test_a_copy_of_the_ledger_that_can_not_be_written_is_reported_and_stops_nothing(tmp_path):
    config = configuration(tmp_path, tmp_path / "archive", tmp_path / "run" / "private")
    config.archive.ledger_copy.mkdir(parents=True)
    with capture_logs() as logs:
        writing.run(stopped(config), FakeClock(NOON))
    reported = [log for log in logs if log["event"] == "ledger.not_published"]
    assert [log["path"] for log in reported] == [str(config.archive.ledger_copy)]
    assert "Is a directory" in reported[0]["error"]
    assert logs[-1]["event"] == "writer.stopped"


def test_a_writer_announces_the_topics_of_what_is_stored_before_it_publishes_any(tmp_path):
    """A predecessor may have been killed after it changed cells in a file, and before it published them."""
    config = configuration(tmp_path, tmp_path / "archive", tmp_path / "run" / "private")
    others = (structs.replace(LMT, name="behind"), structs.replace(LMT, name="new", system="t"))
    config = structs.replace(config, source=(LMT, *others))
    with Ledger.open(config.archive.ledger) as ledger:
        for name, hours in (("l", 2), ("behind", 1)):
            ledger.store([StoredEntry(WindowMeta(name, "lmt", "s", Window(NOON, NOON + hours * 3600)), 1)], NOON)
    with writing.WriterProcess(stopped(config), FakeClock(NOON + DAY)) as writer:
        found = {dataset: writer._feed.last("s", dataset) for dataset in LMT.datasets()}
        assert {(one.sequence, one.watermark) for one in found.values()} == {(1, NOON + 3600)}
        assert {writer._feed.last("t", dataset) for dataset in LMT.datasets()} == {None}
