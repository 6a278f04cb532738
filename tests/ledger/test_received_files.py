import os
from pathlib import Path

import pytest

from tokiod.ledger.ledger import Ledger
from tokiod.ledger.received_files import FoundFile, Totals


@pytest.fixture
def ledger(tmp_path):
    with Ledger.open(tmp_path / "ledger.sqlite3") as ledger:
        yield ledger


def file(tmp_path, name, text="x"):
    (tmp_path / name).write_text(text)
    return FoundFile.at(tmp_path / name)


def test_a_file_is_known_as_long_as_it_looks_the_same(ledger, tmp_path):
    received, one = ledger.received_files("spool"), file(tmp_path, "one")
    assert not received.knows(one)
    received.record(one, "d1", "collected", "", 5.0)
    assert received.knows(one)
    os.utime(one.path, ns=(0, 1))
    assert not received.knows(FoundFile.at(one.path))


def test_a_content_is_known_under_any_name_and_by_its_source_alone(ledger, tmp_path):
    received = ledger.received_files("spool")
    received.record(file(tmp_path, "one"), "d1", "collected", "", 5.0)
    assert (received.outcome("d1"), received.outcome("d2"), ledger.received_files("other").outcome("d1")) == ("collected", None, None)


def test_a_content_that_was_rejected_and_then_collected_is_collected(ledger, tmp_path):
    received = ledger.received_files("spool")
    received.record(file(tmp_path, "one"), "d1", "rejected", "no such thing", 5.0)
    assert received.outcome("d1") == "rejected"
    received.record(file(tmp_path, "two"), "d1", "collected", "", 6.0)
    assert (received.outcome("d1"), received.totals()) == ("collected", Totals(1, 0))


def test_totals_count_contents(ledger, tmp_path):
    received = ledger.received_files("spool")
    assert received.totals() == Totals(0, 0)
    for name, digest, fate in (("a", "1", "collected"), ("b", "1", "collected"), ("c", "2", "collected"), ("d", "3", "rejected")):
        received.record(file(tmp_path, name), digest, fate, "", 5.0)
    assert received.totals() == Totals(2, 1)


def test_old_files_are_forgotten_once_they_are_deleted(ledger, tmp_path):
    received = ledger.received_files("spool")
    for name, digest, time in (("old", "1", 1.0), ("there", "2", 1.0), ("young", "3", 9.0)):
        received.record(file(tmp_path, name), digest, "collected", "", time)
    received.forget(5.0, [Path(tmp_path / "there")])
    assert [received.outcome(digest) for digest in "123"] == [None, "collected", "collected"]
