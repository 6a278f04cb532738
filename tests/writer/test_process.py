"""How the writer's process opens the archive."""

import sqlite3
from contextlib import closing
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from collectors import lmt, lustre
from tokiod.config.load import ArchiveConfig
from tokiod.ledger.ledger import Ledger
from tokiod.runtime.sd_notify import Notifier
from tokiod.supervisor.child_process import EXIT_NEEDS_OPERATOR
from tokiod.testing.clock import FakeClock
from tokiod.writer import process as writing

LMT = lmt.Config(name="l", kind="lmt", system="s", url="sqlite:///x")
LUSTRE = lustre.Config(name="m", kind="lustre", system="t", mounts=("/a",))


@pytest.mark.parametrize(("sources", "full"), [((LMT,), False), ((LMT, LUSTRE), True), ((), False)])
def test_what_can_not_be_had_again_has_every_transaction_of_the_ledger_synced(tmp_path, monkeypatch, sources, full):
    asked = []

    def opened(_path, _now, *, full):
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
    assert [log["event"] for log in logs] == ["ledger.failed"]
