"""How an older copy of a ledger is told from the ledger."""

import shutil

import pytest

from tokiod.ledger.generation import EVERY, Stamp
from tokiod.ledger.ledger import Ledger, StoredEntry
from tokiod.window import Window


@pytest.fixture
def ledger(tmp_path):
    with Ledger.open(tmp_path / "ledger.sqlite3") as ledger:
        yield ledger


def store(ledger, now):
    ledger.store([StoredEntry("s", "k", "y", Window(0, 60), 1)], now)


def test_a_ledger_that_knows_no_source_was_lost_or_never_was(ledger):
    stamp = Stamp(ledger)
    assert stamp.doubt() == "lost"
    stamp.advance(0.0)
    assert stamp.doubt() == "lost"
    store(ledger, 0.0)
    assert stamp.doubt() == ""


def test_copies_from_before_the_last_two_numbers_are_found_whatever_happened_since(ledger, tmp_path):
    stamp = ledger.stamp = Stamp(ledger)
    copies = {}
    for number in range(6):
        store(ledger, number * EVERY)
        copies[number] = tmp_path / f"copy-{number}"
        ledger.sql.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        shutil.copy(ledger.path, copies[number])
    beside = stamp.path.read_text()
    for number, copy in copies.items():
        place = tmp_path / str(number) / ledger.path.name
        place.parent.mkdir()
        shutil.copy(copy, place)
        place.with_suffix(".stamp").write_text(beside)
        with Ledger.open(place) as old:
            assert Stamp(old).doubt() == ("older than the files" if number < 4 else "")


def test_the_number_goes_on_while_something_is_stored_and_not_with_every_window(ledger):
    stamp = ledger.stamp = Stamp(ledger)
    for now in (0.0, 1.0, EVERY - 1):
        store(ledger, now)
    assert stamp.path.read_text() == "0"
    store(ledger, EVERY)
    assert stamp.path.read_text() == "1"
    store(ledger, EVERY - 3600)
    assert stamp.path.read_text() == "2"


def test_a_stamp_that_can_not_be_written_stops_no_storing(ledger):
    ledger.stamp = Stamp(ledger)
    ledger.stamp.path.mkdir()
    store(ledger, 0.0)
    assert list(ledger.stored("s")) == [(0, 60)]


@pytest.mark.parametrize("text", ["", "nonsense", "\0"])
def test_a_stamp_that_is_torn_says_nothing(ledger, text):
    store(ledger, 0.0)
    stamp = Stamp(ledger)
    stamp.path.write_text(text)
    assert stamp.doubt() == ""
