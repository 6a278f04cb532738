"""How the writer's process opens the archive."""

from types import SimpleNamespace

import pytest

from collectors import lmt, lustre
from tokiod import writing
from tokiod.ledger import Ledger
from tokiod.notify import Notifier

LMT = lmt.Config(name="l", kind="lmt", system="s", url="sqlite:///x")
LUSTRE = lustre.Config(name="m", kind="lustre", system="t", mounts=("/a",))


@pytest.mark.parametrize(("sources", "full"), [((LMT,), False), ((LMT, LUSTRE), True), ((), False)])
def test_what_can_not_be_had_again_has_every_transaction_of_the_ledger_synced(tmp_path, monkeypatch, sources, full):
    asked = []

    def opened(_path, _now, *, full):
        asked.append(full)
        raise InterruptedError

    monkeypatch.setattr(Ledger, "open_or_set_aside", opened)
    archive = SimpleNamespace(lock=tmp_path / "lock", root=tmp_path, ledger=tmp_path / "ledger")
    config = SimpleNamespace(archive=archive, source=sources)
    with pytest.raises(InterruptedError):
        writing.run(lambda: config, SimpleNamespace(time=lambda: 0.0), Notifier(), lambda: True, lambda: False)
    assert asked == [full]
